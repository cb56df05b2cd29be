"""What a person should know about the machine is told in the run that it concerns."""

import pytest

from orchard.engine.machine import vigil
from orchard.process import awake
from tests.engine.conftest import Orchard, statuses

pytestmark = pytest.mark.anyio


async def test_a_damaged_list_of_slots_is_told_in_the_run_that_counts_anew(orchard: Orchard) -> None:
    place = orchard.app.dirs.state / "slots.db"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(b"garbage" * 1000)

    done = await orchard.run("name: n\njobs: [{id: a, work: 'echo a > a.txt'}, {id: b, work: 'echo b > b.txt'}]\n")

    assert statuses(done) == {"a": "succeeded", "b": "succeeded"}
    [warning] = done["plan"]["warnings"]
    assert "counts the jobs of this user anew" in warning and str(place) in warning


async def test_a_machine_that_cannot_be_kept_awake_is_told_once_in_every_run_that_takes_long(
    orchard: Orchard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(awake, "_shared", awake.Wakefulness(()))
    monkeypatch.setattr(vigil, "AWAKE_AFTER", 0.3)
    app = orchard.app
    async with app.session() as session:
        for name, seconds in (("first", 1), ("second", 1), ("short", 0)):
            work = f"sleep {seconds}; date > $ORCHARD_JOB.txt"
            text = f"name: {name}\njobs: [{{id: a, work: '{work}'}}, {{id: b, needs: [a], work: '{work}'}}]\n"
            asked = await session.request("create_plan", plan=app.parse_plan(None, text.encode()))
            async for _ in session.follow(asked["plan"]):
                pass

    warned = {one.name: one.warnings for one in app.plans()}
    assert warned["first"] == warned["second"] == [awake.WARNING]


async def test_a_remote_that_lies_beside_the_checkout_is_fetched_without_a_warning(orchard: Orchard) -> None:
    orchard.repo("clone", "-q", "--bare", ".", "../beside.git")
    orchard.repo("remote", "add", "origin", "../beside.git")
    await orchard.run("name: n\nstart_paused: true\njobs: [{id: a, work: 'echo a > a.txt'}]\n")

    done = await orchard.ask("resume_plan")

    assert statuses(done) == {"a": "succeeded"}
    assert done["plan"]["warnings"] == []
