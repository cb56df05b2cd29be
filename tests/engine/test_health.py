"""The health monitor in an engine: what it finds is recorded once, told to whom it concerns, and acted upon."""

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from msgspec.structs import replace

from orchard.agents.protocol import Called, Heard, Noted, Result, Said, Session, Task, Watch
from orchard.config import layers
from orchard.engine.server import start as opening
from orchard.engine.server.session import Session as ServerSession
from orchard.engine.turns import turn as turns
from orchard.model.events.plans import (
    AgentStarted,
    HealthCleared,
    HealthNoted,
    JobFailed,
    SubtaskEnded,
    UpdateQueued,
    UpdatesDelivered,
    WorkerIdle,
)
from orchard.model.health import ACTIONS, Action, Health
from orchard.model.plan import PlanId
from orchard.process.program import run_program
from orchard.testing import Turn
from tests.engine.conftest import Orchard, job, until
from tests.engine.helpers import Asker, Line, by_task, turn
from tests.engine.helpers import run as run_asking
from tests.engine.scripted import ScriptedAgents, writes

pytestmark = pytest.mark.anyio

TALK = "name: Talk\njobs: [{id: a, work: {type: agent, instructions: Write a, interactive: true}}]"
PLAIN = "name: Plain\njobs: [{id: a, work: '@agent Write a'}]"
SOON = Health(idle=0.2, slow=None, stuck=1.0)
OFF = Health(idle=None, slow=None, stuck=None, looping=0, failing=0)


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01, 0.01))
    return table


@contextmanager
def set_to(health: Health) -> Iterator[None]:
    """These settings, as a file of the user's repository would make them."""
    fresh = replace(layers.Config(), health=health)
    made = layers._config  # the one place where a configuration is put together
    layers._config = lambda values: replace(made(values), health=fresh.health)
    try:
        yield
    finally:
        layers._config = made


def until_ended(*tellings: object, files: dict[str, str] | None = None, seconds: float = 20.0) -> Turn:
    """A turn that tells these and is silent then, until somebody ends it."""

    async def turn(task: Task, watch: Watch) -> Result:
        watch.tell(Session("s1"))
        watch.tell(Heard())
        for name, content in (files or {}).items():
            (task.folder / name).write_text(content)
        watch.tell(Said("I begin.\n"))
        for telling in tellings:
            watch.tell(telling)  # type: ignore[arg-type]
        await asyncio.sleep(seconds)
        return Result("done", session="s1")

    return turn


LOOP = [Called("bash", "ls", input="1")] * 5
FAILS = [
    one
    for number in range(10)
    for one in (Called("x", str(number), input=str(number)), Called("x", str(number), failed=True))
]
TURNS: dict[str, tuple[Health, list[Called]]] = {
    "slow": (Health(slow=0.3, stuck=None), []),
    "stuck": (Health(slow=None, stuck=0.4), []),
    "looping": (Health(slow=None, stuck=None), LOOP),
    "failing": (Health(slow=None, stuck=None), FAILS),
}


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("condition", TURNS)
async def test_every_condition_of_a_turn_has_its_action(
    orchard: Orchard, agents: ScriptedAgents, condition: str, action: str
) -> None:
    health, tellings = TURNS[condition]
    ends_itself = action in ("tell", "ask")
    first = until_ended(*tellings, files={"a.txt": "a"}, seconds=2.0 if ends_itself else 30.0)
    agent = agents.add("one", first, writes({"b.txt": "b"}))
    with set_to(replace(health, idle=None, **{f"on_{condition}": action})):
        status = await orchard.run(TALK if action != "fail" else PLAIN)

        noted = orchard.events(HealthNoted)
        assert [(one.condition, one.action, one.subtask) for one in noted] == [(condition, action, None)]
        assert noted[0].evidence
        if action == "fail":
            failed = orchard.events(JobFailed)[0]
            assert (failed.reason, status["plan"]["status"]) == ("health", "failed")
            assert f"because the worker is {condition}" in failed.message and noted[0].evidence in failed.message
            return
        why = orchard.events(WorkerIdle)[-1].why
        assert (job(status, "a")["worker"]["state"], why) == ("idle", "done" if ends_itself else "interrupted")
        assert len(agent.tasks) == 1, "no turn begins because of it"
        await orchard.ask("send_message", job="a", message="Go on.")
        asked = "What the orchestrator asks you" in agent.tasks[1].instructions
        assert asked is (action == "ask") and agent.tasks[1].instructions.startswith("Go on.")


