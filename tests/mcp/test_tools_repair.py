"""What callers get wrong is put right where only one thing can be meant, and told; otherwise it is refused."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchard.model.events.plans import Json
from orchard.surfaces.mcp import toolbox
from orchard.surfaces.mcp.aliases import ALIASES, ARGUMENTS
from orchard.surfaces.mcp.argument_fixes import Repair
from orchard.surfaces.mcp.selection import TOOL_NAMES
from tests.mcp.toolbench import Bench, bench

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "repo", work=False) as made:
        yield made


def repaired(tool: str, given: Json) -> tuple[Any, list[str]]:
    schema = toolbox.input_schema(next(one for one in toolbox.every_tool() if one.name == tool))
    repair = Repair(schema.get("$defs", {}))
    return repair.value(given, schema, ""), repair.told()


SHELL = {"type": "shell", "command": "make x"}

REPAIRS: list[tuple[str, Json, Json]] = [
    ("get_plan", {"planId": "p"}, {"plan": "p"}),
    ("get_plan", {"plan_id": "p"}, {"plan": "p"}),
    ("get_job", {"planId": "p", "jobId": "j"}, {"plan": "p", "job": "j"}),
    ("get_job", {"plan": "p", "producerId": "j"}, {"plan": "p", "job": "j"}),
    ("get_job", {"plan": "p", "nodeId": "j"}, {"plan": "p", "job": "j"}),
    ("add_job", {"planId": "p", "producerId": "j", "dependencies": ["a"]}, {"plan": "p", "id": "j", "needs": ["a"]}),
    ("get_job_logs", {"job": "j", "tail": "50"}, {"job": "j", "tail": 50}),
    ("get_job_logs", {"job": "j", "phase": "Merge_FI"}, {"job": "j", "phase": "merge-fi"}),
    ("get_job_diff", {"job": "j", "stat": "true"}, {"job": "j", "stat": True}),
    ("get_plan", {"plan": None, "limit": 5.0}, {"limit": 5}),
    ("wait_plan", {"plan": "p", "timeoutSeconds": "12.5", "until": "terminal"},
     {"plan": "p", "timeout_s": 12.5, "until": "end"}),
    ("create_plan", {"name": "n", "maxParallel": "3", "verifyRi": "v"},
     {"name": "n", "max_parallel": 3, "verify": "v"}),
    ("create_plan", {"name": "n", "jobs": {"id": "a"}}, {"name": "n", "jobs": [{"id": "a"}]}),
    ("create_plan", {"name": "n", "jobs": '[{"id": "a"}]'}, {"name": "n", "jobs": [{"id": "a"}]}),
    ("create_plan", {"name": "n", "env": {"camelCase": "1"}}, {"name": "n", "env": {"camelCase": "1"}}),
    ("add_job", {"id": "a", "work": json.dumps(SHELL)}, {"id": "a", "work": SHELL}),
    ("add_job", {"id": "a", "work": {"type": "agent", "instructions": "x", "maxTurns": "5"}},
     {"id": "a", "work": {"type": "agent", "instructions": "x", "max_turns": 5}}),
    ("add_job", {"id": "a", "work": {"type": "agent", "instructions": "x", "contextFiles": "a.py"}},
     {"id": "a", "work": {"type": "agent", "instructions": "x", "context_files": ["a.py"]}}),
    ("add_job", {"id": "a", "work": {"type": "agent", "instructions": "Do it.\n</parameter>\n</invoke>"}},
     {"id": "a", "work": {"type": "agent", "instructions": "Do it."}}),
    ("add_job", {"id": "a", "work": "make x</invoke>"}, {"id": "a", "work": "make x"}),
    ("add_job", {"id": "a", "heal": "false", "priority": "-3"}, {"id": "a", "heal": False, "priority": -3}),
    ("add_job", {"id": "a", "heal": "3", "timeout": "90"}, {"id": "a", "heal": 3, "timeout": 90}),
    ("add_job", {"id": "a", "postchecks": json.dumps([SHELL, "true"])}, {"id": "a", "postchecks": [SHELL, "true"]}),
    ("add_job", {"id": "a", "needs": '["b", "c"]'}, {"id": "a", "needs": ["b", "c"]}),
    ("add_job", {"id": "a", "task": None, "postchecks": None}, {"id": "a"}),
    ("retry_job", {"plan": "p", "job": "j", "newWork": "make y", "clearWorktree": "true"},
     {"plan": "p", "job": "j", "work": "make y", "fresh": True}),
    ("retry_plan", {"plan": "p", "jobIds": "a"}, {"plan": "p", "jobs": ["a"]}),
    ("reshape_plan", {"plan": "p", "operations": [{"type": "remove_node", "producerId": "a"}]},
     {"plan": "p", "changes": [{"op": "remove", "id": "a"}]}),
    ("reshape_plan", {"plan": "p", "changes": [{"type": "add_job", "spec": {"producerId": "a", "dependencies": "b"}}]},
     {"plan": "p", "changes": [{"op": "add", "job": {"id": "a", "needs": "b"}}]}),
    ("resume_plan", {"plan": "p", "budget": '{"tokens": 5}'}, {"plan": "p", "budget": {"tokens": 5}}),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "given", "meant"), REPAIRS, ids=lambda one: one if isinstance(one, str) else None)
def test_what_is_clear_is_put_right_and_told(tool: str, given: Json, meant: Json) -> None:
    before = json.dumps(given)
    found, notes = repaired(tool, given)

    assert found == meant
    assert json.dumps(given) == before, "what was given stays as it was"
    changed = found != given and found != {"plan": None}
    assert bool(notes) == changed


LEFT_ALONE: list[tuple[str, Json]] = [
    ("add_job", {"id": "a", "work": "echo '</invoke>'"}),
    ("add_job", {"id": "a", "work": {"instructions": "Close the element <invoke name='x'> with </invoke>"}}),
    ("add_job", {"id": "a", "work": "</invoke>"}),
    ("add_job", {"id": "a", "work": '{ echo "a"; }'}),
    ("add_job", {"id": "a", "work": '{"not": "a work"}'}),
    ("add_job", {"id": "a", "work": "[ -e x ] && make"}),
    ("add_job", {"id": "a", "work": "3"}),
    ("add_job", {"id": "3", "name": "true", "task": "null"}),
    ("add_job", {"id": "a", "needs": ["b"], "dependencies": ["c"]}),
    ("add_job", {"id": "a", "dependencies": ["b"], "Dependencies": ["c"]}),
    ("add_job", {"id": "a", "priority": "high"}),
    ("add_job", {"id": "a", "heal": "yes"}),
    ("get_plan", {"limit": "many"}),
    ("get_plan", {"limit": 5.5}),
    ("get_plan", {"plan": ["a", "b"]}),
    ("get_job", {"plan": "p", "planId": "q", "job": "j"}),
    ("create_plan", {"name": "n", "env": {"A": "true", "B": "3"}}),
    ("create_plan", {"name": "n", "jobs": "a and b"}),
    ("create_plan", {"name": "n", "frobnicate": "x"}),
    ("list_plans", {"status": "running soon"}),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "given"), LEFT_ALONE)
def test_what_is_not_clear_is_left_to_the_check(tool: str, given: Json) -> None:
    assert repaired(tool, given) == (given, [])


async def test_repairs_are_in_the_notes_of_the_answer(tools: Bench) -> None:
    made = await tools("create_plan", name="N", maxParallel="2", jobs=[{"producerId": "a", "work": json.dumps(SHELL)}])

    assert tools.configuration(made["plan"])["jobs"] == [{"id": "a", "work": SHELL}]
    assert set(made["notes"]) == {
        "maxParallel: is called 'max_parallel' here",
        "max_parallel: '2' was read as a number",
        "jobs[0].producerId: is called 'id' here",
        "jobs[0].work: the text was read as a JSON object",
    }


async def test_problems_stand_where_the_caller_wrote_them_by_the_callers_own_names(tools: Bench) -> None:
    plan = (await tools("create_plan", name="S", start_paused=True, jobs=[{"id": "a", "work": "true"}]))["plan"]
    new = {"producerId": "b", "work": "true", "dependencies": ["nowhere"]}

    graph = await tools.refused(
        "reshape_copilot_plan",
        planId=plan,
        operations=[{"type": "remove_node", "existingJobId": "zzz"}, {"type": "add_node", "spec": new}],
    )
    single = await tools.refused("add_jobs", plan=plan, tasks={"id": "b", "wrk": "true"})
    await tools("force_fail_job", plan=plan, job="a")
    late = await tools.refused("update_job", plan=plan, job_id="a", work="true")

    assert "- operations[0].existingJobId: there is no job 'zzz'" in graph
    assert "- operations[1].spec.dependencies[0]: " in graph
    assert "- tasks.wrk: unknown field 'wrk'" in single
    assert "- job_id: job 'a' has started" in late


async def test_many_repairs_are_told_in_few_words(tools: Bench) -> None:
    jobs = [{"producerId": f"job-{number}"} for number in range(40)]
    made = await tools("create_plan", name="N", jobs=jobs)

    assert len(made["notes"]) == 9
    assert made["notes"][-1] == "... and 32 more repairs of this kind"


async def test_a_job_may_be_named_by_what_people_call_it(tools: Bench) -> None:
    jobs = [{"id": "a", "name": "Build the API", "group": "g"}, {"id": "b", "needs": ["build the api"]}]
    made = await tools("create_plan", name="N", jobs=jobs)

    assert tools.configuration(made["plan"])["jobs"][1]["needs"] == ["g/a"]
    assert made["notes"] == ["needs: 'build the api' was taken to mean job 'g/a'."]
    for name in ("g/a", "a", "Build the API", "BUILD THE API"):
        assert (await tools("get_job", plan=made["plan"], job=name))["job"]["id"] == "g/a"
    added = await tools("add_job", plan=made["plan"], id="c", needs=["Build the API"])
    assert added["notes"] == ["needs: 'Build the API' was taken to mean job 'g/a'."]
    await tools("update_job", plan=made["plan"], job="b", needs=["Build the API", "c"])
    assert tools.configuration(made["plan"])["jobs"][1]["needs"] == ["g/a", "c"]
    changes = [{"op": "set_needs", "id": "c", "needs": []}, {"op": "remove", "id": "build THE api"}]
    reshaped = await tools("reshape_plan", plan=made["plan"], changes=changes)
    assert reshaped["jobs"] == ["b", "c"]


async def test_a_name_that_two_jobs_have_is_refused(tools: Bench) -> None:
    jobs = [{"id": "a", "name": "Same"}, {"id": "b", "name": "Same"}]
    said = await tools.refused("create_plan", name="N", jobs=[*jobs, {"id": "c", "needs": ["Same"]}])
    assert "jobs[2].needs[0]: there is no job 'Same'" in said
    made = await tools("create_plan", name="N", jobs=jobs)
    assert "'Same' could be any of these jobs: a, b" in await tools.refused("get_job", plan=made["plan"], job="Same")


# ------------------------------------------------------------------------------------------ aliases


def test_every_alias_leads_to_a_tool_and_none_is_listed() -> None:
    assert set(ALIASES.values()) <= TOOL_NAMES
    assert not set(ALIASES) & TOOL_NAMES
    assert not {tool.name for tool in toolbox.every_tool()} & set(ALIASES)


def test_other_names_of_arguments_are_in_snake_case_and_lead_somewhere() -> None:
    assert all(name == name.lower() and "-" not in name for name in ARGUMENTS)


async def test_seed_names_are_accepted_with_their_arguments(tools: Bench) -> None:
    failing = {"noAutoHeal": True, "resumeFromPhase": "work"}
    job = {
        "producerId": "abc",
        "task": "t",
        "dependencies": [],
        "autoHeal": False,
        "work": {"type": "shell", "command": "x", "onFailure": failing},
    }
    given = {"baseBranch": "main", "targetBranch": "t", "cleanUpSuccessfulWork": False, "verifyRi": "make"}
    made = await tools("create_copilot_plan", name="Old", **given, jobs=[job])
    plan = made["plan"]
    assert made["notes"][0] == "'create_copilot_plan' is called 'create_plan' here."
    found = tools.configuration(plan)
    assert (found["base"], found["target"], found["cleanup"]) == ("main", "t", False)
    assert found["jobs"][0]["heal"] is False
    assert found["jobs"][0]["work"]["on_failure"] == {"heal": False, "resume_from": "work"}
    for name in ("get_copilot_plan_status", "get_copilot_plan_graph", "list_copilot_jobs", "list_copilot_nodes"):
        assert (await tools(name, planId=plan))["notes"][0].startswith(f"'{name}' is called")
    for name in ("get_copilot_job", "get_copilot_node", "get_copilot_job_logs", "get_copilot_node_attempts"):
        await tools(name, planId=plan, jobId="abc")
    await tools("force_fail_copilot_job", planId=plan, jobId="abc", reason="x")
    await tools("get_copilot_job_failure_context", planId=plan, jobId="abc")
    await tools("retry_copilot_node", planId=plan, producerId="abc", newWork="make z", clearWorktree=False)
    clone = await tools("clone_copilot_plan", sourcePlanId=plan)
    await tools("update_copilot_plan_job", planId=clone["plan"], jobId="abc", work="make w")
    await tools("reshape_copilot_plan", planId=plan, operations=[{"type": "add_node", "spec": {"producerId": "new"}}])
    await tools("delete_copilot_plan", planId=plan)


async def test_a_seed_name_without_a_tool_is_refused_with_what_is_near(tools: Bench) -> None:
    said = await tools.refused("retry_copilot_plans", planId="x")
    assert said.startswith("There is no tool 'retry_copilot_plans'")
    assert "retry_plan" in said
