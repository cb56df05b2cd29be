"""What an engine holds does not grow with the plans that it ever ran, and old plans do not hold it up."""

import asyncio
import gc
import time

import pytest

from orchard.core.run import Run
from orchard.core.views.documents import bare_summary
from orchard.engine.plans.runs import KEPT_ENDED
from orchard.engine.server.session import Session
from orchard.engine.server.start import OwnEngine
from orchard.errors import UsageError
from orchard.model.events import plans as e
from orchard.model.plan import PlanId
from orchard.model.plan_codec import plan_json
from orchard.planfile.parse import parse_value
from orchard.store.journal import Journal
from orchard.store.plan_list import JOURNAL_FILE, PlanRow
from tests.engine.conftest import Orchard, statuses

pytestmark = pytest.mark.anyio

PAUSED = "name: p\nstart_paused: true\njobs: [{id: a, work: 'echo a > a.txt'}]\n"


async def canceled(orchard: Orchard, session: Session, count: int) -> list[PlanId]:
    """So many plans that are over."""
    plan = orchard.app.parse_plan(None, PAUSED.encode())
    made = []
    for _ in range(count):
        made.append(PlanId((await session.request("create_plan", plan=plan))["plan"]))
        await session.request("cancel_plan", plan=made[-1])
    return made


async def at_rest(session: Session) -> OwnEngine:
    assert isinstance(session.link, OwnEngine)
    async with asyncio.timeout(20):
        while session.link.engine.runs.too_many:  # noqa: ASYNC110 (there is no event to wait for)
            await asyncio.sleep(0.01)
    return session.link


async def test_plans_that_are_over_leave_memory_and_can_still_be_asked_about(orchard: Orchard) -> None:
    async with asyncio.timeout(60), orchard.app.session() as session:
        plans = await canceled(orchard, session, 12)
        own = await at_rest(session)
        gc.collect()
        held = [one for one in gc.get_objects() if isinstance(one, Run) and one.id in plans]
        kept = set(own.engine.runs)
        retried = await session.request("retry_plan", plan=plans[0])
        async for _ in session.follow(plans[0]):
            pass

    assert kept == set(plans[-KEPT_ENDED:])
    assert len(held) <= KEPT_ENDED
    assert "a" in retried["jobs"]
    assert orchard.status(plans[0])["plan"]["status"] == "succeeded"


@pytest.mark.slow
async def test_a_hundred_more_plans_cost_no_more_than_the_first_hundred(orchard: Orchard) -> None:
    async with asyncio.timeout(120), orchard.app.session() as session:
        spent = []
        for _ in range(4):
            began = time.process_time()
            await canceled(orchard, session, 100)
            spent.append(time.process_time() - began)
        own = await at_rest(session)
        assert len(own.engine.runs) <= KEPT_ENDED

    assert spent[-1] < 1.8 * min(spent[:2]), spent


async def test_a_plan_waits_for_one_that_is_over_and_not_in_memory_any_more(orchard: Orchard) -> None:
    first = (await orchard.run("name: first\njobs: [{id: a, work: 'echo a > a.txt'}]\n"))["plan"]["id"]

    async with asyncio.timeout(60), orchard.app.session() as session:
        text = f"name: second\nafter: {first}\nstart_paused: true\njobs: [{{id: b, work: 'echo b > b.txt'}}]\n"
        second = PlanId(
            (await session.request("create_plan", plan=orchard.app.parse_plan(None, text.encode())))["plan"]
        )
        await canceled(orchard, session, KEPT_ENDED + 2)
    async with asyncio.timeout(60), orchard.app.session() as session:
        await session.request("resume_plan", plan=second)
        async for _ in session.follow(second):
            pass

    assert statuses(orchard.status(second)) == {"b": "succeeded"}


async def test_an_old_plan_is_read_beside_the_engines_work(orchard: Orchard) -> None:
    """A request about a large plan that is over takes a second; who asks for something else meanwhile does not wait."""
    plan = write_large_plan(orchard)
    async with asyncio.timeout(60), orchard.app.session() as session:
        asked = asyncio.ensure_future(session.request("cancel_plan", plan=plan))
        await asyncio.sleep(0.02)
        longest, began = 0.0, time.monotonic()
        while not asked.done():
            before = time.monotonic()
            await session.request("ping")
            await asyncio.sleep(0.002)
            longest = max(longest, time.monotonic() - before)
        took = time.monotonic() - began
        with pytest.raises(UsageError, match="already"):
            await asked

    assert longest < took / 2, f"a ping took {longest:.2f} s of {took:.2f} s"


def write_large_plan(orchard: Orchard) -> PlanId:
    """A plan of 1,500 jobs that all succeeded, as a journal holds it."""
    jobs = [{"id": f"j{n}", "work": "true"} for n in range(1500)]
    plan, plan_id = parse_value({"name": "large", "jobs": jobs}), PlanId("large-aaaaa")
    state = orchard.app.repo.state
    state.mkdir(parents=True, exist_ok=True)
    with Journal.open(state / JOURNAL_FILE) as journal:
        row = PlanRow(plan_id, "large", 1.0, 0, "succeeded", True, bare_summary(plan_id, "large", "succeeded", 1.0))
        journal.append(plan_id, e.PlanSubmitted(plan_json(plan)), 1.0, row)
        journal.append(plan_id, e.PlanStarted("work", "a" * 40, "work", "a" * 40), 2.0)
        for job in plan.in_order:
            for event in (e.JobPicked(job, 1), e.JobStarted(job, 1), *(e.Warned(f"{n}", job) for n in range(4))):
                journal.append(plan_id, event, 3.0)
            journal.append(plan_id, e.JobSucceeded(job, 1, "a" * 40), 4.0)
    return plan_id
