"""Slots of subtasks: each takes one like a job, and an agent that only waits for its subtasks lends its own.

A subtask is part of work that runs already, so it comes before jobs that have not begun. An agent that goes on after
it has waited does not wait once more for a slot: it takes it back even where that makes one too many for a moment,
because an answer to its call cannot be put off.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from orchard.core.run import Run
from orchard.core.scheduler import free_slots
from orchard.engine.leases import Leases


class Lending:
    """Who waits for a slot beside the jobs, and for a lease that another engine has."""

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
        """Give slots to those who wait, in their order, as far as there are any."""
        for run, begin, granted in tuple(self._waiting):
            if granted.done() or not free_slots(run, self._limit):
                continue
            if not self._leases.take(1):
                self.wait_for_lease()
                return
            begin()
            granted.set_result(None)

    def lend(self) -> None:
        """Somebody who has a slot only waits: others may have it."""
        self._leases.give_back(1)
        self._wake()

    def take_back(self) -> None:
        """Somebody who lent a slot goes on."""
        self._leases.take_anyway()

    def free(self) -> None:
        """Somebody who had a slot is done with it."""
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
