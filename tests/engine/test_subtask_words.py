"""What people say about a subtask at the wrong moment: they are answered what happens, and it happens at once."""

import asyncio
from typing import Any

import pytest

from orchard.agents.protocol import Heard, Result, Session, Task, Watch
from orchard.engine.server import session as sessions
from orchard.engine.server import start as opening
from orchard.errors import UsageError
from orchard.model.events.plans import (
    AgentEnded,
    AgentStarted,
    MessageSent,
    MessagesUnheard,
    SubtaskCompleted,
    SubtaskEnded,
    SubtaskIdle,
)
from orchard.model.plan import PlanId
from orchard.operations.queries.workers import GetJobTalk, get_job_talk
from orchard.testing import Turn
from tests.engine.conftest import Orchard, statuses, until
from tests.engine.helpers import Asker, Asking, Line
from tests.engine.scripted import ScriptedAgents

pytestmark = pytest.mark.anyio

PLAN = "name: Help\njobs: [{id: a, work: {agent: one, instructions: Parent}}]"


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    return table


@pytest.fixture
def line() -> Line:
    return Line()


def pair(line: Line, parent: Asking, child: Asking) -> Turn:
    """Agents with sessions that hear what they are told, and take their part by whether they are a subtask."""

    async def turn(task: Task, watch: Watch) -> Result:
        asker = Asker(line, task, watch)
        session = f"s-{asker.scope['subtask']}"
        watch.tell(Session(session))
        watch.tell(Heard())
        said = await (child if asker.scope["subtask"] else parent)(asker)
        return said if isinstance(said, Result) else Result("done", text=said, session=session)

    return turn


@pytest.mark.parametrize("verb", ["pause_worker", "interrupt_worker"])
async def test_who_ends_the_turn_of_a_subtask_that_told_its_result_is_answered_that_it_is_completed(
    orchard: Orchard, agents: ScriptedAgents, line: Line, verb: str
) -> None:
    ids, told, answered = list[str](), asyncio.Event(), asyncio.Event()
    answer: dict[str, Any] = {}

    async def parent(asker: Asker) -> str:
        ids.append((await asker.spawn("Child"))["id"])
        await answered.wait()
        asker.write(parent="x")
        return "Done."

    async def child(asker: Asker) -> str:
        asker.write(child="x")
        await asker.ask("complete_subtask", result="All of it.")
        told.set()
        await asyncio.sleep(60)
        return "Too late."

    async def during(session: sessions.Session, plan: PlanId) -> None:
        await line.open(session, plan)
        await told.wait()
        answer.update(await session.request(verb, plan=plan, job=f"a/{ids[0]}"))
        answered.set()

    agents.add("one", pair(line, parent, child))
    assert statuses(await orchard.run(PLAN, during=during)) == {"a": "succeeded"}

    (ended,) = orchard.events(SubtaskEnded)
    assert (ended.status, ended.summary, ended.counts.get("added")) == ("completed", "All of it.", 1)
    assert answer["worker"] == "completed" and not orchard.events(SubtaskIdle)


