"""What is limited stays limited over pauses: tries of healing, and calls of the model in one turn."""

from pathlib import Path

import pytest

from orchard.agents.builtin.agent import BuiltinAgent
from orchard.agents.protocol import Result, Session, Task, Used, Watch
from orchard.engine.server import start as opening
from orchard.engine.turns import turn as turns
from orchard.model.agent_rows import BuiltinRow
from orchard.model.events.plans import HealTried
from orchard.model.usage import Usage
from orchard.testing import ScriptedModel, Turn, calls
from tests.engine.conftest import Orchard, job, statuses
from tests.engine.scripted import ScriptedAgents

pytestmark = pytest.mark.anyio


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01, 0.01))
    return table


def mends_badly() -> Turn:
    """A turn that changes something, helps nothing, and costs 100 tokens."""
    made = iter(range(1000))

    def turn(task: Task, watch: Watch) -> Result:
        number = next(made)
        (task.folder / "try.txt").write_text(str(number))
        watch.tell(Used(Usage("scripted", input=100, requests=1)))
        return Result("done", text=f"I tried way {number}.")

    return turn


async def test_tries_of_healing_are_counted_over_budget_pauses_and_told_to_the_next_one(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", mends_badly())
    status = await orchard.run("""
        name: Heal
        budget: {tokens: 50}
        jobs: [{id: a, heal: 3, work: echo a > a.txt, postchecks: 'echo it is wrong; false'}]
    """)

    pauses = 0
    while statuses(status)["a"] != "failed":
        pauses += 1
        assert pauses < 6, "the job goes on for ever"
        status = await orchard.ask("resume_plan")

    assert [(one.number, one.outcome) for one in orchard.events(HealTried)] == [(n, "failed") for n in (1, 2, 3)]
    assert (len(agent.tasks), pauses) == (3, 2)
    told = agent.tasks[2].instructions
    assert "I tried way 0." in told and "I tried way 1." in told and "it is wrong" in told.split("Earlier tries")[1]
    assert "3 tries did not fix it" in str(orchard.attempts("a", None))


async def test_the_calls_of_one_turn_are_counted_over_budget_pauses(orchard: Orchard, agents: ScriptedAgents) -> None:
    model = ScriptedModel([calls(("list_files", {"path": "."}))])
    agents.agents["one"], agents.default = BuiltinAgent(model=model), "one"  # type: ignore[assignment]
    status = await orchard.run("""
        name: Turns
        budget: {tokens: 150}
        jobs: [{id: a, work: {type: agent, instructions: Look for ever, max_turns: 5}}]
    """)

    pauses = 0
    while statuses(status)["a"] != "failed":
        pauses += 1
        assert pauses < 8, "the turn goes on for ever"
        status = await orchard.ask("resume_plan")

    assert len(model.requests) == 5 and pauses == 2
    assert "has used all of its turns" in job(status, "a")["error"]


async def test_the_built_in_agents_own_limit_of_calls_is_counted_over_pauses_too(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    model = ScriptedModel([calls(("list_files", {"path": "."}))])
    agents.agents["one"] = BuiltinAgent(BuiltinRow(max_iterations=4), model=model)  # type: ignore[assignment]
    agents.default = "one"
    status = await orchard.run("name: T\nbudget: {tokens: 150}\njobs: [{id: a, work: '@agent Look for ever'}]")
    for _ in range(3):
        if statuses(status)["a"] != "failed":
            status = await orchard.ask("resume_plan")

    assert (statuses(status)["a"], len(model.requests)) == ("failed", 4)


async def test_each_message_to_a_worker_has_all_of_its_calls(orchard: Orchard, agents: ScriptedAgents) -> None:
    seen: list[int | None] = []

    def turn(task: Task, watch: Watch) -> Result:
        seen.append(task.settings.max_turns)
        watch.tell(Session("s1"))
        watch.tell(Used(Usage("scripted", input=1, requests=3)))
        (Path(task.folder) / f"{len(seen)}.txt").write_text("x")
        return Result("done", session="s1")

    agents.add("one", turn)
    await orchard.run(
        "name: T\njobs: [{id: a, work: {type: agent, instructions: Go, max_turns: 4, interactive: true}}]"
    )
    await orchard.ask("send_message", job="a", message="More.")

    assert seen == [4, 4]
