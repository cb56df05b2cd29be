"""Pipes, sockets and devices under names that git opens: it would wait there for somebody to write, for ever.

A job can leave a pipe called `.gitignore` in any folder. Nobody means anything by it, no git works beside it, and a
pipe holds nothing that could be saved. So it is looked for before git is started, and named instead of waited for.
"""

import os
import stat
from collections.abc import Iterable
from pathlib import Path

from orchard.git.command import Git, GitError
from orchard.git.folders import remove_special

_NAMES = frozenset({b".gitignore", b".gitattributes", b".gitmodules", b".mailmap"})
_ELSEWHERE = frozenset({b"objects", b"modules", b"worktrees", b"orchard", b"hooks", b"refs", b"lfs"})
"""Folders of a repository that are not looked into: they are not a worktree's own, and large."""


class Blocked(GitError):
    """Git was not started, because it would wait for ever at these places."""

    def __init__(self, folder: Path, names: Iterable[bytes]) -> None:
        self.names = tuple(names)
        shown = ", ".join(os.fsdecode(name).encode("unicode_escape").decode() for name in self.names[:5])
        said = f"git would wait for ever at what is no file: {shown}"
        super().__init__(("status",), folder, None, said)
        self.args = (f"In {folder}, {said}",)
        self.message = f"In {folder}, {said}"
        self.hint = "A pipe, socket or device lies there. Remove it."


def blocks_git(name: bytes) -> bool:
    """Whether git would open something that lies at this path of a worktree, whatever it is."""
    return name.rpartition(b"/")[2].lower() in _NAMES


def refuse_blocked_notes(git: Git) -> None:
    """Raise `Blocked` if what git keeps about a worktree, or about the repository, holds a pipe or device."""
    for folder in dict.fromkeys((git.git_dir, git.common_dir)):
        if found := special_notes(folder):
            raise Blocked(folder, found)


def special_notes(git_dir: Path) -> list[bytes]:
    """Pipes and devices in a folder of git's, outside of where objects and refs are."""
    found: list[bytes] = []
    waiting = [b""]
    top = os.fsencode(git_dir) + b"/"
    while waiting:
        folder = waiting.pop()
        try:
            entries = list(os.scandir(top + folder))
        except OSError:
            continue
        for entry in entries:
            name = folder + entry.name
            if entry.is_dir(follow_symlinks=False):
                if folder or entry.name not in _ELSEWHERE:
                    waiting.append(name + b"/")
            elif not entry.is_file(follow_symlinks=False) and keeps_waiting(entry.path):
                found.append(name)
    return sorted(found)


def remove_blocked_notes(git_dir: Path) -> None:
    """Take those away; git's notes are then damaged as if the files had been deleted, which can be lived with."""
    for name in special_notes(git_dir):
        remove_special(git_dir, name)


def keeps_waiting(path: bytes) -> bool:
    """Whether opening this may take for ever. A socket is refused at once, and git itself puts one there."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 (bytes); git follows links here
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
