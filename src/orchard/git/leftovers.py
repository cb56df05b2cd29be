"""Gits of ours that outlived the process that started them: a kill of the engine does not reach its children.

Every git is started with a mark in its environment: of which repository it is, and who started it. A new engine ends
those whose starter is gone, before it looks at what they might still be changing.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from orchard.git.command import MARK, TERMINATE_GRACE, mark_of
from orchard.process.families.exits import wait_exit
from orchard.process.families.identity import Identity, boot_id, identity_of, is_alive
from orchard.process.families.table import all_processes

ENVIRONMENT_BYTES = 256 * 1024


def end_leftovers(common_dir: Path) -> int:
    found = left_behind(common_dir)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + TERMINATE_GRACE
        living = [one for one in found if is_alive(one)]
        for one in living:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(one.pid, number)
        for one in living:
            wait_exit(one, max(0.0, deadline - time.monotonic()))
    return len(found)


def left_behind(common_dir: Path) -> list[Identity]:
    wanted = f"{mark_of(common_dir).rpartition(':')[0].rpartition(':')[0]}:".encode()
    found = []
    for stat in all_processes():
        mark = _mark(stat.pid)
        if mark is None or not mark.startswith(wanted) or stat.dead:
            continue
        pid, started = mark.removeprefix(wanted).decode(errors="replace").split(":", 1)
        with suppress(ValueError):
            if not is_alive(Identity(int(pid), float(started), boot_id())):
                found.append(identity_of(stat))
    return found


def _mark(pid: int) -> bytes | None:
    try:
        with Path(f"/proc/{pid}/environ").open("rb") as file:
            environment = b"\0" + file.read(ENVIRONMENT_BYTES)
    except OSError:
        return None
    _before, found, rest = environment.partition(f"\0{MARK}=".encode())
    return rest.partition(b"\0")[0] if found else None
