"""Agents in jobs and our MCP server: what they get, what they can do with it, and everything that they cannot.

The agent is scripted, everything between it and the engine is real: the relay process, the socket, the pass.
"""

import asyncio
import json
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from orchard.agents.protocol import McpServer, Result, Task, Watch
from orchard.app import App
from orchard.engine.server import start as opening
from orchard.errors import InvalidInput
from orchard.surfaces.mcp.selection import OWN_PLAN, TOOL_NAMES, TOOLSETS
from orchard.surfaces.mcp.tool_list import IN_JOBS
from orchard.surfaces.mcp_channel import teach
from orchard.testing import Turn
from tests.engine.conftest import Orchard, job, statuses
from tests.engine.scripted import ScriptedAgents, writes
from tests.mcp.wires import text_of, value

pytestmark = pytest.mark.anyio

PLAN = "name: Help\njobs: [{id: a, work: '@one Parent'}]"


class Taught(Orchard):
    """A repository whose engine speaks MCP at its door, as every surface's does."""

    @property
    def app(self) -> App:
        app = super().app
        teach(app)
        return app


@pytest.fixture
def taught(orchard: Orchard) -> Taught:
    return Taught(orchard.repo)


@pytest.fixture
def orchard(tmp_path: Path) -> Orchard:
    from orchard.testing import Repo

    repo = Repo.make(tmp_path / "repo", files={"README.md": "# small\n", "shared.txt": "1\n2\n3\n"})
    repo("checkout", "-q", "-b", "work")
    return Orchard(repo)


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    return table


@asynccontextmanager
async def client_in(task: Task) -> AsyncIterator[Client]:
    """The official client, started as the agent would start the server that it was given."""
    server = task.settings.mcp_servers[-1]
    assert server.command is not None
    given = StdioServerParameters(command=server.command, args=list(server.args), env=dict(task.env), cwd=task.folder)
    async with Client(given) as client:
        yield client


Asking = Callable[[Client, Task], Awaitable[str]]


def talks(**turns: Asking) -> Turn:
    """What is done depends on the word that the instructions begin with."""

    async def run(task: Task, watch: Watch) -> Result:
        word = task.instructions.split(maxsplit=1)[0].strip(":.").lower()
        async with asyncio.timeout(60), client_in(task) as client:
            return Result("done", text=await turns[word](client, task))

    return run


def secret_of(task: Task) -> dict[str, str]:
    (server,) = task.settings.mcp_servers
    found: dict[str, str] = json.loads(Path(server.args[-1]).read_text())
    return found


# ------------------------------------------------------------------------------------- what they get


async def test_an_agent_hands_out_work_awaits_it_and_pulls_it_over_the_wire(
    taught: Taught, agents: ScriptedAgents
) -> None:
    seen: dict[str, Any] = {}

    async def parent(client: Client, task: Task) -> str:
        seen["agents"] = await value(client, "list_agents")
        (task.folder / "draft.txt").write_text("draft")
        spawned = await value(client, "spawn_subtask", instructions="Child: write", name="Helper")
        seen["awaited"] = await value(client, "await_subtasks", ids=[spawned["subtask"]["id"]])
        seen["pulled"] = await value(client, "pull_subtask_changes", id=spawned["subtask"]["id"])
        seen["reported"] = await value(client, "report_progress", message="Nearly", percent=90)
        seen["plan"] = await value(client, "get_plan")
        return (task.folder / "child.txt").read_text()

    async def child(client: Client, task: Task) -> str:
        (task.folder / "child.txt").write_text((task.folder / "draft.txt").read_text() + " and more")
        await value(client, "complete_subtask", result="Wrote child.txt.")
        return "Bye."

    agents.add("one", talks(parent=parent, child=child))
    status = await taught.run(PLAN)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert taught.repo.files("work")["child.txt"] == "draft and more"
    assert seen["agents"]["agents"] == [{"name": "one", "usable": True, "default": True}]
    (ended,) = seen["awaited"]["ended"]
    assert (ended["status"], ended["summary"], ended["files"]) == ("completed", "Wrote child.txt.", ["child.txt"])
    assert seen["pulled"]["status"] == "merged" and seen["reported"] == {"recorded": True}
    assert [row["id"] for row in seen["plan"]["jobs"]][:1] == ["a"]
    assert job(status, "a")["progress"] == {"message": "Nearly", "percent": 90}


