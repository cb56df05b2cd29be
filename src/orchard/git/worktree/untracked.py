"""Files of the user's checkout that are in no commit: those that git ignores, and those that nobody added yet.

A worktree of a job has neither. Of what git ignores, the settings bring over what they name.
"""

from collections.abc import Collection, Sequence
from pathlib import Path

from orchard.git.repository import Repository
from orchard.git.worktree.setup import git_of_checkout, included_names

SECONDS = 60.0


def ignored_files(repo: Repository, top: Path, below: Sequence[str]) -> list[str]:
    """The files below these paths that git ignores in the checkout at `top`; a link is not gone through."""
    return _listed(repo, top, ("--ignored", "--exclude-standard"), below)


def new_files(repo: Repository, top: Path, below: Sequence[str]) -> list[str]:
    """The files below these paths that git would add, and nobody has."""
    return _listed(repo, top, ("--exclude-standard",), below)


def ignored_entries(repo: Repository, top: Path, below: Sequence[str]) -> list[str]:
    """What of these paths git ignores, a folder that is ignored as a whole as one name with a slash at its end."""
    return _listed(repo, top, ("--ignored", "--exclude-standard", "--directory"), below)


def brought_along(repo: Repository, top: Path, patterns: Sequence[str], roots: Sequence[Path]) -> Collection[str]:
    """The ignored files that worktrees get, because these patterns name them."""
    return {name.decode(errors="surrogateescape") for name in included_names(repo, top, patterns, roots)}


def _listed(repo: Repository, top: Path, options: Sequence[str], below: Sequence[str]) -> list[str]:
    paths = [f":(literal){path}" for path in below if (top / path).exists()]
    if not paths:
        return []
    rows = git_of_checkout(repo, top)("ls-files", "-z", "--others", *options, "--", *paths, timeout=SECONDS).fields
    return [row.decode(errors="surrogateescape") for row in rows]
