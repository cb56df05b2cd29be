"""Signals that end a program: its work is canceled first, and ends what it has started."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from typing import TypeVar

Answer = TypeVar("Answer")


def until_stopped(work: Callable[[], Coroutine[None, None, Answer]]) -> Answer:
    """Run to the end; a signal that ends us cancels the work first, so that nothing of it goes on."""

    async def run() -> Answer:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, task.cancel)
        return await work()

    try:
        return asyncio.run(run())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
