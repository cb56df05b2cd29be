"""Updates: what an agent is told of its subtasks joins its next turn, errors first, and is told until it is heard."""

import asyncio

import pytest

from orchard.agents.protocol import Heard, Result, Session, Task, Watch
from orchard.engine.engine import Engine
from orchard.engine.server import start as opening
from orchard.engine.turns import turn as turns
from orchard.engine.turns.updates import queue_update
from orchard.model.events.plans import SubtaskEnded, UpdateQueued, UpdatesDelivered
from orchard.model.plan import JobId, PlanId
from orchard.testing import Turn
from tests.engine.conftest import Orchard, job, until
from tests.engine.helpers import Asker, Line
from tests.engine.scripted import ScriptedAgents, ends, writes

pytestmark = pytest.mark.anyio

TALK = "name: Talk\njobs: [{id: a, work: {type: agent, instructions: Write a, interactive: true}}]"
PLAIN = "name: Plain\njobs: [{id: a, work: '@agent Write a'}]"
A = JobId("a")


class Held:
    """The engine that runs, for turns that queue updates as the engine itself would."""

    engine: Engine


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    held, made = Held(), Engine.__init__

    def make(self: Engine, *args: object, **kwargs: object) -> None:
        made(self, *args, **kwargs)  # type: ignore[arg-type]
        held.engine = self

    monkeypatch.setattr(Engine, "__init__", make)
    return held


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01, 0.01))
    return table


def queuing(held: Held, then: Turn, *updates: tuple[str, str], wakes: bool = False) -> Turn:
    """A turn during which updates are queued for its agent; it has heard its own task before."""

    def turn(task: Task, watch: Watch) -> Result:
        watch.tell(Session("s1"))
        watch.tell(Heard())
        run = held.engine.runs[PlanId(task.env["ORCHARD_PLAN"])]
        for kind, text in updates:
            queue_update(held.engine, run, A, kind, text, about="subtask-1", wakes=wakes)
        return then(task, watch)  # type: ignore[return-value]

    return turn


async def test_updates_join_the_next_turn_with_errors_first_and_are_told_once(
    orchard: Orchard, agents: ScriptedAgents, held: Held
) -> None:
    told = (("progress", "half done"), ("idle_response", "it waits"), ("progress", "nearly done"), ("error", "stuck"))
    agent = agents.add(
        "one", queuing(held, writes({"a.txt": "a"}), *told), writes({"b.txt": "b"}), ends(Result("done"))
    )
    await orchard.run(TALK)

    await orchard.ask("send_message", job="a", message="Go on.")
    await orchard.ask("send_message", job="a", message="And more.")

    first, second, third = (task.instructions for task in agent.tasks)
    assert "What happened to your subtasks" not in first
    assert second.startswith("Go on.")
    assert second.index("stuck") < second.index("it waits") < second.index("nearly done")
    assert "half done" not in second, "of progress only the latest is told"
    assert third == "And more.\n"
    assert [(one.number, one.to) for one in orchard.events(UpdatesDelivered)] == [(4, None)]


async def test_an_update_alone_begins_no_turn_unless_it_wakes(
    orchard: Orchard, agents: ScriptedAgents, held: Held
) -> None:
    agent = agents.add("one", queuing(held, writes({"a.txt": "a"}), ("progress", "half done")))
    status = await orchard.run(TALK)

    assert (len(agent.tasks), job(status, "a")["worker"]["state"]) == (1, "idle")


async def test_an_update_that_wakes_begins_the_next_turn_of_a_worker_that_would_be_idle(
    orchard: Orchard, agents: ScriptedAgents, held: Held
) -> None:
    turn = queuing(held, writes({"a.txt": "a"}), ("error", "stuck"), wakes=True)
    agent = agents.add("one", turn, writes({"b.txt": "b"}))
    status = await orchard.run(TALK)

    assert [task.session for task in agent.tasks] == [None, "s1"]
    assert "stuck" in agent.tasks[1].instructions and "Write a" not in agent.tasks[1].instructions
    assert job(status, "a")["worker"]["state"] == "idle"


