"""The engine's share of the slots that all engines of a user have together."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from orchard.core.run import Run
from orchard.core.scheduler import free_slots
from orchard.store.slots import AGAIN_SECONDS, Slots

LINGER = 0.5
"""Seconds that an unused lease is kept: the next job of a chain wants it at once."""


class Leases:
    """Slots as the scheduler wants them: some now, and back when nobody has wanted them for a moment."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._timer: asyncio.TimerHandle | None = None
        self._owed = 0
        """Leases that agents work with although there was none: the next ones that come back are these."""

    @property
    def warning(self) -> str | None:
        """Why this engine counts its jobs alone, if it does."""
        return self._slots.warning

    def take(self, wanted: int) -> int:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        taken = 0
        while taken < wanted and self._slots.acquire():
            taken += 1
        return taken

    def give_back(self, count: int) -> None:
        paid = min(count, self._owed)
        self._owed -= paid
        for _ in range(count - paid):
            self._slots.release()

    def take_anyway(self) -> None:
        """A lease for an agent that cannot wait for one; where there is none, it is owed."""
        if not self.take(1):
            self._owed += 1

    def unwanted(self) -> None:
        """No job waits: let other engines have what is unused, if that is still so in a moment."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER, self._drain)

    async def wait_free(self) -> None:
        await self._slots.wait_free()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._slots.drain()

    def _drain(self) -> None:
        self._timer = None
        if not self._slots.drain():
            self._timer = asyncio.get_running_loop().call_later(AGAIN_SECONDS, self._drain)


class SubtaskSlots:
    """Slots of subtasks: each takes one like a job, and an agent that only waits for its subtasks frees its own.

    A subtask is part of work that runs already, so it comes before jobs that have not begun. An agent that goes on
    after it has waited does not wait once more for a slot: it takes it back even where that makes one too many for a
    moment, because an answer to its call cannot be put off.
    """

    def __init__(
        self, leases: Leases, limit: int, spawn: Callable[[Awaitable[None]], Any], wake: Callable[[], None]
    ) -> None:
        self._leases, self._limit, self._spawn, self._wake = leases, limit, spawn, wake
        self._waiting: list[tuple[Run, Callable[[], None], asyncio.Future[None]]] = []
        self._waits_for_lease = False

    async def take(self, run: Run, begin: Callable[[], None]) -> None:
        """Wait for a slot of this plan; `begin` is called in the moment in which it is given, and counts it."""
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((run, begin, granted))
        self._wake()
        try:
            await granted
        finally:
            self._waiting = [one for one in self._waiting if one[2] is not granted]

    def serve(self) -> None:
        for run, begin, granted in tuple(self._waiting):
            if granted.done() or not free_slots(run, self._limit):
                continue
            if not self._leases.take(1):
                self.wait_for_lease()
                return
            begin()
            granted.set_result(None)

    def take_back(self) -> None:
        """An agent goes on that had freed its slot while it only waited."""
        self._leases.take_anyway()

    def free(self) -> None:
        """A subtask is done with its slot, or an agent only waits for its subtasks: others may have it."""
        self._leases.give_back(1)
        self._wake()

    def wait_for_lease(self) -> None:
        """Look again when another process gives a lease back."""
        if not self._waits_for_lease:
            self._waits_for_lease = True
            self._spawn(self._lease_freed())

    async def _lease_freed(self) -> None:
        await self._leases.wait_free()
        self._waits_for_lease = False
        self._wake()
