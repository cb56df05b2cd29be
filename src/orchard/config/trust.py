"""Which repositories' settings the user has agreed to.

A repository's `orchard.toml` comes with the clone, so the part of it that runs programs or loosens
safety counts only once the user has seen it; so do settings for the programs of agents. What is
remembered is the folder and its git folder (real path, device and inode, so that another folder at
the same path, or another repository that points at this folder, is not meant) and a digest of exactly
that part: one changed value, and the user is asked again.

Whatever is odd about the record (unreadable, someone else's, writable by others) means that nothing
is trusted.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from orchard.config.user_dirs import make_state_dir, user_dirs
from orchard.errors import Hint, Next, OrchardError
from orchard.files import NOT_A_FILE, NOT_OURS, read_own, replace_whole

RECORD = "trust.json"
RECORD_BYTES = 4 * 1024 * 1024
LOCK_SECONDS = 10.0
KEPT_PROJECTS = 16
AGREE_FIRST: Hint = ("Run '", Next("trust_repository"), "': it shows them and asks you.")


def not_agreed(keys: Iterable[str]) -> str:
    """What people are told of settings that the user has not agreed to, wherever they are told of them."""
    listed = ", ".join(sorted(keys))
    return (
        f"This repository's orchard.toml has settings that run programs or loosen safety ({listed}). "
        "Orchard uses them only after you agree to them."
    )


def digest(values: Mapping[str, object]) -> str:
    """What identifies settings by their exact content, whatever their order."""
    text = json.dumps(
        values, sort_keys=True, ensure_ascii=True, default=lambda value: [type(value).__name__, str(value)]
    )
    return hashlib.sha256(text.encode()).hexdigest()


def trusted(top: Path, wanted: str, state: Path | None = None, common_dir: Path | None = None) -> bool:
    """Whether the user agreed to settings with this digest in this very folder of this very repository."""
    return _found(top, common_dir, state).get("sha256") == wanted


def agreed_projects(top: Path, common_dir: Path, state: Path | None = None) -> list[Mapping[str, str]]:
    """What the user agreed to of settings for agents' programs: digests by folder, one such table a time."""
    rows = _found(top, common_dir, state).get("projects", [])
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def trust(
    top: Path,
    agreed: str | None,
    state: Path | None = None,
    common_dir: Path | None = None,
    project: Mapping[str, str] | None = None,
) -> None:
    """Remember that the user agreed to settings, to those for agents' programs, or to both.

    Settings that were agreed to before for this folder no longer hold. Of those for agents a few are kept, since
    each branch may have its own.
    """
    from filelock import FileLock, Timeout  # slow to import: it brings asyncio

    folder = make_state_dir(state or user_dirs().state)
    try:
        with FileLock(folder / f"{RECORD}.lock", timeout=LOCK_SECONDS, mode=0o600):
            record = _read(folder / RECORD)
            known = _found(top, common_dir, state)
            rows = [row for row in known.get("projects", []) if row != project]
            kept = [*rows, *([dict(project)] if project else [])][-KEPT_PROJECTS:]
            entry = {**_identity(top, common_dir), "sha256": agreed or known.get("sha256"), "projects": kept}
            record[_name(top)] = entry
            _write(folder / RECORD, record)
    except Timeout as error:
        raise OrchardError(f"Another program holds {error.lock_file}", "Try again when it has ended.") from error
    except ValueError as error:
        raise OrchardError(f"Cannot use {folder / RECORD}: {error}.", "Move it away and try again.") from error
    except OSError as error:
        raise OrchardError(f"Cannot write {folder / RECORD}: {error.strerror}.") from error


def _found(top: Path, common_dir: Path | None, state: Path | None) -> dict[str, Any]:
    """What is remembered of this very folder; nothing where anything is odd."""
    try:
        entry = _read((state or user_dirs().state) / RECORD).get(_name(top))
        if isinstance(entry, dict) and _identity(top, common_dir).items() <= entry.items():
            return entry
    except (OSError, ValueError):
        pass
    return {}


def _name(top: Path) -> str:
    return os.path.realpath(top)


def _identity(top: Path, common_dir: Path | None) -> dict[str, object]:
    """What tells a folder from any other that is, or will be, at its path."""
    found = top.stat()
    known: dict[str, object] = {"device": found.st_dev, "inode": found.st_ino}
    if common_dir is not None:
        git = common_dir.stat()
        known |= {"git": os.path.realpath(common_dir), "git_device": git.st_dev, "git_inode": git.st_ino}
    return known


def _read(path: Path) -> dict[str, Any]:
    """The record; ValueError says what is wrong with it."""
    try:
        data = read_own(path, RECORD_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as error:
        if error.strerror in (NOT_A_FILE, NOT_OURS):
            raise ValueError(error.strerror) from None
        raise
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
    replace_whole(path, json.dumps(record, indent=1, sort_keys=True).encode(), durable=True)
