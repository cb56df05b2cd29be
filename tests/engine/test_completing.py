"""Tasks that people call done: while their agent is idle or at work, and before anybody has begun them."""

import asyncio

import pytest

from orchard.engine.server import start as opening
from orchard.engine.server.session import Session
from orchard.engine.turns import turn as turns
from orchard.errors import UsageError
from orchard.model.events.plans import JobFailed, JobMarkedDone, WorkerCompleted
from orchard.model.plan import PlanId
from orchard.surfaces.next_steps import in_commands
from tests.engine.conftest import Orchard, job, statuses, until
from tests.engine.scripted import ScriptedAgents, writes
from tests.engine.test_cut_journal import cut_after
from tests.engine.test_workers import PLAIN, TALK, until_told, worker

pytestmark = pytest.mark.anyio

CHAIN = """
name: Chain
{more}
jobs:
  - {{id: first, heal: false, work: "{first}"}}
  - {{id: a, needs: [first], work: "@agent Write a", prechecks: "false", postchecks: "false"}}
  - {{id: next, needs: [a], work: "@agent Read on"}}
"""


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01, 0.01))
    return table


async def test_the_turn_of_an_agent_at_work_ends_and_what_it_wrote_is_the_work(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", until_told(asyncio.Event(), {}))

    async def complete(found: Session, plan: PlanId) -> None:
        await until(lambda: bool(agent.tasks) and (agent.tasks[0].folder / "half.txt").exists())
        await found.request("complete_task", plan=plan, job="a", result="Half is enough.")

    status = await orchard.run(PLAIN, during=complete)

    assert (status["plan"]["status"], len(agent.tasks)) == ("succeeded", 1)
    assert orchard.repo.files("work")["half.txt"] == "half"
    assert (worker(status)["state"], worker(status)["said"]) == ("completed", "Half is enough.")
    assert [one.result for one in orchard.events(WorkerCompleted)] == ["Half is enough."]


async def test_a_turn_that_is_called_done_before_its_message_leaves_nobody_to_hear_it(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", until_told(asyncio.Event(), {}))

    async def complete(found: Session, plan: PlanId) -> None:
        await until(lambda: bool(agent.tasks) and (agent.tasks[0].folder / "half.txt").exists())
        done = asyncio.create_task(found.request("complete_task", plan=plan, job="a"))
        await until(lambda: bool(orchard.events(WorkerCompleted)))
        for name, args in (("send_message", {"message": "More."}), ("pause_worker", {}), ("complete_task", {})):
            with pytest.raises(UsageError):
                await found.request(name, plan=plan, job="a", **args)
        await done

    status = await orchard.run(PLAIN, during=complete)

    assert (status["plan"]["status"], len(agent.tasks)) == ("succeeded", 1)


async def test_a_crash_after_the_word_does_not_lose_it(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add("one", until_told(asyncio.Event(), {}))

    async def complete(found: Session, plan: PlanId) -> None:
        await until(lambda: bool(agent.tasks) and (agent.tasks[0].folder / "half.txt").exists())
        await found.request("complete_task", plan=plan, job="a", result="Enough.")

    await orchard.run(PLAIN.replace("jobs:", "cleanup: false\njobs:"), during=complete)
    cut_after(orchard, "WorkerCompleted")

    status = await orchard.ask("resume_plan")

    assert (status["plan"]["status"], len(agent.tasks)) == ("succeeded", 1)
    assert orchard.events(JobFailed) == []


async def test_a_result_is_the_evidence_of_work_that_changed_nothing(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({}))
    await orchard.run(TALK)

    status = await orchard.ask("complete_task", job="a", result="It was right already.")

    assert (status["plan"]["status"], job(status, "a")["evidence"]["summary"]) == ("succeeded", "It was right already.")


async def test_without_a_result_work_that_changed_nothing_is_not_done(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({}))
    await orchard.run(TALK)

    status = await orchard.ask("complete_task", job="a")

    assert job(status, "a")["reason"] == "no-changes"


async def test_a_task_that_nobody_has_begun_runs_nothing_and_hands_on_what_it_starts_from(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"next.txt": "n"}))
    await orchard.run(CHAIN.format(more="start_paused: true", first="echo 1 > first.txt"))

    await orchard.ask("complete_task", job="a", result="The model is there since last week.")
    status = await orchard.ask("resume_plan")

    assert (status["plan"]["status"], statuses(status)) == (
        "succeeded", {"first": "succeeded", "a": "succeeded", "next": "succeeded"},
    )  # fmt: skip
    assert job(status, "a")["commit"] == job(status, "first")["commit"]
    assert len(agent.tasks) == 1
    assert "The model is there since last week." in agent.tasks[0].instructions, "who needs it is told its result"
    assert (worker(status)["state"], worker(status)["said"]) == ("completed", "The model is there since last week.")
    assert orchard.app.job("a", None).configuration["work"]["instructions"] == "Write a", "what it was to do is kept"


async def test_a_task_that_waits_to_be_deployed_is_called_done_and_the_plan_lands(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("one", writes({}))
    waiting = await orchard.run("name: M\ndeploy: manual\njobs: [{id: a, work: '@agent x'}, {id: s, work: exit 1}]")
    assert waiting["plan"]["status"] == "waiting"

    await orchard.ask("complete_task", job="a")
    status = await orchard.ask("complete_task", job="s")

    assert (status["plan"]["status"], status["plan"]["landed"]) == ("succeeded", False)
    assert [one.job for one in orchard.events(JobMarkedDone)] == ["a", "s"]


async def test_a_task_called_done_waits_for_what_it_needs_and_is_not_unblocked_by_the_word(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("one", writes({"next.txt": "n"}))
    failed = await orchard.run(CHAIN.format(more="", first="test -e go"))
    assert statuses(failed)["a"] == "blocked"

    blocked = await orchard.ask("complete_task", job="a")
    done = await orchard.ask("retry_plan", jobs=["first"], work={"type": "shell", "command": "echo 1 > first.txt"})

    assert statuses(blocked)["a"] == "blocked"
    assert (done["plan"]["status"], statuses(done)["a"]) == ("succeeded", "succeeded")


async def test_a_failed_task_says_how_what_it_left_is_taken_as_done(orchard: Orchard, agents: ScriptedAgents) -> None:
    await orchard.run("name: Fails\njobs: [{id: a, heal: false, work: echo a > a.txt; exit 1}]")

    with pytest.raises(UsageError, match="job 'a' is failed") as refused:
        await orchard.ask("complete_task", job="a")
    assert "orchard retry a" in in_commands(refused.value.hint or "")
    assert "--from commit" in in_commands(refused.value.hint or "")
    status = await orchard.ask("retry_plan", jobs=["a"], from_phase="commit")

    assert (status["plan"]["status"], orchard.repo.files("work")["a.txt"]) == ("succeeded", "a\n")


async def test_a_program_that_runs_is_not_called_done(orchard: Orchard, agents: ScriptedAgents) -> None:
    async def complete(found: Session, plan: PlanId) -> None:
        await until(lambda: job(orchard.status(), "a")["phase"] == "work")
        with pytest.raises(UsageError, match="runs a program"):
            await found.request("complete_task", plan=plan, job="a")
        await found.request("cancel_jobs", plan=plan, jobs=["a"])

    await orchard.run("name: Shell\njobs: [{id: a, work: sleep 60}]", during=complete)


async def test_a_retry_with_other_work_takes_the_word_back(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    await orchard.run("name: M\ndeploy: manual\njobs: [{id: a, work: '@agent x'}, {id: b, needs: [a], work: exit 1}]")
    await orchard.ask("complete_task", job="b")
    await orchard.ask("cancel_plan")

    await orchard.ask("retry_plan", jobs=["b"], work={"type": "shell", "command": "echo c > c.txt"})
    status = await orchard.ask("complete_task", job="a")

    assert status["plan"]["status"] == "succeeded"
    assert "c.txt" in orchard.repo.files("work")
