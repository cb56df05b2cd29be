"""Stopped processes that SIGCONT does not let go on either: a thread of ours traces them (Linux).

The kernel lets the first process of a session go on when its terminal is closed, and a program can leave the other end
of that terminal where the kernel closes it later: in a message that waits in a socket that no process holds any more.
No filter of system calls sees that. A traced process goes on only when the one who traces it says so, or is gone.

Our own children are not pinned: the part of the engine that waits for one would be told that it was stopped. Behind a
wall with terminals they are the walls themselves.
"""

import os
import threading
from concurrent.futures import ThreadPoolExecutor

from orchard.process.families.identity import Identity, is_alive
from orchard.process.families.table import LINUX, Stat, thread_numbers

_SEIZE, _DETACH = 0x4206, 17

_lock = threading.Lock()
_pinned: dict[Identity, set[object]] = {}
_tracer: ThreadPoolExecutor | None = None
"""One thread, for only the thread that began to trace a process may end that; with it all tracing ends."""


def needs_pin(stat: Stat) -> bool:
    """Whether the end of a terminal would let a stopped process go on."""
    return LINUX and bool(stat.terminal) and stat.session == stat.pid and stat.parent != os.getpid()


def pin(identity: Identity, holder: object) -> bool:
    """Pin a stopped process for a holder; whether that is done."""
    global _tracer  # noqa: PLW0603 (the thread is there while one is pinned)
    with _lock:
        if identity not in _pinned:
            _tracer = _tracer or ThreadPoolExecutor(1, "orchard-pins")
            if not _tracer.submit(_seize, identity).result():
                return False
        _pinned.setdefault(identity, set()).add(holder)
    return True


def unpin(holder: object, only: Identity | None = None) -> None:
    """Let go of all that no other holder has pinned, or `only` of one, whoever has it; they stay stopped."""
    global _tracer  # noqa: PLW0603 (as above)
    with _lock:
        if _tracer is None:
            return
        for identity in [only] if only is not None else list(_pinned):
            holders = _pinned.get(identity, set())
            holders.discard(holder)
            if identity in _pinned and (not holders or only is not None):
                del _pinned[identity]
                _tracer.submit(_detach, thread_numbers(identity.pid)).result()
        if not _pinned:
            _tracer.shutdown()
            _tracer = None


def _seize(identity: Identity) -> bool:
    threads = thread_numbers(identity.pid)
    done = [thread for thread in threads if _ptrace(_SEIZE, thread)]
    if done and len(done) == len(threads) and is_alive(identity):
        return True
    _detach(done)
    return False


def _detach(threads: list[int]) -> None:
    for thread in threads:
        _ptrace(_DETACH, thread)


def _ptrace(request: int, thread: int) -> bool:
    import ctypes  # only who holds a program with a terminal needs it

    function = ctypes.CDLL(None).ptrace
    function.argtypes, function.restype = (ctypes.c_long,) * 4, ctypes.c_long
    return bool(function(request, thread, 0, 0) == 0)
