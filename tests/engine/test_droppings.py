"""What agents leave for themselves is no work: it is in no commit, and who leaves nothing else has done nothing."""

import pytest

from orchard.agents.droppings import droppings_of, is_dropping
from orchard.agents.protocol import Result, Task, Watch
from orchard.config.layers import Config
from orchard.engine.server import start as opening
from orchard.model.agent_rows import AgentRow
from orchard.model.events.plans import PhaseEnded
from orchard.testing import Turn
from tests.engine.conftest import Orchard, job
from tests.engine.scripted import ScriptedAgents

pytestmark = pytest.mark.anyio


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    return table


def notes(orchard: Orchard) -> str:
    """What was noted about all phases."""
    return " ".join(one.note for one in orchard.events(PhaseEnded))


def leaves(*names: str, content: str = "x\n") -> Turn:
    def turn(task: Task, watch: Watch) -> Result:
        for name in names:
            (task.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (task.folder / name).write_text(content)
        return Result("done", text="I could not do it.")

    return turn


@pytest.mark.parametrize(
    ("agent", "names"),
    [
        ("aider", (".aider.chat.history.md", ".aider.tags.cache.v4/cache.db")),
        ("fast-agent", (".fast-agent/sessions/1.json",)),
        ("qwen", (".qwen/settings.json", ".qwen/settings.json.orig")),
    ],
)
async def test_an_agent_that_leaves_nothing_else_has_changed_nothing(
    agent: str, names: tuple[str, ...], orchard: Orchard, agents: ScriptedAgents
) -> None:
    agents.add(agent, leaves(*names))

    status = await orchard.run(f"name: Nothing\njobs: [{{id: a, heal: false, work: '@{agent} Do it'}}]")

    assert job(status, "a")["status"] == "failed"
    assert "changed no file" in job(status, "a")["error"]


async def test_they_are_not_in_the_commit_of_an_agent_that_did_work(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("aider", leaves(".aider.chat.history.md", "work.txt"))

    status = await orchard.run("name: Some\njobs: [{id: a, work: '@aider Do it'}]")

    assert status["plan"]["status"] == "succeeded"
    assert "work.txt" in orchard.repo.files("work")
    assert not [name for name in orchard.repo.files("work") if name.startswith(".aider")]
    assert ".aider.chat.history.md" in notes(orchard)


async def test_they_do_not_reach_the_job_that_gets_the_folder_next(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("aider", leaves(".aider.chat.history.md", "work.txt"))

    status = await orchard.run(
        "name: Next\nmax_parallel: 1\njobs: [{id: a, work: '@aider Do it'}, {id: b, needs: [a], work: 'ls -A > seen'}]"
    )

    assert status["plan"]["status"] == "succeeded"
    assert ".aider" not in orchard.repo.files("work")["seen"]


async def test_what_the_repository_tracks_is_its_own_whatever_its_name(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    orchard.repo.commit({".aider.conf.yml": "old\n"})
    agents.add("aider", leaves(".aider.conf.yml", content="new\n"))

    status = await orchard.run("name: Tracked\njobs: [{id: a, work: '@aider Change it'}]")

    assert status["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")[".aider.conf.yml"] == "new\n"


async def test_a_healing_that_leaves_nothing_else_has_changed_nothing(orchard: Orchard, agents: ScriptedAgents) -> None:
    agents.add("aider", leaves(".aider.chat.history.md"))

    status = await orchard.run("name: Heal\njobs: [{id: a, work: 'exit 3'}]")

    assert job(status, "a")["status"] == "failed"
    assert "the agent changed nothing" in notes(orchard)


@pytest.mark.parametrize(
    ("path", "patterns", "is_one"),
    [
        (".aider.input.history", (".aider*",), True),
        (".aider.tags/a/b", (".aider*",), True),
        ("src/.aider.x", (".aider*",), False),
        (".qwen/a", (".qwen/",), True),
        (".qwenx/a", (".qwen/",), False),
        ("a.txt", (), False),
    ],
)
def test_a_pattern_is_a_name_at_the_top_or_a_folder(path: str, patterns: tuple[str, ...], is_one: bool) -> None:
    assert is_dropping(path, patterns) == is_one


def test_a_row_names_its_own_and_known_programs_are_known_in_any_row() -> None:
    config = Config(agents={"mine": AgentRow(command="uvx aider --yes", droppings=(".mine/",))})

    assert droppings_of(config, ["mine"]) == (".aider*", ".mine/")
    assert droppings_of(config, ["claude"])
    assert droppings_of(config, ["acp:fast-agent --x"]) == (".fast-agent/", "fastagent.jsonl")
