"""Subtasks beyond a turn of who asked for them: while it is idle, or in another turn; and what people do about them."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orchard.agents import protocol
from orchard.engine.server import start as opening
from orchard.engine.server.session import Session
from orchard.errors import UsageError
from orchard.model.events.plans import (
    SubtaskEnded,
    SubtaskIdle,
    SubtaskSpawned,
    SubtaskStarted,
    UpdateQueued,
)
from orchard.model.permissions import made
from orchard.model.plan import PlanId
from tests.engine.conftest import Orchard, job
from tests.engine.helpers import Asker, Line, by_task
from tests.engine.scripted import ScriptedAgents
from tests.engine.test_subtask_ends import Sleeper, saved, worktrees

pytestmark = pytest.mark.anyio

TALK = "name: Talk\njobs: [{id: a, work: {agent: one, instructions: Parent, interactive: true}}]"


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    return table


@pytest.fixture
def line() -> Line:
    return Line()


async def until(true: Callable[[], bool], seconds: float = 10.0) -> None:
    async with asyncio.timeout(seconds):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Talker:
    """An agent whose turns are written one after the other, by the first word of what it is told."""

    def __init__(self, session: str = "s") -> None:
        self.heard: list[str] = []
        self.session = session

    async def __call__(self, asker: Asker) -> str:
        self.heard.append(asker.task.instructions)
        asker.watch.tell(protocol.Session(self.session))
        asker.watch.tell(protocol.Heard())
        (asker.task.folder / f"said{len(self.heard)}.txt").write_text("x")
        return f"Turn {len(self.heard)}."


def subtask(orchard: Orchard, number: int = 0) -> dict[str, Any]:
    return dict(job(orchard.status(), "a")["subtasks"][number])


def status(orchard: Orchard, number: int = 0) -> str:
    return str(subtask(orchard, number)["status"])


def worker(orchard: Orchard) -> str:
    found = job(orchard.status(), "a")["worker"]
    return str(found["state"]) if found else ""


# ---------------------------------------------------------------------------- while the parent is idle


async def test_a_subtask_goes_on_while_its_parent_is_idle_and_the_next_turn_tells_how_it_ended(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    go, told = asyncio.Event(), list[str]()

    async def parent(asker: Asker) -> str:
        told.append(asker.task.instructions)
        asker.watch.tell(protocol.Session("s"))
        if len(told) == 1:
            await asker.spawn("Child")
            return "I wait for nobody."
        (one,) = (await asker.wait())["ended"]
        await asker.pull(one["id"])
        return "Pulled."

    async def child(asker: Asker) -> str:
        await go.wait()
        asker.write(child="child")
        return "Child is done."

    async def people(session: Session, plan: PlanId) -> None:
        await line.open(session, plan)
        await until(lambda: worker(orchard) == "idle")
        assert status(orchard) in ("waiting", "running")
        await until(lambda: status(orchard) == "running" and subtask(orchard)["activity"] is not None)
        (turn,) = [one for one in orchard.attempts("a")[-1]["turns"] if one["subtask"]]
        assert turn["ended_at"] is None
        go.set()
        await until(lambda: status(orchard) == "completed")
        assert worker(orchard) == "idle"
        await session.request("send_message", plan=plan, job="a", message="Parent: go on.")
        await until(lambda: worker(orchard) == "idle" and len(told) == 2)
        await session.request("complete_task", plan=plan, job="a")

    agents.add("one", by_task(line, parent=parent, child=child))
    done = await orchard.run(TALK, during=people)

    assert done["plan"]["status"] == "succeeded", job(done, "a")["error"]
    assert orchard.repo.files("work")["child.txt"] == "child"
    assert [(one.kind, one.about) for one in orchard.events(UpdateQueued)] == [("progress", subtask(orchard)["id"])]
    assert "Child is done." in told[1] and told[1].startswith("Parent: go on.")


async def test_what_ended_unseen_in_a_turn_is_told_in_the_next_and_what_was_awaited_is_not(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    told: list[str] = []

    async def parent(asker: Asker) -> str:
        told.append(asker.task.instructions)
        asker.watch.tell(protocol.Session("s"))
        if len(told) == 1:
            await asker.spawn("Child: seen", blocking=True)
            unseen = await asker.spawn("Fails: unseen")
            await until(lambda: len(orchard.events(SubtaskEnded)) == 2)
            assert unseen["status"] in ("waiting", "running")
        return "Done."

    async def child(asker: Asker) -> str:
        return "Seen."

    async def fails(asker: Asker) -> protocol.Result:
        return protocol.Result("failed", "It broke.")

    async def people(session: Session, plan: PlanId) -> None:
        await line.open(session, plan)
        await until(lambda: worker(orchard) == "idle")
        await session.request("send_message", plan=plan, job="a", message="Parent again.")
        await until(lambda: worker(orchard) == "idle" and len(told) == 2)
        await session.request("cancel_plan", plan=plan)

    agents.add("one", by_task(line, parent=parent, child=child, fails=fails))
    await orchard.run(TALK, during=people)

    (update,) = orchard.events(UpdateQueued)
    assert update.kind == "error" and "It broke." in told[1] and "Seen." not in told[1]


@pytest.mark.parametrize("verb", ["cancel_plan", "cancel_jobs", "force_fail_job", "complete_task"])
async def test_whoever_ends_an_idle_parent_ends_its_subtasks_and_their_work_is_saved(
    orchard: Orchard, agents: ScriptedAgents, line: Line, verb: str
) -> None:
    child, rests = Sleeper(), Talker()

    async def parent(asker: Asker) -> str:
        await asker.spawn("Child")
        await asker.spawn("Rests", interactive=True)
        asker.write(mine="mine")
        return "Idle now."

    async def people(session: Session, plan: PlanId) -> None:
        await line.open(session, plan)
        await child.asleep.wait()
        await until(lambda: worker(orchard) == "idle" and status(orchard, 1) == "idle")
        args: dict[str, Any] = (
            {"jobs": ["a"]} if verb == "cancel_jobs" else {"job": "a"} if verb != "cancel_plan" else {}
        )
        await session.request(verb, plan=plan, **args)
        await until(lambda: len(orchard.events(SubtaskEnded)) == 2)

    agents.add("one", by_task(line, parent=parent, child=child, rests=rests))
    await orchard.run(TALK, during=people)

    assert [one.status for one in orchard.events(SubtaskEnded)] == ["stopped", "stopped"]
    assert child.ended == 1 and saved(orchard, "half.txt") and saved(orchard, "said1.txt")
    kept = 0 if verb == "complete_task" else 1  # the job's own, for people to look into
    assert worktrees(orchard) == kept
    app = orchard.app
    assert app.run_of(app.find_plan(None)).slots_used == 0


async def test_a_worker_whose_time_is_over_takes_its_subtasks_with_it(
    orchard: Orchard, agents: ScriptedAgents, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_INTERACTIVE", "0.5")
    child = Sleeper()

    async def parent(asker: Asker) -> str:
        await asker.spawn("Child")
        await child.asleep.wait()
        return "Idle now."

    agents.add("one", by_task(line, parent=parent, child=child))
    done = await orchard.run(TALK, during=line.open)

    assert job(done, "a")["reason"] == "timeout"
    assert [one.status for one in orchard.events(SubtaskEnded)] == ["stopped"] and saved(orchard, "half.txt")


# ------------------------------------------------------------------------------------ by its parent


async def test_a_parent_talks_with_an_interactive_subtask_and_completes_it(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    child, seen = Talker(), list[Any]()

    async def parent(asker: Asker) -> str:
        id = (await asker.spawn("Child", interactive=True, blocking=True))["id"]

        async def steer(action: str, **args: Any) -> Any:
            found = await asker.ask("steer_subtask", id=id, action=action, **args)
            seen.append((action, found["status"]))
            return found

        assert [one["summary"] for one in (await asker.wait())["idle"]] == ["Turn 1."]
        await steer("send", message="Child: go on.")
        await asker.wait(id)
        await steer("pause")
        await steer("send", message="Child: a last time.")
        assert len(child.heard) == 2
        await steer("resume")
        await asker.wait(id)
        found = await steer("complete")
        assert found["summary"] == "Turn 3." and found["message"].startswith("The agent that asked")
        with pytest.raises(UsageError, match="is over"):
            await steer("send", message="Child?")
        await asker.pull(id)
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    done = await orchard.run("name: Help\njobs: [{id: a, work: '@one Parent'}]", during=line.open)

    assert done["plan"]["status"] == "succeeded", job(done, "a")["error"]
    who = "The agent that handed you this task says:\n\n```text\n"
    assert child.heard[1:] == [f"{who}Child: go on.\n```\n", f"{who}Child: a last time.\n```\n"]
    assert [status for _, status in seen] == ["waiting", "paused", "paused", "waiting", "completed"]
    assert {"said1.txt", "said2.txt", "said3.txt"} <= orchard.repo.files("work").keys()


async def test_with_one_slot_an_idle_subtask_and_its_parent_take_turns(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    child = Talker()

    async def parent(asker: Asker) -> str:
        id = (await asker.spawn("Child", interactive=True))["id"]
        await asker.wait(id)
        await asker.ask("steer_subtask", id=id, action="send", message="Child again")
        await asker.wait(id)
        await asker.ask("steer_subtask", id=id, action="complete")
        asker.write(mine="mine")
        return "Done."

    agents.add("one", by_task(line, parent=parent, child=child))
    plan = "name: One slot\nmax_parallel: 1\njobs: [{id: a, work: '@one Parent'}]"
    done = await orchard.run(plan, during=line.open)

    assert done["plan"]["status"] == "succeeded" and len(child.heard) == 2
    assert len(orchard.events(SubtaskStarted)) == len(orchard.events(SubtaskIdle)) == 2
    app = orchard.app
    assert app.run_of(app.find_plan(None)).slots_used == 0


async def test_a_parent_interrupts_a_subtask_that_goes_nowhere(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    child = Sleeper()

    async def parent(asker: Asker) -> str:
        id = (await asker.spawn("Child"))["id"]
        await child.asleep.wait()
        found = await asker.ask("steer_subtask", id=id, action="interrupt")
        assert (found["status"], child.ended) == ("idle", 1)
        await asker.ask("steer_subtask", id=id, action="complete")
        assert (await asker.pull(id))["files"] == ["half.txt"]
        return "Took the half."

    agents.add("one", by_task(line, parent=parent, child=child))
    done = await orchard.run("name: Help\njobs: [{id: a, work: '@one Parent'}]", during=line.open)

    assert done["plan"]["status"] == "succeeded" and orchard.repo.files("work")["half.txt"] == "half"


# ------------------------------------------------------------------------------------------- by people


async def test_people_talk_with_a_subtask_by_the_name_of_its_job_and_its_own(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    child = Talker()

    async def parent(asker: Asker) -> str:
        await asker.spawn("Child", interactive=True)
        return "Idle now."

    async def people(session: Session, plan: PlanId) -> None:
        await line.open(session, plan)
        await until(lambda: worker(orchard) == "idle" and status(orchard) == "idle")
        name = f"a/{subtask(orchard)['id']}"

        async def ask(verb: str, **args: Any) -> Any:
            return (await session.request(verb, plan=plan, job=name, **args))["worker"]

        assert await ask("send_message", message="Child: go on.") == "running"
        await until(lambda: status(orchard) == "idle" and len(child.heard) == 2)
        assert await ask("pause_worker") == "paused"
        assert await ask("send_message", message="Child: later.") == "paused"
        await asyncio.sleep(0.05)
        assert len(child.heard) == 2 and subtask(orchard)["queued"] == 1
        assert await ask("resume_worker") == "running"
        await until(lambda: status(orchard) == "idle" and len(child.heard) == 3)
        assert await ask("complete_task") == "completed"
        with pytest.raises(UsageError, match="is over"):
            await ask("interrupt_worker")
        await session.request("cancel_plan", plan=plan)

    agents.add("one", by_task(line, parent=parent, child=child))
    await orchard.run(TALK, during=people)

    assert child.heard[1:] == ["A person says:\n\nChild: go on.\n", "A person says:\n\nChild: later.\n"]
    assert subtask(orchard)["message"] == "A person said that it is done."


async def test_the_worker_of_a_job_is_paused_and_what_is_said_waits_until_it_is_resumed(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    asleep, told = asyncio.Event(), list[str]()

    async def parent(asker: Asker) -> str:
        told.append(asker.task.instructions)
        asker.watch.tell(protocol.Session("s"))
        asker.watch.tell(protocol.Heard())
        if len(told) == 1:
            asleep.set()
            await asyncio.sleep(60)
        asker.write(mine="mine")
        return "Done."

    async def people(session: Session, plan: PlanId) -> None:
        await line.open(session, plan)
        await asleep.wait()
        assert (await session.request("pause_worker", plan=plan, job="a"))["worker"] == "paused"
        with pytest.raises(UsageError, match="paused already"):
            await session.request("pause_worker", plan=plan, job="a")
        sent = await session.request("send_message", plan=plan, job="a", message="Parent: a word.")
        assert (sent["queued"], sent["worker"]) == (True, "paused")
        await asyncio.sleep(0.05)
        assert len(told) == 1
        await session.request("resume_worker", plan=plan, job="a")

    agents.add("one", by_task(line, parent=parent))
    done = await orchard.run("name: Help\njobs: [{id: a, work: '@one Parent'}]", during=people)

    assert done["plan"]["status"] == "succeeded" and told[1:] == ["Parent: a word.\n"]


# ------------------------------------------------------------------------------------ another engine


async def test_an_idle_subtask_outlives_its_engine_and_one_that_ran_is_told_as_interrupted(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    child, sleeper, told = Talker(), Sleeper(), list[str]()

    async def parent(asker: Asker) -> str:
        told.append(asker.task.instructions)
        asker.watch.tell(protocol.Session("s"))
        if len(told) == 1:
            await asker.spawn("Child", interactive=True)
            await asker.spawn("Sleeper")
        return "Idle now."

    class Gone(Exception):
        pass

    async def leave(session: Session, plan: PlanId) -> None:
        await line.open(session, plan)
        await sleeper.asleep.wait()
        await until(lambda: worker(orchard) == "idle" and status(orchard) == "idle")
        raise Gone

    agents.add("one", by_task(line, parent=parent, child=child, sleeper=sleeper))
    with pytest.raises(Gone):
        await orchard.run(TALK, during=leave)
    assert (status(orchard), status(orchard, 1), worker(orchard)) == ("idle", "interrupted", "idle")

    plan = orchard.app.find_plan(None)
    async with orchard.app.session() as session:
        await line.open(session, plan)
        assert (status(orchard), status(orchard, 1)) == ("idle", "interrupted")
        name = f"a/{subtask(orchard)['id']}"
        await session.request("send_message", plan=plan, job=name, message="Child: still there?")
        await until(lambda: status(orchard) == "idle" and len(child.heard) == 2)
        await session.request("complete_task", plan=plan, job=name)
        await session.request("send_message", plan=plan, job="a", message="Parent: still there?")
        await until(lambda: worker(orchard) == "idle" and len(told) == 2)
        await session.request("cancel_plan", plan=plan)

    assert child.heard[1] == "A person says:\n\nChild: still there?\n"
    assert "The engine was stopped while it ran." in told[1] and saved(orchard, "half.txt")
    assert status(orchard) == "completed"


async def test_after_another_engine_the_same_agent_goes_on_and_nobody_has_to_be_there_to_complete_it(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    orchard.repo.commit({".claude/agents/reviewer.md": "---\nname: reviewer\n---\nYou review.\n"})
    child, permitted = Talker(), list[Any]()

    async def parent(asker: Asker) -> str:
        await asker.ask("spawn_subtask", instructions="Child", agent="two:reviewer", interactive=True, tools="edit")
        return "Idle now."

    async def reviews(asker: Asker) -> str:
        permitted.append(asker.task.settings.tools)
        return await child(asker)

    class Gone(Exception):
        pass

    async def leave(session: Session, plan: PlanId) -> None:
        await line.open(session, plan)
        await until(lambda: worker(orchard) == "idle" and status(orchard) == "idle")
        raise Gone

    agents.add("one", by_task(line, parent=parent))
    agents.add("two", by_task(line, child=reviews))
    with pytest.raises(Gone):
        await orchard.run(TALK, during=leave)

    plan, name = orchard.app.find_plan(None), f"a/{subtask(orchard)['id']}"
    with pytest.raises(Gone):
        async with orchard.app.session() as session:
            await line.open(session, plan)
            await session.request("send_message", plan=plan, job=name, message="Child: go on.")
            await until(lambda: status(orchard) == "idle" and len(child.heard) == 2)
            raise Gone
    assert subtask(orchard)["agent"] == "two" and permitted[0] == permitted[1] and not permitted[1].may_run
    assert orchard.events(SubtaskSpawned)[0].tools == made("edit")

    for file in orchard.repo.path.parent.rglob("reviewer.md"):
        file.unlink()
    async with orchard.app.session() as session:
        await line.open(session, plan)
        with pytest.raises(UsageError, match="reviewer"):
            await session.request("send_message", plan=plan, job=name, message="Child: go on.")
        assert (await session.request("pause_worker", plan=plan, job=name))["worker"] == "paused"
        assert (await session.request("complete_task", plan=plan, job=name))["worker"] == "completed"
        await session.request("cancel_plan", plan=plan)


# ------------------------------------------------------------------------------------------- results


async def test_a_long_result_is_kept_whole_and_read_in_pages(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    whole = "HEAD " + "é" * 200_000 + " TAIL"
    answers: list[Any] = []

    async def parent(asker: Asker) -> str:
        answers.append(await asker.spawn("Child", blocking=True))
        answers.append(await asker.spawn("Says", blocking=True))
        asker.write(mine="mine")
        return "Done."

    async def child(asker: Asker) -> str:
        await asker.ask("complete_subtask", result=whole)
        return "Bye."

    async def says(asker: Asker) -> str:
        return whole * 4

    agents.add("one", by_task(line, parent=parent, child=child, says=says))
    await orchard.run("name: Help\njobs: [{id: a, work: '@one Parent'}]", during=line.open)

    assert len(answers[0]["summary"]) < 4100 and "400,010 bytes" in answers[0]["cut"]
    assert read_whole(orchard, 0) == whole
    assert read_whole(orchard, 1).startswith("HEAD") and read_whole(orchard, 1).endswith("is not kept ...]\n")
    assert len(read_whole(orchard, 1).encode()) <= 1024 * 1024 + 100


def read_whole(orchard: Orchard, number: int) -> str:
    from orchard.operations.queries.subtasks import GetSubtask, get_subtask

    app, name = orchard.app, f"a/{subtask(orchard, number)['id']}"
    found, offset = "", 0
    while True:
        part = get_subtask.read(app, GetSubtask(plan=app.find_plan(None), job=name, offset=offset, limit=100_000))
        found, offset = found + str(part.result), part.next_offset
        if offset >= part.size:
            return found


async def test_a_subtask_without_a_change_has_an_empty_diff_and_a_log(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    async def parent(asker: Asker) -> str:
        await asker.spawn("Child", blocking=True)
        asker.write(mine="mine")
        return "Done."

    async def child(asker: Asker) -> str:
        asker.write(child="child")
        return "Said this."

    agents.add("one", by_task(line, parent=parent, child=child))
    await orchard.run("name: Help\njobs: [{id: a, work: '@one Parent'}]", during=line.open)

    name = subtask(orchard)["id"]
    assert b"+child" in orchard.app.diff(f"a/{name}", None) and b"+child" in orchard.app.diff(name, None)
    assert Path(subtask(orchard).get("log") or orchard.app.job("a", None).subtasks[0].log or "").read_text()
