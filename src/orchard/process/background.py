"""Work that runs beside its caller and ends with it, or with who holds it: tasks are canceled, threads waited for."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

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


def begin(work: Coroutine[Any, Any, T], among: set[asyncio.Task[Any]]) -> asyncio.Task[T]:
    """Begin work that outlives the call which begins it. Who holds `among` can end it; the end of the loop does too."""
    task = asyncio.ensure_future(work)
    among.add(task)
    task.add_done_callback(among.discard)
    return task


@asynccontextmanager
async def beside(
    *works: Coroutine[Any, Any, None], leave: Callable[[], None] = lambda: None, patience: float = 0.0
) -> AsyncIterator[None]:
    """Run these beside the body of the `with`; none of them outlives it.

    When the body has ended, `leave` is called, and what has not ended by itself after `patience` seconds is canceled;
    when the body fails or is canceled, at once. An error of theirs is raised at the end, unless the body has its own.
    """
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        yield
        leave()
        if tasks:
            await asyncio.wait(tasks, timeout=patience)
    finally:
        canceled = await _end(tasks)
        if canceled is not None:
            raise canceled
    for task in tasks:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error


async def _end(tasks: Sequence[asyncio.Task[None]]) -> asyncio.CancelledError | None:
    for task in tasks:
        task.cancel()
    canceled: asyncio.CancelledError | None = None
    while waiting := [task for task in tasks if not task.done()]:
        try:
            await asyncio.wait(waiting)
        except asyncio.CancelledError as error:
            canceled = error
            for task in waiting:
                task.cancel()
    for task in tasks:
        if not task.cancelled():
            task.exception()  # seen, so that nobody complains about it
    return canceled
