"""Programs that tests leave running: found when their module ends, named, and ended; no other test meets them."""

import os
import signal
from pathlib import Path

from orchard.process.families.exits import send, wait_exit
from orchard.process.families.identity import Identity
from orchard.process.families.orphans import adopted
from tests.nursery import OWN

LEAVES = 2.0
"""Seconds that a program which was asked to end has before it counts as left."""


def end_strays() -> list[str]:
    """The command lines of living children of this process that are in a session of their own; they are ended."""
    lines: list[str] = []
    while left := [identity for identity in adopted(known=OWN) if not wait_exit(identity, LEAVES)]:
        lines += map(_command, left)
        for identity in left:
            send(identity, signal.SIGKILL)
            wait_exit(identity, LEAVES)  # its own children come to us now
    return lines


def _command(identity: Identity) -> str:
    process = Path("/proc") / str(identity.pid)
    try:
        words = (process / "cmdline").read_bytes().replace(b"\0", b" ")
        folder = (process / "cwd").readlink()
    except OSError as error:
        return f"{identity.pid}: {error.strerror}"
    return f"{identity.pid}: {os.fsdecode(words).strip()} (in {folder})"
