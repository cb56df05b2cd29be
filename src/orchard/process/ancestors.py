"""Who started this process: the way up from it, as far as the kernel tells."""

import os
from collections.abc import Iterator

from orchard.process.table import TOKEN_VARIABLE, UNKNOWN, read_stat, read_token

MOST = 1000


def ancestors() -> Iterator[int]:
    """The pids above this process, the nearest first."""
    pid = os.getppid()
    for _ in range(MOST):
        if pid <= 0:
            return
        yield pid
        stat = read_stat(pid)
        pid = stat.parent if stat is not None else 0


def inside_job() -> bool:
    """Whether a job started this process, or one of those above it: all of them carry its token."""
    own = TOKEN_VARIABLE in os.environ or "ORCHARD_JOB" in os.environ
    return own or any(read_token(pid) not in (None, UNKNOWN) for pid in ancestors())
