"""Jobs that are done by a definition: what their agents are told, what it can ask for, and what cannot change it."""

import pytest

from orchard.agents.protocol import Result, Task, Watch
from orchard.config.layers import Layer, merge_layers
from orchard.engine.server import start as opening
from orchard.engine.turns import turn as turns
from orchard.errors import OrchardError
from orchard.model.events.plans import AgentStarted
from tests.engine.conftest import Orchard, job, statuses
from tests.engine.scripted import ScriptedAgents, writes

pytestmark = pytest.mark.anyio

ARCHITECT = """---
name: architect
description: Designs
model: one-large
tools: Read, Edit
---
You are a careful architect.
"""


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01, 0.01))
    return table


@pytest.fixture
def described(orchard: Orchard) -> Orchard:
    orchard.repo.commit({".claude/agents/architect.md": ARCHITECT})
    return orchard


@pytest.mark.parametrize("work", ['"@architect Design it"', '{agent: "@architect", instructions: Design it}'])
async def test_a_definition_does_a_job_with_the_usual_agent(
    described: Orchard, agents: ScriptedAgents, work: str
) -> None:
    one = agents.add("one", writes({"a.txt": "a"}))

    status = await described.run(f"name: D\njobs: [{{id: a, work: {work}}}]")

    assert statuses(status) == {"a": "succeeded"}
    (task,) = one.tasks
    assert task.instructions.startswith("Design it\n\n---\n\n## Your role: `architect`")
    assert "You are a careful architect." in task.instructions
    assert task.settings.model == "one-large" and task.settings.tools.words == "read_file, edit_file"
    (turn,) = described.attempts("a", None)[0]["turns"]
    assert (turn["agent"], turn["definition"], turn["model"]) == ("one", "architect", "one-large")
    assert described.events(AgentStarted)[0].definition == "architect"


async def test_the_agent_can_be_named_with_it_and_the_work_has_the_last_word_on_the_model(
    described: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("one")
    two = agents.add("two", writes({"a.txt": "a"}), writes({"b.txt": "b"}), writes({"c.txt": "c"}))

    status = await described.run("""
        name: D
        jobs:
          - {id: a, work: "@two:architect Design it"}
          - {id: b, needs: [a], work: {agent: "two:agent", instructions: Plainly}}
          - {id: c, needs: [b], work: {agent: "two:architect", instructions: x, model: m1}}
    """)

    assert set(statuses(status).values()) == {"succeeded"}
    first, second, third = two.tasks
    assert "architect" in first.instructions and first.settings.model is None
    assert "architect" not in second.instructions
    assert "architect" in third.instructions and third.settings.model == "m1"
    said = status["plan"]["warnings"]
    no_effect = "'model: one-large' in .claude/agents/architect.md has no effect: two is not known to have that model."
    assert said.count(no_effect) == 1


async def test_what_a_job_writes_does_not_change_who_checks_it(described: Orchard, agents: ScriptedAgents) -> None:
    def works(task: Task, watch: Watch) -> Result:
        (task.folder / "a.txt").write_text("a")
        (task.folder / ".claude/agents/architect.md").write_text(ARCHITECT.replace("careful", "CARELESS"))
        return Result("done")

    checks: list[str] = []

    def looks(task: Task, watch: Watch) -> Result:
        checks.append(task.instructions)
        return Result("done")

    agents.add("one", works, looks)
    await described.run("""
        name: D
        jobs: [{id: a, work: "@one Work", postchecks: "@architect Check it"}]
    """)

    assert len(checks) == 1 and "careful" in checks[0] and "CARELESS" not in checks[0]


async def test_a_job_goes_by_what_it_begins_with_and_the_next_by_what_that_left(
    described: Orchard, agents: ScriptedAgents
) -> None:
    one = agents.add(
        "one", writes({".claude/agents/architect.md": ARCHITECT.replace("careful", "bold")}), writes({"b.txt": "b"})
    )

    await described.run("""
        name: D
        jobs:
          - {id: a, work: "@architect Change yourself"}
          - {id: b, needs: [a], work: "@architect Go on"}
    """)

    assert ["bold" in task.instructions for task in one.tasks] == [False, True]


async def test_the_configuration_names_who_heals(described: Orchard, agents: ScriptedAgents) -> None:
    medic = "[heal]\nagent = 'architect'\n"
    (described.repo.path / "orchard.toml").write_text(medic)
    described.repo.commit()
    one = agents.add("one", writes({"a.txt": "good"}))

    status = await described.run("""
        name: D
        jobs: [{id: a, work: "echo bad > a.txt", postchecks: grep good a.txt}]
    """)

    assert statuses(status) == {"a": "succeeded"}
    assert (
        "careful architect" in one.tasks[0].instructions and one.tasks[0].settings.tools.words == "read_file, edit_file"
    )


async def test_a_row_of_the_configuration_names_agent_and_tools(orchard: Orchard, agents: ScriptedAgents) -> None:
    row = {"instructions": "Mine.", "agent": "two", "tools": "edit", "model": "m7"}
    agents.config = merge_layers([Layer("user", {"agents": {"architect": row}})]).config
    agents.add("one")
    two = agents.add("two", writes({"a.txt": "a"}))

    await orchard.run('name: D\njobs: [{id: a, work: "@architect Go"}]')

    (task,) = two.tasks
    assert (task.settings.model, task.settings.tools.words) == ("m7", "edit") and "Mine." in task.instructions


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("architekt", "There is no agent 'architekt', and no definition of that name; did you mean 'architect'?"),
        ("one:architekt", "no definition is called 'architekt'; did you mean 'architect'?"),
        ("fresh", ".claude/agents/fresh.md is not used, because it is not committed, and jobs see only what is."),
    ],
)
async def test_a_name_that_nobody_has_is_refused_before_anything_is_made(
    described: Orchard, agents: ScriptedAgents, name: str, said: str
) -> None:
    agents.add("one")
    described.repo.write({".claude/agents/fresh.md": ARCHITECT.replace("architect", "fresh")})

    with pytest.raises(OrchardError) as refused:
        await described.run(f"name: D\njobs: [{{id: a, work: {{agent: '{name}', instructions: x}}}}]")

    assert said in refused.value.message
    assert described.app.reader.plans() == []


