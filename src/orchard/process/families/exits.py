"""Hearing that a process has ended, without asking it over and over.

A pidfd becomes readable when its process ends, be it our child or not. Where the system has none
(or no descriptor is left for one), a thread waits for a child of ours, and a slow look is taken at
what is not our child: only the time it takes to notice grows, nothing else changes.
"""

import asyncio
import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterator

from orchard.process.families.identity import Identity, is_alive
from orchard.process.families.table import LINUX

_SLOW_LOOK = 0.05


@contextlib.contextmanager
def exit_notice(identity: Identity) -> Iterator[asyncio.Future[None]]:
    """A future that is done once the process has ended; to be awaited inside the `with` only."""
    loop = asyncio.get_running_loop()
    gone: asyncio.Future[None] = loop.create_future()
    fd = open_pidfd(identity)
    if fd is not None:
        loop.add_reader(fd, _note, loop, fd, gone)
    else:
        loop.call_soon(_look_slowly, loop, identity, gone)
    try:
        yield gone
    finally:
        if fd is not None:
            loop.remove_reader(fd)
            os.close(fd)
        gone.cancel()


@contextlib.contextmanager
def child_exit_notice(child: Identity) -> Iterator[asyncio.Future[None]]:
    """`exit_notice` for a child of ours, which stays a zombie until it is waited for."""
    if not is_alive(child) or (LINUX and _has_pidfd()) or not hasattr(os, "waitid"):
        with exit_notice(child) as gone:
            yield gone
        return
    loop = asyncio.get_running_loop()
    gone = loop.create_future()
    threading.Thread(target=_wait_in_thread, args=(child.pid, loop, gone), name="exit-notice", daemon=True).start()
    try:
        yield gone
    finally:
        gone.cancel()


def wait_exit(identity: Identity, timeout: float) -> bool:
    """Block until the process has ended, for at most this long; whether it has."""
    fd = open_pidfd(identity)
    if fd is not None:
        return _wait_for_pidfd(fd, timeout)
    deadline = time.monotonic() + timeout
    while is_alive(identity) and time.monotonic() < deadline:
        time.sleep(_SLOW_LOOK)
    return not is_alive(identity)


def wait_last_thread(child: int, timeout: float) -> None:
    """Block until a child of ours that is a zombie can be waited for: its other threads may still be leaving."""
    with contextlib.suppress(AttributeError, OSError):
        _wait_for_pidfd(os.pidfd_open(child), timeout)


def _wait_for_pidfd(fd: int, timeout: float) -> bool:
    """Whether the process has ended in time; the descriptor is closed."""
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout) * 1000))
    finally:
        os.close(fd)


def open_pidfd(identity: Identity) -> int | None:
    """A descriptor that means this very process; None when it is gone or the system has no such thing."""
    if not LINUX:
        return None
    try:
        fd = os.pidfd_open(identity.pid)
    except OSError:
        return None
    # From here on the descriptor cannot change whom it means, but the pid may have changed hands before.
    if is_alive(identity):
        return fd
    os.close(fd)
    return None


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def _wait_in_thread(pid: int, loop: asyncio.AbstractEventLoop, gone: asyncio.Future[None]) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    # The loop may be closed by now: then no task waits for the news.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_tell, gone)


def _tell(gone: asyncio.Future[None]) -> None:
    if not gone.done():
        gone.set_result(None)


def _note(loop: asyncio.AbstractEventLoop, fd: int, gone: asyncio.Future[None]) -> None:
    loop.remove_reader(fd)
    _tell(gone)


def _look_slowly(loop: asyncio.AbstractEventLoop, identity: Identity, gone: asyncio.Future[None]) -> None:
    """Look at a process now and then until it is gone, or until no task waits for that."""
    if not gone.done() and is_alive(identity):
        loop.call_later(_SLOW_LOOK, _look_slowly, loop, identity, gone)
    else:
        _tell(gone)


def send(identity: Identity, number: signal.Signals) -> bool:
    """Signal this very process, never a later one with its pid; False when that is not allowed."""
    fd = open_pidfd(identity)
    try:
        if fd is not None:
            signal.pidfd_send_signal(fd, number)
        elif is_alive(identity):
            os.kill(identity.pid, number)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    finally:
        if fd is not None:
            os.close(fd)
    return True
