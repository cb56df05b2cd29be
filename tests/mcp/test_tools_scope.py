"""An agent in a job: its subtasks, what it may read of its own plan, and nothing else, however it asks."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from orchard.engine.turns.job_tokens import Scope
from orchard.model.events.plans import Json
from orchard.model.plan import JobId, PlanId
from orchard.surfaces.mcp import toolbox
from orchard.surfaces.mcp.aliases import ALIASES
from orchard.surfaces.mcp.selection import OWN_PLAN, TOOL_NAMES, Selection
from orchard.surfaces.mcp.tool import Tool
from tests.mcp.toolbench import Bench, bench

pytestmark = pytest.mark.anyio

HUSH = "hush"
"""A word that is only in the plan of somebody else."""
OWN_JOBS = [{"id": "mine", "group": "g", "work": "echo open; exit 1", "heal": False}]
OTHER_JOBS = [{"id": "hush", "name": "Hush hush", "group": "hush", "work": "echo hush; exit 1", "heal": False}]


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def agent(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    """An agent in a job of one plan, while there is another."""
    home = tmp_path_factory.mktemp("agent")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("STATE_HOME", "CONFIG_HOME", "CACHE_HOME", "RUNTIME_DIR"):
            (home / name).mkdir(mode=0o700)
            patch.setenv(f"XDG_{name}", str(home / name))
        patch.setenv("HOME", str(home))
        async with bench(home / "repo") as made:
            other = await made("create_plan", name="Hush", target="hush", jobs=OTHER_JOBS)
            await made.ended(other["plan"], "failed")
            own = await made("create_plan", name="Own", target="own", jobs=OWN_JOBS)
            await made.ended(own["plan"], "failed")
            yield made.with_(scope=Scope(PlanId(own["plan"]), JobId("g/mine"), 1))


def own_tools() -> list[Tool]:
    return [tool for tool in toolbox.every_tool() if tool.name in OWN_PLAN]


def forbidden() -> list[str]:
    subtasks = {tool.name for tool in toolbox.every_tool() if tool.toolset == "subtasks"}
    other_names = [alias for alias, name in ALIASES.items() if name not in OWN_PLAN | subtasks]
    return sorted((TOOL_NAMES - OWN_PLAN - subtasks) | set(other_names))


def others(agent: Bench) -> Iterator[str]:
    """Every way to name the other plan."""
    other = agent.served.app.find_plan("Hush")
    yield from (other, "Hush", "hush", other[:4], other.upper(), f"{other}:hush/hush", "nonesuch", " ", f"{other}\n")


def needed(tool: Tool) -> Json:
    given = {"job": "mine", "group": "g"}
    return {name: value for name, value in given.items() if name in tool.input.model_fields}


async def journal_of(agent: Bench) -> int:
    return await agent.served.read(agent.served.app.reader.last_seq)


async def test_it_is_offered_only_that(agent: Bench) -> None:
    for selection in (Selection.from_names(["all"]), Selection.from_names(), Selection.from_names(tools=["land_plan"])):
        names = {tool.name for tool in toolbox.tools(selection, agent.scope)}
        assert names >= OWN_PLAN
        assert all(
            tool.toolset == "subtasks" for tool in toolbox.tools(selection, agent.scope) if tool.name not in OWN_PLAN
        )
    less = Selection.from_names(exclude=["get_job_diff"], read_only=True)
    assert "get_job_diff" not in {tool.name for tool in toolbox.tools(less, agent.scope)}


@pytest.mark.parametrize("name", forbidden())
async def test_any_other_tool_does_not_exist_for_it(agent: Bench, name: str) -> None:
    before = await journal_of(agent)
    plan = agent.scope.plan if agent.scope else ""
    for given in (
        {},
        {"plan": plan},
        {"plan": plan, "job": "mine"},
        {"plan": "Hush"},
        {"planId": plan, "jobId": "mine"},
    ):
        said = await agent.refused(name, **given)
        assert said.startswith(f"There is no tool '{name}'")
        assert (await agent.refused("no_such_tool_at_all", **given)).startswith(
            "There is no tool 'no_such_tool_at_all'"
        )
    assert await journal_of(agent) == before


@pytest.mark.parametrize("tool", own_tools(), ids=lambda tool: tool.name)
async def test_it_reads_its_own_plan_by_any_name_or_none(agent: Bench, tool: Tool) -> None:
    assert agent.scope is not None
    for given in ({}, {"plan": agent.scope.plan}, {"plan": "Own"}, {"planId": agent.scope.plan}):
        answer = await agent.answer(tool.name, **needed(tool), **given)
        if tool.name == "get_subtask":
            assert "is a job" in answer.text
            continue
        assert not answer.is_error, answer.text
        assert agent.scope.plan in answer.text
        assert HUSH not in answer.text.lower()
        assert not named_tools(answer.text) - {one.name for one in toolbox.tools(agent.selection, agent.scope)}


def named_tools(text: str) -> set[str]:
    return {name for name in TOOL_NAMES if f"{name}(" in text or f"{name} " in text}


@pytest.mark.parametrize("tool", own_tools(), ids=lambda tool: tool.name)
async def test_another_plan_is_as_if_it_were_not_there(agent: Bench, tool: Tool) -> None:
    """Also in what is said: a plan that exists and one that does not are refused in the same words."""
    fields = [name for name in ("plan", "plan_id", "planId", "plan_name") if "plan" in tool.input.model_fields]
    assert fields
    for field in fields:
        for name in others(agent):
            said = await agent.refused(tool.name, **{**needed(tool), field: name})
            assert said.startswith("There is no plan '")
            assert said.endswith("Next: Leave 'plan' out: it means your own.")


@pytest.mark.parametrize("tool", own_tools(), ids=lambda tool: tool.name)
async def test_no_argument_leads_to_another_plan(agent: Bench, tool: Tool) -> None:
    """Every field that takes text, filled with every way to name what is somebody else's."""
    texts = [name for name, part in toolbox.input_schema(tool)["properties"].items() if part.get("type") == "string"]
    assert texts
    for field in texts:
        for name in (*others(agent), "hush/hush", "Hush hush", "../hush", "*"):
            answer = await agent.answer(tool.name, **{**needed(tool), field: name})
            told = answer.text.replace(name, "").lower() if answer.is_error else answer.text.lower()
            assert "hush" not in _without(told, name), (field, name, answer.text)


def _without(text: str, name: str) -> str:
    """What is said, apart from the caller's own words."""
    for word in (repr(name)[1:-1].lower(), name.lower(), name.strip().lower()):
        text = text.replace(word, "") if word else text
    return text


async def test_the_user_sees_both(agent: Bench) -> None:
    user: Any = agent.with_(scope=None)
    assert {plan["name"] for plan in (await user("list_plans"))["plans"]} == {"Own", "Hush"}
    assert "hush" in (await user("get_job_logs", plan="Hush", job="hush"))["text"]
