"""Pipes, sockets and devices under names that git opens: it would wait there for somebody to write, for ever.

A job can leave a pipe called `.gitignore` in any folder. Nobody means anything by it, no git works beside it, and a
pipe holds nothing that could be saved. So it is looked for before git is started, and named instead of waited for.
"""

from pathlib import Path

from orchard.git.command import Blocked, Git
from orchard.git.folders import remove_special
from orchard.git.pipes import special_notes

_NAMES = frozenset({b".gitignore", b".gitattributes", b".gitmodules", b".mailmap"})


def blocks_git(name: bytes) -> bool:
    """Whether git would open something that lies at this path of a worktree, whatever it is."""
    return name.rpartition(b"/")[2].lower() in _NAMES


def refuse_blocked_notes(git: Git) -> None:
    """Raise `Blocked` if what git keeps about a worktree, or about the repository, holds a pipe or device."""
    for folder in dict.fromkeys((git.git_dir, git.common_dir)):
        if found := special_notes(folder):
            raise Blocked(folder, found)


def remove_blocked_notes(git_dir: Path) -> None:
    """Take those away; git's notes are then damaged as if the files had been deleted, which can be lived with."""
    for name in special_notes(git_dir):
        remove_special(git_dir, name)