async def test_an_update_that_wakes_releases_a_worker_that_is_idle_already(
    orchard: Orchard, agents: ScriptedAgents, held: Held
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}), writes({"b.txt": "b"}))
    await orchard.run(TALK)
    app = orchard.app
    async with asyncio.timeout(30), app.session() as session:
        plan = app.find_plan(None)
        queue_update(held.engine, held.engine.runs[plan], A, "error", "stuck", about="subtask-1", wakes=True)
        async for _ in session.follow(plan):
            pass

    assert len(agent.tasks) == 2 and "stuck" in agent.tasks[1].instructions


async def test_work_that_is_done_does_not_wait_for_updates(
    orchard: Orchard, agents: ScriptedAgents, held: Held
) -> None:
    agent = agents.add("one", queuing(held, writes({"a.txt": "a"}), ("error", "stuck"), wakes=True))
    status = await orchard.run(PLAIN)

    assert (len(agent.tasks), status["plan"]["status"]) == (1, "succeeded")
    assert orchard.events(UpdateQueued) and not orchard.events(UpdatesDelivered)


async def test_an_update_is_told_again_where_the_turn_that_told_it_ended_before_its_agent_had_heard(
    orchard: Orchard, agents: ScriptedAgents, held: Held
) -> None:
    turn = queuing(held, writes({"a.txt": "a"}), ("error", "stuck"))
    agent = agents.add("one", turn, ends(Result("overloaded", "Busy.", session="s1")), writes({"b.txt": "b"}))
    await orchard.run(TALK)

    await orchard.ask("send_message", job="a", message="Go on.")

    second, third = (task.instructions for task in agent.tasks[1:])
    assert "stuck" in second and "stuck" in third
    assert "not certain whether you were told" in third and "not certain whether you were told" not in second
    assert [one.number for one in orchard.events(UpdatesDelivered)] == [1]


@pytest.mark.parametrize("asks", [True, False])
async def test_how_a_subtask_ended_is_told_once_however_many_engines_there_are(
    orchard: Orchard, agents: ScriptedAgents, asks: bool
) -> None:
    line, begun = Line(), list[str]()

    async def turn(task: Task, watch: Watch) -> Result:
        asker = Asker(line, task, watch)
        session = f"s-{asker.scope['subtask']}"
        watch.tell(Session(session))
        watch.tell(Heard())
        if asker.scope["subtask"]:
            return Result("done", text="What came of it", session=session)
        begun.append(task.instructions)
        if len(begun) == 1:
            spawned = await asker.spawn("Child", blocking=asks)
            await until(lambda: bool(orchard.events(SubtaskEnded)))
            assert not asks or spawned["summary"] == "What came of it"
        return Result("done", text="Done.", session=session)

    agents.add("one", turn)
    await orchard.run(TALK, during=line.open)
    for number in range(3):
        await orchard.ask("send_message", job="a", message=f"Message {number}.")

    told = ["What came of it" in instructions for instructions in begun]
    assert told == ([False] * 4 if asks else [False, True, False, False])
    assert len(orchard.events(UpdateQueued)) == (0 if asks else 1)


async def test_what_an_attempt_was_not_told_is_told_in_the_next_one(
    orchard: Orchard, agents: ScriptedAgents, held: Held
) -> None:
    told = (("error", "it broke"), ("idle_response", "it waits"))
    agent = agents.add("one", queuing(held, ends(Result("failed", "no")), *told), writes({"a.txt": "a"}))
    await orchard.run(PLAIN)

    await orchard.ask("retry_plan")

    assert "In attempt 1, which is over: it broke" in agent.tasks[1].instructions
    assert "it waits" not in agent.tasks[1].instructions
    assert orchard.events(UpdatesDelivered)
