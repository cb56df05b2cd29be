"""What git finds out only when half of a checkout is written, found before; and putting a half-written one back.

find_obstacle   a reason not to begin: closed folders, links, filled submodules, filters that fail
look            how the files that will change stand before git writes
put_back        take back what git wrote before it gave up, if it is still exactly what git wrote
"""

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from orchard.frozen import frozen
from orchard.git.command import Git
from orchard.git.history import show_path
from orchard.git.objects import GITLINK, Change
from orchard.git.repository import Repository

TIMEOUT = 600.0

Stand = tuple[int, ...]
"""What changes when somebody writes a file; empty where there is none."""


@frozen
class Obstacle:
    """Why the files of a checkout cannot follow, and what to do about it."""

    reason: str
    hint: str


def find_obstacle(repo: Repository, git: Git, top: Path, changes: Sequence[Change], after: str) -> Obstacle | None:
    """The first thing in a checkout that would stop git on its way to commit `after`."""
    return (
        _closed_folder(top, changes)
        or _linked_folder(top, changes)
        or _filled_submodule(top, changes)
        or _failing_filter(repo, git, changes, after)
    )


def _closed_folder(top: Path, changes: Sequence[Change]) -> Obstacle | None:
    start = os.fsencode(top)
    for folder in sorted({os.path.dirname(change.path) for change in changes}):  # noqa: PTH120 (bytes)
        while folder and not os.path.lexists(os.path.join(start, folder)):  # noqa: PTH118
            folder = os.path.dirname(folder)  # noqa: PTH120
        where = os.path.join(start, folder)  # noqa: PTH118
        if os.path.isdir(where) and not os.access(where, os.W_OK | os.X_OK):  # noqa: PTH112
            reason = f"The folder {show_path(where)} may not be written to."
            return Obstacle(reason, "Make it writable, then try again.")
    return None


def _linked_folder(top: Path, changes: Sequence[Change]) -> Obstacle | None:
    """Git takes a folder that the user put a link in place of for one that is missing, and removes the link."""
    start = os.fsencode(top)
    folders = {os.path.dirname(change.path) for change in changes if change.old is not None}  # noqa: PTH120 (bytes)
    for folder in sorted(folders):
        while folder:
            where = os.path.join(start, folder)  # noqa: PTH118
            if os.path.islink(where):  # noqa: PTH114
                reason = f"{show_path(where)} is a link, where git knows a folder with files that change."
                return Obstacle(reason, "Put the folder back in its place, then try again.")
            folder = os.path.dirname(folder)  # noqa: PTH120
    return None


def _filled_submodule(top: Path, changes: Sequence[Change]) -> Obstacle | None:
    """Git deletes the folder of a submodule that becomes a file, with all that the user has in it."""
    for change in changes:
        if change.old is None or change.old.mode != GITLINK or change.new is None or change.new.mode == GITLINK:
            continue
        where = top / os.fsdecode(change.path)
        if where.is_dir() and any(where.iterdir()):
            shown = show_path(os.fsencode(where))
            reason = f"The submodule {shown} would be replaced by a file, with all that you have in it."
            return Obstacle(reason, f"Empty it with: git submodule deinit '{shown}'")
    return None


def _failing_filter(repo: Repository, git: Git, changes: Sequence[Change], after: str) -> Obstacle | None:
    """A filter that has no network fails after git has removed the file it is for, so it is tried elsewhere first."""
    paths = [change.path for change in changes if change.new is not None and change.new.mode != GITLINK]
    if not repo.filters or not paths:
        return None
    with _scratch(repo) as folder:
        trial = git.with_index(Path(folder, "index"))
        trial("read-tree", after, timeout=TIMEOUT)
        asked = trial("check-attr", "--cached", "-z", "--stdin", "filter", stdin=_lines(paths), timeout=TIMEOUT)
        rows = asked.stdout.split(b"\0")
        filtered = [path for path, value in zip(rows[::3], rows[2::3], strict=False) if value != b"unspecified"]
        if not filtered:
            return None
        words = ("checkout-index", "-z", "--stdin", f"--prefix={folder}/files/")
        done = trial(*words, stdin=_lines(filtered), ok=range(256), timeout=TIMEOUT)
    if done.status == 0:
        return None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    reason = f"A filter of yours fails for a file that would land: {said[0] if said else 'git gave no reason'}"
    return Obstacle(reason, "Make the filter work (it may need the network), then try again.")


def _scratch(repo: Repository) -> "tempfile.TemporaryDirectory[str]":
    return tempfile.TemporaryDirectory(dir=repo.state if repo.state.is_dir() else None, prefix="trial-")


def _lines(paths: Sequence[bytes]) -> bytes:
    return b"".join(path + b"\0" for path in paths)


# ------------------------------------------------------------------------------------ half-way and back


def look(top: Path, changes: Sequence[Change]) -> dict[bytes, Stand]:
    """How every file that will change stands now."""
    start = os.fsencode(top)
    return {change.path: _stand(os.path.join(start, change.path)) for change in changes}  # noqa: PTH118 (bytes)


def _stand(where: bytes) -> Stand:
    try:
        status = os.lstat(where)
    except OSError:
        return ()
    return status.st_mode, status.st_ino, status.st_size, status.st_mtime_ns


def put_back(repo: Repository, git: Git, top: Path, changes: Sequence[Change], before: dict[bytes, Stand]) -> None:
    """Undo what a git that died or gave up has written; the index is still what it was.

    In an index of our own the touched files are entered as git meant to write them. From there `read-tree -m` goes
    back, and refuses to touch what is anything else by now.
    """
    now = look(top, changes)
    touched = [change for change in changes if now[change.path] != before[change.path]]
    if not touched:
        return
    with _scratch(repo) as folder:
        trial = git.with_index(Path(folder, "index"))
        shutil.copyfile(git.git_dir / "index", Path(folder, "index"))
        intended = trial("write-tree", timeout=TIMEOUT).text
        gone = b"".join(b"0 %s\t%s\0" % (b"0" * len(intended), one.path) for one in touched if one.new is None)
        made = b"".join(
            b"%06o %s\t%s\0" % (one.new.mode, one.new.oid.encode(), one.path) for one in touched if one.new is not None
        )
        trial("update-index", "-z", "--index-info", stdin=gone + made, timeout=TIMEOUT)
        written = trial("write-tree", timeout=TIMEOUT).text
        trial("update-index", "-q", "--refresh", ok=range(256), timeout=TIMEOUT)
        trial("read-tree", "-m", "-u", written, intended, ok=range(256), timeout=TIMEOUT)
