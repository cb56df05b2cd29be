"""What agents may use in a plan: who says so, what is handed on, and what happens if it does not hold."""

import asyncio
from typing import Any

import pytest

from orchard.agents.permissions import Holds
from orchard.agents.protocol import Result, Task, Watch
from orchard.engine.server import start as opening
from orchard.engine.turns import turn as turns
from orchard.errors import UsageError
from orchard.model.events.plans import AgentStarted
from orchard.model.permissions import ALL, Source, made, narrowed
from tests.engine.conftest import Orchard, job, statuses
from tests.engine.helpers import Asker, Line, by_task, run
from tests.engine.scripted import ScriptedAgents, ends, writes

pytestmark = pytest.mark.anyio


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    monkeypatch.setattr(turns, "WAITS", (0.01,))
    return table


@pytest.fixture
def line() -> Line:
    return Line()


async def test_a_job_and_its_work_are_put_on_top_of_each_other_and_it_is_told_who_said_what(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}))

    status = await orchard.run("""
        name: Tools
        jobs: [{id: a, tools: edit, work: {agent: one, instructions: do it, tools: all, deny_tools: [git_commit]}}]
    """)

    assert statuses(status) == {"a": "succeeded"}
    assert agent.tasks[0].settings.tools == made("edit", ["git_commit"])
    assert "limited to: `edit, without git_commit`" in agent.tasks[0].instructions
    (begun,) = orchard.events(AgentStarted)
    assert begun.tools == (Source("the job", made("edit")), Source("the work", made(deny=["git_commit"])))
    (turn,) = orchard.attempts("a", None)[0]["turns"]
    assert turn["permissions"] == {
        "tools": "edit, without git_commit",
        "mode": "edit",
        "sources": [{"origin": "the job", "tools": "edit"}, {"origin": "the work", "tools": "all, without git_commit"}],
    }