async def test_the_server_comes_with_a_pass_in_a_private_file_and_is_told_of(
    taught: Taught, agents: ScriptedAgents
) -> None:
    seen: dict[str, Any] = {}

    def turn(task: Task, watch: Watch) -> Result:
        (server,) = task.settings.mcp_servers
        file = Path(server.args[-1])
        seen.update(server=server, mode=stat.S_IMODE(file.stat().st_mode), told=task.instructions, file=file)
        seen.update(secret=secret_of(task)["pass"], env=dict(task.env), inside=file.is_relative_to(task.scratch))
        (task.folder / "a.txt").write_text("a")
        return Result("done")

    agents.add("one", turn)
    await taught.run(PLAN)

    server: McpServer = seen["server"]
    assert server.name == "orchard" and server.env == {} and server.args[:2] == ("-E", "-P")
    assert seen["mode"] == 0o600 and seen["inside"] and not seen["file"].exists()
    assert seen["secret"] not in " ".join(server.args) and seen["secret"] not in str(seen["env"])
    assert "MCP server `orchard`" in seen["told"] and "spawn_subtask" in seen["told"]
    state = taught.repo.path / ".git" / "orchard"
    assert not [one for one in state.rglob("*") if one.is_file() and seen["secret"].encode() in one.read_bytes()]


async def test_it_is_not_offered_where_it_is_switched_off_or_nobody_speaks(
    taught: Taught, agents: ScriptedAgents, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}), writes({"b.txt": "b"}))
    await Orchard(taught.repo).run(PLAN)
    monkeypatch.setenv("ORCHARD_AGENT_TOOLS", "false")
    await taught.run(PLAN)

    assert [task.settings.mcp_servers for task in agent.tasks] == [(), ()]
    assert not any("MCP server" in task.instructions for task in agent.tasks)


async def test_a_server_of_the_plans_that_is_called_like_ours_keeps_its_name(
    taught: Taught, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}))
    await taught.run("name: N\njobs: [{id: a, work: {type: agent, instructions: go, mcp_servers: [orchard]}}]")

    assert [server.name for server in agent.tasks[0].settings.mcp_servers] == ["orchard", "orchard-job"]


async def test_checks_and_healing_get_it_and_whoever_settles_a_conflict_does_not(
    taught: Taught, agents: ScriptedAgents
) -> None:
    def turn(task: Task, watch: Watch) -> Result:
        given.append((task.instructions.split("\n", 1)[0][:20], len(task.settings.mcp_servers)))
        if (task.folder / "1.merged").exists():
            (task.folder / "1.merged").write_text("both\n")
        elif task.instructions.startswith("# Mend"):
            (task.folder / "good.txt").write_text("good")
        elif not task.instructions.startswith("Check"):
            (task.folder / "shared.txt").write_text(task.env["ORCHARD_JOB"] + "\n")
        return Result("done")

    given: list[tuple[str, int]] = []
    agents.add("one", turn)
    status = await taught.run("""
        name: All
        jobs:
          - {id: a, work: '@one Work', prechecks: {type: agent, instructions: Check it, agent: one}}
          - {id: b, work: '@one Work', postchecks: 'test -f good.txt'}
    """)

    assert status["plan"]["status"] == "succeeded", status["plan"]["error"]
    assert {word.split(" ")[0] + word.split(" ")[1]: number for word, number in given if " " in word} == {
        "Checkit": 1, "#Mend": 1, "#Resolve": 0,
    }  # fmt: skip


# ---------------------------------------------------------------------------------- what they cannot


async def test_an_agent_is_offered_its_subtasks_and_its_own_plan_and_nothing_else(
    taught: Taught, agents: ScriptedAgents
) -> None:
    agents.add("other", writes({"other.txt": "x"}))
    await taught.run("name: Other plan\njobs: [{id: a, work: '@other go'}]")
    other = taught.status()["plan"]["id"]
    before = taught.repo.head("work")
    shown: set[str] = set()
    answered: set[str] = set()
    refused: dict[str, str] = {}

    async def parent(client: Client, task: Task) -> str:
        shown.update(tool.name for tool in (await client.list_tools()).tools)
        own = task.env["ORCHARD_PLAN"]
        for plan in (other, own):
            for tool in sorted(TOOL_NAMES - OWN_PLAN - set(TOOLSETS["subtasks"])):
                result = await client.call_tool(tool, {"plan": plan, "job": "a"})
                assert result.is_error
                refused[f"{tool} {plan == own}"] = text_of(result)
        for tool in sorted(OWN_PLAN):
            arguments = {"plan": other} | (
                {"job": "a"} if tool != "list_jobs" and ("job" in tool or "sub" in tool) else {}
            )
            arguments |= {"group": "g"} if tool == "get_group" else {}
            result = await client.call_tool(tool, arguments)
            assert result.is_error
            refused[f"{tool} of another"] = text_of(result)
            result = await client.call_tool(tool, arguments | {"plan": own})
            answered.update([tool] if not text_of(result).startswith("There is no tool") else [])
        resources = [str(one.uri) for one in (await client.list_resources()).resources]
        assert not any(other in uri for uri in resources), resources
        for uri in (f"orchard://plans/{other}", f"orchard://plans/{other}/jobs/a/log"):
            with pytest.raises(Exception, match=r"(?i)no|unknown|not"):
                await client.read_resource(uri)
        (task.folder / "mine.txt").write_text("mine")
        return "Done."

    agents.add("one", talks(parent=parent))
    status = await taught.run("name: Own\nland: ask\njobs: [{id: a, work: '@one Parent'}]")

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert status["plan"]["status"] == "waiting"  # nobody but a person may land it
    assert shown == {*IN_JOBS, *TOOLSETS["subtasks"]}
    assert answered == OWN_PLAN, "those that are not shown answer all the same"
    assert all("no tool" in said or "There is no" in said for said in refused.values()), refused
    assert not any(before[:12] in said for said in refused.values())
    assert taught.status(other)["plan"]["status"] == "succeeded" and taught.repo.head("work") == before


