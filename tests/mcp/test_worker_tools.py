"""The tools for workers: tasks that are deployed one by one, and agents that are talked to."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchard.agents.protocol import Heard, Result, Session, Task, Watch
from orchard.engine.server import start as opening
from orchard.engine.turns.job_tokens import Scope
from orchard.model.plan import JobId, PlanId
from orchard.operations.queries.system import list_agents
from orchard.surfaces.mcp import toolbox
from orchard.surfaces.mcp.selection import TOOLSETS, Selection
from tests.engine.scripted import ScriptedAgents, writes
from tests.mcp.toolbench import Bench, bench

pytestmark = pytest.mark.anyio

TASK = {"instructions": "Write a", "interactive": True}


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    return table


@pytest.fixture
async def tools(tmp_path: Path, agents: ScriptedAgents) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "repo") as made:
        yield made


async def idle(tools: Bench, plan: str, turns: int = 1) -> None:
    """Wait until the agent has had so many turns and waits."""
    async with asyncio.timeout(30):
        cursor = 0
        while True:
            seen = await tools("wait_plan", plan=plan, cursor=cursor, timeout_s=5)
            cursor = seen["cursor"]
            found = (await tools("list_workers", plan=plan, state="idle"))["workers"]
            if found and found[0]["turns"] == turns:
                return


async def test_a_plan_is_saved_deployed_task_by_task_talked_about_and_landed(
    tools: Bench, agents: ScriptedAgents
) -> None:
    agent = agents.add("one", writes({"a.txt": "a"}, says="Is a enough?"), writes({"b.txt": "b"}, says="Now b too."))
    saved = await tools("save_plan", name="Talk", jobs=[{"id": "a", "work": TASK}])
    plan = saved["plan"]
    assert saved["status"] == "scaffolding"
    added = await tools("add_plan_task", plan=plan, id="c", needs=["a"], work="cat b.txt > c.txt")
    assert (added["jobs"], added["total"]) == (["c"], 2)
    saved = await tools("list_workers", plan=plan)
    assert (saved["workers"], saved["plans"][0]["status"]) == ([], "scaffolding")
    assert saved["plans"][0]["tasks"] == [
        {"job": "a", "status": "pending", "deployed": False},
        {"job": "c", "status": "pending", "deployed": False, "waits_for": ["a"]},
    ]

    deployed = await tools("deploy_task", plan=plan, job="a")
    assert deployed["job"] == "a" and deployed["status"] != "scaffolding"
    await idle(tools, plan)
    (worker,) = (await tools("list_workers"))["workers"]
    assert worker == {
        "plan": plan, "job": "a", "state": "idle", "agent": "one", "interactive": True, "turns": 1,
        "queued": 0, "said": "Is a enough?", "status": "pending", "model": "scripted", "tokens": 10, "cost": 0.01,
    }  # fmt: skip

    sent = await tools("send_message", plan=plan, job="a", message="Write b as well.")
    assert sent["queued"] is False
    await idle(tools, plan, turns=2)
    assert agent.tasks[1].instructions == "Write b as well.\n"

    await tools("complete_task", plan=plan, job="a")
    await tools.ended(plan, "waiting")
    assert tools.served.app.status(plan).plan.waiting == []
    await tools("deploy_task", plan=plan, job="c")
    await tools.ended(plan)
    assert tools.repo.files("work")["c.txt"] == "b"
    assert [one["state"] for one in (await tools("list_workers", plan=plan))["workers"]] == ["completed"]


async def test_a_worker_at_work_is_told_later_and_interrupted_now(tools: Bench, agents: ScriptedAgents) -> None:
    async def long(task: Task, watch: Watch) -> Result:
        watch.tell(Session("s1"))
        watch.tell(Heard())
        await asyncio.Event().wait()
        raise AssertionError

    agent = agents.add("one", long, writes({"a.txt": "a"}))
    plan = (await tools("save_plan", name="Long", jobs=[{"id": "a", "work": "@agent Write a"}]))["plan"]
    await tools("deploy_task", plan=plan, job="a")
    while not agent.tasks:
        await tools("wait_plan", plan=plan, timeout_s=1)

    sent = await tools("send_message", plan=plan, job="a", message="Stop that, write a.")
    interrupted = await tools("interrupt_worker", plan=plan, job="a")
    await tools.ended(plan)

    assert (sent["queued"], sent["worker"]) == (True, "running")
    assert interrupted["worker"] != "idle", "it goes on with what was sent to it, and may be done by now"
    assert agent.tasks[1].instructions == "Stop that, write a.\n"


async def test_a_task_is_canceled_and_retried_with_other_work_and_stays_deployed(
    tools: Bench, agents: ScriptedAgents
) -> None:
    plan = (await tools("save_plan", name="Again", jobs=[{"id": "a", "work": "exit 3"}]))["plan"]
    await tools("deploy_task", plan=plan, job="a")
    await tools.ended(plan, "failed")

    await tools("retry_task", plan=plan, job="a", work="sleep 60")
    canceled = await tools("cancel_task", plan=plan, job="a", reason="too slow")
    again = await tools("retry_task", plan=plan, job="a", work="echo a > a.txt", from_phase="work")
    await tools.ended(plan)

    assert canceled["job_status"] == "canceled"
    assert again["retried"] == ["a"]
    assert tools.repo.files("work")["a.txt"] == "a\n"


async def test_what_cannot_be_done_is_said_with_what_can(tools: Bench, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    plan = (await tools("save_plan", name="Wrong", jobs=[{"id": "a", "work": TASK}, {"id": "s", "work": "true"}]))[
        "plan"
    ]

    assert "has no job 'sss'" in await tools.refused("deploy_task", plan=plan, job="sss")
    assert "not the work of an agent" in await tools.refused("send_message", plan=plan, job="s", message="x")
    assert "Its agent would not hear it" in await tools.refused("send_message", plan=plan, job="a", message="x")
    assert "no turn to interrupt" in await tools.refused("interrupt_worker", plan=plan, job="a")
    assert "result" in await tools.refused("complete_task", plan=plan, job="a", result="x" * 20_000)
    assert "message" in await tools.refused("send_message", plan=plan, job="a", message="")
    assert "unknown field" in await tools.refused("save_plan", name="x", deploy="auto", jobs=[])
    await tools("deploy_task", plan=plan, job="a")
    assert "deployed already" in await tools.refused("deploy_task", plan=plan, job="a")


async def test_seed_names_find_the_tools(tools: Bench, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    saved = await tools("orchestrator_save_plan", name="Seeds", tasks=[{"id": "a", "work": TASK}])
    await tools("orchestrator_deploy_task", planId=saved["plan"], taskId="a")
    await idle(tools, saved["plan"])

    sent = await tools("orchestrator_send_message", planId=saved["plan"], taskId="a", message="Hello")

    assert sent["job"] == "a"


async def test_agents_and_models_are_listed(tools: Bench, agents: ScriptedAgents) -> None:
    agents.add("one", writes({}))

    found = await tools("list_agents")
    models = await tools("list_models", agent="builtin")

    assert [one["name"] for one in found["agents"]] == ["one"]
    assert all(row["agent"] == "builtin" for row in models["models"])
    assert "There is no agent 'nobody'" in await tools.refused("list_models", agent="nobody")


async def test_an_agent_in_a_job_gets_none_of_them_but_the_list_of_agents(tools: Bench) -> None:
    scope = Scope(PlanId("p"), JobId("a"), 1)
    offered = {tool.name for tool in toolbox.tools(Selection.from_names(["all"]), scope)}

    assert offered & set(TOOLSETS["workers"]) <= {"list_agents", "get_subtask"}


async def test_workers_are_listed_page_by_page(tools: Bench, agents: ScriptedAgents) -> None:
    agents.add("one", writes({"a.txt": "a"}))
    jobs = [{"id": f"j{number}", "work": TASK} for number in range(3)]
    plan = (await tools("create_plan", name="Pages", jobs=jobs))["plan"]
    await tools.ended(plan, "waiting")

    first = await tools("list_workers", plan=plan, limit=2)
    second = await tools("list_workers", plan=plan, limit=2, cursor=first["next_cursor"])

    assert [one["job"] for one in first["workers"] + second["workers"]] == ["j0", "j1", "j2"]
    assert (first["total"], "next_cursor" in second) == (3, False)


async def test_capacity_can_be_read_and_agents_are_told_as_at_a_terminal(tools: Bench, agents: ScriptedAgents) -> None:
    found = await tools("get_capacity")
    assert found["used"] == 0 and found["holders"] == [] and found["max_parallel"] > 0

    known = {one.name: one for one in list_agents.read(tools.served.app, list_agents.args()).agents}
    agents.add("claude", writes({"a.txt": "a"}))
    (row,) = (await tools("list_agents"))["agents"]
    one = known["claude"]
    assert (row["installed"], row["logged_in"], row["vendor"]) == (one.installed, one.logged_in, one.vendor)
    assert row["permissions"] == one.permissions
    assert row["abilities"] == [name for name, can in one.abilities.items() if can]
    assert ("install" in row) is (not one.installed)