async def test_a_subtask_that_is_called_done_ends_at_once_although_a_message_waits(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    ids, begun, answered = list[str](), list[str](), asyncio.Event()
    answer: dict[str, Any] = {}

    async def parent(asker: Asker) -> str:
        ids.append((await asker.spawn("Child"))["id"])
        await answered.wait()
        asker.write(parent="x")
        return "Done."

    async def child(asker: Asker) -> str:
        begun.append(asker.task.instructions)
        asker.write(child="x")
        await asyncio.sleep(60)
        return "Too late."

    async def during(session: sessions.Session, plan: PlanId) -> None:
        await line.open(session, plan)
        await until(lambda: bool(begun and ids))
        await session.request("send_message", plan=plan, job=f"a/{ids[0]}", message="And this.")
        try:
            async with asyncio.timeout(15):
                answer.update(await session.request("complete_task", plan=plan, job=f"a/{ids[0]}"))
        finally:
            answered.set()

    agents.add("one", pair(line, parent, child))
    assert statuses(await orchard.run(PLAN, during=during)) == {"a": "succeeded"}

    (ended,) = orchard.events(SubtaskEnded)
    assert (ended.status, ended.message) == ("completed", "A person said that it is done.")
    assert len(begun) == 1 and answer["worker"] == "completed" and ended.counts.get("added") == 1


async def test_a_subtask_that_is_called_done_while_it_waits_for_a_slot_keeps_its_result_and_its_changes(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    seen: list[dict[str, Any]] = []

    async def parent(asker: Asker) -> str:
        id = (await asker.spawn("Child", interactive=True, blocking=True))["id"]
        seen.append(await asker.ask("steer_subtask", id=id, action="send", message="And more."))
        seen.append(await asker.ask("steer_subtask", id=id, action="complete"))
        seen.append(await asker.pull(id))
        return "Done."

    async def child(asker: Asker) -> str:
        asker.write(child="x")
        return "What came of it."

    agents.add("one", pair(line, parent, child))
    plan = PLAN.replace("jobs:", "max_parallel: 1\njobs:")
    assert statuses(await orchard.run(plan, during=line.open)) == {"a": "succeeded"}

    waiting, done, pulled = seen
    assert waiting["status"] == "waiting", "its parent has the only slot"
    assert (done["status"], done["summary"], done["changes"]["added"]) == ("completed", "What came of it.", 1)
    assert pulled["files"] == ["child.txt"]


async def test_what_is_said_to_a_subtask_that_has_had_its_last_turn_is_refused(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    middle, said = asyncio.Event(), list[str]()

    async def parent(asker: Asker) -> str:
        id = (await asker.spawn("Child"))["id"]
        await middle.wait()
        await until(lambda: any(one.subtask == id for one in orchard.events(AgentEnded)))
        try:
            await asker.ask("steer_subtask", id=id, action="send", message="And this.")
        except UsageError as error:
            said.append(error.message)
        asker.write(parent="x")
        return str((await asker.wait(id))["ended"][0]["status"])

    async def child(asker: Asker) -> str:
        if "Grandchild" in asker.task.instructions.split("Child")[0]:
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(3)  # it takes its time to end
        await asker.spawn("Grandchild: sleep")
        await until(lambda: len(orchard.events(AgentStarted)) == 3)
        middle.set()
        return "Child is done."

    agents.add("one", pair(line, parent, child))
    await orchard.run(PLAN, during=line.open)

    assert "has had its last turn" in "".join(said) and not orchard.events(MessageSent)


async def test_what_is_said_to_a_subtask_while_it_is_being_completed_is_refused(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    refused: list[str] = []

    async def parent(asker: Asker) -> str:
        id = (await asker.spawn("Child", interactive=True, blocking=True))["id"]
        completing = asyncio.ensure_future(asker.ask("steer_subtask", id=id, action="complete"))
        await until(lambda: bool(orchard.events(SubtaskCompleted)))
        try:
            await asker.ask("steer_subtask", id=id, action="send", message="And this.")
        except UsageError as error:
            refused.append(error.message)
        asker.write(parent="x")
        return str((await completing)["status"])

    async def child(asker: Asker) -> str:
        asker.write(child="x")
        return "What came of it."

    agents.add("one", pair(line, parent, child))
    await orchard.run(PLAN, during=line.open)

    assert refused and not orchard.events(MessageSent)
    assert [one.status for one in orchard.events(SubtaskEnded)] == ["completed"]


async def test_what_is_said_to_the_agent_of_a_job_while_its_subtasks_are_stopped_is_refused(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    refused, stopping = list[str](), asyncio.Event()

    async def parent(asker: Asker) -> str:
        await asker.spawn("Child")
        await until(lambda: len(orchard.events(AgentStarted)) == 2)
        asker.write(parent="x")
        return "Done."

    async def child(asker: Asker) -> str:
        try:
            await asyncio.sleep(60)
        finally:
            stopping.set()
            await until(lambda: bool(refused or orchard.events(MessageSent)))  # it takes its time to end
        return "Too late."

    async def during(session: sessions.Session, plan: PlanId) -> None:
        await line.open(session, plan)
        await stopping.wait()
        try:
            await session.request("send_message", plan=plan, job="a", message="And this.")
        except UsageError as error:
            refused.append(error.message)

    agents.add("one", pair(line, parent, child))
    assert statuses(await orchard.run(PLAN, during=during)) == {"a": "succeeded"}

    assert "has had its last turn" in "".join(refused) and not orchard.events(MessageSent)


@pytest.mark.parametrize("called_done", ["the job", "the subtask"])
async def test_a_message_that_waits_when_the_work_is_called_done_is_recorded_as_not_heard(
    orchard: Orchard, agents: ScriptedAgents, line: Line, called_done: str
) -> None:
    ids, answered = list[str](), asyncio.Event()

    async def parent(asker: Asker) -> str:
        ids.append((await asker.spawn("Child"))["id"])
        asker.write(parent="x")
        await answered.wait()
        return "Done."

    async def child(asker: Asker) -> str:
        asker.write(child="x")
        await asyncio.sleep(60)
        return "Too late."

    async def during(session: sessions.Session, plan: PlanId) -> None:
        await line.open(session, plan)
        await until(lambda: bool(ids) and len(orchard.events(AgentStarted)) == 2)
        whom = "a" if called_done == "the job" else f"a/{ids[0]}"
        for text in ("This.", "And that."):
            await session.request("send_message", plan=plan, job=whom, message=text)
        await session.request("complete_task", plan=plan, job=whom)
        answered.set()

    agents.add("one", pair(line, parent, child))
    assert statuses(await orchard.run(PLAN, during=during)) == {"a": "succeeded"}

    (unheard,) = orchard.events(MessagesUnheard)
    assert (unheard.number, unheard.count) == (2, 2)
    assert unheard.subtask == (None if called_done == "the job" else ids[0])
    name = "a" if unheard.subtask is None else f"a/{unheard.subtask}"
    talk = get_job_talk.read(orchard.app, GetJobTalk(plan=orchard.app.find_plan(None), job=name))
    told = [one for one in talk.entries if one.kind == "unheard"]
    assert [one.text for one in told] == ["2 messages: its work was over before its agent could hear them."]
    queued = orchard.status()["jobs"][0]["worker"]["queued"]
    assert queued == 0


async def test_it_is_told_which_subtasks_changed_what_no_agent_pulled_and_how_to_see_it(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    ids: dict[str, str] = {}

    async def parent(asker: Asker) -> str:
        for name in ("pulled", "left", "idle", "stopped"):
            ids[name] = (await asker.spawn(f"Child {name}"))["id"]
        await asker.wait(ids["pulled"], ids["left"], ids["idle"])
        await asker.pull(ids["pulled"])
        await until(lambda: any(asker.task.folder.parent.glob("*/stopped.txt")))
        return "Done."

    async def child(asker: Asker) -> str:
        name = next(one for one in ("pulled", "left", "idle", "stopped") if f"Child {one}" in asker.task.instructions)
        if name != "idle":
            asker.write(**{name: "x"})
        if name == "stopped":
            await asyncio.sleep(60)
        return "Done."

    agents.add("one", pair(line, parent, child))
    done = await orchard.run(PLAN, during=line.open)

    assert statuses(done) == {"a": "succeeded"}
    (warning,) = done["plan"]["warnings"]
    plan = done["plan"]["id"]
    assert warning == (
        f"What {ids['left']}, {ids['stopped']} of job 'a' changed was not pulled, and is not in the result. "
        f"See it: orchard diff a/{ids['left']} --plan {plan}"
    )
    for name in ("left", "stopped"):
        assert f"{name}.txt" in orchard.app.diff(f"a/{ids[name]}", plan, stat=True).decode()