@dataclass
class Door:
    """The engine's socket, spoken to by hand."""

    socket: str
    said: list[Any] = field(default_factory=list)

    async def say(self, *lines: Any) -> list[Any]:
        """What is answered to these lines, until the door is shut or nothing more comes."""
        reader, writer = await asyncio.open_unix_connection(self.socket)
        answers: list[Any] = []
        try:
            for line in lines:
                writer.write(json.dumps(line).encode() + b"\n")
            await writer.drain()
            with suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    while answer := await reader.readline():
                        answers.append(json.loads(answer))
                    answers.append("shut")
        finally:
            writer.close()
        return answers


REQUESTS: list[tuple[str, dict[str, Any]]] = [
    ("land_plan", {}), ("cancel_plan", {}), ("retry_plan", {}), ("resume_plan", {"budget": {"tokens": 10**9}}),
    ("pause_plan", {}),
    ("approve_job", {"job": "a"}), ("delete_plan", {}), ("purge_plan", {}), ("undo_plan", {}),
    ("reshape_plan", {"changes": []}),
    ("force_fail_job", {"job": "a"}), ("cancel_jobs", {"jobs": ["a"]}),
    ("spawn_subtask", {"job": "a", "attempt": 1, "instructions": "x"}),
]  # fmt: skip


async def test_a_pass_is_no_key_to_the_engines_requests(taught: Taught, agents: ScriptedAgents) -> None:
    answers: dict[str, list[Any]] = {}

    async def turn(task: Task, watch: Watch) -> Result:
        secret, plan = secret_of(task), task.env["ORCHARD_PLAN"]
        door = Door(secret["socket"])
        for verb, args in REQUESTS:
            line = {"op": verb, "args": {"plan": plan, **args}}
            answers[verb] = await door.say({"pass": secret["pass"]}, line)
        answers["follow"] = await door.say({"pass": secret["pass"]}, {"op": "follow"})
        answers["as nonce"] = await door.say({"nonce": secret["pass"]}, {"op": "ping", "args": {}})
        answers["other language"] = await door.say({"pass": secret["pass"]}, {"op": "channel", "name": "shell"})
        (task.folder / "a.txt").write_text("a")
        return Result("done")

    agents.add("one", turn)
    status = await taught.run(PLAN)

    assert status["plan"]["status"] == "succeeded"
    assert "error" in answers.pop("other language")[0]
    assert all(said == ["shut"] for said in answers.values()), answers
    refused = (taught.repo.path / ".git" / "orchard" / "refused.log").read_text()
    assert "the pass of a job" in refused and "a wrong secret" in refused


async def test_a_pass_is_good_for_nothing_when_its_turn_is_over(taught: Taught, agents: ScriptedAgents) -> None:
    """Neither a new connection nor one that was opened in time is heard any more."""
    kept: dict[str, Any] = {}
    channel = {"op": "channel", "name": "mcp", "args": {}}

    async def first(task: Task, watch: Watch) -> Result:
        kept.update(secret_of(task))
        reader, writer = await asyncio.open_unix_connection(kept["socket"])
        writer.write(json.dumps({"pass": kept["pass"]}).encode() + b"\n" + json.dumps(channel).encode() + b"\n")
        await writer.drain()
        assert json.loads(await reader.readline()) == {"ok": {}}
        kept.update(reader=reader, writer=writer)
        (task.folder / "a.txt").write_text("a")
        return Result("done")

    async def second(task: Task, watch: Watch) -> Result:
        async with asyncio.timeout(10):
            kept["rest"] = await kept["reader"].read()
        kept["again"] = await Door(kept["socket"]).say({"pass": kept["pass"]}, channel)
        kept["new"] = await Door(kept["socket"]).say({"pass": secret_of(task)["pass"]}, channel)
        kept["writer"].close()
        (task.folder / "b.txt").write_text("b")
        return Result("done")

    agents.add("one", first, second)
    plan = "name: Two\njobs: [{id: a, work: '@one go'}, {id: b, needs: [a], work: '@one go on'}]"
    status = await taught.run(plan)

    assert status["plan"]["status"] == "succeeded", status["plan"]["error"]
    assert kept["rest"] == b"" and kept["again"] == ["shut"]
    assert kept["new"][0] == {"ok": {}}


