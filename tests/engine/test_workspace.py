"""Where a job works, from a commit to a commit: what holds for every kind of workspace."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orchard.engine.engine import Engine
from orchard.engine.server.start import OwnEngine
from orchard.engine.workspace import Workspace, workspace_of
from orchard.git.worktree.commit import CommitInfo, Committed
from orchard.model.events.plans import WorkSaved
from orchard.model.limits import Limits
from orchard.model.phases import Phase
from orchard.model.plan import JobId, PlanId
from tests.engine.conftest import LONGEST, Orchard

pytestmark = pytest.mark.anyio

JOB = JobId("a")


@asynccontextmanager
async def at_work(orchard: Orchard) -> AsyncIterator[tuple[Engine, PlanId]]:
    """An engine with a plan of one job, which nobody lets run."""
    app = orchard.app
    plan = app.parse_plan(None, b"name: Work\ndeploy: manual\njobs: [{id: a, work: 'true'}]")
    async with asyncio.timeout(LONGEST), app.session() as session:
        submitted = await session.request("create_plan", plan=plan)
        assert isinstance(session.link, OwnEngine)
        yield session.link.engine, PlanId(submitted["plan"])


def borrowed(engine: Engine, plan: PlanId) -> Workspace:
    return Workspace(engine, engine.runs[plan], JOB, 1, "a, to be looked into")


async def test_what_lies_in_a_folder_is_saved_before_the_next_one_has_it(orchard: Orchard) -> None:
    head = orchard.repo.head()
    async with at_work(orchard) as (engine, plan):
        first, second = borrowed(engine, plan), borrowed(engine, plan)
        await first.prepare(head)
        folder = first.folder
        (folder / "idea").write_text("half of it")

        await first.end("left there")
        await second.prepare(head)

        assert second.folder == folder and not (folder / "idea").exists()
        await second.end("left there")

    (saved,) = orchard.events(WorkSaved)
    assert (saved.job, saved.why) == (JOB, "left there")
    assert orchard.repo("show", f"{saved.ref}:idea") == "half of it"


async def test_a_workspace_that_has_ended_is_no_place_to_work_in(orchard: Orchard) -> None:
    async with at_work(orchard) as (engine, plan):
        workspace = borrowed(engine, plan)
        assert not workspace.is_open
        await workspace.prepare(orchard.repo.head())
        assert workspace.is_open

        await workspace.end("over")
        await workspace.end("over once more")

        assert not workspace.is_open and workspace.held is None


async def test_a_cancellation_while_a_folder_is_given_back_leaves_none_that_nobody_has(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, waits, goes_on = orchard.repo.head(), asyncio.Event(), asyncio.Event()
    async with at_work(orchard) as (engine, plan):
        first, second = borrowed(engine, plan), borrowed(engine, plan)
        await first.prepare(head)
        folder, durable = first.folder, engine.durable
        (folder / "idea").write_text("half of it")

        async def slow_disk() -> None:
            waits.set()
            await goes_on.wait()
            await durable()

        monkeypatch.setattr(engine, "durable", slow_disk)
        ending = asyncio.ensure_future(first.end("left there"))
        await waits.wait()
        ending.cancel()
        await asyncio.sleep(0)
        goes_on.set()
        with pytest.raises(asyncio.CancelledError):
            await ending

        await second.prepare(head)
        assert second.folder == folder


async def test_a_job_runs_collects_and_goes_on_where_it_was(orchard: Orchard) -> None:
    head = orchard.repo.head()
    async with at_work(orchard) as (engine, plan):
        run = engine.runs[plan]
        workspace = workspace_of(engine, run, JOB)
        await workspace.prepare(head)
        log = engine.world.logs.make(engine.world.logs.path(plan, JOB, 1, Phase.WORK))
        ended = await workspace.run(
            ("sh", "-c", "echo made > new"), workspace.folder, {"PATH": "/usr/bin:/bin"}, log,
            Limits(), phase=Phase.WORK, hurry=asyncio.Event(),
        )  # fmt: skip
        assert ended.ok
        info = CommitInfo("Made", f"refs/orchard/keep/{plan}/a/1", engine.world.identity)
        collected = await workspace.collect(info, head)
        again = workspace_of(engine, run, JOB)
        await again.prepare(head)

        assert isinstance(collected, Committed) and collected.changed and collected.counts["added"] == 1
        assert orchard.repo("show", f"{info.ref}:new") == "made\n"
        assert again.folder == workspace.folder and workspace.is_new and not again.is_new
        fresh = workspace_of(engine, run, JOB)
        await fresh.prepare(head, fresh=True)
        assert fresh.is_new and not (fresh.folder / "new").exists()
