"""What a launcher starts, together and apart."""

import asyncio
import os
from pathlib import Path

import pytest

from orchard.model.limits import Limits
from orchard.process.families.family import end_family_now, members
from orchard.process.families.identity import Identity
from orchard.process.launcher import Launcher
from orchard.process.program import run_program

pytestmark = pytest.mark.anyio


async def test_programs_that_run_apart_end_by_themselves_and_all_of_them_with_their_launcher(tmp_path: Path) -> None:
    launcher = Launcher()
    env = {"PATH": os.environ["PATH"]}
    started = asyncio.Semaphore(0)

    async def note(_: Identity) -> None:
        started.release()

    def start(name: str, seconds: int) -> "asyncio.Task[object]":
        argv, log = ("sleep", str(seconds)), tmp_path / name
        launch = launcher.apart().launch(argv, tmp_path, env, log, Limits(grace=1.0))
        return asyncio.ensure_future(run_program(launch, note))

    quick, slow = start("quick", 1), start("slow", 300)
    await started.acquire()
    await started.acquire()
    assert len(members(launcher.token)) == 2

    await quick
    assert len(members(launcher.token)) == 1
    await asyncio.to_thread(end_family_now, launcher.token, None, None)
    await asyncio.wait_for(slow, 20)
    assert members(launcher.token) == []


def test_two_launchers_have_nothing_in_common() -> None:
    assert len({Launcher().token, Launcher().token, Launcher("t").apart().token, Launcher("t").apart().token}) == 4
