"""What is shown is what is: turns of a dead engine, workers whose time is over, pauses, scaffolds, processes, lines."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from msgspec import to_builtins

from orchard.app import open_app
from orchard.engine.server import start as opening
from orchard.engine.server.session import Session
from orchard.errors import UsageError
from orchard.model.events.plans import MessageSent
from orchard.model.plan import PlanId
from orchard.planfile.parse import parse_value
from orchard.surfaces.next_steps import in_commands
from tests.engine.conftest import Orchard, job, statuses, until
from tests.engine.helpers import Asker, Line, by_task
from tests.engine.scripted import ScriptedAgents, writes
from tests.engine.test_cut_journal import cut_after
from tests.engine.test_workers import TALK, worker

pytestmark = pytest.mark.anyio


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    return table


async def recover(orchard: Orchard) -> None:
    """Let a new engine look at what the last one left, and start nothing."""
    async with orchard.app.session(work=False):
        pass


async def test_a_turn_whose_engine_died_is_not_shown_as_running(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    await orchard.run(TALK)
    cut_after(orchard, "AgentSession")

    before = orchard.attempts("a", None)[0]
    await recover(orchard)
    after = orchard.job("a", None)["attempts_detail"][0]

    for attempt in (before, after):
        (turn,) = attempt["turns"]
        assert (turn["outcome"], turn["ended_at"] is None) == ("interrupted", False), attempt
        assert [one for one in attempt["phases"] if one["ended_at"] is None] == []


async def test_a_worker_whose_time_is_over_is_shown_as_failed_while_no_engine_runs(
    orchard: Orchard, agents: ScriptedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    await orchard.run(TALK)
    monkeypatch.setenv("ORCHARD_INTERACTIVE", "0.01")
    await asyncio.sleep(0.05)

    app = open_app(orchard.repo.path, in_commands)
    shown, waiting = to_builtins(app.status(None)), app.waiting()

    assert (statuses(shown), job(shown, "a")["reason"], waiting) == ({"a": "failed"}, "timeout", [])
    assert "--from commit" in job(shown, "a")["hint"]
    done = await orchard.ask("retry_plan", jobs=["a"], phase="commit")
    assert done["plan"]["status"] == "succeeded"


async def test_a_paused_plan_has_no_error_and_says_why_it_is_paused(orchard: Orchard) -> None:
    async def pause(found: Session, plan: PlanId) -> None:
        await found.request("pause_plan", plan=plan)

    status = await orchard.run("name: P\nstart_paused: true\njobs: [{id: a, work: 'true'}]", during=pause)

    assert (status["plan"]["status"], status["plan"]["error"]) == ("paused", None)
    assert status["plan"]["paused"]


async def test_a_scaffold_without_jobs_has_nothing_that_is_ready(orchard: Orchard) -> None:
    app = orchard.app
    plan = parse_value({"name": "S"}, scaffolding=True)
    async with app.session(work=False) as found:
        await found.request("create_plan", plan=plan, scaffolding=True)

    status = orchard.status()

    assert status["plan"]["counts"] == {"pending": 1, "total": 1}
    assert [one["status"] for one in status["jobs"]] == ["pending"]


async def test_what_a_process_takes_of_a_core_is_a_number(orchard: Orchard) -> None:
    seen: list[object] = []

    async def look(found: Session, plan: PlanId) -> None:
        def shares() -> bool:
            rows = orchard.job("a")["processes"]
            seen[:] = [row["cpu_percent"] for row in rows]
            return bool(seen)

        async with asyncio.timeout(20):
            while not await asyncio.to_thread(shares):  # noqa: ASYNC110 (a program starts when it starts)
                await asyncio.sleep(0.02)
        await found.request("cancel_plan", plan=plan)

    await orchard.run("name: P\njobs: [{id: a, work: sleep 30}]", during=look)

    assert seen and all(isinstance(share, float) for share in seen)


async def test_lines_are_counted_in_the_phase_whose_agent_wrote_them(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("medic", writes({"fixed.txt": "one line\n"}))
    await orchard.run("name: U\njobs: [{id: a, work: 'printf \"1\\n2\\n\" > a.txt', postchecks: test -f fixed.txt}]")

    report = orchard.usage(None)

    assert report["by"]["phase"]["postchecks"]["lines_added"] == 1
    assert report["total"]["lines_added"] == 1


async def test_lines_of_an_agents_work_and_of_its_healing_are_told_apart(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("one", writes({"a.txt": "1\n2\n3\n"}), writes({"fixed.txt": "one line\n"}))
    await orchard.run("name: U\njobs: [{id: a, work: '@one Write', postchecks: test -f fixed.txt}]")

    by = orchard.usage(None)["by"]["phase"]

    assert (by["work"]["lines_added"], by["postchecks"]["lines_added"]) == (3, 1)


async def test_a_subtasks_answer_that_is_cut_says_so_and_keeps_both_ends(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    line = Line()
    answers: list[str] = []

    async def parent(asker: Asker) -> str:
        asker.write(mine="mine")
        done = await asker.spawn("Child", blocking=True)
        answers.append(done["summary"])
        return "Done."

    async def child(asker: Asker) -> str:
        return "HEAD-OF-ANSWER " + "x" * 6000 + " END-OF-ANSWER"

    agents.add("one", by_task(line, parent=parent, child=child))
    await orchard.run("name: Help\njobs: [{id: a, work: '@one Parent'}]", during=line.open)

    (answer,) = answers
    assert answer.startswith("HEAD-OF-ANSWER") and answer.endswith("END-OF-ANSWER")
    assert "characters left out" in answer and len(answer) <= 4000


async def test_a_message_to_a_worker_whose_agent_is_gone_is_refused_and_the_worker_stays_idle(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    await orchard.run(TALK.replace("interactive", "agent: one, interactive"))
    agents.agents.clear()

    with pytest.raises(UsageError, match="There is no agent 'one'"):
        await orchard.ask("send_message", job="a", message="More.")

    assert worker(orchard.status())["state"] == "idle"
    assert orchard.events(MessageSent) == []


async def test_a_job_that_is_to_be_tried_again_after_a_crash_takes_messages(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}))
    await orchard.run("name: R\njobs: [{id: a, retry_on_interrupt: true, work: '@one Write a'}]")
    cut_after(orchard, "AgentStarted")
    app = orchard.app
    async with app.session(work=False) as found:  # recovers, and starts nothing
        ready = statuses(orchard.status())
        answer = await found.request("send_message", plan=app.find_plan(None), job="a", message="Mind the gap.")

    done = await orchard.ask("resume_plan")

    assert (ready, answer["queued"]) == ({"a": "ready"}, True)
    assert "Mind the gap." in agent.tasks[-1].instructions
    assert done["plan"]["status"] == "succeeded"


async def test_a_killed_engine_leaves_no_turn_that_runs(orchard: Orchard, tmp_path: Path) -> None:
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "orchard" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"agent = 'slow'\n[agents.slow]\ncommand = \"sh -c 'touch {tmp_path}/on; sleep 60'\"\n")
    (tmp_path / "plan.yaml").write_text("name: K\njobs: [{id: a, work: '@slow Write a'}]")
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "orchard", "run", str(tmp_path / "plan.yaml"), cwd=orchard.repo.path,
        stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    await until((tmp_path / "on").exists, 40)
    engine.send_signal(signal.SIGKILL)
    await engine.wait()

    await recover(orchard)

    (attempt,) = orchard.attempts("a", None)
    assert [turn["outcome"] for turn in attempt["turns"]] == ["interrupted"]
