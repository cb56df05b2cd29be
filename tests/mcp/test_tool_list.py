"""What `tools/list` shows is small, and what is not shown is taken all the same."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchard.engine.turns.job_tokens import Scope
from orchard.model.events.plans import Json
from orchard.model.plan import JobId, PlanId
from orchard.planfile import parse
from orchard.surfaces.mcp import tool_list, toolbox
from orchard.surfaces.mcp.selection import OWN_PLAN, TOOLSETS, Selection
from orchard.surfaces.mcp.server import tool_channel
from orchard.surfaces.mcp.server.server import listed_tools
from orchard.surfaces.mcp.tool import Tool
from tests.mcp.toolbench import Bench, Validator, bench

pytestmark = pytest.mark.anyio

ALL = toolbox.every_tool()
IN_JOB = Scope(PlanId("p"), JobId("a"), 1)
KB = 1000


@pytest.fixture
async def still(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "repo", work=False) as made:
        yield made


def wire(selection: Selection, scope: Scope | None = None) -> str:
    """The answer to `tools/list`, as it goes over the wire."""
    tools = [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in listed_tools(selection, scope)]
    return json.dumps({"tools": tools}, separators=(",", ":"), ensure_ascii=False)


def tokens(text: str) -> int:
    """About how many tokens a model pays for a text: an estimate, since none of the vendors' tokenizers is here.

    Words and numbers are cut as their tokenizers cut them, a long word counts more, and punctuation goes by threes. For
    this list it came out 6 % above Claude's published tokenizer, and 8 and 10 % above o200k and cl100k.
    """
    pieces = re.findall(r" ?[A-Za-z]+|\d{1,3}|[^\sA-Za-z\d]{1,3}|\s+", text)
    return sum(1 + (len(piece.strip()) - 1) // 10 for piece in pieces)


def test_the_default_tools_are_small() -> None:
    text = wire(Selection.from_names())

    assert len(json.loads(text)["tools"]) == 17
    assert len(text.encode()) <= 20 * KB
    assert tokens(text) <= 5000


def test_all_tools_together_are_small() -> None:
    assert len(wire(Selection.from_names(["all"])).encode()) <= 60 * KB


def test_what_an_agent_in_a_job_is_shown_is_very_small() -> None:
    for selection in (Selection.from_names(), Selection.from_names(["all"])):
        text = wire(selection, IN_JOB)
        names = {tool["name"] for tool in json.loads(text)["tools"]}

        assert len(text.encode()) <= 6 * KB
        assert names == {*tool_list.IN_JOBS, *TOOLSETS["subtasks"]} and set(tool_list.IN_JOBS) < OWN_PLAN


def test_our_own_agent_is_shown_the_same_without_the_protocol() -> None:
    shown = listed_tools(Selection.from_names(), IN_JOB)

    own = tool_channel.listed(IN_JOB)

    assert [(row["name"], row["input_schema"]) for row in own] == [(one.name, one.input_schema) for one in shown]
    assert len(json.dumps(own, separators=(",", ":"))) <= 6 * KB


@pytest.mark.parametrize("tool", ALL, ids=lambda tool: f"{tool.toolset}-{tool.name}")
def test_what_is_shown_of_a_tool_is_true_of_the_whole_of_it(tool: Tool) -> None:
    for scope in (None, IN_JOB):
        taken, given = tool_list.shown_input(tool, scope), tool_list.shown_output(tool, scope)
        whole, answer = toolbox.input_schema(tool), toolbox.output_schema(tool)

        assert taken.get("required", []) == whole.get("required", [])
        assert set(taken.get("required", [])) <= set(taken["properties"]) <= set(whole["properties"])
        assert set(given.get("properties", {})) <= set(answer.get("required", []))
        for shown in (taken, given):
            Validator.check_schema(shown)
            assert shown["type"] == "object"
            text = json.dumps(shown)
            assert not [word for word in ("$ref", "x-plan-part", "additionalProperties", "null") if word in text]


@pytest.mark.parametrize("tool", ALL, ids=lambda tool: f"{tool.toolset}-{tool.name}")
def test_the_example_of_a_tool_is_one_that_it_takes(tool: Tool) -> None:
    assert "Next: " in tool.description and "Returns" in tool.description
    given: Json = json.loads(tool.description.split("Example: ", 1)[1].split("\nReturns", 1)[0])

    Validator(tool_list.shown_input(tool)).validate(given)
    Validator(toolbox.input_schema(tool)).validate(given)
    tool.input.model_validate(given)
    if tool.check is not None:
        tool.check(given)


def test_the_form_of_a_plan_is_described_once_and_whole() -> None:
    """Every field of plans, jobs and works is at least named in create_plan; no other tool describes one."""
    shown = tool_list.shown_input(named("create_plan"))
    jobs = shown["properties"]["jobs"]["items"]
    work = jobs["properties"]["work"]
    definitions = parse.schema()["$defs"]
    works = [field for form in ("Shell", "Process", "Agent") for field in definitions[f"{form}Fields"]["properties"]]
    for part, fields in (
        (shown, parse.schema()["properties"]),
        (jobs, definitions["JobFields"]["properties"]),
        (work, works),
    ):
        also = set(re.findall(r"\w+", part["description"].split("Also: ")[1]))
        assert set(part["properties"]) - {"idempotency_key"} | also == set(fields)

    told = [words for part in tool_list.FORM.values() for words in part.values() if words]
    others = [json.dumps(tool_list.shown_input(tool)) for tool in ALL if tool.name != "create_plan"]
    assert not [(words, text) for text in others for words in told if words in text]
    for name in ("scaffold_plan", "add_job", "add_jobs", "create_job", "save_plan", "update_job", "reshape_plan"):
        assert "create_plan" in named(name).description, "where the fields are described"


async def test_what_is_not_shown_is_taken_when_the_server_knows_it(still: Bench) -> None:
    work = {"command": "true", "on_failure": {"message": "Ask Ada", "resume_from": "prechecks"}}
    inner = {"name": "g", "groups": [{"name": "h", "jobs": [{"id": "b", "work": work, "priority": 3}]}]}
    assert "on_failure" not in json.dumps(tool_list.shown_input(named("add_job")))
    assert "priority" not in json.dumps(tool_list.shown_input(named("add_job")))

    plan = (await still("create_plan", name="Tried", jobs=[{"id": "a", "work": work}], groups=[inner]))["plan"]
    await still("add_job", plan=plan, id="c", priority=7, work=work, env={"A": "1"})
    await still("scaffold_plan", name="More", merge="merge", after=plan)

    jobs = {job["id"]: job for job in still.configuration(plan)["jobs"]}
    assert jobs["g/h/b"]["priority"] == 3 and jobs["c"]["priority"] == 7
    assert all(job["work"]["on_failure"]["message"] == "Ask Ada" for job in jobs.values())
    refused = await still.refused("add_job", plan=plan, id="d", work={**work, "on_failure": {"messag": "x"}}, prio=1)
    assert "messag" in refused and "prio" in refused


def named(name: str) -> Tool:
    return next(tool for tool in ALL if tool.name == name)
