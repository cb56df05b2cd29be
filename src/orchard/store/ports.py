"""Ranges of ports, one for each running job, over all processes and repositories of a user.

A range is had by locking a file of its own. The kernel gives the lock back when the process dies, so nothing has to be
renewed or cleaned up, and two engines in one process have locks that exclude each other as well. A range in which a
program listens is passed over: it may belong to another user, or be left by a job whose engine was killed.
"""

import fcntl
import os
import socket
from collections.abc import Hashable, Iterator
from contextlib import suppress
from pathlib import Path

WIDTH = 10
FIRST, END = 20_000, 30_000
"""Below the ports that systems give to connections by themselves."""


class Ports:
    """The ranges of one engine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[Hashable, tuple[int, int]] = {}
        """By owner, the first port of its range and the descriptor of its lock."""

    def of(self, owner: Hashable) -> int | None:
        """The first port of the owner's range, which is taken now unless it was; None: there is no range left."""
        if owner not in self._held:
            found = next(self._free_ranges(), None)
            if found is None:
                return None
            self._held[owner] = found
        return self._held[owner][0]

    def give_back(self, owner: Hashable) -> None:
        """Let others have the range; an owner that has none is fine."""
        _, lock = self._held.pop(owner, (0, -1))
        if lock >= 0:
            os.close(lock)

    def close(self) -> None:
        for owner in list(self._held):
            self.give_back(owner)

    def _free_ranges(self) -> Iterator[tuple[int, int]]:
        """Ranges that are ours when they come, the lowest first."""
        mine = {first for first, _ in self._held.values()}
        with suppress(OSError):  # then there are none
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for first in range(FIRST, END, WIDTH):
                if first in mine or (lock := self._lock(first)) is None:
                    continue
                if all(_is_free(port) for port in range(first, first + WIDTH)):
                    yield first, lock
                    return
                os.close(lock)

    def _lock(self, first: int) -> int | None:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(self._folder / f"{first}.lock", flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            if isinstance(error, BlockingIOError):
                return None
            raise
        return lock


def _is_free(port: int) -> bool:
    """Whether no program listens there, at any address of this machine."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
