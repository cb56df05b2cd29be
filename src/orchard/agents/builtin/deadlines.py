"""How long a turn may take, and how long a model may say nothing."""

import asyncio
from collections.abc import Awaitable

from orchard.agents.protocol import Result
from orchard.model.limits import Limits

_FINEST = 0.5
"""Seconds by which the silence of a model may be told too long: a timer is not set anew with each syllable."""


class Patience:
    """Of whoever runs a turn. Silence counts while a model is asked; tools, and waiting for one's turn, have limits of
    their own."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._ends: float | None = None
        self._set_at: float | None = None
        self._timer = asyncio.timeout(None)

    async def wait(self, work: Awaitable[Result]) -> Result:
        """Let it work; what takes too long is canceled, and told as what it is."""
        loop = asyncio.get_running_loop()
        if self._limits.wall is not None:
            self._ends = loop.time() + self._limits.wall
        try:
            async with self._timer:
                self._timer.reschedule(self._ends)
                return await work
        except TimeoutError:
            if not self._timer.expired():
                raise
        if self._ends is not None and loop.time() >= self._ends:
            return Result("timeout", f"The agent was stopped: it worked longer than {self._limits.wall:g} s.")
        return Result("idle", f"The agent was stopped: the model said nothing for {self._limits.idle:g} s.")

    def heard(self) -> None:
        """The model is asked, or says something."""
        now = asyncio.get_running_loop().time()
        if self._limits.idle is None or self._timer.expired():
            return
        if self._set_at is None or now - self._set_at > min(_FINEST, self._limits.idle / 8):
            self._set_at = now
            silent = now + self._limits.idle
            self._timer.reschedule(silent if self._ends is None else min(silent, self._ends))

    def rest(self) -> None:
        """The model is not asked any more."""
        self._set_at = None
        if not self._timer.expired():
            self._timer.reschedule(self._ends)
