"""Folders are shared by jobs that are short, and made anew for jobs that are not."""

import asyncio
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.agents.table import Agents
from orchard.core.config import Config
from orchard.engine.pool import PATIENCE, Pool
from orchard.engine.world import World
from orchard.git.integration import Integration
from orchard.git.repository import Worktree, find_repository
from orchard.git.wip import ensure_saved
from orchard.git.worktrees import Worktrees
from orchard.store.logs import LogFiles
from orchard.testing import Repo
from tests.engine.conftest import Orchard

CHECKOUT = 0.3

pytestmark = pytest.mark.anyio


class SlowWorktrees(Worktrees):
    """Real ones, in a repository that is larger than the one at hand."""

    made = 0

    def add(self, commit: str, reason: str, *, parallel: bool = False) -> Worktree:
        time.sleep(CHECKOUT)
        self.made += 1
        return super().add(commit, reason, parallel=parallel)


@pytest.fixture
def repo(orchard: Orchard) -> Repo:
    return orchard.repo


@pytest.fixture
def pool(repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    found = find_repository(repo.path)
    world = World(found, Config(), LogFiles(found.state), Integration(found), dict(os.environ), Agents(Config(), {}))
    yield Pool(world, SlowWorktrees(found, tmp_path / "trees"))
    world.close()


def made(pool: Pool) -> int:
    assert isinstance(pool.worktrees, SlowWorktrees)
    return pool.worktrees.made


async def use(pool: Pool, head: str, seconds: float) -> Path:
    worktree = await pool.take(head, "job")
    await asyncio.sleep(seconds)
    await pool.give(ensure_saved(pool.world.repo, worktree, "refs/orchard/wip/p/j/1", "saved", head))
    return worktree.path


async def test_short_jobs_take_turns_in_the_folders_there_are(repo: Repo, pool: Pool) -> None:
    used = await asyncio.gather(*(use(pool, repo.head(), 0.01) for _ in range(8)))

    assert len(set(used)) == made(pool) == 2


async def test_the_first_ones_wait_for_nobody_and_no_more_are_made_at_once_than_there_are_cores(
    repo: Repo, pool: Pool
) -> None:
    began = time.monotonic()
    first = [asyncio.ensure_future(pool.take(repo.head(), "job")) for _ in range(4)]
    done, waiting = await asyncio.wait(first, timeout=CHECKOUT + 0.2)

    assert len(done) == 2 and len(waiting) == 2
    await asyncio.wait(waiting)
    assert time.monotonic() - began < 2 * CHECKOUT + PATIENCE + 1
    assert made(pool) == 4


async def test_a_job_waits_for_another_only_so_long(repo: Repo, pool: Pool) -> None:
    long = [asyncio.ensure_future(use(pool, repo.head(), 30)) for _ in range(2)]
    await asyncio.sleep(CHECKOUT + 0.2)

    began = time.monotonic()
    await use(pool, repo.head(), 0)

    assert time.monotonic() - began < PATIENCE + CHECKOUT + 1
    for one in long:
        one.cancel()
    await asyncio.gather(*long, return_exceptions=True)


async def test_much_waiting_for_short_jobs_leads_to_one_more_folder(repo: Repo, pool: Pool) -> None:
    await asyncio.gather(*(use(pool, repo.head(), 0.25) for _ in range(16)))

    assert made(pool) > 2


async def test_a_folder_that_cannot_be_reset_is_left_and_another_one_is_made(repo: Repo, pool: Pool) -> None:
    first = await use(pool, repo.head(), 0)
    (first / ".git").unlink()
    first.rename(first.with_name("elsewhere"))

    second = await use(pool, repo.head(), 0)

    assert second != first and second.is_dir()


async def test_a_job_that_is_canceled_while_it_waits_takes_nothing(repo: Repo, pool: Pool) -> None:
    using = asyncio.ensure_future(use(pool, repo.head(), 1))
    await asyncio.sleep(CHECKOUT + 0.3)
    waiting = asyncio.ensure_future(pool.take(repo.head(), "job"))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    path = await using

    assert await use(pool, repo.head(), 0) == path
    assert made(pool) == 1
