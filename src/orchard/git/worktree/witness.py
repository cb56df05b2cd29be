"""What a worktree looked like when it was saved, so that it can be told later whether it still does.

A worktree that no job has may wait for minutes before it is reset, and a person or a process may write there meanwhile.
Small ones are compared by a picture (names, sizes and the times that only the kernel sets), without a process; for
large ones git is asked once more, and files that differed then are compared by their times.
"""

import hashlib
import os
import shutil
from pathlib import Path

from msgspec import Struct

from orchard.files import read_plain
from orchard.git.command import Git
from orchard.git.folders import lstat
from orchard.git.worktree.remains import named_objects
from orchard.git.worktree.status import Contents, Picture, look, picture, stamp


class Witness(Struct, frozen=True):
    picture: Picture | None
    """None: there is too much in it."""
    contents: Contents | None = None
    stamps: bytes = b""
    notes: bytes = b""


def witness(path: Path, git_dir: Path, seen: Picture | None, contents: Contents) -> Witness:
    """What to remember of a worktree that was just looked at; `seen` is its picture from before that."""
    if seen is not None:
        return Witness(seen, notes=_notes(git_dir))
    return Witness(None, contents, _stamps(path, contents), _notes(git_dir))


def still_holds(git: Git, path: Path, before: Witness, index: Path, *, untouched: bool) -> bool:
    """Whether a worktree is as it was; `index` is a place for a copy of its own, which is not written to."""
    if not os.path.lexists(path):
        return True
    if before.notes != _notes(git.git_dir):
        return False
    if before.picture is not None:
        return picture(path) == before.picture
    if before.contents is None:
        return False
    if not (git.git_dir / "index").exists():
        return True  # git never knew this folder, or its notes were damaged: it cannot be asked
    if not untouched:
        shutil.copyfile(git.git_dir / "index", index)
        git = git.with_index(index)
    return look(git, path, untouched=untouched) == before.contents and _stamps(path, before.contents) == before.stamps


def _stamps(path: Path, contents: Contents) -> bytes:
    """What changes as soon as somebody writes to a file that differs from what HEAD holds."""
    digest = hashlib.sha256()
    top = os.fsencode(path) + b"/"
    for name in sorted({*contents.changed, *contents.untracked, *contents.staged}):
        found = lstat(top + name)
        digest.update(name + b"\0-\n" if found is None else b"%s\0%d %d %d %d %d\n" % (name, *stamp(found)))
    return digest.digest()


def _notes(git_dir: Path) -> bytes:
    """What changes with git's notes on a worktree: its HEAD, its index, and every commit that they name."""
    digest = hashlib.sha256()
    try:
        # A `git gc` beside us holds HEAD's lock while it looks for old lines in the log of HEAD.
        names = sorted(entry.name for entry in os.scandir(git_dir) if entry.name != "HEAD.lock")
        index = (git_dir / "index").lstat()
        facts = (index.st_ino, index.st_size, index.st_mtime_ns, index.st_ctime_ns)
        digest.update(repr((names, facts, sorted(named_objects(git_dir)))).encode())
        digest.update(read_plain(os.path.realpath(git_dir / "HEAD")))
    except OSError as error:
        digest.update(repr(error.errno).encode())
    return digest.digest()
