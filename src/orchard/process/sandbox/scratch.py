"""The job's own temporary folder, in the place of the machine's.

Programs write to `/tmp` whatever `TMPDIR` says, hand each other files there, and make sockets there, whose paths may
have 107 letters. So behind a wall with mounts, where a policy hides these folders, programs find `Policy.temporary` at
both, and `TMPDIR` is `/tmp`. It is the same folder for all programs of a job, so what one leaves the next one finds.

A job may write there whatever it likes, and places of the policy may lie below `/tmp`: a scratch repository with its
worktrees does. They are mounted on top, and a mount needs something to stand on. bubblewrap makes that where it is
missing and follows links, also those that a job left there for it. So it never gets to make anything in this folder.
Of each path only the first name stands in it, which we make ourselves, through no link: an empty folder, over which
comes a folder in memory with the rest of the path in it, or a file. What else has that name is moved aside. While
programs run these names are mounts, and no program can rename a mount, by whichever path it comes to it.
"""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from msgspec import Struct

from orchard.process.sandbox.ground import Ground, Place
from orchard.process.sandbox.policy import INSIDE, Policy

SCRATCH = (os.fspath(INSIDE), "/var/tmp")


@cache
def _real_scratch() -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(os.path.realpath, SCRATCH)))


def is_scratch(place: Place) -> bool:
    """Whether the job's own folder comes here."""
    return place.access == "hidden" and place.folder and place.path in _real_scratch()


def is_shared(ground: Ground) -> bool:
    """Whether programs find the job's own folder at `/tmp`."""
    return any(is_scratch(place) and place.path == _real_scratch()[0] for place in ground.places)


class Standing(Struct, frozen=True):
    """A name in the job's folder on which something is mounted; a link is one, and nothing is mounted there."""

    path: str
    folder: bool
    link: str | None = None
    around: bool = False
    """Places are below it, and none is here."""


def standing(policy: Policy, ground: Ground) -> tuple[Standing, ...]:
    found: dict[str, Standing] = {}
    for top in (place.path for place in ground.places if is_scratch(place)):
        for place in _all(policy, ground):
            if not place.path.startswith(f"{top}/"):
                continue
            first = place.path[: len(top) + 1] + place.path[len(top) + 1 :].partition("/")[0]
            if place.path == first:
                found[first] = Standing(first, place.folder, place.link)
            else:
                found.setdefault(first, Standing(first, True, around=True))
    return tuple(found.values())


def _all(policy: Policy, ground: Ground) -> Iterator[Place]:
    yield from ground.places
    yield from (Place(os.fspath(mount.goal), "exposed", True) for mount in policy.mounts)


def laid_out(policy: Policy, ground: Ground) -> tuple[Place, ...]:
    """What is to be mounted, with the folders in memory, and without links that stand in the job's folder already."""
    points = {point.path: point for point in standing(policy, ground)}
    if not points:
        return ground.places
    kept = [place for place in ground.places if place.link is None or place.path not in points]
    kept += [Place(point.path, "hidden", True) for point in points.values() if point.around]
    return tuple(sorted(kept, key=lambda place: place.path.count("/") if place.path != "/" else 0))


def make_standing(policy: Policy, ground: Ground) -> None:
    """Make what is missing in the job's folder, and move aside what is something else; at each start of a program."""
    points = standing(policy, ground)
    if not points:
        return
    folder = os.open(policy.temporary, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for point in points:
            _make(folder, point)
    finally:
        os.close(folder)


def _make(folder: int, point: Standing) -> None:
    name = point.path.rpartition("/")[2]
    try:
        mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        pass
    else:
        if _stands(folder, name, mode, point):
            return
        os.rename(name, f"{name}.{secrets.token_hex(4)}", src_dir_fd=folder, dst_dir_fd=folder)
    with suppress(FileExistsError):  # another program of the job is being started
        if point.link is not None:
            os.symlink(point.link, name, dir_fd=folder)
        elif point.folder:
            os.mkdir(name, 0o755, dir_fd=folder)
        else:
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644, dir_fd=folder))


def _stands(folder: int, name: str, mode: int, point: Standing) -> bool:
    if point.link is not None:
        return stat.S_ISLNK(mode) and os.readlink(name, dir_fd=folder) == point.link
    return stat.S_ISDIR(mode) if point.folder else stat.S_ISREG(mode)


def outside(path: str, policy: Policy) -> str | None:
    """Where something is that programs find in the job's folder; None: it is not in there."""
    for top in SCRATCH:
        if path.startswith(f"{top}/") and policy.access(Path(path)) == "hidden":
            return f"{policy.temporary}{path[len(top) :]}"
    return None
