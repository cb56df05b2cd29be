"""What callers are told: errors that name the field, the rule and the remedy, and answers that are small and clean."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from orchard.core.views.conflicts import advised_steps
from orchard.engine.turns.job_tokens import Scope
from orchard.errors import UsageError
from orchard.model.events.plans import JobFailed
from orchard.model.plan import JobId, PlanId
from orchard.operations.operation import OfJob
from orchard.operations.queries.jobs import get_job_failure
from orchard.planfile import parse
from orchard.surfaces.mcp import toolbox
from orchard.surfaces.mcp.selection import OWN_PLAN, TOOL_NAMES, TOOLSETS, Selection
from orchard.surfaces.mcp.server.server import listed_tools
from orchard.surfaces.mcp.tool import Tool
from orchard.surfaces.mcp.tools import creation
from tests.mcp.toolbench import Bench, Validator, bench, person

pytestmark = pytest.mark.anyio

ALL = toolbox.every_tool()
OURS = [tool for tool in ALL if tool.toolset in ("core", "plans", "jobs", "groups")]


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "repo") as made:
        yield made


@pytest.fixture
async def still(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "repo", work=False) as made:
        yield made


# ------------------------------------------------------------------------------------------ the box


def test_the_toolsets_hold_the_tools_that_there_are() -> None:
    for toolset in ("core", "plans", "jobs", "groups"):
        assert {tool.name for tool in OURS if tool.toolset == toolset} == set(TOOLSETS[toolset])
    assert len(TOOLSETS["core"]) == 17
    assert {tool.name for tool in ALL} <= TOOL_NAMES
    assert all(tool.name in TOOLSETS[tool.toolset] for tool in ALL)


@pytest.mark.parametrize("tool", OURS, ids=lambda tool: tool.name)
def test_a_tool_tells_a_model_what_it_needs_to_know(tool: Tool) -> None:
    assert "Returns" in tool.description
    assert "Next: " in tool.description
    example = tool.description.split("Example: ", 1)[1].split("\nReturns", 1)[0]
    given = json.loads(example)
    Validator(toolbox.input_schema(tool)).validate(given)
    assert tool.read_only or tool.name.split("_")[0] not in ("get", "list", "wait")
    assert not (tool.read_only and (tool.destructive or tool.name.split("_")[0] not in ("get", "list", "wait")))


@pytest.mark.parametrize("tool", OURS, ids=lambda tool: tool.name)
def test_a_schema_stands_alone(tool: Tool) -> None:
    for schema in (toolbox.input_schema(tool), toolbox.output_schema(tool)):
        Validator.check_schema(schema)
        assert schema["type"] == "object"
        text = json.dumps(schema)
        assert "x-plan-part" not in text
        used = {part.split('"')[0] for part in text.split("#/$defs/")[1:]}
        assert used == set(schema.get("$defs", {})), "what is referred to is there, and nothing else is"


def test_the_plan_in_the_tools_is_the_plan_of_files() -> None:
    made, theirs = toolbox.input_schema(next(tool for tool in OURS if tool.name == "create_plan")), parse.schema()
    made = {**made, "properties": dict(made["properties"])}  # the schema is kept for every call
    own = made["properties"].pop("idempotency_key")
    assert own["type"] == "string"
    assert made["properties"] == theirs["properties"]
    assert made["$defs"] == theirs["$defs"]
    assert (made["required"], made["additionalProperties"]) == (theirs["required"], False)


# ----------------------------------------------------------------------------------- the selection


def names(selection: Selection) -> set[str]:
    return {tool.name for tool in toolbox.tools(selection)}


def test_toolsets_single_tools_and_exclusions_add_up() -> None:
    assert names(Selection.from_names()) == names(Selection.from_names(["default"])) == set(TOOLSETS["core"])
    assert names(Selection.from_names(["all"])) >= {
        name for one in ("core", "plans", "jobs", "groups") for name in TOOLSETS[one]
    }
    assert names(Selection.from_names(["groups", "plans"])) == {*TOOLSETS["groups"], *TOOLSETS["plans"]}
    assert names(Selection.from_names(["groups,jobs"])) == {*TOOLSETS["groups"], *TOOLSETS["jobs"]}
    assert names(Selection.from_names(tools=["land_plan"])) == {"land_plan"}
    assert names(Selection.from_names(["core"], ["land_plan"])) == {*TOOLSETS["core"], "land_plan"}
    assert "create_plan" not in names(Selection.from_names(exclude=["create_plan"]))
    reading = toolbox.tools(Selection.from_names(["all"], read_only=True))
    assert reading
    assert all(tool.read_only for tool in reading)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"toolsets": ["cores"]}, "There is no toolset 'cores'; did you mean 'core'?"),
        ({"tools": ["land_plans"]}, "There is no tool 'land_plans'; did you mean 'land_plan'?"),
        ({"exclude": ["cancel_plam"]}, "There is no tool 'cancel_plam'; did you mean 'cancel_plan'?"),
    ],
)
def test_a_mistyped_selection_is_refused(given: dict[str, list[str]], said: str) -> None:
    with pytest.raises(UsageError, match=said.replace("?", r"\?")):
        Selection.from_names(**given)  # type: ignore[arg-type]


async def test_a_tool_that_is_not_enabled_cannot_be_called(still: Bench) -> None:
    core = still.with_(selection=Selection.from_names())
    for name in sorted(TOOL_NAMES - set(TOOLSETS["core"])):
        said = await core.refused(name, plan="x")
        holder = next(toolset for toolset, inside in TOOLSETS.items() if name in inside)
        expected = (f"'{holder}'", "There is no tool", "is for an agent at work on a job")
        assert any(words in said for words in expected)
    for name in sorted(tool.name for tool in ALL if not tool.read_only):
        reading = still.with_(selection=Selection.from_names(["all"], read_only=True))
        assert "only reading is enabled" in await reading.refused(name, plan="x")
    less = still.with_(selection=Selection.from_names(exclude=["cancel_plan"]))
    assert "excluded here" in await less.refused("cancel_copilot_plan", planId="x")


# --------------------------------------------------------------------------------------- the errors


async def test_all_problems_are_told_at_once_but_at_most_twenty(still: Bench) -> None:
    jobs = [{"id": f"Bad {number}", "needs": ["x"]} for number in range(12)]
    said = await still.refused("create_plan", name="n", jobs=jobs)
    lines = said.splitlines()
    assert lines[0] == "create_plan was refused: 24 problems. Nothing was changed."
    assert len([line for line in lines if line.startswith("- ")]) == 21
    assert lines[21] == "- and 4 more"
    assert still.served.app.plans() == []


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        ("create_plan", {}, "- name: is required"),
        ("create_plan", {"name": "n", "jobs": [{"id": "a", "wrok": "x"}]},
         "- jobs[0].wrok: unknown field 'wrok'; did you mean 'work'?"),
        ("create_plan", {"name": "n", "land": "later", "jobs": [{"id": "a"}]},
         "- land: must be 'auto', 'ask', 'never' or 'pr', not 'later'"),
        ("create_plan", {"name": "n", "jobs": [{"id": "a", "needs": "b"}, {"id": "b", "needs": "a"}]}, "a -> b -> a"),
        ("create_plan", {"name": "n", "jobs": [{"id": "a", "work": {"type": "agnet"}}]},
         "unknown type 'agnet'; did you mean 'agent'?"),
        ("create_plan", {"name": "n"}, "a plan needs at least one job"),
        ("create_job", {"work": "x"}, "id: is required, unless 'name' is given"),
        ("create_job", {"id": "a", "needs": ["b"]}, "- needs: unknown field 'needs'"),
        ("create_job", {"id": "A b"}, "- id: 'A b' is not a valid id"),
        ("get_job", {}, "- job: is required"),
        ("get_job", {"job": 5}, "- job: must be text, not a whole number"),
        ("get_plan", {"limt": 5}, "- limt: unknown field 'limt'; did you mean 'limit'?"),
        ("get_plan", {"zzz": 5}, "- zzz: unknown field 'zzz'; there is plan, since, limit, cursor"),
        ("get_plan", {"limit": 0}, "- limit: must be at least 1"),
        ("get_plan", {"plan": ""}, "- plan: must not be empty"),
        ("get_plan", {"plan": "a\0b"}, "- plan: holds a NUL character"),
        ("retry_plan", {"plan": "x", "jobs": []}, "- jobs: "),
        ("retry_plan", {"plan": "x", "from_phase": "works"}, "- from_phase: must be 'merge-fi'"),
        ("list_plans", {"status": "runing"}, "did you mean 'running'?"),
    ],
)  # fmt: skip
async def test_a_mistake_is_named_with_its_field_and_rule(
    still: Bench, tool: str, given: dict[str, object], said: str
) -> None:
    assert said in await still.refused(tool, **given)


async def test_what_the_state_forbids_is_told_with_the_state_and_a_tool_that_helps(still: Bench) -> None:
    plan = (await still("scaffold_plan", name="S"))["plan"]
    said = await still.refused("finalize_plan", plan=plan)
    assert "has no job yet" in said
    assert "scaffolding" in said
    assert "resume_plan" not in said
    assert "Next: finalize_plan(" in await still.refused("resume_plan", plan=plan)
    await still("add_job", plan=plan, id="a", work="true")
    await still("finalize_plan", plan=plan)
    for tool, given, state, remedy in (
        ("finalize_plan", {}, "is pending", "wait_plan"),
        ("retry_plan", {}, "no failed or canceled job", "wait_plan"),
        ("retry_job", {"job": "a"}, "Job 'a' is ready", "update_job"),
        ("approve_job", {"job": "a"}, "does not wait for approval", "update_job"),
        ("undo_plan", {}, "is pending", "wait_plan"),
        ("land_plan", {}, "is pending", "wait_plan"),
        ("get_job_failure", {"job": "a"}, "Job 'a' is ready: it has not failed", "update_job"),
    ):
        said = await still.refused(tool, plan=plan, **given)
        assert state in said
        assert remedy in said
        assert "orchard " not in said, "a tool, not a command"
    await still("cancel_plan", plan=plan)
    said = await still.refused("pause_plan", plan=plan)
    assert "is canceled" in said
    assert "retry_plan" in said


async def test_a_remedy_that_is_not_enabled_is_said_to_be_elsewhere(still: Bench) -> None:
    plan = (await still("create_plan", name="S", jobs=[{"id": "a"}]))["plan"]
    core = still.with_(selection=Selection.from_names())
    said = await core.refused("get_job_failure", plan=plan, job="a")
    assert "update_job is in toolset 'jobs', which is not enabled here" in said


async def test_rows_and_notes_say_too_where_a_tool_is_that_cannot_be_called(
    tools: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = {"id": "a", "work": "echo > a.txt", "approve": True}
    plan = (await tools("create_plan", name="S", target="t", jobs=[job]))["plan"]
    await tools.ended(plan, "waiting")
    some = tools.with_(selection=Selection.from_names(["core,plans"]))
    reading = tools.with_(selection=Selection.from_names(["all"], read_only=True))
    less = tools.with_(selection=Selection.from_names(["all"], exclude=["approve_job"]))

    rows = [(await one("list_waiting"))["waiting"][0]["next"] for one in (some, reading, less)]

    assert "(approve_job is in toolset 'jobs', which is not enabled here;" in rows[0]
    assert "(approve_job is left out here, where only reading is enabled;" in rows[1]
    assert "(approve_job is excluded here;" in rows[2]
    monkeypatch.setattr(creation, "_is_unchecked", lambda plan: True)
    core = tools.with_(selection=Selection.from_names())
    note = (await core("create_plan", name="N", start_paused=True, jobs=[job]))["notes"][0]
    assert "(update_plan is in toolset 'plans', which is not enabled here;" in note


@pytest.mark.parametrize("scope", [None, Scope(PlanId("p"), JobId("a"), 1)], ids=["host", "agent"])
@pytest.mark.parametrize("selection", [Selection.from_names(), Selection.from_names(["all"], read_only=True)])
def test_of_the_tools_that_follow_only_those_are_told_that_can_be_called(
    selection: Selection, scope: Scope | None
) -> None:
    offered = {tool.name for tool in toolbox.tools(selection, scope)}
    for tool in listed_tools(selection, scope):
        _, told, steps = (tool.description or "").rpartition("Next: ")
        following = steps.rstrip(".").split(", ") if told else []
        assert set(following) <= offered | {"go on"}, tool.name


async def test_a_started_job_is_changed_by_a_retry(tools: Bench) -> None:
    plan = (await tools("create_plan", name="S", jobs=[{"id": "a", "work": "exit 1", "heal": False}]))["plan"]
    await tools.ended(plan, "failed")
    said = await tools.refused("update_job", plan=plan, job="a", work="true")
    assert "has started" in said
    assert "retry_job" in said


async def test_plans_that_would_wait_for_each_other_are_refused(still: Bench) -> None:
    first = (await still("create_plan", name="One", jobs=[{"id": "a"}], start_paused=True))["plan"]
    second = (await still("create_plan", name="Two", jobs=[{"id": "a"}], after="One"))["plan"]
    assert f"cannot wait for '{second}'" in await still.refused("update_plan", plan=first, after="Two")
    assert f"cannot wait for '{first}'" in await still.refused("update_plan", plan=first, after=first)
    assert "There is no plan 'Three'" in await still.refused("update_plan", plan=first, after="Three")
    for wrong in ({"base": "nowhere"}, {"target": "main/below"}, {"worktree_root": ".git/x"}):
        assert await still.refused("update_plan", plan=first, **wrong)
    await still("update_plan", plan=second, after="One")
    assert still.configuration(second)["after"] == first


# ----------------------------------------------------------------------------------- what is shown


async def test_secrets_do_not_leave_by_any_tool(tools: Bench) -> None:
    secret = "correct-horse-battery"
    variables = {"API_TOKEN": secret}
    work = r"echo the value is $API_TOKEN; printf '\033[31mred\033[0m\n'; exit 1"
    jobs = [
        {"id": "a", "work": work, "heal": False, "env": variables},
        {"id": "b", "work": "echo $API_TOKEN > b.txt", "env": variables},
    ]
    plan = (await tools("create_plan", name="S", jobs=jobs))["plan"]
    await tools.ended(plan, "failed")
    texts = [
        (await tools.answer(name, plan=plan, **given)).text
        for name, given in (
            ("get_job_logs", {"job": "a"}), ("get_job_logs", {"job": "a", "offset": 0, "max_bytes": 200}),
            ("get_job_failure", {"job": "a"}), ("get_job_attempts", {"job": "a"}), ("get_job", {"job": "a"}),
            ("get_plan", {}), ("get_job_diff", {"job": "b"}),
        )
    ]  # fmt: skip
    assert not [text for text in texts if secret in text]
    assert "the value is [redacted]" in texts[0]
    assert "red" in texts[0]
    assert "\\u001b" not in texts[0]
    assert "+[redacted]" in texts[-1]


async def test_waiting_reports_how_far_it_is(tools: Bench) -> None:
    jobs = [{"id": "a", "work": "echo > a"}, {"id": "b", "needs": ["a"], "work": "echo > b"}]
    plan = (await tools("create_plan", name="S", target="t", jobs=jobs))["plan"]
    await tools.ended(plan)
    assert all(" of 3 jobs have ended" in line for line in tools.told)
    assert len(tools.told) == len(set(tools.told))


async def test_waiting_ends_with_the_call_and_not_with_the_plan(tools: Bench) -> None:
    go = tools.repo.path.parent / "go"
    work = f"until test -e {go}; do sleep 0.05; done; echo > done.txt"
    plan = (await tools("create_plan", name="S", target="t", jobs=[{"id": "a", "work": work}]))["plan"]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await tools("wait_plan", plan=plan, until="end")
    go.touch()
    await tools.ended(plan)


async def test_a_large_plan_is_shown_in_pages(still: Bench) -> None:
    jobs = [{"id": f"job-{number:04}", "group": f"g{number % 7}"} for number in range(1000)]
    answer = await still.answer("create_plan", name="Large", jobs=jobs)
    assert len(answer.text) < 1000
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await still.answer("get_plan", **cursor)
        assert page.value is not None
        assert len(page.text) < 12_000
        seen += [job["id"] for job in page.value["jobs"]]
        if "next_cursor" not in page.value:
            break
        cursor = {"cursor": page.value["next_cursor"]}
    assert len(seen) == len(set(seen)) == 1001
    graph = await still("get_plan_graph")
    assert "mermaid" not in graph
    assert "only up to" in graph["notes"][0]


async def test_a_person_is_asked_before_what_cannot_be_taken_back(still: Bench) -> None:
    plan = (await still("create_plan", name="S", jobs=[{"id": "a"}]))["plan"]
    asked, elicit = person(None, {"confirm": "yes"}, {"confirm": True})
    desk = still.with_(elicit=elicit)
    for _ in range(2):
        assert "did not agree" in await desk.refused("delete_plan", plan=plan, purge=True)
    assert still.served.app.plans()
    await desk("delete_plan", plan=plan, purge=True)
    assert still.served.app.plans() == []
    assert len(asked) == 3
    other = (await still("create_plan", name="S", jobs=[{"id": "a"}]))["plan"]
    await desk("delete_plan", plan=other)
    assert len(asked) == 3, "what is kept need not be asked about"


async def test_an_approval_is_asked_for_and_given(tools: Bench) -> None:
    job = {"id": "a", "work": "echo > a.txt", "approve": True}
    plan = (await tools("create_plan", name="S", target="t", jobs=[job]))["plan"]
    await tools.ended(plan, "waiting")
    assert [(one["job"], one["tool"]) for one in (await tools("list_waiting"))["waiting"]] == [("a", "approve_job")]
    asked, elicit = person({"confirm": False}, {"confirm": True})
    desk = tools.with_(elicit=elicit)
    assert "did not agree" in await desk.refused("approve_job", plan=plan, job="a")
    await desk("approve_job", plan=plan, job="a")
    assert "Approve job 'a' (a) of plan" in asked[0]
    assert "which changes 1 file?" in asked[0]
    await tools.ended(plan)


async def test_no_person_is_asked_about_what_will_be_refused_anyway(tools: Bench) -> None:
    job = {"id": "a", "work": "echo > a.txt"}
    plan = (await tools("create_plan", name="S", target="t", jobs=[job]))["plan"]
    await tools.ended(plan)
    paused = (await tools("create_plan", name="P", start_paused=True, jobs=[job]))["plan"]
    asked, elicit = person({"confirm": True}, {"confirm": True}, {"confirm": True}, {"confirm": True})
    desk = tools.with_(elicit=elicit)

    said = [
        await desk.refused("land_plan", plan=plan),
        await desk.refused("land_plan", plan=paused),
        await desk.refused("undo_plan", plan=paused),
        await desk.refused("approve_job", plan=paused, job="a"),
    ]

    assert asked == []
    words = ["has landed on 't' already", "has nothing to land", "has not landed", "does not wait for approval"]
    assert [word for word, one in zip(words, said, strict=True) if word not in one] == []
    await desk("undo_plan", plan=plan)
    assert len(asked) == 1


async def test_what_helps_after_a_failure_is_recorded_as_steps_and_told_as_calls(tools: Bench) -> None:
    jobs = [{"id": one, "work": f"echo {one} > same.txt", "heal": False} for one in ("a", "b")]
    plan = (await tools("create_plan", name="S", target="t", resolver="fail", jobs=jobs))["plan"]
    await tools.ended(plan, "failed")
    app = tools.served.app
    failed = [one.event for one in app.reader.events(PlanId(plan)) if isinstance(one.event, JobFailed)][-1]

    told = await tools("get_job_failure", plan=plan, job=failed.job)

    steps = [part["operation"] for part in failed.advice if isinstance(part, dict)]
    assert steps == ["resolve_conflict", "update_plan", "update_plan", "retry_plan"]
    assert f'update_plan(plan="{plan}", resolver="theirs")' in told["hint"] and "orchard " not in told["hint"]
    read = get_job_failure.read(app, OfJob(plan=plan, job=failed.job))
    assert [step.operation for step in read.next] == steps
    old = msgspec.structs.replace(failed, advice=())
    assert "orchard reshape" in (old.hint or "") and advised_steps(old) == []


def test_what_agents_may_read_is_read_only() -> None:
    assert all(tool.read_only for tool in OURS if tool.name in OWN_PLAN)
