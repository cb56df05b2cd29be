"""Two clients ask about one plan in the same moment: one of them waits inside its request, the other does not."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from orchard.engine.server.session import Session
from orchard.errors import InvalidInput, OrchardError, UsageError
from orchard.model.events import plans as e
from orchard.model.plan import Plan, PlanId
from orchard.operations.commands import changes
from orchard.process import failpoint
from tests.engine.conftest import Orchard, statuses, until

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
LONGEST = 40.0

PLAN = """
name: race
max_parallel: 1
jobs:
  - {id: a, work: "until [ -e GO ]; do sleep 0.05; done; echo a > a.txt"}
  - {id: x, needs: [a], work: "sleep 1; echo x > x.txt"}
  - {id: g, needs: [a], priority: -5, work: "echo g > g.txt"}
"""
FAILS = "name: fails\njobs: [{id: a, heal: false, work: 'exit 1'}]\n"
PAUSED = "name: paused\nstart_paused: true\njobs: [{id: a, work: 'echo a > a.txt'}]\n"


class Gate:
    """A place inside of requests at which one of them is held."""

    def __init__(self, place: str, folder: Path, nth: int) -> None:
        self._there, self._go = folder / f"{place}-there", folder / f"{place}-go"
        failpoint.rearm(f"{place}:{nth}:note={self._there},{place}:{nth}:wait={self._go}")

    async def reached(self) -> None:
        await until(self._there.exists)

    def open(self) -> None:
        self._go.touch()


@contextmanager
def gate(place: str, folder: Path, nth: int = 1) -> Iterator[Gate]:
    """Hold the request that comes to this place as the nth."""
    made = Gate(place, folder, nth)
    try:
        yield made
    finally:
        made.open()
        failpoint.rearm(None)


def parsed(orchard: Orchard, text: str) -> Plan:
    return orchard.app.parse_plan(None, dedent(text).encode())


@asynccontextmanager
async def asking(orchard: Orchard, plan: str) -> AsyncIterator[tuple[Session, PlanId]]:
    async with asyncio.timeout(LONGEST), orchard.app.session() as session:
        submitted = await session.request("create_plan", plan=parsed(orchard, plan))
        yield session, PlanId(submitted["plan"])


async def over(session: Session, plan: PlanId) -> None:
    async for _ in session.follow(plan):
        pass


async def outcome(asked: Awaitable[Json]) -> Json | OrchardError:
    """What became of a request: its answer, or words; anything else is a bug."""
    try:
        return await asked
    except OrchardError as refused:
        assert refused.message
        return refused


def told(orchard: Orchard, plan: PlanId, *kinds: type[e.Event]) -> list[str]:
    return [type(one.event).__name__ for one in orchard.app.reader.events(plan) if isinstance(one.event, kinds)]


async def test_the_same_key_twice_at_once_makes_one_plan(orchard: Orchard, tmp_path: Path) -> None:
    plan = parsed(orchard, PAUSED)
    with gate("request.checking", tmp_path) as first:
        async with asyncio.timeout(LONGEST), orchard.app.session() as session:
            one = asyncio.ensure_future(session.request("create_plan", plan=plan, key="k"))
            await first.reached()
            two = await session.request("create_plan", plan=plan, key="k")
            first.open()
            answers = [await one, two]

    assert [answer["plan"] for answer in answers] == [answers[0]["plan"]] * 2
    assert [answer["known"] for answer in answers] == [True, False]
    assert len(orchard.app.plans()) == 1


async def test_a_job_that_starts_while_a_reshape_is_checked_is_not_removed(orchard: Orchard, tmp_path: Path) -> None:
    async with asking(orchard, PLAN.replace("GO", str(tmp_path / "go"))) as (session, plan):
        with gate("request.checking", tmp_path) as checked:
            asked = asyncio.ensure_future(
                outcome(session.request("reshape_plan", plan=plan, changes=[{"op": "remove", "id": "x"}]))
            )
            await checked.reached()
            (tmp_path / "go").touch()
            await until(lambda: "x" in [one.job for one in orchard.events(e.JobStarted, plan)])
            checked.open()
            refused = await asked
        await over(session, plan)

    assert isinstance(refused, InvalidInput) and "has started" in refused.message, refused
    assert orchard.status(plan)["plan"]["status"] == "succeeded"
    assert "x.txt" in orchard.repo.files("work")


async def test_two_reshapes_at_once_both_hold(orchard: Orchard, tmp_path: Path) -> None:
    def add(job: str) -> list[Json]:
        return [{"op": "add", "job": {"id": job, "work": "true"}}]

    async with asking(orchard, PAUSED) as (session, plan):
        with gate("request.checking", tmp_path) as checked:
            one = asyncio.ensure_future(session.request("reshape_plan", plan=plan, changes=add("n1")))
            await checked.reached()
            second = await session.request("reshape_plan", plan=plan, changes=add("n2"))
            checked.open()
            first = await one

    assert second["jobs"] == ["a", "n2"]
    assert first["jobs"] == ["a", "n2", "n1"]
    assert set(statuses(orchard.status(plan))) == {"a", "n1", "n2"}


async def test_a_reshape_that_others_always_overtake_is_refused_and_not_tried_for_ever(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add(job: str) -> list[Json]:
        return [{"op": "add", "job": {"id": job, "work": "true"}}]

    others: list[str] = []
    looks_itself = False

    async def check(world: object, plan: object, run: object) -> None:
        nonlocal looks_itself
        if looks_itself:
            return
        looks_itself = True
        others.append(f"n{len(others)}")
        await session.request("reshape_plan", plan=made, changes=add(others[-1]))
        looks_itself = False

    async with asking(orchard, PAUSED) as (session, made):
        monkeypatch.setattr(changes, "check_agents", check)
        refused = await outcome(session.request("reshape_plan", plan=made, changes=add("mine")))

    assert isinstance(refused, OrchardError) and "so this one gave up" in refused.message, refused
    assert len(others) == 10
    assert set(statuses(orchard.status(made))) == {"a", *others}


async def test_two_plans_cannot_be_made_to_wait_for_each_other_at_once(orchard: Orchard, tmp_path: Path) -> None:
    def after(other: str) -> list[Json]:
        return [{"op": "update_plan", "set": {"after": other}}]

    async with asking(orchard, PAUSED) as (session, one):
        two = PlanId(
            (await session.request("create_plan", plan=parsed(orchard, PAUSED.replace("paused\n", "b\n", 1))))["plan"]
        )
        with gate("request.checking", tmp_path) as checked:
            asked = asyncio.ensure_future(outcome(session.request("reshape_plan", plan=one, changes=after(two))))
            await checked.reached()
            await session.request("reshape_plan", plan=two, changes=after(one))
            checked.open()
            refused = await asked

    assert isinstance(refused, UsageError) and "waits for it" in refused.message, refused


async def test_two_retries_at_once_are_one_retry_and_one_refusal_in_words(orchard: Orchard, tmp_path: Path) -> None:
    async with asking(orchard, FAILS) as (session, plan):
        await over(session, plan)
        with gate("request.checking", tmp_path) as checked:
            one = asyncio.ensure_future(outcome(session.request("retry_plan", plan=plan, jobs=["a"])))
            await checked.reached()
            two = await session.request(
                "retry_plan", plan=plan, jobs=["a"], work={"type": "shell", "command": "sleep 1; echo a > a.txt"}
            )
            checked.open()
            refused = await one
        await over(session, plan)

    assert two["jobs"] == ["a"]
    assert isinstance(refused, UsageError) and "only a failed or canceled job" in refused.message, refused
    assert told(orchard, plan, e.JobRetried) == ["JobRetried"]
    assert orchard.status(plan)["plan"]["status"] == "succeeded"


async def test_a_pause_during_a_resume_holds(orchard: Orchard, tmp_path: Path) -> None:
    async with asking(orchard, PAUSED) as (session, plan):
        with gate("request.checking", tmp_path) as fetching:
            resume = asyncio.ensure_future(outcome(session.request("resume_plan", plan=plan)))
            await fetching.reached()
            await session.request("pause_plan", plan=plan)
            fetching.open()
            refused = await resume
        await asyncio.sleep(0.2)

    assert isinstance(refused, UsageError) and "paused again" in refused.message, refused
    assert orchard.status(plan)["plan"]["status"] == "paused"
    assert told(orchard, plan, e.PlanPaused, e.PlanResumed, e.JobPicked) == ["PlanPaused"]


async def test_a_pause_while_a_retry_fetches_holds(orchard: Orchard, tmp_path: Path) -> None:
    plan_text = FAILS.replace("]\n", ", {id: b, work: 'sleep 60'}]\n")
    async with asking(orchard, plan_text) as (session, plan):
        await until(lambda: statuses(orchard.status(plan))["a"] == "failed")
        await session.request("pause_plan", plan=plan)
        with gate("request.checking", tmp_path, 2) as fetching:
            retry = asyncio.ensure_future(session.request("retry_plan", plan=plan, jobs=["a"], fresh=True))
            await fetching.reached()
            await session.request("pause_plan", plan=plan)
            fetching.open()
            assert (await retry)["jobs"] == ["a"]
        await asyncio.sleep(0.2)
        assert statuses(orchard.status(plan))["a"] == "ready"
        assert told(orchard, plan, e.PlanResumed) == []
        await session.request("cancel_plan", plan=plan)


async def test_a_cancel_does_not_wait_for_the_fetch_of_a_retry(orchard: Orchard, tmp_path: Path) -> None:
    async with asking(orchard, FAILS) as (session, plan):
        await over(session, plan)
        with gate("request.checking", tmp_path, 2) as fetching:
            retry = asyncio.ensure_future(outcome(session.request("retry_plan", plan=plan, fresh=True)))
            await fetching.reached()
            async with asyncio.timeout(5):
                await session.request("cancel_plan", plan=plan)
            fetching.open()
            answer = await retry
        await over(session, plan)

    assert isinstance(answer, UsageError) and "was canceled while" in answer.message, answer
    assert orchard.status(plan)["plan"]["status"] == "canceled"


STUBBORN = """
name: stubborn
jobs:
  - {id: slow, work: "trap '' TERM; touch SLOW; while true; do sleep 0.2; done"}
  - {id: quick, heal: false, work: "sleep 60"}
