"""What tools say is true: which there are, what to call next, and everything that is wrong with a call."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchard.engine.turns.job_tokens import Scope
from orchard.model.plan import JobId, PlanId
from orchard.surfaces.mcp import toolbox
from orchard.surfaces.mcp.selection import TOOLSETS, Selection
from tests.mcp.toolbench import Bench, bench

pytestmark = pytest.mark.anyio

SUBTASKS = {"spawn_subtask", "await_subtasks", "complete_subtask", "pull_subtask_changes", "report_progress"}


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "repo") as made:
        yield made


def test_the_default_toolset_can_bring_a_plan_to_its_landing() -> None:
    offered = {tool.name for tool in toolbox.tools(Selection.from_names())}

    assert offered == set(TOOLSETS["core"]) and len(offered) == 17
    assert {"land_plan", "get_job_diff"} <= offered


def test_tools_for_subtasks_are_offered_inside_of_a_job_only() -> None:
    chat = {tool.name for tool in toolbox.tools(Selection.from_names(["all"]))}
    inside = {tool.name for tool in toolbox.tools(Selection.from_names(["all"]), Scope(PlanId("p"), JobId("a"), 1))}

    assert not chat & SUBTASKS and "list_agents" in chat
    assert inside >= SUBTASKS


async def test_a_tool_for_subtasks_says_whom_it_is_for(tools: Bench) -> None:
    said = await tools.refused("spawn_subtask", instructions="Help")

    assert "for an agent at work on a job" in said and "--toolsets" not in said


async def test_a_saved_plan_names_the_tools_that_take_it_further(tools: Bench) -> None:
    saved = await tools("save_plan", name="Talk")

    assert "deploy_task" in saved["next"] and "add_plan_task" in saved["next"]
    assert "finalize_plan" not in saved["next"]


async def test_everything_that_is_wrong_with_a_plan_is_told_at_once(tools: Bench) -> None:
    jobs = [{"id": "a", "work": "true", "timeout": "5 minutes", "need": 1}, {"id": "b", "wrok": "x"}]

    said = await tools.refused("create_plan", name="y", landd="x", jobs=jobs)
    nameless = await tools.refused("create_plan", jobs=[{"work": 7}])

    for field in ("landd", "jobs[0].timeout", "jobs[0].need", "jobs[1].wrok"):
        assert f"- {field}:" in said, said
    assert "4 problems" in said
    assert "- name: is required" in nameless and "- jobs[0].work:" in nameless


async def test_a_job_is_named_by_other_names_in_changes_of_a_plan(tools: Bench) -> None:
    plan = (await tools("scaffold_plan", name="Shape"))["plan"]
    await tools("add_job", plan=plan, id="a", work="true")
    await tools("add_job", plan=plan, id="b", work="true")

    await tools("reshape_copilot_plan", planId=plan, operations=[{"type": "remove_job", "jobId": "b"}])

    assert [job["id"] for job in tools.configuration(plan)["jobs"]] == ["a"]


async def test_every_attempt_tells_what_it_ran(tools: Bench) -> None:
    plan = (await tools("create_plan", name="P", jobs=[{"id": "a", "heal": False, "work": "echo ONE; exit 3"}]))["plan"]
    await tools.ended(plan, "failed")
    await tools("retry_job", plan=plan, job="a", work="echo TWO; exit 4")
    await tools.ended(plan, "failed")

    tries = (await tools("get_job_attempts", plan=plan, job="a"))["attempts"]
    page = await tools("get_job", plan=plan, job="a")

    assert [one["work"]["command"] for one in tries] == ["echo TWO; exit 4", "echo ONE; exit 3"]
    assert page["configuration"]["work"]["command"] == "echo TWO; exit 4"


async def test_jobs_that_were_taken_out_are_told_to_those_who_ask_what_changed(tmp_path: Path) -> None:
    async with bench(tmp_path / "repo") as tools:
        jobs = [{"id": name, "work": "true"} for name in "ab"]
        made = await tools("create_plan", name="Less", start_paused=True, jobs=jobs)
        plan, seen = made["plan"], (await tools("get_plan", plan=made["plan"]))["cursor"]
        await tools("reshape_plan", plan=plan, changes=[{"op": "remove", "id": "b"}])
        changed = await tools("get_plan", plan=plan, since=seen)
        waited = await tools("wait_plan", plan=plan, cursor=seen, timeout_s=1)

    assert changed["removed"] == waited["removed"] == ["b"]


async def test_what_waits_names_the_call_that_answers(tmp_path: Path) -> None:
    async with bench(tmp_path / "repo") as tools:
        made = await tools("create_plan", name="Saved", deploy="manual", jobs=[{"id": "a", "work": "true"}])
        await tools("wait_plan", plan=made["plan"], until="end", timeout_s=5)
        waiting = (await tools("list_waiting"))["waiting"]

    assert [(one["tool"], one["job"]) for one in waiting] == [("deploy_task", "a")]
    assert waiting[0]["next"].startswith("deploy_task(") and 'job="a"' in waiting[0]["next"]


@pytest.mark.parametrize("name", ["retry_job", "retry_plan"])
async def test_checks_that_are_null_are_asked_about_and_nothing_is_retried(tools: Bench, name: str) -> None:
    made = await tools("create_plan", name="Null", jobs=[{"id": "a", "heal": False, "work": "exit 1"}])
    await tools("wait_plan", plan=made["plan"], until="end", timeout_s=30)
    of = {"plan": made["plan"], **({"job": "a"} if name == "retry_job" else {})}

    assert "null could mean to keep them or to remove them" in await tools.refused(name, **of, prechecks=None)
    assert (await tools("get_job", plan=made["plan"], job="a"))["job"]["attempts"] == 1
