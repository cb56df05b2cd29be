"""A parent that looks after three children, as a program that speaks MCP, one that speaks ACP, and the built-in agent.

It hands out three parts and goes idle. Of the one that is stuck it is told; it interrupts and completes that one, reads
the log of another, pulls one change that fits and one that does not, and is done. What lands is what it pulled.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchard.engine.server.session import Session
from orchard.model.events.plans import HealthNoted, SubtaskPulled, UpdatesDelivered
from orchard.model.plan import PlanId
from orchard.testing import Repo
from tests.agents.llm import Asked, Fail, Hang, Mcp, Reply, Say, ScriptedLlm, Shell, routes, steps
from tests.agents.test_plans import BUILTIN, CLAUDE, KINDS, Kind, asks, install
from tests.agents.test_subtasks_real import SUBTASK, Taught
from tests.engine import conftest
from tests.engine.conftest import job, until

pytestmark = pytest.mark.anyio

ACP = next(kind for kind in KINDS if kind.name == "anthropic")
HEALTH = "[health]\nstuck = 12\nidle = 0\nslow = 0\n"
TOLD = "What happened to your subtasks"
WAIT = 240.0


@pytest.fixture
def orchard(tmp_path: Path) -> Taught:
    repo = Repo.make(tmp_path / "repo", files={"shared.txt": "base\n"})
    repo("checkout", "-q", "-b", "work")
    return Taught(repo)


def hands_out(asked: Asked) -> Reply | Sequence[Reply]:
    script: list[Reply] = [
        Mcp("orchard", "spawn_subtask", {"instructions": "FITS: write what fits", "name": "Fits"}),
        Mcp("orchard", "spawn_subtask", {"instructions": "CLASHES: write what does not", "name": "Clashes"}),
        Mcp("orchard", "spawn_subtask", {"instructions": "HANGS: never come back", "name": "Hangs"}),
        Say("Three of them work; I am idle."),
    ]
    return script[min(len(asked.results_since("PARENT-TASK")), 3)]


def goes_on(asked: Asked) -> Reply | Sequence[Reply]:
    """What it does when it is told that one of them is stuck."""
    found = list(dict.fromkeys(SUBTASK.findall("\n".join(asked.results))))
    fits, clashes, hangs, *_ = [*found, "", "", ""]
    script: list[Reply] = [
        Mcp("orchard", "steer_subtask", {"id": hangs, "action": "interrupt"}),
        Mcp("orchard", "steer_subtask", {"id": hangs, "action": "complete"}),
        Mcp("orchard", "await_subtasks", {"ids": [fits, clashes]}),
        Mcp("orchard", "get_job_logs", {"job": fits}),
        Shell("echo mine > shared.txt"),
        Mcp("orchard", "pull_subtask_changes", {"id": fits}),
        Mcp("orchard", "pull_subtask_changes", {"id": clashes}),
        Say("One fits, one does not."),
    ]
    return script[min(len(asked.results_since(TOLD)), 7)]


def child(name: str, command: str) -> "list[Reply]":
    return [Shell(command), Mcp("orchard", "complete_subtask", {"result": f"{name} is written."}), Say("Bye.")]


WORK = routes(
    {
        TOLD: goes_on,
        "FITS": steps(*child("What fits", "echo a word for the log; echo fits > fits.txt")),
        "CLASHES": steps(*child("What clashes", "echo theirs > shared.txt")),
        "HANGS": steps(Hang(Say("late"), midstream=False)),
        "PARENT-TASK": hands_out,
    }
)


def script(asked: Asked) -> Reply | Sequence[Reply]:
    """A program's own requests, for a title of a session, are refused: what they use is not told by all."""
    return WORK(asked) if asked.tools else Fail(400, "no titles")


@pytest.mark.parametrize("kind", [BUILTIN, CLAUDE, ACP], ids=lambda kind: kind.id)
async def test_a_parent_is_told_that_a_child_is_stuck_and_what_lands_is_what_it_pulled(
    kind: Kind, orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    with ScriptedLlm(script) as llm:
        install(monkeypatch, private_home, llm, kind, config=HEALTH)
        monkeypatch.setenv("ORCHARD_GRACE", "1")
        monkeypatch.setattr(conftest, "LONGEST", WAIT)  # four programs begin beside each other
        work = asks(kind, "PARENT-TASK").replace("{type", "{interactive: true, type", 1)

        async def complete(session: Session, plan: PlanId) -> None:
            """A person says that the parent is done, once it has pulled."""
            await until(lambda: "One fits" in str((job(orchard.status(plan), "a")["worker"] or {}).get("said")), WAIT)
            await session.request("complete_task", plan=plan, job="a", result="")

        done = await orchard.run(f"name: Look after\njobs: [{{id: a, work: {work}}}]", during=complete)

        told = "\n".join(result for asked in llm.requests for result in asked.results)
        assert done["plan"]["status"] == "succeeded", (job(done, "a")["error"], told[-4000:])
        fits, clashes, hangs = sorted(job(done, "a")["subtasks"], key=lambda one: "FCH".index(one["name"][0]))
        # it goes idle, and is told that one is stuck, and no other
        assert {(one.subtask, one.condition) for one in orchard.events(HealthNoted)} == {(hangs["id"], "stuck")}
        first, second, *_ = [turn for turn in orchard.attempts("a", None)[0]["turns"] if turn["subtask"] is None]
        assert (first["outcome"], second["outcome"]) == ("done", "done") and orchard.events(UpdatesDelivered)
        prompts = [prompt for asked in llm.requests for prompt in asked.prompts if TOLD in prompt]
        assert prompts and re.search(rf"{hangs['id']}.*?stuck: For", prompts[0], re.DOTALL)
        # it interrupts and completes that one, and reads the log of another
        assert (hangs["status"], hangs["commit"]) == ("completed", None)
        assert "a word for the log" in told
        # it pulls what fits, and is told of what does not
        assert [one.subtask for one in orchard.events(SubtaskPulled)] == [fits["id"]]
        assert (fits["pulled"], clashes["pulled"], clashes["status"]) == (True, False, "completed")
        assert "shared.txt" in told and '"conflict"' in told.replace('\\"', '"')
        # what lands is what it pulled, and usage adds up
        landed = orchard.repo.files("work")
        assert landed == {"shared.txt": "mine\n", "fits.txt": "fits\n"}
        handed_out = llm.usage().output
        assert done["plan"]["usage"]["output"] == handed_out
        turns = orchard.attempts("a", None)[0]["turns"]
        assert sum(turn["usage"].get("output", 0) for turn in turns) == handed_out
