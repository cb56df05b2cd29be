"""Ending a part of an attempt without ending the attempt."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


class Interruptible:
    """To the part its end is a cancellation like any other, so everything that it started ends with it."""

    def __init__(self) -> None:
        self._scope = asyncio.timeout(None)
        self._over = asyncio.Event()
        self.interrupted = False
        self.why = "interrupted"
        """Or `paused`: what ended it wants nothing of it to go on before it is resumed."""

    async def run(self, part: Awaitable[T]) -> T | None:
        """Await the part; None: it was interrupted."""
        try:
            async with self._scope:
                return await part
        except TimeoutError:
            if not self.interrupted:
                raise
            return None
        finally:
            self._over.set()

    async def interrupt(self, why: str = "interrupted") -> None:
        """End the part, and wait until nothing of it is running any more."""
        self.why = why if self.why == "interrupted" else self.why
        if not self.interrupted:
            self.interrupted = True
            self._scope.reschedule(asyncio.get_running_loop().time())
        await self._over.wait()
