"""Parts of the engine, each measured by itself in this process, and what git or SQLite take for the same."""

import asyncio
import secrets
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from msgspec import field

from orchard.bench.place import git, orchard
from orchard.core.replay import apply
from orchard.core.run import Run
from orchard.git.merge.integration import Conflicted, Integration, LeafMerge
from orchard.git.refs import wip_ref
from orchard.git.repository import Worktree, find_repository
from orchard.git.worktree.save import ensure_saved
from orchard.git.worktree.worktrees import Worktrees
from orchard.model.events import plans as events
from orchard.model.plan import JobId, PlanId
from orchard.model.plan_codec import plan_json
from orchard.planfile.parse import parse
from orchard.process.stopwatch import Broken, timed
from orchard.store.journal import Journal

MILLISECONDS = 1000.0
WAITING = 8


def new_ref() -> str:
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


def add_and_remove(path: Path, times: int) -> tuple[float, float]:
    """Seconds from the making of a worktree to its end, saved before it goes, and those of the lock: the medians."""
    repo = find_repository(path)
    trees = WatchedWorktrees(repo, repo.worktree_root(".worktrees"))
    commit = repo.resolve("main")[1]
    wholes, locks = [], []
    for _ in range(times):
        trees.held.clear()
        begin = time.perf_counter()
        one = trees.add(commit, "bench", parallel=True)
        locks.append(sum(trees.held))
        remove(trees, one, commit)
        wholes.append(time.perf_counter() - begin)
    trees.empty_trash()
    return median(wholes), median(locks)


def remove(trees: Worktrees, worktree: Worktree, commit: str) -> None:
    ref = wip_ref("bench", worktree.name, 1)
    trees.remove(worktree, ensure_saved(trees.repo, worktree, ref, "bench", commit))


def bare_add_and_remove(path: Path, times: int, *options: str) -> tuple[float, float]:
    """Seconds of git's own `worktree add` and `worktree remove`, and those of the first alone: the medians."""
    wholes, adds = [], []
    for _ in range(times):
        folder = path / ".worktrees" / secrets.token_hex(4)
        begin = time.perf_counter()
        git(path, "worktree", "add", "-q", *options, "--detach", str(folder), "main")
        adds.append(time.perf_counter() - begin)
        git(path, "worktree", "remove", "--force", str(folder))
        wholes.append(time.perf_counter() - begin)
    return median(wholes), median(adds)


# -------------------------------------------------------------------------------------- journal


def bare_transitions(path: Path, count: int) -> float:
    """Seconds of as many transactions that reach the disk one by one."""
    database = sqlite3.connect(path, isolation_level=None)
    try:
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            database.execute(f"PRAGMA {pragma}").fetchall()
        database.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, at REAL, name TEXT, body TEXT)")
        begin = time.perf_counter()
        for number in range(count):
            database.execute("INSERT INTO events VALUES (?, ?, ?, ?)", (number, 0.0, "JobStarted", '{"job":"j00001"}'))
        return time.perf_counter() - begin
    finally:
        database.close()


async def transitions(path: Path, file: Path) -> tuple[int, float]:
    """Walk every job of a plan through its states, each step safe on disk before the next; steps and seconds."""
    plan = PlanId("bench")
    run = Run(plan)
    with Journal.open(path) as log:

        def record(event: events.Event) -> None:
            apply(run, events.Recorded(log.last_seq + 1, 0.0, plan, event))
            log.append(plan, event, 0.0)

        async def walk(jobs: Iterator[JobId]) -> None:
            for job in jobs:
                for event in (
                    events.JobPicked(job, 1),
                    events.JobStarted(job, 1),
                    events.JobSucceeded(job, 1, "0" * 40),
                ):
                    record(event)
                    await log.durable()

        record(events.PlanSubmitted(plan_json(parse(file.read_bytes()))))
        record(events.PlanStarted("main", "b", "landed", "b"))
        record(events.SnapshotStarted(1, "b"))
        await log.durable()
        before = log.last_seq
        # All take from the same list, so each job is walked once.
        jobs = iter([job.id for job in run.plan.jobs.values() if not job.id.startswith("__")])
        begin = time.perf_counter()
        await asyncio.gather(*(walk(jobs) for _ in range(WAITING)))
        return log.last_seq - before, time.perf_counter() - begin


# ---------------------------------------------------------------------------------------- start


def starts(repo: Path, times: int) -> dict[str, float]:
    """Milliseconds that a person waits for the shortest answers, and for a Python that does nothing: the medians."""
    programs: dict[str, list[str | Path]] = {
        "python": [sys.executable, "-c", "pass"],
        "version": orchard("--version"),
        "list": orchard("list"),
    }
    taken: dict[str, list[float]] = {name: [] for name in programs}
    for _ in range(times):
        for name, words in programs.items():
            taken[name].append(MILLISECONDS * timed(words, repo).wall)
    return {name: median(one) for name, one in taken.items()}
