"""Talking with the agents that work on jobs: messages, interruptions, and work that a person completes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchard.agents.protocol import Heard, Result, Session, Task, Watch
from orchard.engine.server import session
from orchard.engine.server import start as opening
from orchard.engine.turns import turn as turns
from orchard.errors import NotFound, OrchardError, UsageError
from orchard.model.events.plans import JobFailed, MessagesDelivered, MessageSent, WorkerIdle
from orchard.model.plan import PlanId
from orchard.testing import Turn
from tests.engine.conftest import Json, Orchard, job, statuses, until
from tests.engine.helpers import Asker, Line, by_task
from tests.engine.scripted import ScriptedAgents, ends, sleeps, writes
from tests.engine.test_subtask_ends import Sleeper

pytestmark = pytest.mark.anyio

TALK = "name: Talk\njobs: [{id: a, work: {type: agent, instructions: Write a, interactive: true}}]"
PLAIN = "name: Plain\njobs: [{id: a, work: '@agent Write a'}]"


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01, 0.01))
    return table


def until_told(go: asyncio.Event, files: dict[str, str]) -> Turn:
    """A turn that tells its session at once and ends when it is let go."""

    async def turn(task: Task, watch: Watch) -> Result:
        watch.tell(Session("s1"))
        watch.tell(Heard())
        (task.folder / "half.txt").write_text("half")
        await go.wait()
        return writes(files)(task, watch)  # type: ignore[return-value]

    return turn


def worker(status: Json, name: str = "a") -> Any:
    return job(status, name)["worker"]


async def ask(orchard: Orchard, verb: str, **args: Any) -> Json:
    """Ask for something of the newest plan, and see how things are right after it."""
    app = orchard.app
    async with app.session() as found:
        return await found.request(verb, plan=app.find_plan(None), **args)


# ------------------------------------------------------------------------------------------- idle


async def test_interactive_work_waits_after_its_turn_and_is_committed_when_it_is_completed(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}, says="Is that right?"))
    before = orchard.repo.head("work")

    idle = await orchard.run(TALK)
    done = await orchard.ask("complete_task", job="a")

    assert (idle["plan"]["status"], statuses(idle)) == ("waiting", {"a": "pending"})
    assert worker(idle) == {
        "state": "idle", "agent": "one", "session": "s1", "interactive": True, "turns": 1, "queued": 0,
        "said": "Is that right?", "health": [], "activity": None, "model": "scripted", "definition": None,
    }  # fmt: skip
    assert (job(idle, "a")["waiting"]["kind"], job(idle, "a")["commit"]) == ("worker", None)
    assert (done["plan"]["status"], worker(done)["state"]) == ("succeeded", "completed")
    assert orchard.repo.files("work")["a.txt"] == "a"
    assert orchard.repo.head("work") != before
    assert len(agent.tasks) == 1
    assert "a person reads your last words" in agent.tasks[0].instructions


async def test_a_message_to_an_idle_worker_is_its_next_turn_in_its_session_and_folder(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}), writes({"b.txt": "b"}))
    await orchard.run(TALK)

    again = await orchard.ask("send_message", job="a", message="Now write b.")
    done = await orchard.ask("complete_task", job="a")

    assert (again["plan"]["status"], worker(again)["state"], worker(again)["turns"]) == ("waiting", "idle", 2)
    first, second = agent.tasks
    assert (second.instructions, second.session, second.folder) == ("Now write b.\n", "s1", first.folder)
    assert done["plan"]["status"] == "succeeded"
    assert {"a.txt", "b.txt"} <= orchard.repo.files("work").keys()
    assert job(done, "a")["attempts"] == 1


async def test_an_idle_worker_has_given_its_slot_back(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}))

    status = await orchard.run("""
        name: One slot
        max_parallel: 1
        jobs:
          - {id: a, priority: 1, work: {type: agent, instructions: Write a, interactive: true}}
          - {id: b, work: echo b > b.txt}
    """)

    assert (worker(status)["state"], job(status, "b")["status"]) == ("idle", "succeeded")


async def test_a_worker_without_a_session_is_told_the_task_and_everything_that_was_said(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}, session=None))
    await orchard.run(TALK)

    await orchard.ask("send_message", job="a", message="First remark.")
    await orchard.ask("send_message", job="a", message="Second remark.")

    told = agent.tasks[2].instructions
    assert agent.tasks[2].session is None
    assert told.startswith("Write a") and told.index("First remark.") < told.index("Second remark.")
    assert told.count("First remark.") == 1


async def test_a_session_that_was_lost_is_told_everything_that_was_said(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add(
        "one", writes({"a.txt": "a"}), ends(Result("session-lost", "gone")), writes({"b.txt": "b"}, session="s2")
    )
    await orchard.run(TALK)

    status = await orchard.ask("send_message", job="a", message="Now write b.")

    assert [task.session for task in agent.tasks] == [None, "s1", None]
    assert agent.tasks[2].instructions.startswith("Write a") and "Now write b." in agent.tasks[2].instructions
    assert (worker(status)["state"], worker(status)["session"]) == ("idle", "s2")


async def test_a_job_that_asks_for_approval_is_approved_after_it_was_completed(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    await orchard.run(
        "name: Both\njobs: [{id: a, approve: true, work: {type: agent, instructions: x, interactive: true}}]"
    )
    with pytest.raises(UsageError, match="does not wait for approval"):
        await orchard.ask("approve_job", job="a")

    held = await orchard.ask("complete_task", job="a")
    done = await orchard.ask("approve_job", job="a")

    assert (job(held, "a")["waiting"]["kind"], worker(held)["state"]) == ("approval", "completed")
    assert done["plan"]["status"] == "succeeded"


async def test_checks_decide_about_completed_work_and_a_retry_goes_on_talking(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "bad"}), writes({"a.txt": "good"}))
    await orchard.run("""
        name: Checked
        jobs:
          - {id: a, heal: false, work: {type: agent, instructions: x, interactive: true}, postchecks: grep good a.txt}
    """)
    failed = await orchard.ask("complete_task", job="a")
    again = await orchard.ask("retry_plan", jobs=["a"], phase="work")

    assert (job(failed, "a")["failed_phase"], worker(failed)["state"]) == ("postchecks", "completed")
    assert (worker(again)["state"], agent.tasks[1].session) == ("idle", "s1")
    assert "postchecks" in agent.tasks[1].instructions
    assert (await orchard.ask("complete_task", job="a"))["plan"]["status"] == "succeeded"


async def test_after_a_retry_a_message_is_told_and_not_the_old_failure(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", ends(Result("failed", "It broke.", session="s1")), writes({"a.txt": "a"}))
    await orchard.run(TALK)
    await orchard.ask("retry_plan", jobs=["a"])

    await orchard.ask("send_message", job="a", message="Go on.")

    assert "It broke." in agent.tasks[1].instructions
    assert agent.tasks[2].instructions == "Go on.\n"


# ----------------------------------------------------------------------------------------- at work


async def test_a_message_to_a_worker_at_work_is_its_next_turn_and_plain_work_ends_after_it(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    go = asyncio.Event()
    agent = agents.add("one", until_told(go, {"a.txt": "a"}), writes({"b.txt": "b"}))

    async def talk(found: session.Session, plan: PlanId) -> None:
        await until(lambda: bool(agent.tasks))
        first = await found.request("send_message", plan=plan, job="a", message="Write b as well.")
        second = await found.request("send_message", plan=plan, job="a", message="And be quick.")
        assert (first["number"], first["queued"], second["number"]) == (1, True, 2)
        assert worker(orchard.status())["queued"] == 2
        go.set()

    status = await orchard.run(PLAIN, during=talk)

    assert status["plan"]["status"] == "succeeded"
    assert len(agent.tasks) == 2
    assert "Write b as well." in agent.tasks[1].instructions and "And be quick." in agent.tasks[1].instructions
    assert agent.tasks[1].session == "s1"
    assert {"a.txt", "b.txt"} <= orchard.repo.files("work").keys()
    assert [one.number for one in orchard.events(MessagesDelivered)] == [2]
    assert orchard.events(WorkerIdle) == []


async def test_two_messages_in_a_row_reach_a_worker_that_was_idle(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}))
    await orchard.run(TALK)

    async with orchard.app.session() as found:
        plan = orchard.app.find_plan(None)
        first = await found.request("send_message", plan=plan, job="a", message="One.")
        second = await found.request("send_message", plan=plan, job="a", message="Two.")
        async for _ in found.follow(plan):
            pass

    assert (first["queued"], second["queued"]) == (False, True)
    assert "".join(task.instructions for task in agent.tasks[1:]).count("Two.") == 1
    assert worker(orchard.status())["queued"] == 0


async def test_an_interrupted_worker_is_idle_with_its_session_and_its_files(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", until_told(asyncio.Event(), {}), writes({"a.txt": "a"}))

    async def stop(found: session.Session, plan: PlanId) -> None:
        await until(lambda: bool(agent.tasks) and (agent.tasks[0].folder / "half.txt").exists())
        answer = await found.request("interrupt_worker", plan=plan, job="a")
        assert (answer["job"], answer["worker"]) == ("a", "idle")

    idle = await orchard.run(PLAIN, during=stop)
    done = await orchard.ask("send_message", job="a", message="Go on, but write a.")

    assert (idle["plan"]["status"], worker(idle)["state"], job(idle, "a")["error"]) == ("waiting", "idle", None)
    assert [one.why for one in orchard.events(WorkerIdle)] == ["interrupted"]
    assert orchard.attempts("a", None)[0]["turns"][0]["outcome"] == "stopped"
    assert (agent.tasks[1].session, agent.tasks[1].instructions) == ("s1", "Go on, but write a.\n")
    assert done["plan"]["status"] == "succeeded"
    assert {"a.txt", "half.txt"} <= orchard.repo.files("work").keys()


async def test_the_subtasks_of_an_interrupted_worker_go_on_until_it_is_completed_and_their_work_is_saved(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    line, child = Line(), Sleeper()

    async def parent(asker: Asker) -> str:
        asker.write(mine="mine")
        await asker.spawn("Child", blocking=True)
        return "Never."

    agents.add("one", by_task(line, parent=parent, child=child))

    async def stop(found: session.Session, plan: PlanId) -> None:
        await line.open(found, plan)
        await child.asleep.wait()
        answer = await found.request("interrupt_worker", plan=plan, job="a")
        assert (answer["worker"], child.ended) == ("idle", 0)
        await asyncio.sleep(0.1)
        idle = orchard.status()
        assert (job(idle, "a")["subtasks"][0]["status"], worker(idle)["state"]) == ("running", "idle")
        await found.request("complete_task", plan=plan, job="a")

    done = await orchard.run("name: Help\njobs: [{id: a, work: '@one Parent'}]", during=stop)
    (shown,) = job(done, "a")["subtasks"]

    assert (shown["status"], child.ended, done["plan"]["status"]) == ("stopped", 1, "succeeded")
    assert [ref for ref in orchard.repo.refs("refs/orchard/wip") if "half.txt" in orchard.repo.files(ref)]
    assert orchard.repo.files("work")["mine.txt"] == "mine"
    notes = [phase["note"] for phase in orchard.attempts("a", None)[0]["phases"] if phase["phase"] == "commit"]
    assert "a subtask was not over when the work ended" in notes[-1]


async def test_an_interrupted_worker_goes_on_with_what_was_sent_to_it(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add("one", until_told(asyncio.Event(), {}), writes({"a.txt": "a"}))

    async def redirect(found: session.Session, plan: PlanId) -> None:
        await until(lambda: bool(agent.tasks))
        await found.request("send_message", plan=plan, job="a", message="No: do this.")
        await found.request("interrupt_worker", plan=plan, job="a")

    status = await orchard.run(PLAIN, during=redirect)

    assert status["plan"]["status"] == "succeeded"
    assert [task.instructions for task in agent.tasks[1:]] == ["No: do this.\n"]


async def test_the_work_of_an_interrupted_worker_can_be_completed_as_it_is(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", sleeps())

    async def stop(found: session.Session, plan: PlanId) -> None:
        await until(lambda: bool(agent.tasks) and (agent.tasks[0].folder / "half.txt").exists())
        await asyncio.gather(*(found.request("interrupt_worker", plan=plan, job="a") for _ in range(3)))

    await orchard.run(PLAIN, during=stop)
    done = await orchard.ask("complete_task", job="a")

    assert done["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["half.txt"] == "half"
    assert len(agent.tasks) == 1


async def test_a_turn_that_runs_out_of_time_by_itself_has_failed_and_is_not_idle(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    def late(task: Task, watch: Watch) -> Result:
        raise TimeoutError(110, "Connection timed out")

    agents.add("one", late)

    status = await orchard.run(TALK)

    assert (statuses(status), job(status, "a")["reason"]) == ({"a": "failed"}, "error")
    assert orchard.events(WorkerIdle) == []


async def test_a_message_to_a_turn_that_fails_is_told_to_the_next_attempt(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    go = asyncio.Event()

    async def fails(task: Task, watch: Watch) -> Result:
        await go.wait()
        return Result("failed", "It broke.", session="s1")

    agent = agents.add("one", fails, writes({"a.txt": "a"}))

    async def talk(found: session.Session, plan: PlanId) -> None:
        await until(lambda: bool(agent.tasks))
        await found.request("send_message", plan=plan, job="a", message="Mind the gap.")
        go.set()

    failed = await orchard.run(PLAIN, during=talk)
    done = await orchard.ask("retry_plan", jobs=["a"])

    assert (statuses(failed), worker(failed)["state"], worker(failed)["queued"]) == ({"a": "failed"}, "error", 1)
    assert "It broke." in agent.tasks[1].instructions and "Mind the gap." in agent.tasks[1].instructions
    assert (done["plan"]["status"], worker(done)["queued"]) == ("succeeded", 0)


async def test_a_message_that_meets_a_budget_is_told_when_the_plan_goes_on(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}, tokens=100))
    await orchard.run(f"{TALK}\nbudget: {{tokens: 50}}")

    held = await orchard.ask("send_message", job="a", message="More.")
    went_on = await orchard.ask("resume_plan", budget={"tokens": 1000})

    assert worker(held)["queued"] == 1 and worker(held)["state"] == "paused"
    assert [task.instructions for task in agent.tasks[1:]] == ["More.\n"]
    assert worker(went_on)["state"] == "idle"


async def test_canceling_stops_a_worker_that_talks_and_leaves_nothing_to_complete(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    await orchard.run(TALK)

    canceled = await orchard.ask("cancel_plan")

    assert (statuses(canceled), worker(canceled)["state"]) == ({"a": "canceled"}, "error")
    with pytest.raises(UsageError, match="is canceled"):
        await ask(orchard, "complete_task", job="a")


# ------------------------------------------------------------------------------------ wrong states


@pytest.mark.parametrize(
    ("verb", "args", "error", "said"),
    [
        ("send_message", {"job": "s", "message": "x"}, UsageError, "not the work of an agent"),
        ("interrupt_worker", {"job": "s"}, UsageError, "not the work of an agent"),
        ("complete_task", {"job": "__snapshot-validation__"}, UsageError, "done when it has checked"),
        ("send_message", {"job": "nobody", "message": "x"}, NotFound, "has no job 'nobody'"),
        ("send_message", {"job": "a", "message": "  \n"}, UsageError, "needs a text"),
        ("send_message", {"job": "a", "message": 7}, UsageError, "takes for 'message' a text"),
        ("send_message", {"job": "a", "message": "a\0b"}, UsageError, "NUL"),
        ("send_message", {"job": "a", "message": "ä" * 40_000}, UsageError, "at most 64 KiB"),
        (
            "send_message",
            {"job": "late", "message": "x"},
            UsageError,
            "Its agent would not hear it: job 'late' is pending",
        ),
        ("interrupt_worker", {"job": "a"}, UsageError, "no turn to interrupt: the agent of job 'a' is idle already"),
        ("interrupt_worker", {"job": "late"}, UsageError, "no turn to interrupt: job 'late' is pending"),
        ("complete_task", {"job": "a", "result": "x" * 20_000}, UsageError, "result"),
        ("send_message", {"job": "__snapshot-validation__", "message": "x"}, UsageError, "not the work of an agent"),
        ("deploy_jobs", {"jobs": ["late"]}, UsageError, "starts its jobs by itself"),
    ],
)
async def test_what_cannot_be_said_is_refused_and_changes_nothing(
    orchard: Orchard, agents: ScriptedAgents, verb: str, args: Json, error: type[OrchardError], said: str
) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    await orchard.run("""
        name: Refused
        jobs:
          - {id: a, work: {type: agent, instructions: x, interactive: true}}
          - {id: s, needs: [a], work: "true"}
          - {id: late, needs: [a], work: "@agent x"}
    """)
    before = orchard.app.reader.last_seq()

    with pytest.raises(error, match=said):
        await ask(orchard, verb, **args)

    assert orchard.app.reader.last_seq() == before


async def test_a_worker_that_is_done_hears_nothing(orchard: Orchard, agents: ScriptedAgents, tmp_path: Path) -> None:
    go = asyncio.Event()
    agents.add("one", until_told(go, {"a.txt": "a"}))

    async def talk(found: session.Session, plan: PlanId) -> None:
        await until(lambda: worker(orchard.status()) is not None and worker(orchard.status())["state"] == "running")
        go.set()
        await until((tmp_path / "checking").exists)
        for verb, args in (("send_message", {"message": "x"}), ("interrupt_worker", {}), ("complete_task", {})):
            with pytest.raises(UsageError, match="has done its work, and the job is at postchecks"):
                await found.request(verb, plan=plan, job="a", **args)
        (tmp_path / "go").touch()

    status = await orchard.run(
        f"""
        name: Done
        jobs:
          - id: a
            work: "@agent Write a"
            postchecks: "touch {tmp_path}/checking; while ! test -f {tmp_path}/go; do sleep 0.02; done"
        """,
        during=talk,
    )
    assert status["plan"]["status"] == "succeeded"
    with pytest.raises(UsageError, match="job 'a' is succeeded"):
        await ask(orchard, "send_message", job="a", message="Too late.")


async def test_only_so_many_messages_wait(
    orchard: Orchard, agents: ScriptedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchard.operations.commands.conversation.QUEUED_MESSAGES", 2)
    go = asyncio.Event()
    agent = agents.add("one", until_told(go, {"a.txt": "a"}), writes({"b.txt": "b"}))

    async def talk(found: session.Session, plan: PlanId) -> None:
        await until(lambda: bool(agent.tasks))
        for _ in range(2):
            await found.request("send_message", plan=plan, job="a", message="x")
        with pytest.raises(UsageError, match="2 messages for job 'a' wait already"):
            await found.request("send_message", plan=plan, job="a", message="x")
        go.set()

    await orchard.run(PLAIN, during=talk)
    assert len(orchard.events(MessageSent)) == 2


@pytest.mark.parametrize(
    "fields",
    [
        "jobs: [{id: a, work: 'true', postchecks: {instructions: x, interactive: true}}]",
        "jobs: [{id: a, work: 'true', prechecks: [{instructions: x, interactive: true}]}]",
        "setup: {instructions: x, interactive: true}\njobs: [{id: a, work: 'true'}]",
        "verify: {instructions: x, interactive: true}\njobs: [{id: a, work: 'true'}]",
    ],
)
async def test_only_the_work_of_a_job_can_be_interactive(orchard: Orchard, agents: ScriptedAgents, fields: str) -> None:
    agents.add("one", writes({}))
    with pytest.raises(UsageError, match="interactive; only the work of a job can be"):
        await orchard.run(f"name: Talk\n{fields}")
    assert orchard.app.plans() == []


# ------------------------------------------------------------------------------------------- time


def limited(orchard: Orchard, seconds: float) -> None:
    (orchard.repo.path / "orchard.toml").write_text(f"[limits]\ninteractive = {seconds}\n")
    orchard.repo.commit()


async def test_an_idle_worker_that_nobody_answers_fails_after_a_while_and_its_work_can_be_taken(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    limited(orchard, 0.2)
    agents.add("one", writes({"a.txt": "a"}))

    async def wait(found: session.Session, plan: PlanId) -> None:
        await until(lambda: statuses(orchard.status()) == {"a": "failed"})

    failed = await orchard.run(TALK, during=wait)
    done = await orchard.ask("retry_plan", jobs=["a"], phase="commit")

    assert (job(failed, "a")["reason"], job(failed, "a")["failed_phase"]) == ("timeout", "work")
    assert "--from commit" in job(failed, "a")["hint"]
    assert done["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["a.txt"] == "a"


async def test_the_time_of_an_idle_worker_runs_while_no_engine_does(
    orchard: Orchard, agents: ScriptedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    await orchard.run(TALK)
    limited(orchard, 0.001)

    with pytest.raises(UsageError, match="job 'a' is failed"):
        await ask(orchard, "complete_task", job="a")

    assert orchard.events(JobFailed)[0].reason == "timeout"


async def test_a_worker_that_was_answered_in_time_does_not_time_out(orchard: Orchard, agents: ScriptedAgents) -> None:
    limited(orchard, 0.3)
    go = asyncio.Event()
    agent = agents.add("one", writes({"a.txt": "a"}), until_told(go, {"b.txt": "b"}))

    async def talk(found: session.Session, plan: PlanId) -> None:
        await until(lambda: worker(orchard.status()) is not None and worker(orchard.status())["state"] == "idle")
        await found.request("send_message", plan=plan, job="a", message="More.")
        await until(lambda: len(agent.tasks) == 2)
        await asyncio.sleep(0.4)  # longer than the limit: what must not happen has had its time
        go.set()
        await until(lambda: len(orchard.events(WorkerIdle)) == 2)
        await found.request("complete_task", plan=plan, job="a")

    status = await orchard.run(TALK, during=talk)

    assert status["plan"]["status"] == "succeeded"
