"""Measures on a repository of the user's, in copies of it.

A copy is a new repository that reads the user's objects where they are and writes its own elsewhere: nothing is
copied but names, and nothing of the user's is written. It holds the commit that is checked out and, on top of it, one
that lets the files of our jobs through every ignore rule.
"""

import asyncio
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from orchard.bench import floors, parts
from orchard.bench.place import Bench, git, orchard
from orchard.bench.plans import ONE_FILE, independent, write_plan
from orchard.bench.rounds import Bar, Figures, Measure
from orchard.errors import NotFound, OrchardError, UsageError
from orchard.git.repository import Repository
from orchard.process.stopwatch import timed

WHEN = "Bench <bench@example.com> 1767225600 +0000"
LET_THROUGH = b"\n!/orchard-bench-*.txt\n"
ROOM = 1.25
"""How much more than the files themselves must be free on the disk."""

TIMES = 3
LEAVES = 50
JOURNAL_JOBS = 300
BARE_TRANSITIONS = 200


class Source(Struct, frozen=True):
    repo: Repository
    commit: str
    files: int
    bytes: int


class Asked(Struct, frozen=True):
    jobs: int
    parallel: int
    rounds: int


def find_source(repo: Repository) -> Source:
    """What is checked out here; NotFound in a repository without commits."""
    found = repo.git.with_environment(GIT_DIR=str(repo.git_dir))(
        "rev-parse", "-q", "--verify", "HEAD^{commit}", ok=(0, 1)
    )
    if not found.text:
        raise NotFound("There is no commit here to measure with.", hint="Commit something, then try again.")
    if "\n" in str(repo.common_dir):
        raise UsageError("A repository whose path has a line break cannot be measured.")
    sizes = [row.split(b"\t")[0].split()[-1] for row in repo.git("ls-tree", "-r", "-l", "-z", found.text).fields]
    return Source(repo, found.text, len(sizes), sum(int(size) for size in sizes if size.isdigit()))


def check_room(folder: Path, source: Source, parallel: int) -> None:
    """Refuse to begin what would fill the disk: every job at work has a folder with all files."""
    needed = int(ROOM * source.bytes * (parallel + 1))
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise OrchardError(
            f"Measuring needs {needed / 1e6:,.0f} MB in {folder}, where {free / 1e6:,.0f} MB are free.",
            hint="Use --parallel 1, or --folder to measure on another disk.",
        )


