"""What stands in the way in a checkout of the user's, found before anything is touched.

`find_obstacle` looks at what git does not tell, or tells too late: folders that may not be written to, links in place
of folders, submodules with something in them, and every file that git does not track (ignored ones and special files as
well) at a path that has to be written or emptied. Edited and staged files are found by git itself, see `stage`.
"""

import os
import stat
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from orchard.errors import Hint, Next
from orchard.git.command import Git
from orchard.git.folders import behind_link, lstat, parents
from orchard.git.history import show_path
from orchard.git.objects.reader import GITLINK, Change

TIMEOUT = 120.0

LAND, UNDO, REVERT = Next("land_plan"), Next("undo_plan"), Next("undo_plan", args={"revert": True})
"""What is asked for again once nothing is in the way."""
RefusalKind = Literal["moved", "checkout", "operation", "missing", "locked"]


class LandingRefused(Struct, frozen=True):
    kind: RefusalKind
    reason: str
    hint: Hint


def find_obstacle(
    git: Git, changes: Sequence[Change], tracked: Container[bytes], written: Container[bytes], again: Next
) -> LandingRefused | None:
    """The first thing in a checkout that has to be put right by a person; `written` are the paths that get a file."""
    top = _top(git)
    return (
        _closed_folder(top, changes)
        or _linked_folder(top, changes)
        or _filled_submodule(top, changes)
        or _untracked(git, changes, tracked, written, again)
    )


def in_the_way(git: Git, paths: Sequence[bytes], again: Next) -> LandingRefused:
    """Files of the user's that a landing or an undo would have to overwrite; `git` is the one for its files."""
    reason = f"Your changes in {_top(git)} would be overwritten: {some(paths)}"
    rows = b"".join(path + b"\0" for path in paths)
    if ignored := git("check-ignore", "-z", "--stdin", stdin=rows, ok=range(256), timeout=TIMEOUT).fields:
        # Not "stash -a": that takes everything that is ignored, our worktrees and the user's tools as well.
        away = f"Move {some(paths)} away ('git stash -u' leaves files that git ignores"
        which = "" if len(ignored) == len(paths) else f": {some(ignored)}"
        return LandingRefused("checkout", reason, (f"{away}{which}); then run '", again, "'."))
    # Not "commit": that moves the branch, and only a first landing follows it.
    return LandingRefused("checkout", reason, ("Move them away, or run 'git stash -u' there; then run '", again, "'."))


def _top(git: Git) -> Path:
    assert git.work_tree is not None
    return git.work_tree


def some(paths: Sequence[bytes]) -> str:
    shown = ", ".join(show_path(path) for path in paths[:3])
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3} more"


def _closed_folder(top: Path, changes: Sequence[Change]) -> LandingRefused | None:
    start = os.fsencode(top)
    for folder in sorted({os.path.dirname(change.path) for change in changes}):  # noqa: PTH120 (bytes)
        while folder and (not _who(start + b"/" + folder) or behind_link(start, folder + b"/")):
            folder = os.path.dirname(folder)  # noqa: PTH120
        where = os.path.join(start, folder)  # noqa: PTH118
        if os.path.isdir(where) and not os.access(where, os.W_OK | os.X_OK):  # noqa: PTH112
            reason = f"The folder {show_path(where)} may not be written to."
            return LandingRefused("checkout", reason, "Make it writable, then try again.")
    return None


def _linked_folder(top: Path, changes: Sequence[Change]) -> LandingRefused | None:
    """A link that the user put in place of a folder leads to somewhere that is not ours to write to."""
    start = os.fsencode(top)
    seen: set[bytes] = set()
    for change in changes:
        for folder in _unseen_parents(change.path, seen):
            if behind_link(start, folder):
                break  # the link was looked at: it becomes a folder
            where = os.path.join(start, folder)  # noqa: PTH118
            # One that is tracked may turn into a folder.
            if os.path.islink(where) and not any(one.path == folder and one.old for one in changes):  # noqa: PTH114
                reason = f"{show_path(where)} is a link, where git knows a folder with files that change."
                return LandingRefused("checkout", reason, "Put the folder back in its place, then try again.")
    return None


def _filled_submodule(top: Path, changes: Sequence[Change]) -> LandingRefused | None:
    """The folder of a submodule that becomes a file would go, with all that the user has in it."""
    for change in changes:
        if change.old is None or change.old.mode != GITLINK or change.new is None or change.new.mode == GITLINK:
            continue
        where = top / os.fsdecode(change.path)
        if where.is_dir() and any(where.iterdir()):
            shown = show_path(os.fsencode(where))
            reason = f"The submodule {shown} would be replaced by a file, with all that you have in it."
            return LandingRefused("checkout", reason, f"Empty it with: git submodule deinit '{shown}'")
    return None


def _untracked(
    git: Git, changes: Sequence[Change], tracked: Container[bytes], written: Container[bytes], again: Next
) -> LandingRefused | None:
    """Files that git does not track, where something has to be written or has to go."""
    top = os.fsencode(_top(git))
    start = top + b"/"
    # Where `A` and `a` are one file, what is found at the one name may be what goes from the other.
    leaving = {_who(start + one.path) for one in changes if one.new is None and one.path in tracked}
    found: dict[bytes, None] = {}
    free: set[bytes] = set()
    for change in changes:
        if change.new is None:
            if change.path not in tracked and _is_file(start + change.path) and not behind_link(top, change.path):
                found[change.path] = None
            continue
        if change.path not in written:
            continue
        for name in (*_unseen_parents(change.path, free), change.path):
            here = _who(start + name)
            if not here or name in tracked or here in leaving or behind_link(top, name):
                continue
            if _is_file(start + name):
                found[name] = None
            elif name == change.path and change.new.mode != GITLINK:
                found.update(dict.fromkeys(one for one in _files_below(start, name) if one not in tracked))
    if not found:
        return None
    return in_the_way(git, sorted(found), again)


def _unseen_parents(path: bytes, seen: set[bytes]) -> Iterator[bytes]:
    for folder in parents(path):
        if folder not in seen:
            seen.add(folder)
            yield folder


def _who(where: bytes) -> tuple[int, int] | None:
    status = lstat(where)
    return None if status is None else (status.st_dev, status.st_ino)


def _is_file(where: bytes) -> bool:
    """Whether something is there that is no folder."""
    status = lstat(where)
    return status is not None and not stat.S_ISDIR(status.st_mode)


def _files_below(start: bytes, name: bytes) -> Iterator[bytes]:
    for folder, folders, names in os.walk(start + name):
        links = [one for one in folders if os.path.islink(folder + b"/" + one)]  # noqa: PTH114 (bytes)
        for one in [*names, *links]:
            yield (folder + b"/" + one)[len(start) :]
