"""Repositories on this machine from which the user's submodules come: a job that checks one out has to read them.

Only a submodule that the user has checked out counts: a repository of strangers can name any folder in `.gitmodules`,
but git has then not cloned from there. And only what a clone reads is named: the commits and branches of the
other repository, not its settings, which may hold an address with a password, nor what it keeps beside.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from orchard.git.command import GitError
from orchard.git.repository import Repository

READ_BY_CLONE = ("HEAD", "objects", "refs", "packed-refs")
MOST = 16
"""Submodules that are looked for: each costs a few mounts at each start."""
_DEEPEST = 8


def local_sources(repo: Repository) -> tuple[Path, ...]:
    found: dict[Path, None] = {}
    for module in _modules(repo.common_dir / "modules", _DEEPEST):
        source = _source(repo, module)
        if source is not None and len(found) < MOST:
            found[source] = None
    parts = (source / name for source in found for name in READ_BY_CLONE)
    return tuple(path for path in parts if path.exists() and not path.is_symlink())


def _modules(folder: Path, depth: int) -> Iterator[Path]:
    """Repositories of submodules, and of submodules in these; a name may have slashes."""
    try:
        inside = sorted(entry.name for entry in os.scandir(folder) if entry.is_dir(follow_symlinks=False))
    except OSError:
        return
    for name in inside if depth else ():
        place = folder / name
        if (place / "HEAD").is_file():
            yield place
            yield from _modules(place / "modules", depth - 1)
        else:
            yield from _modules(place, depth - 1)


def _source(repo: Repository, module: Path) -> Path | None:
    """The folder of git's from which a submodule was cloned, if it is on this machine."""
    try:
        said = repo.git("config", "-f", str(module / "config"), "--get", "remote.origin.url", ok=(0, 1)).text
    except GitError:
        return None
    place = Path(said.removeprefix("file://"))
    if not place.is_absolute() or ".." in place.parts:
        return None
    return next(
        (git for git in (place / ".git", place) if (git / "HEAD").is_file() and (git / "objects").is_dir()), None
    )
