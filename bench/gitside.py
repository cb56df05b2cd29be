"""The git layer, in this process: merging leaves, and making worktrees while others do the same."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from bench.repositories import LARGE, MEDIUM, QUICK, SMALL, copy_repository, make_repository
from orchard.bench import floors
from orchard.bench.parts import MILLISECONDS, add_and_remove, bare_add_and_remove, merge_leaves, new_ref, remove
from orchard.bench.place import Bench, git
from orchard.bench.rounds import Bar, Figures, Measure, Point, Scaling
from orchard.errors import OrchardError
from orchard.git.repository import find_repository
from orchard.git.worktree.worktrees import Worktrees
from orchard.process.stopwatch import Broken, started

PARALLEL = 8


def merge(bench: Bench) -> Measure:
    """One-file leaves into a plan's snapshot, in a small and in a larger repository."""
    leaves = bench.size(100, 5)
    shapes = (QUICK,) if bench.quick else (SMALL, MEDIUM)
    templates = {shape: make_repository(bench, shape, leaves) for shape in shapes}

    def floor() -> Figures:
        return {
            f"floor-{shape.files}": MILLISECONDS * floors.merges(template, new_ref(), leaves) / leaves
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


# ------------------------------------------------------------------------------------ worktrees


def lock(bench: Bench) -> Measure:
    """How long the lock is held per worktree made, whatever the size; and that nothing fails under load."""
    shapes = (QUICK,) if bench.quick else (SMALL, MEDIUM, LARGE)
    templates = {shape: make_repository(bench, shape) for shape in shapes}
    crowd = bench.size(1000, 8)
    once = {shape: 1 if shape is LARGE else 3 for shape in shapes}

    def floor() -> Figures:
        adds = {one: bare_add_and_remove(path, once[one], "--no-checkout")[1] for one, path in templates.items()}
        return {f"floor-{shape.files}": MILLISECONDS * taken for shape, taken in adds.items()}

    def ours() -> Figures:
        held = {shape: add_and_remove(path, once[shape])[1] for shape, path in templates.items()}
        return {f"held-{shape.files}": MILLISECONDS * taken for shape, taken in held.items()}

    def crowded() -> Figures:
        return make_and_remove(copy_repository(bench, templates[shapes[0]]), crowd)

    def bare_crowded() -> Figures:
        return {"bare-failures": bare_failures(copy_repository(bench, templates[shapes[0]]), crowd)}

    bars = [
        Bar(f"lock held per worktree, {shape.shown}", f"held-{shape.files}", most=15, unit="ms",
            beside=f"floor-{shape.files}")
        for shape in shapes
    ]  # fmt: skip
    failures = Bar(
        f"{crowd:,} worktrees made and removed, {PARALLEL} at once, beside prune: failures",
        "failures", most=0, unit="", take=max, beside="bare-failures",
    )  # fmt: skip
    points = tuple(Point(shape.shown, f"held-{shape.files}") for shape in shapes)
    lines = (
        Scaling("lock held per worktree made", points),
        Scaling(f"worktree made, saved and removed, {PARALLEL} at once", (Point(f"{crowd:,}", "each"),)),
    )
    return Measure((floor, ours, crowded, bare_crowded), (*bars, failures), lines)


def make_and_remove(path: Path, count: int) -> Figures:
    """Make and remove worktrees from many threads, while `git worktree prune` runs again and again beside them."""
    repo = find_repository(path)
    trees = Worktrees(repo, repo.worktree_root(".worktrees"))
    commit = repo.resolve("main")[1]

    def one(_: int) -> bool:
        try:
            remove(trees, trees.add(commit, "bench"), commit)
        except OrchardError as error:
            print(f"failed: {error.message}", file=sys.stderr)
            return False
        return True

    begin = time.perf_counter()
    with pruning(path), ThreadPoolExecutor(PARALLEL) as threads:
        failed = list(threads.map(one, range(count))).count(False)
    taken = time.perf_counter() - begin
    trees.empty_trash()
    left = [row for row in git(path, "worktree", "list", "--porcelain").splitlines() if row.startswith("worktree ")]
    return {"failures": float(failed + len(left) - 1), "each": MILLISECONDS * taken / count}


def bare_failures(path: Path, count: int) -> float:
    """How many worktrees fail to be made or removed by git's own commands, in the same crowd and without a lock."""

    def one(_: int) -> bool:
        try:
            bare_add_and_remove(path, 1)
        except Broken:
            return False
        return True

    with pruning(path), ThreadPoolExecutor(PARALLEL) as threads:
        return float(list(threads.map(one, range(count))).count(False))


@contextmanager
def pruning(path: Path) -> Iterator[None]:
    """`git worktree prune`, again and again."""
    stop = threading.Event()

    def prune() -> None:
        while not stop.is_set():
            with started(["git", "worktree", "prune"], path, subprocess.DEVNULL) as process:
                process.wait()

    thread = threading.Thread(target=prune)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
