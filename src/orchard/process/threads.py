"""Waiting for what runs in a thread: it cannot be stopped, so nobody goes on before it has ended."""

import asyncio
from typing import TypeVar

T = TypeVar("T")


async def to_its_end(future: asyncio.Future[T]) -> T:
    """What a thread answers; a cancellation is not let through until it has, so that nothing comes late."""
    canceled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            canceled = error
    if canceled is not None:
        future.exception()
        raise canceled
    return future.result()
