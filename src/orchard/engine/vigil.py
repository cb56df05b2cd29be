"""Keeping the machine awake while jobs run, and telling the plans whose jobs may be cut off by its sleep."""

import asyncio
from collections.abc import Callable

from orchard.core.run import Run
from orchard.engine.pulse import Pulse
from orchard.engine.world import World
from orchard.model.plan import PlanId
from orchard.process.awake import keep_awake

AWAKE_AFTER = 30.0
"""Seconds after which it is worth keeping the machine awake; no machine falls asleep sooner."""


class Vigil:
    """Watches over the machine for as long as an engine has jobs."""

    def __init__(
        self, world: World, idle: asyncio.Event, active: Callable[[], list[Run]], warn: Callable[[PlanId, str], None]
    ) -> None:
        self._busy, self._idle = asyncio.Event(), idle
        self._active, self._warn = active, warn
        self._pulse = Pulse(world.repo.state, lambda: bool(active()), world.clock)
        self._warning: str | None = None
        self._timers: dict[PlanId, asyncio.TimerHandle] = {}

    def begin(self, run: Run) -> None:
        self._busy.set()
        self._pulse.begin()
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
        """Forget all timers; jobs that are still under way end with the engine."""
        self._pulse.close()
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
