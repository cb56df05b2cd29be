"""A process is its threads: when the first has ended it looks like a zombie, and may still write."""

import asyncio
import sys
import time
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from orchard.model.limits import Limits
from orchard.process.families.table import LINUX
from orchard.process.program import Launch, run_program

pytestmark = [pytest.mark.anyio, pytest.mark.skipif(not LINUX, reason="told by /proc")]

PROGRAM = """
import ctypes, pathlib, signal, threading, time

signal.signal(signal.SIGTERM, signal.SIG_IGN)

def work():
    pathlib.Path("begun").touch()
    time.sleep(3)
    pathlib.Path("late").touch()

threading.Thread(target=work, daemon=True).start()
ctypes.CDLL(None).pthread_exit(None)
"""


def _wait_for(file: Path) -> None:
    until = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < until
        time.sleep(0.02)


async def test_a_process_whose_first_thread_has_ended_is_ended_with_its_family(tmp_path: Path) -> None:
    launch = Launch(
        (sys.executable, "-c", PROGRAM),
        tmp_path,
        {"PATH": "/usr/bin:/bin"},
        tmp_path / "log",
        "threads",
        Limits(grace=1),
    )
    turn = asyncio.ensure_future(run_program(launch))
    await anyio.to_thread.run_sync(_wait_for, tmp_path / "begun")
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn

    await anyio.sleep(3.5)

    assert not (tmp_path / "late").exists()
