"""The engine's share of the slots that all engines of a user have together."""

import asyncio

from orchard.store.slots import AGAIN_SECONDS, Slots

LINGER = 0.5
"""Seconds that an unused lease is kept: the next job of a chain wants it at once."""


class Leases:
    """Slots as the scheduler wants them: some now, and back when nobody has wanted them for a moment."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self._timer: asyncio.TimerHandle | None = None
        self._owed = 0
        """Leases that somebody works with although there was none: the next ones that come back are these."""

    @property
    def warning(self) -> str | None:
        """Why this engine counts its jobs alone, if it does."""
        return self._slots.warning

    def take(self, wanted: int) -> int:
        """As many leases as can be had, at most `wanted`."""
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
        """A lease for somebody who cannot wait for one; where there is none, it is owed."""
        if not self.take(1):
            self._owed += 1

    def unwanted(self) -> None:
        """No job waits: let other engines have what is unused, if that is still so in a moment."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER, self._drain)

    async def wait_free(self) -> None:
        """Wait until another engine gives one back."""
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