"""


async def test_a_job_that_is_retried_while_a_cancel_waits_for_another_is_not_stopped_twice(
    orchard: Orchard, tmp_path: Path
) -> None:
    async with asking(orchard, STUBBORN.replace("SLOW", str(tmp_path / "slow"))) as (session, plan):
        await until((tmp_path / "slow").exists)
        await until(lambda: statuses(orchard.status(plan))["quick"] == "running")
        cancel = asyncio.ensure_future(session.request("cancel_jobs", plan=plan, jobs=["slow", "quick"]))
        await until(lambda: statuses(orchard.status(plan))["quick"] == "canceled")
        work = {"type": "shell", "command": "sleep 12; echo done > done.txt"}
        await session.request("retry_plan", plan=plan, jobs=["quick"], work=work)
        await until(lambda: statuses(orchard.status(plan))["quick"] == "running")
        await cancel
        assert statuses(orchard.status(plan)) == {"slow": "canceled", "quick": "running"}
        await over(session, plan)

    assert statuses(orchard.status(plan)) == {"slow": "canceled", "quick": "succeeded"}


async def test_a_plan_whose_jobs_are_retried_while_it_is_deleted_is_deleted_with_nothing_running(
    orchard: Orchard, tmp_path: Path
) -> None:
    async with asking(orchard, STUBBORN.replace("SLOW", str(tmp_path / "slow"))) as (session, plan):
        await until((tmp_path / "slow").exists)
        await until(lambda: statuses(orchard.status(plan))["quick"] == "running")
        delete = asyncio.ensure_future(session.request("delete_plan", plan=plan))
        await until(lambda: statuses(orchard.status(plan))["quick"] == "canceled")
        await session.request("retry_plan", plan=plan, jobs=["quick"])
        await until(lambda: statuses(orchard.status(plan))["quick"] == "running")
        assert (await delete)["kept_folders"] == []

    shown = orchard.status(plan)
    assert shown["plan"]["deleted"] is True
    assert statuses(shown) == {"slow": "canceled", "quick": "canceled"}


async def test_two_purges_at_once_are_one_purge_and_one_refusal_in_words(orchard: Orchard, tmp_path: Path) -> None:
    async with asking(orchard, FAILS) as (session, plan):
        await over(session, plan)
        both = await asyncio.gather(*(outcome(session.request("purge_plan", plan=plan)) for _ in range(2)))

    assert sorted(isinstance(one, OrchardError) for one in both) == [False, True], both
    assert orchard.app.plans() == []


async def test_a_plan_that_is_reshaped_while_git_is_asked_where_it_starts_begins_anew(
    orchard: Orchard, tmp_path: Path
) -> None:
    with gate("plan.before-pin", tmp_path) as pinned:
        async with asyncio.timeout(LONGEST), orchard.app.session() as session:
            submitted = await session.request(
                "create_plan", plan=parsed(orchard, PAUSED.replace("start_paused: true\n", ""))
            )
            plan = PlanId(submitted["plan"])
            await pinned.reached()
            elsewhere = [{"op": "update_plan", "set": {"target": "elsewhere"}}]
            await session.request("reshape_plan", plan=plan, changes=elsewhere)
            pinned.open()
            await over(session, plan)

    [started] = orchard.events(e.PlanStarted, plan)
    assert started.target_branch == "elsewhere"
    assert orchard.status(plan)["plan"]["status"] == "succeeded"
    assert "a.txt" in orchard.repo.files("elsewhere")


async def test_a_land_while_the_landing_is_under_way_is_the_same_landing(orchard: Orchard, tmp_path: Path) -> None:
    asks = "name: asks\nland: ask\njobs: [{id: a, work: 'echo a > a.txt'}]\n"
    async with asking(orchard, asks) as (session, plan):
        await until(lambda: orchard.status()["plan"]["status"] == "waiting")
        with gate("checkout.intended", tmp_path) as held:
            first = await session.request("land_plan", plan=plan)
            await held.reached()
            second = await session.request("land_plan", plan=plan)
        await over(session, plan)

    assert "branch" not in first and "branch" not in second
    assert len(told(orchard, plan, e.Landed)) == 1
    assert orchard.status()["plan"]["landed"]


@pytest.mark.parametrize("end", ["succeeded", "canceled"])
async def test_a_plan_that_is_over_is_not_resumed_by_the_engine_that_ended_it(orchard: Orchard, end: str) -> None:
    asked = []

    async def during(session: Session, plan: PlanId) -> None:
        if end == "canceled":
            await session.request("cancel_plan", plan=plan)
        await until(lambda: orchard.app.run_of(plan).settled)
        with pytest.raises(UsageError, match=f"is {end} and cannot be resumed"):
            await session.request("resume_plan", plan=plan)
        asked.append(plan)

    work = "sleep 30" if end == "canceled" else "echo 1 > 1"
    await orchard.run(f"name: x\njobs: [{{id: a, work: {work}}}]", during)

    assert asked


DEAF = "name: n\njobs: [{id: a, heal: false, work: \"trap '' TERM; touch UP; while true; do sleep 0.2; done\"}]\n"


@pytest.mark.parametrize("first", ["force_fail_job", "cancel_jobs"])
async def test_of_two_ends_that_are_asked_for_at_once_the_first_stands(
    orchard: Orchard, tmp_path: Path, first: str
) -> None:
    ends: dict[str, Json] = {"force_fail_job": {"job": "a"}, "cancel_jobs": {"jobs": ["a"]}}
    second = next(name for name in ends if name != first)
    text = DEAF.replace("UP", str(tmp_path / "up"))
    async with asyncio.timeout(LONGEST), orchard.app.session() as session:
        made = await session.request("create_plan", plan=orchard.app.parse_plan(None, text.encode()))
        plan = made["plan"]
        await until((tmp_path / "up").exists)
        asked = asyncio.create_task(session.request(first, plan=plan, reason="first", **ends[first]))
        await asyncio.sleep(0.3)
        with pytest.raises(UsageError):
            await session.request(second, plan=plan, reason="second", **ends[second])
        await asked
        found = [one.event for one in orchard.app.reader.events(PlanId(plan))]

    wanted = e.JobFailed if first == "force_fail_job" else e.JobCanceled
    over = [one for one in found if isinstance(one, e.JobFailed | e.JobCanceled) and one.job == "a"]
    assert [type(one) for one in over] == [wanted]
    assert "first" in str(over[0])
