"""Pipes, sockets and devices under names that git opens: it would wait there for somebody to write, for ever.

A job can leave a pipe called `.gitignore` in any folder. Nobody means anything by it, no git works beside it, and a
pipe holds nothing that could be saved. So it is looked for before git is started, and named instead of waited for.
"""

import time
from pathlib import Path

from orchard.git.command import Blocked, Git
from orchard.git.folders import remove_special
from orchard.git.pipes import ELSEWHERE, special_notes

LOOKS_SHARE = 30
"""How much longer than a look through all refs it takes until the next one."""
SHORT_LOOK = 0.0005
"""A look that takes less than this is worth its seconds each time."""

_NAMES = frozenset({b".gitignore", b".gitattributes", b".gitmodules", b".mailmap"})


def blocks_git(name: bytes) -> bool:
    """Whether git would open something that lies at this path of a worktree, whatever it is."""
    return name.rpartition(b"/")[2].lower() in _NAMES


def refuse_blocked_notes(git: Git, *, thorough: bool = False) -> None:
    """Raise `Blocked` if what git keeps about a worktree, or about the repository, holds a pipe or device.

    A repository has a folder of refs for every job that ever ran there. So unless `thorough`, those are looked through
    only once in a while; a git that meets a pipe there in between is stopped and says so.
    """
    if git.git_dir != git.common_dir and (found := special_notes(git.git_dir)):
        raise Blocked(git.git_dir, found)
    _REFS.refuse(git.common_dir, thorough)


class _Refs:
    """When the refs of each repository were looked through, and how long that took."""

    def __init__(self) -> None:
        self._due: dict[Path, float] = {}

    def refuse(self, folder: Path, thorough: bool) -> None:
        began = time.monotonic()
        every = thorough or began >= self._due.get(folder, 0.0)
        if found := special_notes(folder, ELSEWHERE if every else ELSEWHERE | {b"refs", b"logs"}):
            raise Blocked(folder, found)
        if every:
            ended = time.monotonic()
            self._due[folder] = ended + LOOKS_SHARE * max(0.0, ended - began - SHORT_LOOK)


_REFS = _Refs()


def remove_blocked_notes(git_dir: Path) -> None:
    """Take those away; git's notes are then damaged as if the files had been deleted, which can be lived with."""
    for name in special_notes(git_dir):
        remove_special(git_dir, name)
