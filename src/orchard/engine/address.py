"""Where the engine of a repository listens: a small file that says who wrote it, so that a stale one is seen."""

import fcntl
import json
import os
from dataclasses import asdict
from pathlib import Path

from orchard.frozen import frozen
from orchard.process.identity import Identity, is_alive

ADDRESS_FILE = "daemon.json"
LOCK_FILE = "engine.lock"


@frozen
class Address:
    """Where an engine listens, and what it wants to hear first."""

    pid: int
    started: float
    boot: str
    socket: str
    nonce: str

    @property
    def identity(self) -> Identity:
        """The process that wrote this."""
        return Identity(self.pid, self.started, self.boot)

    @property
    def alive(self) -> bool:
        """Whether the engine that wrote this still runs."""
        return is_alive(self.identity)


def read_address(state: Path) -> Address | None:
    """What the engine of this repository wrote about itself, if there is one and it lives."""
    try:
        address = Address(**json.loads((state / ADDRESS_FILE).read_text()))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return address if address.alive else None


def is_at_work(state: Path) -> bool:
    """Whether an engine works on this repository, also where its process cannot be seen from here.

    In another container a process has another number, or none; the lock that it holds is the same.
    """
    return read_address(state) is not None or is_locked(state / LOCK_FILE)


def is_locked(path: Path) -> bool:
    """Whether someone holds a lock. An engine that starts in this moment tries again, so asking harms nobody."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # no locks on this file system: nobody can tell
    finally:
        os.close(handle)
    return False


def write_address(state: Path, address: Address) -> None:
    place = state / ADDRESS_FILE
    fresh = place.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w") as file:
        json.dump(asdict(address), file)
    fresh.replace(place)
