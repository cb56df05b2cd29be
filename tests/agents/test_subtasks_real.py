"""Real agents in real plans that hand work to each other, through the MCP server that they are given."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchard.app import App
from orchard.surfaces.mcp_channel import teach
from orchard.testing import Repo
from tests.agents.llm import Asked, Mcp, Reply, Say, ScriptedLlm, Shell, routes, steps
from tests.agents.test_plans import BUILTIN, CLAUDE, CODEX, Kind, asks, install
from tests.engine.conftest import Orchard, job, statuses

pytestmark = pytest.mark.anyio

SUBTASK = re.compile(r"subtask-[a-z2-7]{5}")


class Taught(Orchard):
    """A repository whose engine speaks MCP at its door, as every surface's does."""

    @property
    def app(self) -> App:
        app = super().app
        teach(app)
        return app


@pytest.fixture
def orchard(tmp_path: Path) -> Taught:
    repo = Repo.make(tmp_path / "repo", files={"README.md": "# small\n"})
    repo("checkout", "-q", "-b", "work")
    return Taught(repo)


def parent(asked: Asked) -> Reply | Sequence[Reply]:
    """List, write a draft, hand out, await, pull, and use what came back."""
    results = asked.results_since("PARENT-TASK")
    id = next(iter(SUBTASK.findall("\n".join(results[2:3]))), "")
    script: list[Reply] = [
        Mcp("orchard", "list_agents"),
        Shell("printf 'draft\\n' > draft.txt"),
        Mcp("orchard", "spawn_subtask", {"instructions": "CHILD-TASK: add to the draft", "name": "Helper"}),
        Mcp("orchard", "await_subtasks", {"ids": [id]}),
        Mcp("orchard", "pull_subtask_changes", {"id": id}),
        Shell("cat draft.txt child.txt > both.txt"),
        Say("Both are there."),
    ]
    reply = script[min(len(results), len(script) - 1)]
    return reply if asked.tools else Say("Fine.")


CHILD = steps(
    Shell("sed 's/draft/from the child/' draft.txt > child.txt"),
    Mcp("orchard", "complete_subtask", {"result": "Wrote child.txt."}),
    Say("Bye."),
)


@pytest.mark.parametrize("kind", [BUILTIN, CLAUDE, CODEX], ids=lambda kind: kind.id)
async def test_an_agent_hands_work_to_another_and_takes_it_over(
    kind: Kind, orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    with ScriptedLlm(routes({"CHILD-TASK": CHILD, "PARENT-TASK": parent})) as llm:
        install(monkeypatch, private_home, llm, kind)

        status = await orchard.run(f"name: Help\njobs: [{{id: a, work: {asks(kind, 'PARENT-TASK')}}}]")

        told = "\n".join(result for asked in llm.requests for result in asked.results)
        assert statuses(status) == {"a": "succeeded"}, (job(status, "a")["error"], told[-3000:])
        assert orchard.repo.files("work")["both.txt"] == "draft\nfrom the child\n", told[-3000:]
        (subtask,) = job(status, "a")["subtasks"]
        assert (subtask["status"], subtask["summary"], subtask["pulled"]) == ("completed", "Wrote child.txt.", True)
        assert subtask["agent"] == kind.name and kind.name in told
        assert status["plan"]["usage"]["output"] == llm.usage().output
        names = {name.rsplit("__", 1)[-1] for name in llm.offered()}
        assert not names & {"create_plan", "land_plan", "cancel_plan", "retry_job", "update_plan"}


async def test_the_built_in_agent_needs_no_program_and_no_file_with_a_pass(
    orchard: Taught, monkeypatch: pytest.MonkeyPatch, private_home: Path
) -> None:
    looks = 'echo $(ls "$TMPDIR" | grep -c pass) pass, $(ps -A -o args | grep -c "[r]elay --pass $TMPDIR") relays'
    script = steps(Shell(looks), Mcp("orchard", "report_progress", {"message": "Looked"}), Shell("echo a > a.txt"))
    with ScriptedLlm(script) as llm:
        install(monkeypatch, private_home, llm, BUILTIN)

        status = await orchard.run(f"name: Look\njobs: [{{id: a, work: {asks(BUILTIN, 'go')}}}]")

        told = "\n".join(result for asked in llm.requests for result in asked.results)
    assert "0 pass, 0 relays" in told
    assert job(status, "a")["progress"]["message"] == "Looked", told