async def test_the_repository_does_not_decide_which_program_shows_the_pass(
    taught: Taught, agents: ScriptedAgents
) -> None:
    """A folder that is called like our package lies in the worktree; a plan that sets a search path is refused."""
    trap = "import os; open(os.environ['ORCHARD_WORKTREE'] + '/trapped', 'w').write('x')\n"
    taught.repo.commit({
        "orchard/__init__.py": trap, "orchard/surfaces/__init__.py": trap, "sitecustomize.py": trap,
    })  # fmt: skip
    agents.add("one", talks(parent=_looks))
    with pytest.raises(InvalidInput, match="PYTHONPATH"):
        await taught.run("name: Trap\nenv: {PYTHONPATH: ., PYTHONSTARTUP: sitecustomize.py}\n" + PLAN[11:])
    status = await taught.run("name: Trap\n" + PLAN[11:])

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert "trapped" not in taught.repo.files("work")


async def _looks(client: Client, task: Task) -> str:
    (task.folder / "a.txt").write_text("a")
    await value(client, "get_plan")
    return "Done."


async def test_the_user_has_no_subtasks_and_is_told_so(taught: Taught, agents: ScriptedAgents) -> None:
    from orchard.surfaces.mcp import toolbox
    from orchard.surfaces.mcp.selection import Selection
    from orchard.surfaces.mcp.tool import Call
    from orchard.surfaces.served import Served

    agents.add("one", writes({"a.txt": "a"}))
    said: dict[str, str] = {}
    arguments: dict[str, dict[str, Any]] = {
        "spawn_subtask": {"instructions": "x"}, "await_subtasks": {}, "complete_subtask": {"result": "x"},
        "pull_subtask_changes": {"id": "subtask-aaaaa"}, "report_progress": {"message": "x"},
    }  # fmt: skip
    async with taught.app.session(work=False) as session:
        served = Served(taught.app, session)
        selection = Selection.from_names(["subtasks"])
        for name, given in arguments.items():
            answer = await toolbox.call(Call(served), selection, name, given)
            assert answer.is_error
            said[name] = answer.text
        known = await toolbox.call(Call(served), selection, "list_agents", {})
        served.close()

    assert all("for an agent at work on a job" in text for text in said.values()), said
    assert known.value is not None and known.value["agents"][0]["name"] == "one"


async def test_a_subtask_speaks_for_itself_and_not_for_its_parent(taught: Taught, agents: ScriptedAgents) -> None:
    seen: dict[str, Any] = {}

    async def parent(client: Client, task: Task) -> str:
        first = await value(client, "spawn_subtask", instructions="Idle", blocking=True)
        seen["first"] = first["subtask"]["id"]
        await value(client, "spawn_subtask", instructions="Child", blocking=True)
        (task.folder / "a.txt").write_text("a")
        return "Done."

    async def idle(client: Client, task: Task) -> str:
        return "Nothing."

    async def child(client: Client, task: Task) -> str:
        for name, arguments in (
            ("pull_subtask_changes", {"id": seen["first"]}),
            ("await_subtasks", {"ids": [seen["first"]]}),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error and "You have no subtask" in text_of(result)
        return "Done."

    agents.add("one", talks(parent=parent, idle=idle, child=child))
    status = await taught.run(PLAN)

    assert [one["status"] for one in job(status, "a")["subtasks"]] == ["completed", "completed"], job(status, "a")


async def test_arguments_that_cannot_be_are_refused_in_words(taught: Taught, agents: ScriptedAgents) -> None:
    said: dict[str, str] = {}
    bad: dict[str, dict[str, Any]] = {
        "spawn_subtask": {"instructions": ""},
        "await_subtasks": {"timeout_s": 600},
        "report_progress": {"message": "x", "percent": 400},
        "pull_subtask_changes": {"subtask": "x", "wrong": 1},
    }

    async def parent(client: Client, task: Task) -> str:
        for name, arguments in bad.items():
            result = await client.call_tool(name, arguments)
            assert result.is_error
            said[name] = text_of(result)
        (task.folder / "a.txt").write_text("a")
        return "Done."

    agents.add("one", talks(parent=parent))
    status = await taught.run(PLAN)

    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    assert "timeout_s" in said["await_subtasks"] and "45" in said["await_subtasks"]
    assert "percent" in said["report_progress"] and "wrong" in said["pull_subtask_changes"]
