"""One lock for each plan, for whoever decides something about it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from orchard.model.plan import PlanId


class PlanLocks:
    """Locks by plan; one that nobody holds or waits for takes no room."""

    def __init__(self) -> None:
        self._locks: dict[PlanId, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def alone(self, plan: PlanId) -> AsyncIterator[None]:
        """Be the only one in such a block for this plan."""
        lock, users = self._locks.get(plan, (asyncio.Lock(), 0))
        self._locks[plan] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[plan]
            if users > 1:
                self._locks[plan] = lock, users - 1
            else:
                del self._locks[plan]
