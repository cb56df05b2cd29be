"""Who a process is, in a way that survives a reused pid and a reboot.

A pid alone names no process for long: the kernel hands it out again. The pid together with the moment
the process started, and with the boot that moment is counted from, names one process for ever.
That is what the journal holds, and what is compared before any signal is sent.
"""

import functools
import subprocess
import sys
from pathlib import Path

from msgspec import Struct

from orchard.process.families.table import LINUX, Stat, read_stat

# Outside Linux psutil corrects start times when the clock is set, so one process can answer a little differently.
START_TOLERANCE = 0.0 if LINUX else 2.0


class Identity(Struct, frozen=True):
    """One process, told apart from every other that had or will have its pid."""

    pid: int
    started: float
    """Clock ticks since boot on Linux, seconds since the epoch elsewhere: only good for comparing."""
    boot: str


def identify(pid: int) -> Identity | None:
    """Who has this pid now (a zombie still has it), or None."""
    stat = read_stat(pid) if pid > 0 else None
    return identity_of(stat) if stat else None


def identity_of(stat: Stat) -> Identity:
    return Identity(stat.pid, stat.started, boot_id())


def is_alive(identity: Identity) -> bool:
    """Whether this very process still runs: neither ended, nor a zombie, nor replaced by another with its pid."""
    stat = read_stat(identity.pid) if identity.pid > 0 else None
    return stat is not None and not stat.dead and is_same(identity_of(stat), identity)


def is_stopped(pid: int) -> bool:
    """Whether a process is there but does nothing until it gets a SIGCONT."""
    stat = read_stat(pid) if pid > 0 else None
    return stat is not None and stat.stopped


def is_same(one: Identity, other: Identity) -> bool:
    return one.pid == other.pid and one.boot == other.boot and abs(one.started - other.started) <= START_TOLERANCE


@functools.cache
def boot_id() -> str:
    """Names the time since the machine was last started; start times of two boots are never compared."""
    if LINUX:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    if sys.platform == "darwin":
        asked = subprocess.run(
            ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"], capture_output=True, text=True, timeout=5, check=False
        )
        if asked.returncode == 0 and asked.stdout.strip():
            return asked.stdout.strip()
    import psutil  # heavy, and not needed on Linux

    # The wall-clock time of the boot moves when the clock is set; a minute is finer than any reboot.
    return f"boot-{round(psutil.boot_time() / 60)}"
