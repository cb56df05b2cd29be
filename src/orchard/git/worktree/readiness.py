"""What a worktree was set up with, so that the next job need not do it again.

Setting up leaves ignored files (copies, links, installed packages). They may stay for the next job if that begins at
the same tree and would be set up the same way, and if no job has touched them: every one of them is as it was, by
inode, size and the times that the kernel sets. What else is ignored there goes. Where any of this is not certain, all
of it goes.

    Ready        how a worktree was set up, and what that left
    take_stock   that, after setting up; None if it cannot be kept
    beside       what else is ignored in a worktree; None if what was left is not as it was
"""

import os
from collections.abc import Sequence

from msgspec import Struct

from orchard.git.command import Git, GitError
from orchard.git.repository import Repository, Worktree

MOST_FILES = 200_000
TIMEOUT = 120.0

Stamp = tuple[int, ...]


class Ready(Struct, frozen=True):
    """How a worktree was set up, and what that left there."""

    key: str
    files: dict[bytes, Stamp]


def take_stock(repo: Repository, worktree: Worktree, key: str) -> Ready | None:
    """What setting up has left; None where it changed more than ignored files, or cannot be looked at as a whole."""
    git = repo.worktree_git(worktree.name, worktree.path)
    try:
        if git("status", "--porcelain", "-z", "--untracked-files=all", timeout=TIMEOUT).stdout:
            return None
        files = _ignored(git, worktree)
    except (GitError, OSError):
        return None
    return Ready(key, files) if files is not None else None


def beside(repo: Repository, worktree: Worktree, ready: Ready, keep: Sequence[str]) -> list[bytes] | None:
    """Ignored files that setting up has not left, but for those in `keep`; None where what it left has changed."""
    git = repo.worktree_git(worktree.name, worktree.path)
    try:
        files = _ignored(git, worktree)
        if files is None or any(files.get(name) != stamp for name, stamp in ready.files.items()):
            return None
        more = files.keys() - ready.files.keys()
        if more and keep:
            patterns = [f"--exclude={pattern}" for pattern in keep]
            more -= set(git("ls-files", "-z", "--others", "--ignored", *patterns, timeout=TIMEOUT).fields)
    except (GitError, OSError):
        return None
    return sorted(more)


def _ignored(git: Git, worktree: Worktree) -> dict[bytes, Stamp] | None:
    rows = git("ls-files", "-z", "--others", "--ignored", "--exclude-standard", timeout=TIMEOUT).fields
    # A name with a slash at its end is a repository of its own, of which git tells nothing.
    if len(rows) > MOST_FILES or any(row.endswith(b"/") for row in rows):
        return None
    top = os.fsencode(worktree.path) + b"/"
    return {row: _stamp(top + row) for row in rows}


def _stamp(place: bytes) -> Stamp:
    found = os.lstat(place)
    return (found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
