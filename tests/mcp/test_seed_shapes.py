"""Calls as callers of other orchestrators write them: tasks with a description, lists of nodes, camelCase names."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchard.engine.server import start as opening
from tests.engine.scripted import ScriptedAgents, writes
from tests.mcp.toolbench import Bench, bench

pytestmark = pytest.mark.anyio


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    return table


@pytest.fixture
async def tools(tmp_path: Path, agents: ScriptedAgents) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "repo") as made:
        yield made


async def test_a_task_with_a_name_and_a_description_is_work_for_an_agent(tools: Bench, agents: ScriptedAgents) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}), writes({"b.txt": "b"}))
    saved = await tools("orchestrator_save_plan", name="Feature X", description="Ship X before the fair.")
    plan = saved["plan"]
    first = await tools("orchestrator_add_plan_task", planId=plan, name="Phase 1", description="Write a", agent="one")
    assert first["jobs"] == ["phase-1"]
    await tools("copilot_orchestratorAddPlanTask", planId=plan, name="Phase 2", description="Write b",
                dependencies=["Phase 1"])  # fmt: skip
    await tools("copilot_orchestratorDeployTask", planId=plan, taskId="phase-1")
    await tools("orchestrator_deployTask", planId=plan, taskId="phase-2")
    await tools.ended(plan)
    assert {"a.txt", "b.txt"} <= tools.repo.files("work").keys()
    assert [task.instructions.split("\n")[0] for task in agent.tasks] == ["Write a", "Write b"]
    assert all("Ship X before the fair." in task.instructions for task in agent.tasks)
    assert (await tools("get_plan", plan=plan))["description"] == "Ship X before the fair."


async def test_a_plan_of_saved_tasks_may_leave_out_ids_and_agents(tools: Bench, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    saved = await tools("save_plan", name="All at once", tasks=[{"name": "Do a", "description": "Write a"}])
    job = tools.served.app.run_of(saved["plan"]).plan.jobs
    assert next(iter(job)) == "do-a"


async def test_a_list_of_nodes_becomes_one_plan(tools: Bench) -> None:
    made = await tools("create_copilot_node", name="Two", nodes=[
        {"producerId": "a", "work": "touch a"}, {"producerId": "b", "work": "touch b", "dependencies": ["a"]},
    ])  # fmt: skip
    assert (made["name"], made["jobs"]) == ("Two", 2)
    await tools.ended(made["plan"])
    alone = await tools("create_job", jobs=[{"id": "c", "work": "touch c"}])
    assert alone["name"] == "c"
    assert "belongs into them" in await tools.refused("create_job", work="true", jobs=[{"id": "c", "work": "touch c"}])


async def test_job_ids_in_the_operations_of_a_reshape_name_jobs_that_exist(tools: Bench) -> None:
    made = await tools("create_plan", name="R", start_paused=True, jobs=[
        {"id": "a", "work": "touch a"}, {"id": "b", "work": "touch b"},
    ])  # fmt: skip
    shaped = await tools("reshape_copilot_plan", planId=made["plan"], operations=[{"type": "remove_job", "jobId": "b"}])
    assert shaped["jobs"] == ["a"]


ARCHITECT = "---\nname: architect\ndescription: Designs\n---\nYou are a careful architect.\n"


async def test_tasks_name_definitions_and_a_typo_gets_a_whole_sentence(tools: Bench, agents: ScriptedAgents) -> None:
    tools.repo.commit({".claude/agents/architect.md": ARCHITECT})
    agent = agents.add("one", writes({"a.txt": "a"}), writes({"b.txt": "b"}))
    (row,) = (await tools("list_agents"))["definitions"]
    assert (row["name"], row["origin"], row["file"]) == ("architect", "repository", ".claude/agents/architect.md")
    plan = (await tools("orchestrator_save_plan", name="Feature"))["plan"]
    add = "orchestrator_add_plan_task"
    said = await tools.refused(add, planId=plan, name="Wrong", description="x", agent="@architekt")
    assert "There is no agent 'architekt', and no definition of that name; did you mean 'architect'? " in said
    await tools(add, planId=plan, name="Design", description="Write a", agent="@architect")
    await tools(add, planId=plan, name="Build", description="Write b", agent="one:agent", dependencies=["Design"])
    for task in ("design", "build"):
        await tools("deploy_task", planId=plan, taskId=task)
    await tools.ended(plan)
    assert ["careful architect" in task.instructions for task in agent.tasks] == [True, False]
