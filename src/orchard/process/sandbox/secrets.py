"""Files of the system that this account may read and others may not: they are hidden behind a wall.

A program behind a wall keeps the account, also when it is called something else inside. For an ordinary user that
matters little, since what is the system's is closed to him; root owns nearly all of it, and loses only the capability
to read what belongs to others. So the usual places are searched, once per process, for what is closed to the world and
open to us. Each costs a mount at each start, so files of nothing (locks) are left out. Not searched: what is deeper
than `DEPTH` folders or past `ENTRIES` names, and what lies elsewhere, such as private files on other disks: the policy
can say those.
"""

import os
import stat
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

PLACES = tuple(map(Path, ("/etc", "/boot", "/opt", "/srv", "/usr/local/etc", "/var")))
KERNEL = tuple(
    map(
        Path,
        (
            "/sys/firmware",
            "/sys/kernel/debug",
            "/sys/kernel/tracing",
            "/sys/kernel/security",
            "/sys/fs/bpf",
            "/sys/fs/pstore",
        ),
    )
)
"""Where the kernel tells root what the machine does."""
WHOLE = ("/var/log", "/var/backups", "/var/spool")
"""Of these a program of a job needs nothing, and they hold many secrets: one of them hides the whole folder. An empty
folder is also the cheaper mount: for a file bubblewrap reads the table of all mounts."""
DEPTH = 5
ENTRIES = 50_000


@cache
def secrets_of_the_system(user: int, groups: frozenset[int]) -> tuple[str, ...]:
    kernel = [path for path in KERNEL if path.is_dir()] if user == 0 else []
    return (*map(os.fspath, kernel), *by_folder(map(os.fspath, secrets_below(PLACES, user, groups))))


def by_folder(secrets: Iterable[str]) -> tuple[str, ...]:
    """The secrets, with the folder in place of all that are in one of those that are hidden as a whole."""
    around = ((secret, (whole for whole in WHOLE if secret.startswith(f"{whole}/"))) for secret in secrets)
    return tuple(dict.fromkeys(next(wholes, secret) for secret, wholes in around))


def secrets_below(places: Iterable[Path], user: int, groups: frozenset[int]) -> tuple[Path, ...]:
    """Files and folders that the user or the groups may read and the world may not; nothing inside such a folder."""
    found: list[Path] = []
    seen = 0
    waiting = [(os.fspath(place), 0) for place in places]
    while waiting and seen < ENTRIES:
        folder, depth = waiting.pop(0)
        for entry in _entries(folder):
            seen += 1
            if entry.is_symlink():
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # it went away meanwhile
            if _is_secret(status, user, groups):
                found.append(Path(entry.path))
            elif stat.S_ISDIR(status.st_mode) and depth < DEPTH:
                waiting.append((entry.path, depth + 1))
    return tuple(found)


def _entries(folder: str) -> Iterator[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            yield from entries
    except OSError:
        return


def _is_secret(status: os.stat_result, user: int, groups: frozenset[int]) -> bool:
    """Closed to the world and open to us. The owner may open what is closed to himself, too."""
    mode = status.st_mode
    if stat.S_ISLNK(mode) or (stat.S_ISREG(mode) and status.st_size == 0):
        return False
    world = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH
    if mode & world:
        return False
    return status.st_uid == user or (status.st_gid in groups and bool(mode & stat.S_IRGRP))
