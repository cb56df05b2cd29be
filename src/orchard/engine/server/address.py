"""Where the engine of a repository listens: a small file that says who wrote it, so that a stale one is seen."""

import fcntl
import json
import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import asdict

from orchard.errors import OrchardError
from orchard.files import read_plain, replace_whole
from orchard.process.families.identity import Identity, is_alive

ADDRESS_FILE = "daemon.json"
LOCK_FILE = "engine.lock"
PLACE_FILE = "place.json"


class Address(Struct, frozen=True):
    pid: int
    started: float
    boot: str
    socket: str
    nonce: str

    @property
    def identity(self) -> Identity:
        return Identity(self.pid, self.started, self.boot)

    @property
    def alive(self) -> bool:
        return is_alive(self.identity)


def read_address(state: Path) -> Address | None:
    """What the engine of this repository wrote about itself, if there is one and it lives."""
    try:
        address = Address(**read_note(state / ADDRESS_FILE))
    except (OSError, ValueError, TypeError, RecursionError):
        return None
    return address if address.alive else None


def read_note(path: Path) -> dict[str, Any]:
    """What a process wrote about itself into this folder; ValueError: it wrote that elsewhere, and this is a copy."""
    said = json.loads(read_plain(path))
    if not isinstance(said, dict) or said.pop("place", None) not in (None, place_of(path.parent)):
        raise ValueError("no note of this folder")
    return said


def write_note(path: Path, said: Mapping[str, object]) -> None:
    """Write what `read_note` reads in this folder, and in no copy of it."""
    replace_whole(path, json.dumps({**said, "place": place_of(path.parent)}).encode())


def place_of(folder: Path) -> str:
    """What tells a folder from its copies, also after it was moved."""
    found = folder.stat()
    return f"{found.st_dev}:{found.st_ino}"


def refuse_copy(state: Path) -> None:
    """Refuse to be the engine of a copy: what its journal tells of lies and runs where the original is.

    A repository that was moved, or brought back from a backup, is no copy.
    """
    here, note = {"place": place_of(state), "state": str(state)}, state / PLACE_FILE
    try:
        said = json.loads(read_plain(note))
        known = {name: str(said[name]) for name in ("place", "state")}
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        known = here
    original = Path(known["state"])
    if known["place"] != here["place"] and original.is_dir() and place_of(original) == known["place"]:
        raise OrchardError(
            f"{state.parent} is a copy of {original.parent}, whose plans are in its records: they go on there.",
            hint=f"To begin anew in the copy: rm -r {shlex.quote(str(state))}",
        )
    if known != here or not note.is_file():
        write_note(note, {"state": str(state)})


def is_at_work(state: Path) -> bool:
    """Also by its lock: in another container the process of an engine has another number, or none."""
    return read_address(state) is not None or is_locked(state / LOCK_FILE)


def is_locked(path: Path) -> bool:
    """Whether someone holds a lock. An engine that starts in this moment tries again, so asking harms nobody."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
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
    write_note(state / ADDRESS_FILE, asdict(address))
