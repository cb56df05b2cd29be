"""Who is in a folder: processes that stand in it, or have a file of it open or mapped.

What a job started is ended by its family before this is asked. A process that is found here cannot be proven to be a
job's: it may be the user's own shell or editor. So none is ended; the folder is left to those that are in it.
"""

import contextlib
import os
from pathlib import Path

from msgspec import Struct

from orchard.process.families.table import LINUX, Moment, all_pids, began_since

EVER = Moment()


class Occupant(Struct, frozen=True):
    pid: int
    how: str
    """`stands in it`, `has it as its root`, `has a file open in it` or `has a file mapped in it`."""


def occupants(folder: Path, since: Moment = EVER) -> list[Occupant]:
    """The processes of this user in a folder; of those that began before `since`, only who stands in it is found.

    Where the system does not tell (not Linux), none is found.
    """
    if not LINUX:
        return []
    place, is_young = os.path.realpath(folder), began_since(since)
    found, me = [], os.getpid()
    for pid in all_pids():
        try:
            stands = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115 (hot)
        except OSError:
            continue  # gone, or not ours to look at
        if stands.startswith(place) and _is_in(stands, place):
            how: str | None = "stands in it"
        else:
            how = _has(pid, place) if is_young(pid) else None
        if how is not None and pid != me:
            found.append(Occupant(pid, how))
    return found


def _has(pid: int, place: str) -> str | None:
    try:
        if _is_in(os.readlink(f"/proc/{pid}/root"), place):  # noqa: PTH115 (hot)
            return "has it as its root"
    except OSError:
        return None  # gone, or not ours to look at
    if _has_open(pid, place):
        return "has a file open in it"
    return "has a file mapped in it" if _has_mapped(pid, place) else None


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


def _has_mapped(pid: int, place: str) -> bool:
    """Whether what a process writes to its memory may reach a file below a folder; no descriptor tells of that."""
    shown = place.replace("\n", "\\012")  # as the kernel does
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps", "rb") as file:  # noqa: PTH123 (hot)
        text = file.read()
        for row in text[:-1].split(b"\n") if os.fsencode(shown) in text else ():
            # "7f01-7f02 rw-s 00000000 08:01 1234     /a/path": "s" is for what is shared with the file.
            words = row.split(None, 5)
            if words[1].endswith(b"s") and _is_in(os.fsdecode(words[-1]), shown):
                return True
    return False


def _is_in(path: str, place: str) -> bool:
    return path == place or path.startswith((f"{place}/", f"{place} (deleted)"))
