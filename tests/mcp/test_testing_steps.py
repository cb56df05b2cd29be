"""The six steps by which an orchestrator is tried out, by their well-known names: save, add, list, deploy, watch, end.

The same steps at a terminal are in `tests/surfaces/test_worker_lists.py`.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchard.agents.protocol import Heard, Result, Session, Task, Watch
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


async def long(task: Task, watch: Watch) -> Result:
    watch.tell(Session("s1"))
    watch.tell(Heard())
    (task.folder / "half.txt").write_text("half")
    await asyncio.Event().wait()
    raise AssertionError


async def seen(tools: Bench, plan: str, **wanted: str) -> Any:
    """The list of workers as soon as it shows these states."""
    async with asyncio.timeout(30):
        cursor = 0
        while True:
            found = await tools("orchestrator_list_workers", planId=plan)
            states = {one["job"]: one["state"] for one in found["workers"]}
            if {job: states.get(job) for job in wanted} == wanted:
                return found
            cursor = (await tools("wait_plan", plan=plan, cursor=cursor, timeout_s=2))["cursor"]


async def test_a_plan_is_saved_extended_listed_deployed_watched_and_completed(
    tools: Bench, agents: ScriptedAgents
) -> None:
    agents.add("one", writes({"a.txt": "a"}, says="Is that right?"), long)
    saved = await tools("orchestrator_save_plan", name="Feature X", description="Try it")  # 1
    plan = saved["plan"]
    for name, more in (("first", {}), ("second", {"dependencies": ["first"]}), ("third", {"dependencies": ["second"]})):
        await tools(  # 2
            "orchestrator_add_plan_task", planId=plan, name=name, description=f"Do {name}", agent="one", **more
        )

    listed = await tools("orchestrator_list_workers", planId=plan)  # 3
    (row,) = listed["plans"]
    assert (row["status"], listed["workers"]) == ("scaffolding", [])
    assert [(one["job"], one["status"], one["deployed"]) for one in row["tasks"]] == [
        ("first", "pending", False), ("second", "pending", False), ("third", "pending", False),
    ]  # fmt: skip

    await tools("orchestrator_deploy_task", planId=plan, taskId="first")  # 4
    after = await seen(tools, plan, first="completed")  # 5
    assert [one["job"] for one in after["plans"][0]["tasks"]] == ["second", "third"]
    await tools("orchestrator_deploy_task", planId=plan, taskId="second")
    running = await seen(tools, plan, first="completed", second="running")
    assert [one["turns"] for one in running["workers"]] == [1, 1]

    done = await tools("orchestrator_complete_task", planId=plan, taskId="second", result="Half is enough")  # 6
    by_hand = await tools("orchestrator_complete_task", planId=plan, taskId="third", result="Was there already")
    assert (done["worker"], by_hand["worker"]) == ("completed", "completed")
    await tools.ended(plan)
    assert tools.repo.files("work")["half.txt"] == "half"
    whole = await tools("get_job_talk", plan=plan, job="second")
    assert [(one["kind"], one["sender"]) for one in whole["entries"]] == [("task", "person"), ("done", "person")]
    assert [one["text"] for one in whole["entries"]] == ["Do second", "Half is enough"]


async def test_a_task_that_is_idle_is_completed_after_it_was_talked_to_and_the_talk_can_be_read_again(
    tools: Bench, agents: ScriptedAgents
) -> None:
    agents.add("one", writes({"a.txt": "a"}, says="Is that right?"), writes({"b.txt": "b"}, says="Now it is."))
    work = {"instructions": "Write a", "interactive": True}
    plan = (await tools("orchestrator_save_plan", name="Talk", tasks=[{"id": "a", "work": work}]))["plan"]
    await tools("orchestrator_deploy_task", planId=plan, taskId="a")
    await seen(tools, plan, a="idle")
    await tools("orchestrator_send_message", planId=plan, taskId="a", message="The key is ghp_" + "a" * 36)
    async with asyncio.timeout(30):
        cursor = 0
        while (await seen(tools, plan, a="idle"))["workers"][0]["turns"] < 2:
            cursor = (await tools("wait_plan", plan=plan, cursor=cursor, timeout_s=2))["cursor"]
    await tools("orchestrator_complete_task", planId=plan, taskId="a", result="Both are written.")
    await tools.ended(plan)

    whole = await tools("get_job_talk", plan=plan, job="a")
    first = await tools("get_job_talk", plan=plan, job="a", since=0, limit=2)
    rest = await tools("get_job_talk", plan=plan, job="a", since=first["next"])

    kinds = ["task", "words", "message", "words", "done"]
    assert [one["kind"] for one in whole["entries"]] == kinds
    assert [one["kind"] for one in first["entries"] + rest["entries"]] == kinds
    assert [one["text"] for one in whole["entries"]][3:] == ["Now it is.", "Both are written."]
    assert "ghp_aaaa" not in str(whole), "what looks like a secret is hidden"
