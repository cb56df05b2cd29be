"""What the processes of a family use, as rows for people to look at."""

import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from orchard.process.families.family import members
from orchard.process.families.identity import Identity
from orchard.text import one_line


class ProcessRow(Struct, frozen=True):
    """One live process; the text is safe to show."""

    pid: int
    parent: int
    name: str
    command: str
    cpu_percent: float | None
    """Of one core, since the earlier sample; None when there is none."""
    cpu_seconds: float
    rss: int  # bytes
    started: float
    sampled: float
    """By the monotonic clock, so that the next sample can tell the time between them."""


def family_usage(
    token: str, leader: Identity | None, log: Path | None = None, earlier: Sequence[ProcessRow] = ()
) -> list[ProcessRow]:
    """The family as it is now, parents before their children; give the last answer to get CPU shares."""
    before = {(row.pid, row.started): row for row in earlier}
    found = sorted(members(token, leader, log), key=lambda identity: (identity.started, identity.pid))
    rows = (_row(identity, before.get((identity.pid, identity.started))) for identity in found)
    return [row for row in rows if row is not None]


def _row(identity: Identity, before: ProcessRow | None) -> ProcessRow | None:
    import psutil  # heavy, and only needed when a person looks

    try:
        process = psutil.Process(identity.pid)
        with process.oneshot():
            times = process.cpu_times()
            seconds, now = times.user + times.system, time.monotonic()
            return ProcessRow(
                pid=identity.pid,
                parent=process.ppid(),
                name=one_line(process.name(), 60),
                command=one_line(" ".join(process.cmdline()), 200),
                cpu_percent=_share(before, seconds, now),
                cpu_seconds=seconds,
                rss=process.memory_info().rss,
                started=identity.started,
                sampled=now,
            )
    except psutil.Error:
        # It ended between the two looks.
        return None


def _share(before: ProcessRow | None, seconds: float, now: float) -> float | None:
    if before is None or now <= before.sampled:
        return None
    return round(max(0.0, seconds - before.cpu_seconds) / (now - before.sampled) * 100, 1)
