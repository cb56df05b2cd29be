"""Following a log as it grows, without looking at it over and over.

On Linux the kernel says when a file changed or came to be (inotify). Elsewhere, and where the kernel
has no more watches to give, a timer looks twice a second.
"""

import asyncio
import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

POLL_SECONDS = 0.5
CHECK_SECONDS = 5.0
"""Some file systems (FUSE, overlays) tell of no changes, so even a quiet watch looks now and then."""

_MODIFY, _MOVED_TO, _CREATE = 0x2, 0x80, 0x100
_DIRECTORY_ONLY, _NO_LINKS = 0x01000000, 0x02000000


class Changes:
    """Wakes its one waiter when a file, or the folder that will hold it, may have changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._woken = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._descriptor = _inotify()
        self._watches_file = False
        if self._descriptor is not None:
            self._loop.add_reader(self._descriptor, self._drain)
        self._watch()

    @property
    def by_timer(self) -> bool:
        """Whether changes are found by looking, because the kernel does not tell."""
        return self._descriptor is None

    def wake(self) -> None:
        """Let the waiter look, whatever the file does."""
        self._woken.set()

    async def wait(self, longest: float = CHECK_SECONDS) -> None:
        """Wait for a change since the last wait ended, or for some seconds."""
        longest = min(longest, POLL_SECONDS) if self.by_timer else longest
        with suppress(TimeoutError):
            async with asyncio.timeout(longest):
                await self._woken.wait()
        self._woken.clear()
        self._watch()

    def close(self) -> None:
        if self._descriptor is not None:
            self._loop.remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _drain(self) -> None:
        assert self._descriptor is not None
        with suppress(BlockingIOError):
            while os.read(self._descriptor, 4096):
                pass
        self._woken.set()

    def _watch(self) -> None:
        """Watch the file, or while there is none the innermost folder above it that exists."""
        if self._descriptor is None or self._watches_file:
            return
        if _add_watch(self._descriptor, self.path, _MODIFY | _NO_LINKS):
            self._watches_file = True
            return
        for folder in self.path.parents:
            if _add_watch(self._descriptor, folder, _CREATE | _MOVED_TO | _DIRECTORY_ONLY):
                break
        else:
            self.close()
            return
        if self.path.exists() or (folder != self.path.parent and self.path.parent.exists()):
            self._woken.set()  # made between the two looks


# -------------------------------------------------------------------------------------- inotify


def _inotify() -> int | None:
    if sys.platform != "linux":
        return None
    descriptor: int = _libc().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    return descriptor if descriptor >= 0 else None


def _add_watch(descriptor: int, path: Path, mask: int) -> bool:
    watch: int = _libc().inotify_add_watch(descriptor, os.fsencode(path), mask)
    return watch >= 0


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
