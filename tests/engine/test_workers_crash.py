"""A crash while an agent waits, or works with a message on its way: nothing that was said or done is lost."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from orchard.engine.server import start as opening
from orchard.engine.server.session import Session
from orchard.engine.turns import turn as turns
from orchard.model.events.plans import JobFailed, JobHeld, WorkerIdle
from orchard.model.plan import PlanId
from tests.engine.conftest import Orchard, job, statuses, until
from tests.engine.scripted import ScriptedAgents, writes
from tests.engine.test_cut_journal import cut_after
from tests.engine.test_workers import PLAIN, TALK, until_told, worker
from tests.nursery import command

pytestmark = pytest.mark.anyio


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01, 0.01))
    return table


# ------------------------------------------------------------------------------- a journal cut short


@pytest.mark.parametrize(("name", "words"), [("WorkerIdle", ()), ("PhaseEnded", ('"a"', '"work"'))])
async def test_a_worker_is_still_idle_when_only_the_hold_was_lost(
    orchard: Orchard, agents: ScriptedAgents, name: str, words: tuple[str, ...]
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}))
    await orchard.run(TALK)
    cut_after(orchard, name, *words)

    idle = await orchard.ask("resume_plan")
    done = await orchard.ask("complete_task", job="a")

    assert (idle["plan"]["status"], worker(idle)["state"]) == ("waiting", "idle")
    assert (done["plan"]["status"], len(agent.tasks)) == ("succeeded", 1)
    assert orchard.events(JobFailed) == []
    assert [hold.found for hold in orchard.events(JobHeld) if hold.job == "a"] == [True]


async def test_a_turn_whose_end_was_not_recorded_is_reported_as_interrupted(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}))
    await orchard.run(TALK)
    cut_after(orchard, "AgentSession")

    failed = await orchard.ask("resume_plan")
    again = await orchard.ask("retry_plan", jobs=["a"])

    assert (job(failed, "a")["reason"], worker(failed)["state"]) == ("interrupted", "error")
    assert (worker(again)["state"], agent.tasks[1].session) == ("idle", "s1")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MessageSent", ()),
        ("HoldReleased", ()),
        ("JobPicked", ()),
        ("JobStarted", ()),
        ("PhaseStarted", ("merge-fi",)),
        ("PhaseStarted", ('"work"',)),
    ],
)
async def test_a_message_to_an_idle_worker_is_told_once_wherever_a_crash_comes_before_its_turn(
    orchard: Orchard, agents: ScriptedAgents, name: str, words: tuple[str, ...]
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}), writes({"b.txt": "b"}))
    await orchard.run(TALK)
    await orchard.ask("send_message", job="a", message="Now write b.")
    cut_after(orchard, name, *words)
    del agent.tasks[1:]

    idle = await orchard.ask("resume_plan")

    assert [task.instructions for task in agent.tasks[1:]] == ["Now write b.\n"]
    assert (worker(idle)["state"], worker(idle)["queued"]) == ("idle", 0)
    assert (await orchard.ask("complete_task", job="a"))["plan"]["status"] == "succeeded"


async def test_a_message_whose_turn_was_cut_off_is_told_again(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}), writes({"b.txt": "b"}))
    await orchard.run(TALK)
    await orchard.ask("send_message", job="a", message="Now write b.")
    cut_after(orchard, "AgentStarted")

    failed = await orchard.ask("resume_plan")
    again = await orchard.ask("retry_plan", jobs=["a"])

    assert (job(failed, "a")["reason"], worker(failed)["queued"]) == ("interrupted", 1)
    assert "Now write b." in agent.tasks[2].instructions
    assert (worker(again)["state"], worker(again)["queued"]) == ("idle", 0)


async def test_a_message_queued_for_a_worker_at_work_outlives_the_crash(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    go = asyncio.Event()
    agent = agents.add("one", until_told(go, {"a.txt": "a"}), writes({"b.txt": "b"}))

    async def talk(found: Session, plan: PlanId) -> None:
        await until(lambda: bool(agent.tasks))
        await found.request("send_message", plan=plan, job="a", message="Write b as well.")
        go.set()

    await orchard.run(PLAIN, during=talk)
    cut_after(orchard, "MessageSent")
    go.set()

    failed = await orchard.ask("resume_plan")
    del agent.tasks[1:]
    done = await orchard.ask("retry_plan", jobs=["a"])

    assert (statuses(failed), worker(failed)["queued"]) == ({"a": "failed"}, 1)
    assert "Write b as well." in agent.tasks[1].instructions
    assert (done["plan"]["status"], worker(done)["queued"]) == ("succeeded", 0)


@pytest.mark.parametrize("name", ["HoldReleased", "JobPicked", "JobStarted", "PhaseStarted"])
async def test_completed_work_is_committed_and_not_done_again_wherever_a_crash_comes(
    orchard: Orchard, agents: ScriptedAgents, name: str
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}))
    await orchard.run(f"{TALK}\nland: ask\ncleanup: false")
    await orchard.ask("complete_task", job="a")
    cut_after(orchard, name, '"a"')

    waiting = await orchard.ask("resume_plan")

    assert (job(waiting, "a")["status"], len(agent.tasks)) == ("succeeded", 1)
    assert orchard.repo.files(job(waiting, "a")["commit"])["a.txt"] == "a"


async def test_an_idle_worker_whose_folder_is_gone_is_not_made_to_work_again(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}))
    idle = await orchard.run(TALK)
    folder = Path(job(idle, "a")["worktree"])
    orchard.repo("worktree", "remove", "--force", "--force", str(folder))

    failed = await orchard.ask("complete_task", job="a")

    assert (job(failed, "a")["reason"], len(agent.tasks)) == ("interrupted", 1)
    assert "is gone" in job(failed, "a")["error"]


# ----------------------------------------------------------------------------------- killed processes

AGENT = """
echo turn >> MARKS/turns
cat "$1" >> MARKS/told
if grep -q SLOW "$1"; then touch MARKS/slow; while ! test -f MARKS/go; do sleep 0.05; done; fi
echo "$(wc -l < MARKS/turns)" > a.txt
echo "turn $(wc -l < MARKS/turns) is done"
"""


@pytest.fixture
def marks(tmp_path: Path) -> Path:
    """Where an agent that is a real program leaves its traces; it is the default one."""
    folder = tmp_path / "marks"
    folder.mkdir()
    (folder / "agent.sh").write_text(AGENT.replace("MARKS", str(folder)))
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "orchard" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"agent = 'scribe'\n[agents.scribe]\ncommand = \"sh {folder}/agent.sh {{prompt_file}}\"\n")
    (folder / "plan.yaml").write_text(TALK)
    return folder


def run_cli(orchard: Orchard, *args: str, failpoint: str = "") -> subprocess.CompletedProcess[str]:
    return command(*args, cwd=orchard.repo.path, env={**os.environ, "ORCHARD_FAILPOINT": failpoint})


KILLS = (
    "agent.before-turn:1", "agent.after-turn:1", "attempt.before-end:1", "attempt.after-end:1",
    "journal.before-commit:4", "journal.after-commit:4",
)  # fmt: skip


@pytest.mark.parametrize("place", KILLS)
async def test_a_talk_killed_around_the_end_of_a_turn_is_brought_to_its_end(
    orchard: Orchard, marks: Path, place: str
) -> None:
    killed = run_cli(orchard, "run", str(marks / "plan.yaml"), failpoint=f"{place}:kill")
    assert killed.returncode in (4, -signal.SIGKILL), killed.stderr

    status = await orchard.ask("resume_plan")
    again = 0
    while statuses(status)["a"] == "failed":
        again += 1
        status = await orchard.ask("retry_plan")

    assert worker(status)["state"] == "idle"
    ran = len((marks / "turns").read_text().splitlines())
    assert ran <= 1 + again, "a turn ran again although nobody asked for it"
    assert (await orchard.ask("complete_task", job="a"))["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["a.txt"].strip() == str(ran)


@pytest.mark.parametrize("place", ["request.before:1", "request.after-durable:1", "agent.before-turn:1"])
async def test_a_message_is_not_lost_when_the_engine_is_killed_while_it_is_sent(
    orchard: Orchard, marks: Path, place: str
) -> None:
    run_cli(orchard, "run", str(marks / "plan.yaml"))

    killed = run_cli(orchard, "send", "a", "Remember the milk", failpoint=f"{place}:kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    if place.startswith("request.before"):
        assert run_cli(orchard, "send", "a", "Remember the milk").returncode == 4
    status = await orchard.ask("resume_plan")
    if statuses(status)["a"] == "failed":
        status = await orchard.ask("retry_plan")

    assert (worker(status)["state"], worker(status)["queued"]) == ("idle", 0)
    assert (marks / "told").read_text().count("Remember the milk") == 1


async def test_a_worker_killed_with_its_engine_leaves_no_process_and_hears_what_was_queued(
    orchard: Orchard, marks: Path
) -> None:
    (marks / "plan.yaml").write_text(TALK.replace("Write a", "SLOW Write a"))
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "orchard", "run", str(marks / "plan.yaml"),
        cwd=orchard.repo.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    await until((marks / "slow").exists)
    sent = run_cli(orchard, "send", "a", "Remember the milk")
    engine.kill()
    await engine.wait()
    assert (sent.returncode, "when its turn ends" in sent.stdout) == (0, True), sent.stderr

    failed = await orchard.ask("resume_plan")
    (marks / "go").touch()
    idle = await orchard.ask("retry_plan")

    assert (job(failed, "a")["reason"], worker(failed)["queued"]) == ("interrupted", 1)
    assert (worker(idle)["state"], worker(idle)["queued"]) == ("idle", 0)
    assert (marks / "told").read_text().count("Remember the milk") == 1
    assert len((marks / "turns").read_text().splitlines()) == 2
    assert [one.why for one in orchard.events(WorkerIdle)] == ["done"]
