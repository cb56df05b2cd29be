"""How a daemon is told to end, and how quickly: each further signal makes it faster, and nothing makes it slower.

    finish   nothing new starts, what runs is left to end
    stop     what runs is stopped, with the grace that programs have; its work is kept, and the next engine tells of it
    now      without the grace

SIGTERM, SIGINT and SIGHUP begin where `--on-stop` says, and go one step further each time. `orchard stop` sends others,
which may come twice and mean the same: SIGUSR1 begins, SIGUSR2 goes at least to `stop`.
"""

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Literal

OnStop = Literal["finish", "stop"]

FURTHER = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
BEGIN = signal.SIGUSR1
BEGIN_STOP = signal.SIGUSR2


class Haste(IntEnum):
    NONE = 0
    FINISH = 1
    STOP = 2
    NOW = 3


class Stopping:
    """Whether and how quickly the daemon is to end; whoever listens is told of every change."""

    def __init__(self, on_stop: OnStop) -> None:
        self._first = Haste.FINISH if on_stop == "finish" else Haste.STOP
        self.haste = Haste.NONE
        self.asked = asyncio.Event()
        self._listeners: list[Callable[[], None]] = []

    def listen(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def further(self) -> None:
        self.at_least(Haste(min(self.haste + 1, Haste.NOW)))

    def at_least(self, haste: Haste) -> None:
        haste = max(haste, self._first)
        if haste > self.haste:
            self.haste = haste
            self.asked.set()
            for listener in self._listeners:
                listener()

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Hear signals for the time of the block."""
        loop = asyncio.get_running_loop()
        for number in FURTHER:
            loop.add_signal_handler(number, self.further)
        loop.add_signal_handler(BEGIN, self.at_least, Haste.FINISH)
        loop.add_signal_handler(BEGIN_STOP, self.at_least, Haste.STOP)
        try:
            yield
        finally:
            for number in (*FURTHER, BEGIN, BEGIN_STOP):
                loop.remove_signal_handler(number)