async def test_whoever_submits_is_told_which_is_meant_and_what_jobs_will_miss(
    described: Orchard, agents: ScriptedAgents
) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    described.repo.commit({".claude/agents/one.md": ARCHITECT.replace("architect", "one"), ".gitignore": ".agents/\n"})
    described.repo.write({".agents/skills/s/SKILL.md": "x"})
    app = described.app
    plan = app.parse_plan(None, b'{"name": "D", "start_paused": true, "jobs": [{"id": "a", "work": "@one Go"}]}')

    async with app.session() as session:
        notes = (await session.request("create_plan", plan=plan))["notes"]

    assert "'one' means the agent of that name, and not the definition in .claude/agents/one.md." in notes
    assert any("git ignores '.agents/'" in note and note.endswith(": /.agents/") for note in notes)


async def test_another_definition_at_a_retry_is_told_in_the_session(described: Orchard, agents: ScriptedAgents) -> None:
    described.repo.commit({".claude/agents/critic.md": ARCHITECT.replace("architect", "critic")})
    one = agents.add("one", lambda task, watch: Result("failed", "no", session="s1"), writes({"a.txt": "a"}))

    await described.run('name: D\njobs: [{id: a, work: "@architect Go"}]')
    work = {"type": "agent", "agent": "critic", "instructions": "Go"}
    status = await described.ask("retry_plan", jobs=["a"], work=work)

    assert job(status, "a")["status"] == "succeeded"
    assert "`critic`" in one.tasks[-1].instructions


async def test_a_definition_can_resolve_conflicts(
    described: Orchard, agents: ScriptedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCHARD_RESOLVER_AGENT", "architect")

    def resolves(task: Task, watch: Watch) -> Result:
        for place in task.folder.rglob("*"):
            if place.is_file() and "<<<<<<<" in place.read_text():
                place.write_text("both\n")
        return Result("done", text="Took both.")

    one = agents.add("one", resolves)
    status = await described.run("""
        name: Clash
        jobs:
          - {id: a, work: "echo a > new.txt"}
          - {id: b, work: "echo b > new.txt"}
    """)

    assert one.tasks, status["plan"]["error"]
    assert "You are a careful architect." in one.tasks[0].instructions
    assert described.events(AgentStarted)[0].definition == "architect"
