"""Every field of the subtask tools has an effect: a field without a row in the table below fails the suite."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import convert

from orchard.agents.protocol import Result, Task, Watch
from orchard.engine.server import start as opening
from orchard.engine.turns.job_tokens import Scope
from orchard.model.plan import JobId, PlanId
from orchard.surfaces.mcp import toolbox
from orchard.surfaces.mcp.selection import Selection
from orchard.surfaces.mcp.tool import Call, Tool
from orchard.surfaces.served import Served
from orchard.testing import Repo
from tests.engine.conftest import Orchard, job, statuses
from tests.engine.helpers import Line
from tests.engine.scripted import ScriptedAgents

pytestmark = pytest.mark.anyio

SUBTASKS = Selection.from_names(["subtasks"])
Json = dict[str, Any]


class Parent:
    """The agent of a job, which calls tools as its pass allows."""

    def __init__(self, served: Served, task: Task) -> None:
        token = task.launcher.token.split(":")
        scope = Scope(PlanId(token[0]), JobId(token[1]), int(token[2]), token[3] if len(token) > 3 else None)
        self._call, self.task, self._scope = Call(served, scope), task, scope

    async def __call__(self, name: str, /, **arguments: Any) -> Json:
        answer = await toolbox.call(self._call, SUBTASKS, name, arguments)
        assert not answer.is_error, answer.text
        assert answer.value is not None
        tool = next(one for one in toolbox.tools(SUBTASKS, self._scope) if one.name == name)
        convert(answer.value, tool.output)
        return answer.value

    async def helper(self, word: str = "Quick", **more: Any) -> Json:
        found: Json = (await self("spawn_subtask", instructions=word, **more))["subtask"]
        return found


async def _instructions(one: Parent) -> None:
    done = await one.helper("Echo these very words", blocking=True)
    assert done["summary"].startswith("Echo these very words")


async def _agent(one: Parent) -> None:
    assert (await one.helper(agent="two", blocking=True))["agent"] == "two"
    assert (await one.helper(blocking=True))["agent"] == "one"


async def _blocking(one: Parent) -> None:
    assert (await one.helper(blocking=True))["status"] == "completed"
    assert (await one.helper("Slow"))["status"] in ("waiting", "running")


async def _name(one: Parent) -> None:
    assert (await one.helper(name="A title"))["name"] == "A title"


async def _spawn_timeout(one: Parent) -> None:
    began = time.monotonic()
    assert (await one.helper("Slow", blocking=True, timeout_s=0.2))["status"] == "running"
    assert time.monotonic() - began < 10


async def _ids(one: Parent) -> None:
    slow, quick = await one.helper("Slow"), await one.helper()
    answer = await one("await_subtasks", ids=[quick["id"]])
    assert [row["id"] for row in answer["ended"]] == [quick["id"]] and slow["id"] not in answer["running"]


async def _await_timeout(one: Parent) -> None:
    slow = await one.helper("Slow")
    began = time.monotonic()
    assert (await one("await_subtasks", timeout_s=0.2))["running"] == [slow["id"]]
    assert time.monotonic() - began < 10


async def _until(one: Parent) -> None:
    slow, quick = await one.helper("Slow"), await one.helper()
    answer = await one("await_subtasks", until="any")
    assert [row["id"] for row in answer["ended"]] == [quick["id"]] and answer["running"] == [slow["id"]]


async def _cursor(one: Parent) -> None:
    await one.helper(blocking=True)
    answer = await one("await_subtasks")
    assert len(answer["ended"]) == 1
    assert (await one("await_subtasks", cursor=answer["cursor"]))["ended"] == []


async def _result(one: Parent) -> None:
    assert (await one.helper("Tells", blocking=True))["summary"] == "My result."


async def _succeeded(one: Parent) -> None:
    assert (await one.helper("Gives up", blocking=True))["status"] == "failed"


async def _id(one: Parent) -> None:
    first, second = await one.helper("Writes first", blocking=True), await one.helper("Writes second", blocking=True)
    assert (await one("pull_subtask_changes", id=second["id"]))["files"] == ["second.txt"]
    assert not (one.task.folder / "first.txt").exists()
    assert (await one("pull_subtask_changes", id=first["id"]))["files"] == ["first.txt"]


async def _interactive(one: Parent) -> None:
    assert (await one.helper(interactive=True, blocking=True))["status"] == "idle"
    assert (await one.helper(blocking=True))["status"] == "completed"


async def _steered(one: Parent) -> None:
    other, idle = [await one.helper(interactive=True, blocking=True) for _ in range(2)]
    assert (await one("steer_subtask", id=idle["id"], action="pause"))["subtask"]["status"] == "paused"
    assert (await one("steer_subtask", id=other["id"], action="complete"))["subtask"]["status"] == "completed"


async def _said(one: Parent) -> None:
    idle = await one.helper(interactive=True, blocking=True)
    await one("steer_subtask", id=idle["id"], action="send", message="Echo this")
    (row,) = (await one("await_subtasks", ids=[idle["id"]]))["idle"]
    assert "Echo this" in row["summary"]


async def _tools(one: Parent) -> None:
    assert (await one.helper("May", tools="read-only", blocking=True))["summary"] == "read-only"
    assert (await one.helper("May", tools=["edit", "bash"], blocking=True))["summary"] == "edit, bash"
    assert (await one.helper("May", blocking=True))["summary"] == "all"


async def _deny_tools(one: Parent) -> None:
    assert (await one.helper("May", deny_tools=["bash"], blocking=True))["summary"] == "all, without bash"


async def _message(one: Parent) -> None:
    await one("report_progress", message="Half of it")


async def _percent(one: Parent) -> None:
    await one("report_progress", message="Half of it", percent=50)


FIELDS: dict[tuple[str, str], Callable[[Parent], Awaitable[None]]] = {
    ("spawn_subtask", "instructions"): _instructions,
    ("spawn_subtask", "agent"): _agent,
    ("spawn_subtask", "blocking"): _blocking,
    ("spawn_subtask", "interactive"): _interactive,
    ("spawn_subtask", "name"): _name,
    ("spawn_subtask", "tools"): _tools,
    ("spawn_subtask", "deny_tools"): _deny_tools,
    ("spawn_subtask", "timeout_s"): _spawn_timeout,
    ("await_subtasks", "ids"): _ids,
    ("await_subtasks", "timeout_s"): _await_timeout,
    ("await_subtasks", "until"): _until,
    ("await_subtasks", "cursor"): _cursor,
    ("complete_subtask", "result"): _result,
    ("complete_subtask", "succeeded"): _succeeded,
    ("pull_subtask_changes", "id"): _id,
    ("steer_subtask", "id"): _steered,
    ("steer_subtask", "action"): _steered,
    ("steer_subtask", "message"): _said,
    ("report_progress", "message"): _message,
    ("report_progress", "percent"): _percent,
}
PROGRESS = {"message": {"message": "Half of it", "percent": None}, "percent": {"message": "Half of it", "percent": 50}}


def subtask_tools() -> list[Tool]:
    return [tool for tool in toolbox.every_tool() if tool.toolset == "subtasks"]


def test_every_field_has_a_row() -> None:
    there = {(tool.name, field) for tool in subtask_tools() for field in tool.input.model_fields}

    assert there == set(FIELDS)


@pytest.mark.parametrize(("tool", "name"), FIELDS, ids=[f"{tool}-{name}" for tool, name in FIELDS])
async def test_the_field_has_an_effect(tool: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = Repo.make(tmp_path / "repo")
    repo("checkout", "-q", "-b", "work")
    orchard, agents, line = Orchard(repo), ScriptedAgents(), Line()
    monkeypatch.setattr(opening, "Agents", lambda config, host: agents)
    problems: list[BaseException] = []

    async def turn(task: Task, watch: Watch) -> Result:
        await line.ready.wait()
        served = Served(orchard.app, line.session)
        try:
            return Result("done", text=await _play(Parent(served, task)))
        except AssertionError as error:
            problems.append(error)
            raise
        finally:
            served.close()

    async def _play(one: Parent) -> str:
        said = one.task.instructions
        match said.split()[0]:
            case "Parent":
                await FIELDS[tool, name](one)
                (one.task.folder / "mine.txt").write_text("mine")
            case "May":
                return one.task.settings.tools.words
            case "Slow":
                await asyncio.sleep(60)
            case "Tells":
                await one("complete_subtask", result="My result.")
            case "Gives":
                await one("complete_subtask", result="No.", succeeded=False)
            case "Writes":
                (one.task.folder / f"{said.split()[1]}.txt").write_text("x")
        return said

    for agent in ("one", "two"):
        agents.add(agent, turn)
    status = await orchard.run("name: Field\njobs: [{id: a, heal: false, work: '@one Parent'}]", during=line.open)

    assert not problems, problems[0]
    assert statuses(status) == {"a": "succeeded"}, job(status, "a")["error"]
    if tool == "report_progress":
        assert job(status, "a")["progress"] == PROGRESS[name]