async def test_work_that_may_only_read_needs_no_change_to_succeed(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add("one", ends(Result("done", text="It is fine.")))

    status = await orchard.run("name: Look\njobs: [{id: a, tools: read-only, work: '@one Look at it'}]")

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert "must leave every file as it is" in agent.tasks[0].instructions


@pytest.mark.parametrize("tools", ["read-only", "[Read, Grep]"])
async def test_a_worktree_that_changed_although_its_agent_may_only_read_fails_the_work(
    orchard: Orchard, agents: ScriptedAgents, tools: str
) -> None:
    agents.add("one", writes({"a.txt": "it could not be stopped"}))

    status = await orchard.run(f"name: Look\njobs: [{{id: a, tools: {tools}, heal: false, work: '@one Look at it'}}]")

    assert statuses(status) == {"a": "failed"}
    assert "may only read" in job(status, "a")["error"]
    assert "a.txt" not in orchard.repo.files("main")


async def test_an_agent_that_commits_although_it_may_only_read_fails_too(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    async def commits(task: Task, watch: Watch) -> Result:
        (task.folder / "a.txt").write_text("a")
        for words in (("add", "-A"), ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")):
            program = await asyncio.create_subprocess_exec("git", *words, cwd=task.folder)
            assert await program.wait() == 0
        return Result("done")

    agents.add("one", commits)

    status = await orchard.run("name: Look\njobs: [{id: a, tools: read-only, heal: false, work: '@one Look at it'}]")

    assert "may only read" in job(status, "a")["error"]


# ------------------------------------------------------------------------------------------- healing


async def test_whoever_heals_has_no_more_than_the_job(orchard: Orchard, agents: ScriptedAgents) -> None:
    agent = agents.add("medic", writes({"a.txt": "good"}))

    status = await orchard.run("""
        name: Heal
        jobs: [{id: a, deny_tools: [bash], work: "echo bad > a.txt", postchecks: grep good a.txt}]
    """)

    assert statuses(status) == {"a": "succeeded"}
    assert agent.tasks[0].settings.tools == made(deny=["bash"])


async def test_where_nothing_may_be_changed_nobody_heals_and_it_is_said(
    orchard: Orchard, agents: ScriptedAgents
) -> None:
    agent = agents.add("medic", writes({"a.txt": "good"}))

    status = await orchard.run("""
        name: Heal
        jobs: [{id: a, tools: read-only, work: "echo bad > a.txt", postchecks: grep good a.txt}]
    """)

    assert statuses(status) == {"a": "failed"}
    assert agent.tasks == []
    notes = " ".join(one["note"] for one in orchard.attempts("a", None)[-1]["phases"])
    assert "healing was skipped: an agent may not change anything here (read-only)" in notes


# ------------------------------------------------------------------------------------------- subtasks


@pytest.mark.parametrize(
    ("parent", "asked", "found"),
    [
        ("read-only", {"tools": "all"}, made("read-only")),
        ("edit", {"tools": ["bash", "write_file"]}, narrowed(made("edit"), made(["bash", "write_file"]))),
        ("all", {"tools": "edit", "deny_tools": ["git_*"]}, made("edit", ["git_*"])),
        ("[Read]", {}, made(["read_file"])),
        ("all", {}, ALL),
    ],
)
async def test_a_subtask_never_has_more_than_its_parent(
    orchard: Orchard, agents: ScriptedAgents, line: Line, parent: str, asked: dict[str, Any], found: object
) -> None:
    seen: dict[str, Any] = {}

    async def asks(asker: Asker) -> str:
        await asker.spawn("Child: look", blocking=True, **asked)
        if parent == "all":
            asker.write(done="done")
        return "Done."

    async def child(asker: Asker) -> str:
        seen["tools"] = asker.task.settings.tools
        return "Looked."

    agents.add("one", by_task(line, parent=asks, child=child))

    status = await run(
        orchard, line, f"name: Help\njobs: [{{id: a, tools: {parent}, expects_no_changes: {parent != 'all'}, "
        "work: '@one Parent'}]".replace("True", "true").replace("False", "false")
    )  # fmt: skip

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert seen["tools"] == found


@pytest.mark.parametrize(
    ("tools", "holds", "refused"),
    [
        ("read-only", "nothing", True),
        ("ask", "nothing", True),
        ("ask", "tools", True),
        ("ask", "asked", False),
        ("edit", "asked", True),
        ("edit", "modes", False),
        ("[Read, Edit]", "modes", True),
        ("edit", "tools", False),
        ("all", "nothing", False),
    ],
)
async def test_an_agent_that_is_limited_hands_work_only_to_those_that_are_held_as_it_is(
    orchard: Orchard, agents: ScriptedAgents, line: Line, tools: str, holds: Holds, refused: bool
) -> None:
    said: list[str] = []

    async def parent(asker: Asker) -> str:
        try:
            await asker.spawn("Child: look", agent="mine", tools="all", blocking=True)
        except UsageError as error:
            said.append(f"{error.message} {error.hint}")
        await asker.spawn("Child: look", blocking=True)
        return "Done."

    async def child(asker: Asker) -> str:
        return "Looked."

    agents.add("one", by_task(line, parent=parent, child=child))
    mine = agents.add("mine", by_task(line, child=child))
    mine.holds = holds

    plan = f"name: H\njobs: [{{id: a, tools: {tools}, changes: optional, work: '@one Parent'}}]"
    status = await run(orchard, line, plan)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert bool(said) == refused and bool(mine.tasks) != refused
    assert len(job(status, "a")["subtasks"]) == (1 if refused else 2)
    if refused:
        assert "mine cannot be held to that as you are. These can be: one" in said[0]


async def test_an_agent_that_is_held_to_nothing_itself_can_hand_work_to_another_such_agent(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    async def parent(asker: Asker) -> str:
        return str((await asker.spawn("Child: look", agent="mine", blocking=True))["status"])

    async def child(asker: Asker) -> str:
        return "Looked."

    agents.add("one", by_task(line, parent=parent)).holds = "nothing"
    agents.add("mine", by_task(line, child=child)).holds = "nothing"

    status = await run(orchard, line, "name: H\njobs: [{id: a, tools: read-only, work: '@one Parent'}]")

    assert [one["status"] for one in job(status, "a")["subtasks"]] == ["completed"]


async def test_a_parent_that_may_only_read_can_pull_nothing(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    seen: dict[str, Any] = {}

    async def parent(asker: Asker) -> str:
        spawned = await asker.spawn("Child: write", blocking=True)
        seen["child"] = spawned
        with pytest.raises(UsageError, match="You may not change files here"):
            await asker.pull(spawned["id"])
        return "Done."

    async def child(asker: Asker) -> str:
        asker.write(a="it could not be stopped")
        return "Wrote."

    agents.add("one", by_task(line, parent=parent, child=child))

    status = await run(orchard, line, "name: Help\njobs: [{id: a, tools: read-only, work: '@one Parent'}]")

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert seen["child"]["status"] == "failed" and "may only read" in seen["child"]["message"]


@pytest.mark.parametrize("wrong", [{"tools": "everything"}, {"tools": ["Bash(git:*)"]}, {"deny_tools": ["a b"]}])
async def test_a_subtask_with_tools_that_cannot_be_meant_is_refused(
    orchard: Orchard, agents: ScriptedAgents, line: Line, wrong: dict[str, Any]
) -> None:
    async def parent(asker: Asker) -> str:
        with pytest.raises(UsageError, match="tools"):
            await asker.spawn("Child: look", **wrong)
        asker.write(done="done")
        return "Done."

    agents.add("one", by_task(line, parent=parent))

    assert statuses(await run(orchard, line, "name: H\njobs: [{id: a, work: '@one Parent'}]")) == {"a": "succeeded"}


async def test_a_tool_of_ours_that_is_denied_is_refused_whatever_the_program_can_be_held_to(
    orchard: Orchard, agents: ScriptedAgents, line: Line
) -> None:
    refused: list[str] = []

    async def parent(asker: Asker) -> str:
        with pytest.raises(UsageError, match="may not use spawn_subtask") as error:
            await asker.spawn("Child")
        refused.append(error.value.message)
        asker.write(done="done")
        return "Done."

    agent = agents.add("one", by_task(line, parent=parent))
    plan = "name: Deny\njobs: [{id: a, deny_tools: [mcp__orchard__spawn_subtask], work: '@one Parent'}]"

    status = await run(orchard, line, plan)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert refused and not job(status, "a")["subtasks"]
    assert "`spawn_subtask`: hand" not in agent.tasks[0].instructions
