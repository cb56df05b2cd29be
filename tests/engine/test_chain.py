"""A plan that comes after another one begins when that has succeeded; if that will not happen, a person is asked."""

import asyncio

import pytest

from orchard.core.views.plans import needs_person
from orchard.model.events.plans import Landed
from orchard.surfaces.next_steps import in_commands
from tests.engine.conftest import Orchard

pytestmark = pytest.mark.anyio

FAILS = "name: C\ntarget: work\njobs: [{id: c, work: 'test -e again && echo c > c.txt'}]"
AFTER = "name: D\ntarget: work\nafter: C\njobs: [{id: d, work: echo d > d.txt}]"


async def test_a_plan_after_one_that_failed_asks_and_goes_on_without_it(orchard: Orchard) -> None:
    first = (await orchard.run(FAILS))["plan"]

    second = (await orchard.run(AFTER))["plan"]

    assert second["status"] == "waiting"
    assert f"orchard resume {second['id']}" in second["error"] and f"--plan {first['id']}" in second["error"]
    [asked] = needs_person(orchard.app.run_of(second["id"]), in_commands)
    assert asked.command == f"orchard resume {second['id']}"
    app, heard = orchard.app, list[object]()
    async with asyncio.timeout(60), app.session() as session:
        await session.request("resume_plan", plan=second["id"])
        async for batch in session.follow(second["id"]):
            heard += [one.event for one in batch]
        # Whoever follows hears it to its end, and not only that it goes on.
        assert any(isinstance(one, Landed) for one in heard)
    assert orchard.status(second["id"])["plan"]["status"] == "succeeded" and "d.txt" in orchard.repo.files("work")


@pytest.mark.parametrize("verbs", [("delete_plan",), ("delete_plan", "purge_plan")])
async def test_a_plan_whose_first_one_is_taken_away_asks(orchard: Orchard, verbs: tuple[str, ...]) -> None:
    first = (await orchard.run(FAILS.replace("name: C", "name: C\nstart_paused: true")))["plan"]
    second = (await orchard.run(AFTER))["plan"]
    assert second["status"] == "pending"

    for verb in verbs:
        async with orchard.app.session() as session:
            await session.request(verb, plan=first["id"])
            await session.wait_idle()

    second = orchard.status(second["id"])["plan"]
    assert second["status"] == "waiting" and "is gone" in second["error"]
    done = await orchard.ask("resume_plan", second["id"])
    assert done["plan"]["status"] == "succeeded"


async def test_a_plan_after_one_that_was_retried_begins_when_that_has_succeeded(orchard: Orchard) -> None:
    first = (await orchard.run(FAILS))["plan"]
    second = (await orchard.run(AFTER))["plan"]
    folder = next(one["worktree"] for one in orchard.status(first["id"])["jobs"] if one["id"] == "c")
    open(f"{folder}/again", "w").close()  # noqa: PTH123, ASYNC230

    await orchard.ask("retry_plan", first["id"], jobs=["c"])
    done = await orchard.ask("resume_plan", second["id"])

    assert done["plan"]["status"] == "succeeded"
    assert {"c.txt", "d.txt"} <= orchard.repo.files("work").keys()


async def test_a_plan_begins_after_one_that_succeeded_in_an_earlier_engine(orchard: Orchard) -> None:
    await orchard.run("name: C\ntarget: work\njobs: [{id: c, work: echo c > c.txt}]")

    assert (await orchard.run(AFTER))["plan"]["status"] == "succeeded"
