"""What was found out about programs and models, kept for an hour in the user's cache folder.

A cache is only a guess that saves time: whatever is odd about its file (unreadable, damaged, somebody else's) means
that nothing is known yet, and what cannot be written is forgotten.
"""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from orchard.files import read_own, replace_whole

FILE = "agents.json"
HOUR = 3600.0
FILE_BYTES = 4 * 1024 * 1024
MOST = 500


class Cache:
    """Values by name in one file; none is older than an hour."""

    def __init__(self, file: Path | Callable[[], Path], now: Callable[[], float] = time.time) -> None:
        self._named, self._now = file, now
        self._memory: dict[str, dict[str, Any]] = {}

    @cached_property
    def _file(self) -> Path:
        return self._named() if callable(self._named) else self._named

    def get(self, key: str) -> Any:
        entry = self._read().get(key) or self._memory.get(key)
        return entry["value"] if entry is not None and self._is_good(entry) else None

    def put(self, values: dict[str, Any], seconds: float = HOUR) -> None:
        if not values:
            return
        now = self._now()
        new = {key: {"at": now, "for": seconds, "value": value} for key, value in values.items()}
        kept = {**self._read(), **new}
        self._memory.update(new)  # for a process that lives on where no file can be written
        newest = sorted(kept, key=lambda key: kept[key]["at"])[-MOST:]
        with suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_whole(self._file, json.dumps({key: kept[key] for key in newest}).encode())

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            found = json.loads(read_own(self._file, FILE_BYTES))
        except (OSError, ValueError, RecursionError):  # one that is too long is cut, and so is no JSON
            return {}
        entries = found.items() if isinstance(found, dict) else ()
        return {key: entry for key, entry in entries if self._is_good(entry)}

    def _is_good(self, entry: object) -> bool:
        if not isinstance(entry, dict) or "value" not in entry:
            return False
        at, seconds = entry.get("at"), entry.get("for")
        if not isinstance(at, int | float) or not isinstance(seconds, int | float):
            return False
        # A clock that was set back would keep an entry for as long as it was ahead.
        return bool(0 <= self._now() - at < min(seconds, HOUR))


def user_cache() -> Cache:
    return Cache(lambda: _user_folder() / FILE)


def _user_folder() -> Path:
    from platformdirs import user_cache_path  # slow to import

    return user_cache_path("orchard")
