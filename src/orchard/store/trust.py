"""Which repositories' settings the user has agreed to.

A repository's `orchard.toml` comes with the clone, so the part of it that runs programs or loosens
safety counts only once the user has seen it. What is remembered is the folder (its real path, device
and inode, so that another folder at the same path is not meant) and a digest of exactly that part:
one changed character, and the user is asked again.

Whatever is odd about the record (unreadable, someone else's, writable by others) means that nothing
is trusted.
"""

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchard.errors import OrchardError
from orchard.store.dirs import make_state_dir, user_dirs

RECORD = "trust.json"
RECORD_BYTES = 4 * 1024 * 1024
LOCK_SECONDS = 10.0


def digest(values: Mapping[str, object]) -> str:
    """What identifies settings by their exact content, whatever their order."""
    text = json.dumps(
        values, sort_keys=True, ensure_ascii=True, default=lambda value: [type(value).__name__, str(value)]
    )
    return hashlib.sha256(text.encode()).hexdigest()


def trusted(top: Path, wanted: str, state: Path | None = None) -> bool:
    """Whether the user agreed to settings with this digest in this very folder."""
    try:
        record = _read((state or user_dirs().state) / RECORD)
        return record.get(_name(top)) == _entry(top, wanted)
    except (OSError, ValueError):
        return False


def trust(top: Path, agreed: str, state: Path | None = None) -> None:
    """Remember that the user agreed; what was agreed to before for this folder no longer holds."""
    from filelock import FileLock, Timeout  # slow to import: it brings asyncio

    folder = make_state_dir(state or user_dirs().state)
    try:
        with FileLock(folder / f"{RECORD}.lock", timeout=LOCK_SECONDS, mode=0o600):
            record = _read(folder / RECORD)
            record[_name(top)] = _entry(top, agreed)
            _write(folder / RECORD, record)
    except Timeout as error:
        raise OrchardError(f"Another program holds {error.lock_file}", "Try again when it has ended.") from error
    except ValueError as error:
        raise OrchardError(f"Cannot use {folder / RECORD}: {error}.", "Move it away and try again.") from error
    except OSError as error:
        raise OrchardError(f"Cannot write {folder / RECORD}: {error.strerror}.") from error


def _name(top: Path) -> str:
    return os.path.realpath(top)


def _entry(top: Path, wanted: str) -> dict[str, object]:
    found = top.stat()
    return {"device": found.st_dev, "inode": found.st_ino, "sha256": wanted}


def _read(path: Path) -> dict[str, Any]:
    """The record; ValueError says what is wrong with it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return {}
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a file")
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise ValueError("others can write to it")
        data = file.read(RECORD_BYTES + 1)
    if len(data) > RECORD_BYTES:
        raise ValueError("it is too long")
    try:
        record = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(record, dict):
        raise ValueError("it does not hold what it should")
    return record


def _write(path: Path, record: Mapping[str, object]) -> None:
    """Replace the record as a whole: a reader or a power cut sees the old one or the new one."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="ascii") as file:
        json.dump(record, file, indent=1, sort_keys=True)
        file.flush()
        os.fsync(handle)
    new.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