async def test_what_is_stuck_and_acts_again_is_cleared_and_told_anew(orchard: Orchard, agents: ScriptedAgents) -> None:
    async def turn(task: Task, watch: Watch) -> Result:
        for _ in range(2):
            watch.tell(Said("Here I am.\n"))
            await asyncio.sleep(2.5)
            watch.tell(Said("Here I am again.\n"))
        return writes({"a.txt": "a"})(task, watch)  # type: ignore[return-value]

    agents.add("one", turn)
    with set_to(SOON):
        await orchard.run(PLAIN)

    assert [one.condition for one in orchard.events(HealthNoted)] == ["stuck", "stuck"]
    assert [one.condition for one in orchard.events(HealthCleared)] == ["stuck", "stuck"]


async def test_a_program_that_works_in_silence_is_not_stuck(orchard: Orchard, agents: ScriptedAgents) -> None:
    """CPU of the family counts: the same program asleep is stuck."""

    def runs(code: str) -> Turn:
        async def turn(task: Task, watch: Watch) -> Result:
            watch.tell(Said("I run it.\n"))
            argv = (sys.executable, "-c", code)
            launch = task.launcher.launch(argv, task.folder, task.env, task.log, task.limits)
            await run_program(launch, watch.on_start, watch.hurry)
            return writes({"a.txt": "a"})(task, watch)  # type: ignore[return-value]

        return turn

    agents.add(
        "one",
        runs("import time\nend = time.time() + 5\nwhile time.time() < end: pass"),
        runs("import time; time.sleep(5)"),
    )
    with set_to(replace(SOON, stuck=2.0)):
        await orchard.run(PLAIN)
        assert not orchard.events(HealthNoted)
        await orchard.run(PLAIN.replace("Plain", "Again").replace("Write a", "Write b"))
        assert [one.condition for one in orchard.events(HealthNoted)] == ["stuck"]


async def test_a_model_that_takes_its_time_for_the_first_answer_is_not_stuck(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    """The built-in agent tells at once of its session, and that it has taken in its task."""

    async def turn(task: Task, watch: Watch) -> Result:
        watch.tell(Session("s1"))
        watch.tell(Heard())
        watch.tell(Noted("mcp", "Its servers have started."))
        await asyncio.sleep(2.5)
        return writes({"a.txt": "a"})(task, watch)  # type: ignore[return-value]

    agents.add("one", turn)
    with set_to(SOON):
        await orchard.run(PLAIN)

    assert not orchard.events(HealthNoted)


async def test_traffic_of_the_model_is_activity(orchard: Orchard, agents: ScriptedAgents) -> None:
    async def turn(task: Task, watch: Watch) -> Result:
        for _ in range(30):
            await asyncio.sleep(0.1)
            watch.alive()
        return writes({"a.txt": "a"})(task, watch)  # type: ignore[return-value]

    agents.add("one", turn)
    with set_to(SOON):
        await orchard.run(PLAIN)

    assert not orchard.events(HealthNoted)


async def test_a_worker_that_waits_for_its_subtasks_is_not_stuck(orchard: Orchard, agents: ScriptedAgents) -> None:
    line = Line()

    async def parent(asker: Asker) -> str:
        child = await asker.spawn("Help")
        await asker.wait(child["id"])
        asker.write(a="a")
        return "Done."

    async def child(asker: Asker) -> str:
        for _ in range(25):
            asker.watch.alive()
            await asyncio.sleep(0.1)
        return "Helped."

    agents.add("one", by_task(line, write=parent, help=child))
    with set_to(SOON):
        await run_asking(orchard, line, PLAIN)

    assert not orchard.events(HealthNoted)


async def test_a_parent_is_told_of_a_subtask_that_is_stuck_in_its_next_turn(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    line, told = Line(), list[str]()

    async def parent(asker: Asker) -> str | Result:
        told.append(asker.task.instructions)
        if len(told) > 1:
            return "I know."
        asker.watch.tell(Session("s1"))
        asker.watch.tell(Heard())
        await asker.spawn("Help")
        for _ in range(30):
            asker.watch.alive()
            await asyncio.sleep(0.1)
        asker.write(a="a")
        return Result("done", text="Asked.", session="s1")

    async def child(asker: Asker) -> str:
        asker.watch.tell(Said("I begin.\n"))
        await asyncio.sleep(30)
        return "Helped."

    async def both(asker: Asker) -> str | Result:
        return await (child if asker.scope["subtask"] else parent)(asker)

    agents.add("one", turn(line, both))
    with set_to(replace(SOON, idle=None)):
        await run_asking(orchard, line, TALK)

    noted = orchard.events(HealthNoted)
    assert [(one.condition, bool(one.subtask)) for one in noted] == [("stuck", True)]
    queued = [one for one in orchard.events(UpdateQueued) if one.kind == "error"]
    assert queued[0].about == noted[0].subtask and queued[0].to is None and queued[0].wakes
    assert "stuck: For" in told[1] and noted[0].subtask in told[1]
    assert orchard.events(UpdatesDelivered)


# ------------------------------------------------------------------------------------------- idle


async def go_on(orchard: Orchard, done: Callable[[], bool]) -> None:
    """Have an engine open until something has happened."""
    async with asyncio.timeout(30), orchard.app.session():
        await until(done)


async def test_an_idle_worker_is_told_of_once(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}, says="Is that right?"))
    with set_to(SOON):
        await orchard.run(TALK)
        await go_on(orchard, lambda: bool(orchard.events(HealthNoted)))
        async with orchard.app.session():
            await asyncio.sleep(0.5)

    noted = orchard.events(HealthNoted)
    assert [(one.condition, one.action) for one in noted] == [("idle", "tell")]
    assert "Is that right?" in noted[0].evidence
    assert [one["condition"] for one in job(orchard.status(), "a")["worker"]["health"]] == ["idle"]


