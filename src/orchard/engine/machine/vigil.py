"""Keeping the machine awake while jobs run, and telling the plans whose jobs may be cut off by its sleep.

Its pulse tells when the engine of a repository was last at work: the time of one small file, renewed while attempts
are under way. A program that prints nothing leaves no trace in the journal until it ends; if its engine is killed
meanwhile, this is how the next one, and whoever only looks, knows for how long it ran.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from orchard.core.run import Run
from orchard.engine.world import World
from orchard.model.plan import PlanId
from orchard.process.awake import keep_awake

PULSE_FILE = "pulse"
PULSE_SECONDS = 1.0


def last_pulse(state: Path) -> float:
    """When an engine was last known to have an attempt under way; 0: nobody knows."""
    try:
        return (state / PULSE_FILE).lstat().st_mtime
    except OSError:
        return 0.0


AWAKE_AFTER = 30.0
"""Seconds after which it is worth keeping the machine awake; no machine falls asleep sooner."""


class Vigil:
    def __init__(
        self,
        world: World,
        idle: asyncio.Event,
        active: Callable[[], list[Run]],
        warn: Callable[[PlanId, str], None],
        on_beat: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_beat = on_beat
        self._busy, self._idle = asyncio.Event(), idle
        self._active, self._warn = active, warn
        self._pulse_file, self._clock = world.repo.state / PULSE_FILE, world.clock
        self._next_beat: asyncio.TimerHandle | None = None
        self._warning: str | None = None
        self._timers: dict[PlanId, asyncio.TimerHandle] = {}

    def begin(self, run: Run) -> None:
        self._busy.set()
        if self._next_beat is None:
            self._beat()
        if self._warning is not None and run.id not in self._timers:
            self._timers[run.id] = asyncio.get_running_loop().call_later(AWAKE_AFTER, self._tell, run)

    async def keep(self) -> None:
        """Keep the machine awake whenever jobs run for longer than a moment; where that fails, warn their plans."""
        while self._warning is None:
            await self._busy.wait()
            try:
                # Not wait_for: before 3.12 it swallows a cancellation that comes together with the event.
                async with asyncio.timeout(AWAKE_AFTER):
                    await self._idle.wait()
            except TimeoutError:
                await self._hold()
            self._busy.clear()

    def close(self) -> None:
        if self._next_beat is not None:
            self._next_beat.cancel()
            self._next_beat = None
        if self._active():  # for the last time
            self._touch()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def _hold(self) -> None:
        hold = keep_awake()
        # A desktop may take seconds to answer, and nobody else may wait for it.
        self._warning = await asyncio.to_thread(hold.__enter__)
        try:
            if self._warning is None:
                await self._idle.wait()
                return
            for run in self._active():
                self._warn(run.id, self._warning)
        finally:
            await asyncio.to_thread(hold.__exit__, None, None, None)

    def _tell(self, run: Run) -> None:
        del self._timers[run.id]
        if self._warning is not None and run.is_active:
            self._warn(run.id, self._warning)

    def _beat(self) -> None:
        self._next_beat = None
        if self._active():
            self._touch()
            self._on_beat()
            self._next_beat = asyncio.get_running_loop().call_later(PULSE_SECONDS, self._beat)

    def _touch(self) -> None:
        now = self._clock()
        with suppress(OSError):  # without it times are less exact, and nothing else is
            flags = os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            handle = os.open(self._pulse_file, flags, 0o600)
            try:
                os.utime(handle, (now, now))
            finally:
                os.close(handle)
