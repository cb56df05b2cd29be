"""What a program leaves behind in the moment it ends: its last words, and itself."""

import asyncio
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from orchard.process import program
from orchard.process.families.table import read_stat
from orchard.process.pipes import Pipes
from orchard.process.program import Launch, run_program

pytestmark = pytest.mark.anyio

HASTY = """
import os
os.set_blocking(1, False)
os.write(1, b"x" * 500_000 + b"\\n")
os._exit(0)
"""

MANY_THREADS = """
import pathlib, threading, time
for _ in range(300):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
pathlib.Path("up").touch()
time.sleep(60)
"""


def launch(tmp_path: Path, code: str, *, pipes: bool) -> Launch:
    env = dict(os.environ)
    return Launch((sys.executable, "-c", code), tmp_path, env, tmp_path / "log", f"t-{tmp_path.name}", pipes=pipes)


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="this system does not let us say how much a pipe holds")
async def test_a_program_that_leaves_without_waiting_for_its_reader_is_heard_to_the_end(tmp_path: Path) -> None:
    lines: list[bytes] = []

    async def converse(ends: Pipes) -> None:
        ends.close_input()
        await asyncio.sleep(0.5)
        async for line in ends.lines():
            lines.append(line)

    ended = await run_program(launch(tmp_path, HASTY, pipes=True), converse=converse)
    assert ended.ok
    assert [len(line) for line in lines] == [500_000]


def test_a_leader_is_buried_even_while_the_last_of_its_threads_are_leaving(tmp_path: Path) -> None:
    for number in range(8):
        child = program._spawn(launch(tmp_path, MANY_THREADS, pipes=False))
        assert isinstance(child, program._Child)
        os.close(child.log_fd)
        while not (tmp_path / "up").exists():
            time.sleep(0.01)
        (tmp_path / "up").unlink()
        os.kill(child.identity.pid, signal.SIGKILL)
        while (stat := read_stat(child.identity.pid)) is not None and not stat.dead:
            pass
        status, _ = program._bury(child)
        assert status == -signal.SIGKILL, f"the {number}. was still leaving"
