"""Folders are shared by jobs that are short, and made anew for jobs that are not."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.agents.registry import Agents
from orchard.config.layers import Config
from orchard.engine.machine.pool import PATIENCE, Pool
from orchard.engine.world import World
from orchard.errors import OrchardError
from orchard.git.merge.integration import Integration
from orchard.git.repository import Worktree, find_repository
from orchard.git.worktree.save import ensure_saved
from orchard.git.worktree.worktrees import Worktrees
from orchard.model.events.plans import WorktreeGone, WorktreeTaken
from orchard.model.plan import PlanId
from orchard.process import failpoint
from orchard.store.logs import LogFiles
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo
from tests.engine.conftest import Orchard, job, until

CHECKOUT = 0.6

pytestmark = pytest.mark.anyio


class SlowWorktrees(Worktrees, dict=True):
    """Real ones, in a repository that is larger than the one at hand."""

    made: int = 0

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
    world = World(
        found, Config(), LogFiles(found.state), Integration(found), dict(os.environ), Agents(Config(), {}), in_commands
    )
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
    done, waiting = await asyncio.wait(first, timeout=CHECKOUT + 0.5)

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


async def test_a_folder_that_could_not_be_reset_goes_with_the_others_when_that_works_again(
    repo: Repo, pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await use(pool, repo.head(), 0)

    def die(*_: object) -> None:
        raise OrchardError("A git was killed here.")

    with monkeypatch.context() as killed:
        killed.setattr(SlowWorktrees, "reset", die)
        second = await use(pool, repo.head(), 0)
    (first / "found.txt").write_text("what somebody put there")
    await pool.close()

    assert not first.exists() and not second.exists()
    saved = [ref for ref in repo.refs("refs/orchard/wip") if first.name in ref]
    assert repo.files(saved[0])["found.txt"] == "what somebody put there"


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


async def test_a_cancel_while_a_worktree_is_made_leaves_no_worktree(repo: Repo, pool: Pool) -> None:
    taking = asyncio.ensure_future(pool.take(repo.head(), "job"))
    await asyncio.sleep(CHECKOUT / 2)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking

    assert made(pool) == 1
    began = time.monotonic()
    await use(pool, repo.head(), 0)  # it is taken by the next one, who does not wait for anybody
    assert made(pool) == 1 and time.monotonic() - began < PATIENCE
    await pool.close()
    assert not pool.worktrees.root.exists()


async def test_a_cancel_while_a_worktree_is_reset_leaves_it_in_the_pool(repo: Repo, pool: Pool) -> None:
    path = await use(pool, repo.head(), 0)
    second = repo.commit({"new.txt": "new"})
    failpoint.rearm("worktree.before-reset:1:sleep=0.4")
    try:
        taking = asyncio.ensure_future(pool.take(second, "job"))
        await asyncio.sleep(0.2)
        taking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking
    finally:
        failpoint.rearm(None)

    assert await use(pool, repo.head(), 0) == path
    assert made(pool) == 1


async def test_a_worktree_that_is_kept_for_a_person_is_not_waited_for(repo: Repo, pool: Pool) -> None:
    kept = await pool.take(repo.head(), "job")
    pool.leave(kept)

    began = time.monotonic()
    await pool.take(repo.head(), "job")

    assert time.monotonic() - began < CHECKOUT + PATIENCE / 2


async def test_a_plan_holds_no_more_worktrees_than_jobs_that_run_or_failed(orchard: Orchard) -> None:
    rows = "".join(f"  - {{id: j{n}, work: 'echo {n} > {n}.txt'}}\n" for n in range(8))
    needs = ", ".join(f"j{n}" for n in range(8))
    held: set[str] = set()
    most = 0

    await orchard.run(
        f"name: fan\nmax_parallel: 2\njobs:\n{rows}"
        f"  - {{id: all, needs: [{needs}], work: 'ls > all.txt'}}\n"
        "  - {id: then, needs: [all], work: 'echo then > then.txt'}\n"
    )
    app = orchard.app
    for one in app.reader.events(app.find_plan(None)):
        if isinstance(one.event, WorktreeTaken):
            held.add(one.event.job)
        elif isinstance(one.event, WorktreeGone):
            held.discard(one.event.job)
        most = max(most, len(held))

    assert orchard.status()["plan"]["status"] == "succeeded"
    # Two that run, and those two that have ended and are just being saved.
    assert most <= 4
    assert len({one.worktree for one in orchard.events(WorktreeTaken)}) <= 4
    assert set(orchard.repo.files("work")) >= {"all.txt", "then.txt", "7.txt"}


async def test_a_plan_that_says_so_keeps_every_worktree(orchard: Orchard) -> None:
    status = await orchard.run(
        "name: n\ncleanup: false\njobs:\n  - {id: a, work: 'echo a > a.txt'}\n"
        "  - {id: b, needs: [a], work: 'echo b > b.txt'}\n"
    )

    assert all(Path(job(status, name)["worktree"]).is_dir() for name in ("a", "b"))


async def test_a_plan_that_is_canceled_while_a_worktree_is_made_leaves_none_behind(orchard: Orchard) -> None:
    app = orchard.app
    asked = app.parse_plan(None, b"name: n\njobs: [{id: a, work: 'echo a > a.txt'}]\n")
    failpoint.rearm("worktree.after-register:1:sleep=1.0")
    try:
        async with asyncio.timeout(60), app.session() as session:
            plan = PlanId((await session.request("create_plan", plan=asked))["plan"])
            await until((orchard.repo.path / ".worktrees").is_dir)
            await session.request("cancel_plan", plan=plan)
    finally:
        failpoint.rearm(None)

    assert not orchard.events(WorktreeTaken)
    assert not (orchard.repo.path / ".worktrees").exists()


async def test_a_worktree_that_somebody_stands_in_is_not_used_again_and_nobody_is_ended(repo: Repo, pool: Pool) -> None:
    first = await use(pool, repo.head(), 0)
    users = subprocess.Popen(["sleep", "60"], cwd=first, start_new_session=True)  # noqa: ASYNC220
    try:
        second = await use(pool, repo.head(), 0)
        assert second != first and users.poll() is None
        assert await use(pool, repo.head(), 0) == second
        await pool.close()
        assert first.is_dir() and users.poll() is None and not second.exists()
    finally:
        users.kill()
        users.wait()


async def test_a_worktree_that_a_process_has_left_goes_with_the_others(repo: Repo, pool: Pool) -> None:
    first = await use(pool, repo.head(), 0)
    users = subprocess.Popen(["sleep", "60"], cwd=first, start_new_session=True)  # noqa: ASYNC220
    try:
        await use(pool, repo.head(), 0)
    finally:
        users.kill()
        users.wait()
    await pool.close()

    assert not first.exists()


async def test_what_hid_from_its_job_does_not_write_into_the_next_one(orchard: Orchard, tmp_path: Path) -> None:
    (tmp_path / "hide.py").write_text(HIDE)
    (tmp_path / "write.sh").write_text("while [ -d $1 ]; do echo junk > $1/junk.txt; sleep 0.02; done\n")
    hide = f"{sys.executable} {tmp_path}/hide.py 'sh {tmp_path}/write.sh '$PWD; until [ -e junk.txt ]; do :; done"

    await orchard.run(f"""
        name: hidden
        max_parallel: 2
        jobs:
          - {{id: a, priority: 5, work: "{hide}; echo a > a.txt"}}
          - {{id: b, priority: 4, work: "sleep 1.2; echo b > b.txt"}}
          - {{id: c, work: "sleep 0.5; echo c > c.txt"}}
    """)
    repo = orchard.repo
    results = [ref for ref in repo.refs("refs/orchard/keep") if ref.split("/")[-2] in ("b", "c")]

    assert len({one.worktree for one in orchard.events(WorktreeTaken)}) == 2
    assert len(results) == 2 and all("junk.txt" not in repo.files(ref) for ref in results)
    assert not [place for place in Path("/proc").glob("[0-9]*/cmdline") if str(tmp_path).encode() in _read(place)]


HIDE = """
import os, sys
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
for one in range(3): os.close(one)
for one in range(3): os.open("/dev/null", os.O_RDWR)
os.execve("/bin/sh", ["sh", "-c", sys.argv[1]], {})
"""


def _read(place: Path) -> bytes:
    try:
        return place.read_bytes()
    except OSError:
        return b""