async def test_an_idle_worker_that_is_asked_gets_one_turn_to_answer(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}))
    with set_to(replace(SOON, on_idle="ask")):
        await orchard.run(TALK)
        await go_on(orchard, lambda: len(orchard.events(WorkerIdle)) == 2 and len(orchard.events(HealthNoted)) == 2)
        async with orchard.app.session():
            await asyncio.sleep(0.6)

    assert [one.action for one in orchard.events(HealthNoted)] == ["ask", "tell"]
    assert len(agent.tasks) == 2 and "what you wait for" in agent.tasks[1].instructions


async def test_an_idle_worker_can_be_failed(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    with set_to(replace(SOON, on_idle="fail")):
        await orchard.run(TALK)
        await go_on(orchard, lambda: bool(orchard.events(JobFailed)))

    assert orchard.events(JobFailed)[0].reason == "health"
    assert "from commit" in (orchard.events(JobFailed)[0].hint or "") or "--from" in (
        orchard.events(JobFailed)[0].hint or ""
    )


@pytest.mark.parametrize(("action", "turns"), [("tell", 1), ("ask", 2), ("fail", 1)])
async def test_an_idle_subtask_is_told_to_its_parent_asked_or_failed(
    orchard: Orchard, agents: ScriptedAgents, action: Action, turns: int
) -> None:
    line, children = Line(), list[str]()

    async def both(asker: Asker) -> str:
        if asker.scope["subtask"]:
            children.append(asker.task.instructions)
            return "What next?"
        if "Go on" in asker.task.instructions:
            return "I see."
        await asker.spawn("Help", interactive=True)
        for _ in range(15):
            asker.watch.alive()
            await asyncio.sleep(0.1)
        asker.write(a="a")
        return "Asked."

    agents.add("one", turn(line, both))
    with set_to(replace(SOON, on_idle=action)):

        async def during(session: ServerSession, plan: PlanId) -> None:
            await line.open(session, plan)
            await until(lambda: bool(orchard.events(WorkerIdle)))
            await session.request("send_message", plan=plan, job="a", message="Go on.")

        await orchard.run(TALK, during=during)

    noted = [one for one in orchard.events(HealthNoted) if one.subtask]
    assert (noted[0].condition, noted[0].action, len(children)) == ("idle", action, turns)
    queued = [one for one in orchard.events(UpdateQueued) if one.kind == "idle_response"]
    assert queued[0].about == noted[0].subtask and not queued[0].wakes
    ended = [(one.status, "idle" in one.message) for one in orchard.events(SubtaskEnded)]
    assert ended[:1] == ([("failed", True)] if action == "fail" else ended[:1])


async def test_nothing_is_watched_where_all_is_off(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", until_ended(*LOOP, *FAILS, files={"a.txt": "a"}, seconds=0.5))
    with set_to(OFF):
        await orchard.run(TALK)

    assert not orchard.events(HealthNoted) and len(orchard.events(AgentStarted)) == 1


async def test_an_idle_subtask_is_told_of_after_another_engine_has_taken_over(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    line = Line()

    async def both(asker: Asker) -> str | Result:
        if asker.scope["subtask"]:
            return "What now?"
        await asker.spawn("Help", interactive=True, blocking=True)
        return "Asked."

    agents.add("one", turn(line, both))
    with set_to(OFF):
        await run_asking(orchard, line, TALK)
    with set_to(replace(OFF, idle=0.2)):
        async with orchard.app.session():
            await until(lambda: len(orchard.events(HealthNoted)) == 2)

    noted = orchard.events(HealthNoted)
    assert sorted((one.condition, one.subtask is not None) for one in noted) == [("idle", False), ("idle", True)]
