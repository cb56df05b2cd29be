"""One worker that is paused while the rest of its plan goes on, and goes on in its session when it is resumed."""

import asyncio

import pytest

from orchard.engine.server import start as opening
from orchard.engine.server.session import Session
from orchard.engine.turns import turn as turns
from orchard.errors import UsageError
from orchard.model.events.plans import JobFailed
from orchard.model.plan import PlanId
from tests.engine.conftest import Json, Orchard, job, until
from tests.engine.scripted import ScriptedAgents, writes
from tests.engine.test_cut_journal import cut_after
from tests.engine.test_workers import PLAIN, TALK, limited, until_told, worker

pytestmark = pytest.mark.anyio


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01, 0.01))
    return table


async def paused(orchard: Orchard, agents: ScriptedAgents, plan: str = PLAIN) -> Json:
    """A plan whose agent was paused in its first turn; the second one is done."""
    agent = agents.add("one", until_told(asyncio.Event(), {}), writes({"a.txt": "a"}))

    async def pause(found: Session, plan: PlanId) -> None:
        await until(lambda: bool(agent.tasks) and (agent.tasks[0].folder / "half.txt").exists())
        answer = await found.request("pause_worker", plan=plan, job="a")
        assert answer["worker"] == "paused"

    return await orchard.run(plan, during=pause)


async def test_a_paused_worker_has_no_slot_keeps_its_files_and_goes_on_in_its_session(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    held = await paused(
        orchard, agents,
        "name: Two\nmax_parallel: 1\njobs: [{id: a, priority: 1, work: '@agent A'}, {id: b, work: echo b > b.txt}]",
    )  # fmt: skip
    (waiting,) = orchard.app.waiting()

    sent = await orchard.ask("send_message", job="a", message="And b.")
    done = await orchard.ask("resume_worker", job="a")

    assert (worker(held)["state"], job(held, "b")["status"]) == ("paused", "succeeded")
    assert (waiting.answer, waiting.command) == ("resume", f"orchard resume {held['plan']['id']}:a")
    assert "is paused, and waits to be resumed" in waiting.reason
    assert (worker(sent)["state"], worker(sent)["queued"]) == ("paused", 1), "what is said waits"
    first, second = agents.agents["one"].tasks
    assert (second.session, second.folder) == ("s1", first.folder)
    assert "And b." in second.instructions
    assert done["plan"]["status"] == "succeeded"
    assert {"half.txt", "a.txt"} <= orchard.repo.files("work").keys()


@pytest.mark.parametrize("cut", [False, True])
async def test_a_pause_outlives_its_engine(orchard: Orchard, agents: ScriptedAgents, cut: bool) -> None:
    await paused(orchard, agents)
    if cut:
        cut_after(orchard, "WorkerIdle")  # the engine died before it recorded the hold

    still = await orchard.ask("send_message", job="a", message="Go on.")
    done = await orchard.ask("resume_worker", job="a")

    assert (worker(still)["state"], done["plan"]["status"]) == ("paused", "succeeded")
    assert orchard.events(JobFailed) == []


async def test_a_paused_worker_does_not_time_out_and_an_idle_one_that_is_paused_neither(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    await orchard.run(TALK)
    idle = await orchard.ask("pause_worker", job="a")
    limited(orchard, 0.001)

    with pytest.raises(UsageError, match="is paused already"):
        await orchard.ask("pause_worker", job="a")

    assert "is paused, and waits to be resumed" in job(idle, "a")["waiting"]["reason"]
    assert (worker(orchard.status())["state"], orchard.events(JobFailed)) == ("paused", [])


async def test_a_paused_worker_is_called_done(orchard: Orchard, agents: ScriptedAgents) -> None:
    await paused(orchard, agents)

    done = await orchard.ask("complete_task", job="a", result="Half is enough.")

    assert (done["plan"]["status"], orchard.repo.files("work")["half.txt"]) == ("succeeded", "half")


async def test_only_a_paused_worker_is_resumed(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    await orchard.run(TALK)

    with pytest.raises(UsageError, match="No agent is paused: the agent of job 'a' is idle already"):
        await orchard.ask("resume_worker", job="a")
