"""Who works on a repository is told by a lock, and what stands in the way of that is said in words."""

import asyncio
import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.app import open_app
from orchard.engine.server.address import read_address
from orchard.engine.server.session import Session
from orchard.errors import OrchardError
from orchard.model.plan import PlanId
from orchard.process.families.exits import wait_exit
from orchard.process.families.identity import identify, is_stopped
from orchard.store.db import StoreError
from orchard.surfaces.next_steps import in_commands
from tests.engine.conftest import Orchard, until

pytestmark = pytest.mark.anyio

SLOW = "name: P\njobs: [{{id: a, work: \"echo a > a.txt; touch '{here}/in'; sleep 3\"}}]"


@pytest.fixture
def stopped(orchard: Orchard) -> Iterator[int]:
    """An engine that somebody has stopped."""
    plan = orchard.repo.path / ".git" / "p.yaml"
    plan.write_text(SLOW.format(here=orchard.repo.path / ".git").replace("sleep 3", "sleep 30"))
    words = [sys.executable, "-m", "orchard", "run", "-q", "-d", str(plan)]
    subprocess.run(words, cwd=orchard.repo.path, check=True, timeout=60, env={**os.environ, "PYTHONWARNINGS": "ignore"})
    address = read_address(orchard.repo.path / ".git" / "orchard")
    assert address is not None
    engine = identify(address.pid)
    assert engine is not None
    os.kill(address.pid, signal.SIGSTOP)
    yield address.pid
    os.kill(address.pid, signal.SIGCONT)
    os.kill(address.pid, signal.SIGTERM)
    assert wait_exit(engine, 30)


async def test_a_stopped_engine_is_named_instead_of_waited_for(orchard: Orchard, stopped: int) -> None:
    await until(lambda: is_stopped(stopped))

    with pytest.raises(OrchardError, match=f"process {stopped}\\) is stopped") as caught:
        async with asyncio.timeout(20), open_app(orchard.repo.path, in_commands).session() as session:
            await session.request("ping")

    assert f"kill -CONT {stopped}" in in_commands(caught.value.hint or "")


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs another pid namespace")
async def test_a_plan_that_runs_in_another_container_is_not_called_interrupted(orchard: Orchard) -> None:
    here = orchard.repo.path / ".git"
    told: list[str] = []

    async def during(session: Session, plan: PlanId) -> None:
        await until((here / "in").exists)
        words = ["unshare", "-p", "-f", "--mount-proc", sys.executable, "-m", "orchard", "status"]
        shown = await asyncio.to_thread(
            subprocess.run, words, cwd=orchard.repo.path, capture_output=True, text=True, timeout=60, check=False
        )
        told.append(shown.stdout + shown.stderr)

    await orchard.run(SLOW.format(here=here), during)

    assert "interrupted" not in told[0] and "failed" not in told[0] and "running" in told[0].lower()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
async def test_a_file_system_without_locks_is_named(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(handle: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    app = open_app(orchard.repo.path, in_commands)
    monkeypatch.setattr(fcntl, "flock", refuse)

    with pytest.raises(OrchardError, match="cannot be locked"):
        async with asyncio.timeout(40), app.session():
            pass


async def test_a_damaged_journal_says_the_way_out_and_nothing_of_its_worktrees_is_lost(orchard: Orchard) -> None:
    repo, state = orchard.repo, orchard.repo.path / ".git" / "orchard"
    work = "echo p > precious.txt; git add .; git commit -qm 'hours of work'; git rev-parse HEAD > '{}/sha'; exit 1"
    await orchard.run(f'name: P\njobs: [{{id: a, work: "{work.format(repo.path / ".git")}"}}]')
    sha = (repo.path / ".git" / "sha").read_text().strip()
    journal = state / "journal.db"
    journal.write_bytes(os.urandom(16384))
    for beside in ("-wal", "-shm"):
        Path(f"{journal}{beside}").unlink(missing_ok=True)

    with pytest.raises(StoreError) as caught:
        open_app(repo.path, in_commands).status(None)
    hint = in_commands(caught.value.hint or "")
    assert "orchard recover" in hint and "doctor" not in hint
    command = hint.partition("makes a new one: ")[2].partition(" -- ")[0]
    await asyncio.to_thread(subprocess.run, ["sh", "-c", command], check=True, timeout=20)

    await orchard.run("name: Q\njobs: [{id: b, work: echo b > b.txt}]")

    repo("reflog", "expire", "--expire=now", "--all")
    repo("gc", "-q", "--prune=now")
    assert repo("cat-file", "-t", sha) == "commit\n"
    assert [one for one in open_app(repo.path, in_commands).saved_work(None) if one.commit == sha]
