"""Who is in a folder: processes that stand in it, or have a file of it open.

What a job started is ended by its family before this is asked. Whoever is found here cannot be proven to be a job's: it
may be the user's own shell or editor. So nobody is ended; the folder is left to those who are in it.
"""

import contextlib
import os
import time
from pathlib import Path

from orchard.frozen import frozen
from orchard.process.table import LINUX, all_processes


@frozen
class Occupant:
    """A process, and what it does in the folder."""

    pid: int
    how: str
    """`stands in it`, `has it as its root` or `has a file open in it`."""


def occupants(folder: Path, since: float | None = None) -> list[Occupant]:
    """The processes of this user in a folder; of those that began before `since` the open files are not looked at.

    `since` is counted as `Stat.started` is. Where the system does not tell (not Linux), nobody is found.
    """
    if not LINUX:
        return []
    place = os.path.realpath(folder)
    me = str(os.getpid())
    found = []
    for name in os.listdir("/proc"):  # noqa: PTH208 (hot)
        if name.isdecimal() and name != me and (how := _where(name, place)):
            found.append(Occupant(int(name), how))
    known = {one.pid for one in found} | {os.getpid()}
    for stat in all_processes(since or 0.0) if since is not None else ():
        if stat.pid not in known and not stat.dead and _has_open(stat.pid, place):
            found.append(Occupant(stat.pid, "has a file open in it"))
    return found


def moment() -> float:
    """Now, as `since` counts."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK") if LINUX else 0.0


def _where(pid: str, place: str) -> str | None:
    try:
        if _is_in(os.readlink(f"/proc/{pid}/cwd"), place):  # noqa: PTH115 (hot)
            return "stands in it"
        if _is_in(os.readlink(f"/proc/{pid}/root"), place):  # noqa: PTH115 (hot)
            return "has it as its root"
    except OSError:
        pass  # gone, or not ours to look at
    return None


def _has_open(pid: int, place: str) -> bool:
    folder = f"/proc/{pid}/fd"
    try:
        numbers = os.listdir(folder)  # noqa: PTH208 (hot)
    except OSError:
        return False
    for number in numbers:
        with contextlib.suppress(OSError):
            if _is_in(os.readlink(f"{folder}/{number}"), place):  # noqa: PTH115 (hot)
                return True
    return False


def _is_in(path: str, place: str) -> bool:
    return path == place or path.startswith((f"{place}/", f"{place} (deleted)"))
