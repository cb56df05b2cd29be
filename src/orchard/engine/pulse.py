"""When the engine of a repository was last at work: the time of one small file, renewed while attempts are under way.

A program that prints nothing leaves no trace in the journal until it ends; if its engine is killed meanwhile, this is
how the next one, and whoever only looks, knows for how long it ran.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PULSE_FILE = "pulse"
PULSE_SECONDS = 1.0


def last_pulse(state: Path) -> float:
    """When an engine was last known to have an attempt under way; 0: nobody knows."""
    try:
        return (state / PULSE_FILE).lstat().st_mtime
    except OSError:
        return 0.0


class Pulse:
    def __init__(self, state: Path, busy: Callable[[], bool], clock: Callable[[], float]) -> None:
        self._file, self._busy, self._clock = state / PULSE_FILE, busy, clock
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        if self._timer is None:
            self._beat()

    def close(self) -> None:
        """Say for the last time when attempts were under way, if any are."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._busy():
            self._touch()

    def _beat(self) -> None:
        self._timer = None
        if self._busy():
            self._touch()
            self._timer = asyncio.get_running_loop().call_later(PULSE_SECONDS, self._beat)

    def _touch(self) -> None:
        now = self._clock()
        with suppress(OSError):  # without it times are less exact, and nothing else is
            flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.open(self._file, flags, 0o600)
            try:
                os.utime(handle, (now, now))
            finally:
                os.close(handle)