def make_copy(bench: Bench, source: Source, leaves: int = 0) -> Path:
    """A repository of its own at the user's commit, with one-file commits on `leaf/N` beside it."""
    path = bench.fresh("copy")
    git(bench.folder, "init", "-q", "--initial-branch=main", f"--object-format={source.repo.object_format}", str(path))
    for key, value in (("gc.auto", "0"), ("maintenance.auto", "false")):
        git(path, "config", key, value)
    objects = source.repo.common_dir / "objects"
    (path / ".git" / "objects" / "info" / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    shallow = source.repo.common_dir / "shallow"
    if shallow.exists():
        shutil.copyfile(shallow, path / ".git" / "shallow")
    ignored = _ignore_file(source) + LET_THROUGH
    stream = _commit("main", "mark :1\n", source.commit, ".gitignore", ignored)
    stream += b"".join(_commit(f"leaf/{number}", "", ":1", f"leaf{number}.txt", b"leaf\n") for number in range(leaves))
    git(path, "fast-import", "--quiet", stdin=stream)
    return path


@contextmanager
def copied(bench: Bench, source: Source) -> Iterator[Path]:
    """A copy for one side of one round; its folders take as much disk as all files, so it does not stay."""
    path = make_copy(bench, source)
    yield path
    shutil.rmtree(path.parent, ignore_errors=True)


def _ignore_file(source: Source) -> bytes:
    found = source.repo.git("cat-file", "blob", f"{source.commit}:.gitignore", ok=(0, 128))
    return found.stdout if found.status == 0 else b""


def _commit(branch: str, mark: str, parent: str, name: str, content: bytes) -> bytes:
    head = f"commit refs/heads/{branch}\n{mark}committer {WHEN}\ndata 5\nbench\nfrom {parent}\n"
    return f"{head}M 100644 inline {name}\ndata {len(content)}\n".encode() + content + b"\n"


# ------------------------------------------------------------------------------------- measures


def jobs(bench: Bench, source: Source, asked: Asked) -> Measure:
    """One-file jobs from the start of the program to the landing, beside two scripts that do the same."""
    plans = {
        jobs: write_plan(bench.fresh("plan"), independent(jobs), parallel=asked.parallel, work=ONE_FILE)
        for jobs in {asked.jobs, 1}
    }

    def run(jobs: int) -> float:
        with copied(bench, source) as path:
            return timed(orchard("run", plans[jobs], "--quiet"), path).wall

    def plain() -> Figures:
        with copied(bench, source) as path:
            return {"plain": floors.plain(path, asked.jobs, asked.parallel)}

    def pool() -> Figures:
        with copied(bench, source) as path:
            return {"pool": floors.pool(path, asked.jobs, asked.parallel)}

    def ours() -> Figures:
        whole = run(asked.jobs)
        return {"ours": whole, "one": run(1) if asked.jobs > 1 else whole}

    what = f"{asked.jobs} one-file jobs, {asked.parallel} at once"
    return Measure(
        (plain, pool, ours),
        (
            Bar(f"{what}: plain script", "ours", "plain"),
            Bar(f"{what}: pool script", "ours", "pool"),
            Bar("a plan of one such job", "one"),
        ),
    )


def worktrees(bench: Bench, source: Source, _: Asked) -> Measure:
    """A worktree from its making to its end, and for how long others have to wait meanwhile."""
    path = make_copy(bench, source)

    def bare() -> Figures:
        whole, add = parts.bare_add_and_remove(path, TIMES)
        return {"bare": parts.MILLISECONDS * whole, "bare-add": parts.MILLISECONDS * add}

    def ours() -> Figures:
        whole, lock = parts.add_and_remove(path, TIMES)
        return {"ours": parts.MILLISECONDS * whole, "lock": parts.MILLISECONDS * lock}

    return Measure(
        (bare, ours),
        (
            Bar("a worktree made, saved, removed: git's own add and remove", "ours", "bare", unit="ms"),
            Bar("the lock held for it: git's own add", "lock", "bare-add", unit="ms"),
        ),
    )


def merge(bench: Bench, source: Source, _: Asked) -> Measure:
    path = make_copy(bench, source, LEAVES)

    def floor() -> Figures:
        return {"floor": parts.MILLISECONDS * floors.merges(path, parts.new_ref(), LEAVES) / LEAVES}

    def ours() -> Figures:
        return {"ours": parts.MILLISECONDS * parts.merge_leaves(path, LEAVES) / LEAVES}

    return Measure((floor, ours), (Bar("a leaf merged into the snapshot: 3 processes", "ours", "floor", unit="ms"),))


def journal(bench: Bench, _: Source, __: Asked) -> Measure:
    """Events that are safe on this disk, with jobs waiting for them."""
    plan = write_plan(bench.fresh("plan"), independent(JOURNAL_JOBS), parallel=4)

    def bare() -> Figures:
        return {"bare": BARE_TRANSITIONS / parts.bare_transitions(bench.fresh("bare.db"), BARE_TRANSITIONS)}

    def ours() -> Figures:
        count, taken = asyncio.run(parts.transitions(bench.fresh("journal.db"), plan))
        return {"ours": count / taken}

    what = f"events safe on disk, {parts.WAITING} jobs waiting: one at a time"
    return Measure((bare, ours), (Bar(what, "ours", "bare", unit="/s"),))


def start(bench: Bench, source: Source, _: Asked) -> Measure:
    path = make_copy(bench, source)

    def by_turns() -> Figures:
        return parts.starts(path, TIMES)

    return Measure(
        (by_turns,),
        (
            Bar("orchard --version: python -c pass", "version", "python", unit="ms"),
            Bar("orchard list: python -c pass", "list", "python", unit="ms"),
        ),
    )


MEASURES: Mapping[str, Callable[[Bench, Source, Asked], Measure]] = {
    "jobs": jobs,
    "worktrees": worktrees,
    "merge": merge,
    "journal": journal,
    "start": start,
}
