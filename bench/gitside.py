"""The git layer, in this process: merging leaves, and making worktrees while others do the same."""

import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from bench import floors
from bench.measuring import Bar, Figures, Measure, Point, Scaling
from bench.place import Bench, Broken, git, started
from bench.repositories import LARGE, MEDIUM, QUICK, SMALL, Shape, copy_repository, make_repository
from orchard.errors import OrchardError
from orchard.git.integration import Conflicted, Integration, LeafMerge
from orchard.git.refs import wip_ref
from orchard.git.repository import Worktree, find_repository
from orchard.git.wip import ensure_saved
from orchard.git.worktrees import Worktrees

MILLISECONDS = 1000.0
PARALLEL = 8


def merge(bench: Bench) -> Measure:
    """One-file leaves into a plan's snapshot, in a small and in a larger repository."""
    leaves = bench.size(100, 5)
    shapes = (QUICK,) if bench.quick else (SMALL, MEDIUM)
    templates = {shape: make_repository(bench, shape, leaves) for shape in shapes}

    def floor() -> Figures:
        return {
            f"floor-{shape.files}": MILLISECONDS * floors.merges(template, _new_ref(), leaves) / leaves
            for shape, template in templates.items()
        }

    def ours() -> Figures:
        return {
            f"ours-{shape.files}": MILLISECONDS * merge_leaves(template, leaves) / leaves
            for shape, template in templates.items()
        }

    bars = [
        Bar(f"{leaves} leaves, {shape.shown}, per merge: 3 processes", f"ours-{shape.files}", f"floor-{shape.files}",
            most=1.0, unit="ms")
        for shape in shapes
    ]  # fmt: skip
    points = tuple(Point(shape.shown, f"ours-{shape.files}") for shape in shapes)
    return Measure((floor, ours), tuple(bars), (Scaling("merge of one leaf", points),))


def _new_ref() -> str:
    return f"refs/floor/merged-{secrets.token_hex(4)}"


def merge_leaves(path: Path, leaves: int) -> float:
    """Seconds to bring all leaves into the two lines of a new plan, processes started and ended included."""
    repo = find_repository(path)
    start = repo.resolve("main")[1]
    commits = [repo.resolve(f"leaf/{number}")[1] for number in range(leaves)]
    plan = f"bench-{secrets.token_hex(4)}"
    begin = time.perf_counter()
    with Integration(repo) as integration:
        integration.start(plan, start)
        lines = (start, start)
        for number, commit in enumerate(commits):
            leaf = LeafMerge(plan, f"leaf{number}", commit, *lines, title=f"leaf {number}", when=1767225600 + number)
            prepared = integration.prepare(leaf)
            if isinstance(prepared, Conflicted):
                raise Broken(f"leaf {number} does not merge")
            integration.publish(plan, prepared)
            lines = (prepared.integration, prepared.snapshot)
    return time.perf_counter() - begin


# ------------------------------------------------------------------------------------ worktrees


@dataclass
class WatchedWorktrees(Worktrees):
    """Worktrees that note for how long they held the repository's lock."""

    held: list[float] = field(default_factory=list)

    @contextmanager
    def lock(self) -> Iterator[None]:
        with super().lock():
            begin = time.perf_counter()
            try:
                yield
            finally:
                self.held.append(time.perf_counter() - begin)


def lock(bench: Bench) -> Measure:
    """How long the lock is held per worktree made, whatever the size; and that nothing fails under load."""
    shapes = (QUICK,) if bench.quick else (SMALL, MEDIUM, LARGE)
    templates = {shape: make_repository(bench, shape) for shape in shapes}
    crowd = bench.size(350, 8)

    def floor() -> Figures:
        return {f"floor-{shape.files}": MILLISECONDS * bare_add(template) for shape, template in templates.items()}

    def ours() -> Figures:
        return {
            f"held-{shape.files}": MILLISECONDS * lock_held(template, shape) for shape, template in templates.items()
        }

    def crowded() -> Figures:
        return make_and_remove(copy_repository(bench, templates[shapes[0]]), crowd)

    bars = [
        Bar(f"lock held per worktree, {shape.shown}", f"held-{shape.files}", most=15, unit="ms",
            beside=f"floor-{shape.files}")
        for shape in shapes
    ]  # fmt: skip
    failures = Bar(f"{crowd} worktrees a round made at {PARALLEL}, failures", "failures", most=0, unit="", take=sum)
    points = tuple(Point(shape.shown, f"held-{shape.files}") for shape in shapes)
    lines = (
        Scaling("lock held per worktree made", points),
        Scaling(f"worktree made, saved and removed at {PARALLEL}", (Point(f"{crowd:,}", "each"),)),
    )
    return Measure((floor, ours, crowded), (*bars, failures), lines)


def bare_add(path: Path) -> float:
    """Seconds of git's own part: a worktree without files."""
    folder = path / ".worktrees" / secrets.token_hex(4)
    begin = time.perf_counter()
    git(path, "worktree", "add", "-q", "--no-checkout", "--detach", str(folder), "main")
    taken = time.perf_counter() - begin
    git(path, "worktree", "remove", "--force", str(folder))
    return taken


def lock_held(path: Path, shape: Shape) -> float:
    """Seconds of lock for one worktree, from its making to its end: the median of some."""
    repo = find_repository(path)
    trees = WatchedWorktrees(repo, repo.worktree_root(".worktrees"))
    commit = repo.resolve("main")[1]
    times = []
    for _ in range(1 if shape is LARGE else 3):
        trees.held.clear()
        one = trees.add(commit, "bench", parallel=True)
        times.append(sum(trees.held))
        remove(trees, one, commit)
    trees.empty_trash()
    return median(times)


def remove(trees: Worktrees, worktree: Worktree, commit: str) -> None:
    """Save and remove a worktree as the engine does."""
    ref = wip_ref("bench", worktree.name, 1)
    trees.remove(worktree, ensure_saved(trees.repo, worktree, ref, "bench", commit))


def make_and_remove(path: Path, count: int) -> Figures:
    """Make and remove worktrees from many threads, while `git worktree prune` runs again and again beside them."""
    repo = find_repository(path)
    trees = Worktrees(repo, repo.worktree_root(".worktrees"))
    commit = repo.resolve("main")[1]
    failures: list[OrchardError] = []
    stop = threading.Event()

    def one(_: int) -> None:
        try:
            remove(trees, trees.add(commit, "bench"), commit)
        except OrchardError as error:
            failures.append(error)
            print(f"failed: {error.message}", file=sys.stderr)

    def prune() -> None:
        while not stop.is_set():
            with started(["git", "worktree", "prune"], path, subprocess.DEVNULL) as process:
                process.wait(60)

    pruning = threading.Thread(target=prune)
    pruning.start()
    begin = time.perf_counter()
    try:
        with ThreadPoolExecutor(PARALLEL) as threads:
            list(threads.map(one, range(count)))
        taken = time.perf_counter() - begin
    finally:
        stop.set()
        pruning.join()
    trees.empty_trash()
    left = [row for row in git(path, "worktree", "list", "--porcelain").splitlines() if row.startswith("worktree ")]
    return {"failures": float(len(failures) + len(left) - 1), "each": MILLISECONDS * taken / count}
