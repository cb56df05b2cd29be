"""The file that counts the jobs of a user is locked by another process: the engine goes on answering."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchard.model.plan import PlanId
from tests.engine.conftest import LONGEST, Orchard

pytestmark = pytest.mark.anyio

PLAN = "name: p\njobs: [{id: a, work: 'echo p > p.txt'}]\n"
HOLD_SECONDS = 2.0
HOLDER = """
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
db.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
time.sleep(float(sys.argv[2]))
db.execute("ROLLBACK")
"""


@contextmanager
def locked(place: Path) -> "Iterator[subprocess.Popen[str]]":
    """Another process holds the lock of this file for a while, and ends then."""
    command = [sys.executable, "-c", HOLDER, str(place), str(HOLD_SECONDS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None and holder.stdout.readline() == "locked\n"
        yield holder


async def test_a_lock_on_the_list_of_slots_does_not_stop_the_engine(orchard: Orchard) -> None:
    app, slowest = orchard.app, 0.0
    place = app.dirs.state / "slots.db"
    async with asyncio.timeout(LONGEST), app.session() as session:
        await session.request("ping")
        with locked(place) as holder:
            plan = app.parse_plan(None, PLAN.encode())
            plan_id = PlanId((await session.request("create_plan", plan=plan))["plan"])
            while holder.poll() is None:
                began = time.monotonic()
                await asyncio.sleep(0.01)
                await session.request("ping")
                slowest = max(slowest, time.monotonic() - began)
        async for _ in session.follow(plan_id):
            pass

    assert slowest < HOLD_SECONDS / 2, slowest
    status = orchard.status(plan_id)["plan"]
    assert (status["status"], status["warnings"]) == ("succeeded", [])
