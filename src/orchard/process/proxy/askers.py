"""Which program stands at the other end of a connection to a door: the kernel knows it by the socket's number."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MOST_PROCESSES = 4000
_LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F")


def asker(port: int, door: int, keeper: int | None) -> str | None:
    """The name of the program that connects from this port of 127.0.0.1 to the door's; None where it cannot be told.

    `keeper` is a process in the network namespace in which both are. A program can call itself whatever it likes."""
    own = f"/proc/{keeper or 'self'}"
    inode = _inode(own, port, door)
    if inode is None:
        return None
    with suppress(OSError):
        inside = os.readlink(f"{own}/ns/net")  # noqa: PTH115 — it leads to no file
        for pid in _processes():
            with suppress(OSError):
                if os.readlink(f"/proc/{pid}/ns/net") == inside and _has(pid, inode):  # noqa: PTH115
                    return _name(pid)
    return None


def _inode(own: str, port: int, door: int) -> str | None:
    for table in ("tcp", "tcp6"):
        with suppress(OSError):
            for row in Path(f"{own}/net/{table}").read_text().splitlines()[1:]:
                cells = row.split()
                (host, here), there = cells[1].split(":"), cells[2].rpartition(":")[2]
                if host in _LOOPBACK and int(here, 16) == port and int(there, 16) == door:
                    return cells[9]
    return None


def _processes() -> Iterator[str]:
    # The youngest first: who asks has mostly begun a moment ago.
    found = sorted((name for name in os.listdir("/proc") if name.isdecimal()), key=int, reverse=True)  # noqa: PTH208
    yield from found[:MOST_PROCESSES]


def _has(pid: str, inode: str) -> bool:
    wanted = f"socket:[{inode}]"
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            with suppress(OSError):
                if os.readlink(entry.path) == wanted:  # noqa: PTH115
                    return True
    return False


def _name(pid: str) -> str | None:
    """What it is called; a thread may call itself otherwise (that of node does), then the word of its command."""
    words = Path(f"/proc/{pid}/cmdline").read_bytes()[:4096].split(b"\0")
    called = Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()
    first = os.fsdecode(words[0]).rpartition("/")[2]
    name = first if called == "MainThread" else called
    return name if re.fullmatch(r"[\w.+:-]{1,64}", name) else None
