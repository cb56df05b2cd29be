"""Keeping what is in our memory from other processes of the same user (Linux).

Any process of the user may otherwise read `/proc/PID/environ` and `/proc/PID/mem` of the engine, and every job runs as
the user. A program that we start is as readable as any: the kernel forgets this at `exec`.
"""

from orchard.process.families.table import LINUX

_PR_SET_DUMPABLE = 4


def hide_memory() -> bool:
    """Let no process but root's look into this one; True where the kernel does it. No core is dumped then, either."""
    if not LINUX:
        return False
    import ctypes  # only who holds secrets for long needs it

    return bool(ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)
