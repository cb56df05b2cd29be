"""A mark that everything inherits which a program starts, and that nothing loses on its way (Linux).

A process can leave its session, clear its environment and close its files; what it cannot do without meaning to is to
change its resource limits. One of them, the number of file locks, has been without effect since Linux 2.4.25. So a
program is started with a soft limit there that is made from its token: `fork`, `exec` and `setsid` hand it on, and it
is still there when the engine that started the program is long dead.

The limit belongs to the whole of our process for the moment of the start. Code that starts something that is not a
program of a job's meanwhile, on another thread, waits for that moment to pass (`unmarked`).
"""

import hashlib
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from orchard.process.families.table import LINUX, read_limits

RLIMIT_LOCKS = 10
"""Python's `resource` does not name it."""

_ROW = b"\nMax file locks"
_BITS = 30

_starting = threading.Lock()


def mark_of(token: str) -> int:
    """The mark of a token: one half for the family, and one for the part of it that `TOKEN~x` names."""
    family, _, part = token.partition("~")
    return 1 << 2 * _BITS | _digest(family) << _BITS | (_digest(part) if part else 0)


def carries(mark: int | None, token: str) -> bool:
    if mark is None:
        return False
    wanted = mark_of(token)
    return mark == wanted if "~" in token else mark >> _BITS == wanted >> _BITS


def read_mark(pid: int) -> int | None:
    """The mark that a process carries; None if it has none, or is not ours to look at."""
    text = read_limits(pid)
    at = text.find(_ROW)
    word = text[at + len(_ROW) : at + 200].split(None, 1)[:1] if at >= 0 else []
    mark = int(word[0]) if word and word[0].isdigit() else 0
    return mark if mark >> 2 * _BITS == 1 else None


@contextmanager
def marked(token: str) -> Iterator[None]:
    """What is started inside the `with` carries the mark of this token, where the system lets it."""
    if not LINUX:
        yield
        return
    import resource  # not on every system

    with _starting:
        soft, hard = resource.getrlimit(RLIMIT_LOCKS)
        mark = mark_of(token)
        if hard != resource.RLIM_INFINITY and hard < mark:
            yield
            return
        resource.setrlimit(RLIMIT_LOCKS, (mark, hard))
        try:
            yield
        finally:
            with suppress(ValueError, OSError):
                resource.setrlimit(RLIMIT_LOCKS, (soft, hard))


@contextmanager
def unmarked() -> Iterator[None]:
    with _starting:
        yield


def _digest(text: str) -> int:
    found = hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=8).digest()
    return int.from_bytes(found, "big") >> (64 - _BITS)
