"""Whole plans, driven by tools alone."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.mcp.toolbench import Bench, bench, person

pytestmark = pytest.mark.anyio


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "repo") as made:
        yield made


async def test_a_plan_is_built_watched_mended_and_landed(tools: Bench) -> None:
    made = await tools("scaffold_plan", name="Add greeting", target="greeting", verify="grep -q hello a.txt")
    plan = made["plan"]
    assert made["status"] == "scaffolding"
    assert "watch_command" not in made

    await tools("add_job", plan=plan, id="a", work="echo hello > a.txt")
    seen = await tools("get_plan", plan=plan)
    assert [job["id"] for job in seen["jobs"]] == ["a", "__snapshot-validation__"], "it is visible while it is built"
    await tools("add_jobs", plan=plan, jobs=[
        {"id": "c", "needs": ["b"], "work": "cat b.txt > c.txt"},
        {"id": "b", "needs": ["a"], "work": "echo oops >&2; exit 3"},
    ])  # fmt: skip
    started = await tools("finalize_plan", plan=plan)
    assert started["watch_command"] == f"orchard wait {plan} --json"

    over = await tools.ended(plan, "failed")
    assert "get_job_failure" in over["next"]
    why = await tools("get_job_failure", plan=plan, job="b")
    assert (why["phase"], why["reason"], why["exit_code"]) == ("work", "exit", 3)
    assert "oops" in why["tail"]
    assert any("retry_job" in step for step in why["next"])
    blocked = await tools("get_job_failure", plan=plan, job="c")
    assert blocked["blocked_by"] == ["b"]

    again = await tools("retry_job", plan=plan, job="b", work="echo mended > b.txt")
    assert again["retried"] == ["b"]
    done = await tools.ended(plan)
    assert "undo_plan" in done["next"]
    assert tools.repo.files("greeting")["c.txt"] == "mended\n"

    attempts = await tools("get_job_attempts", plan=plan, job="b")
    assert [one["outcome"] for one in attempts["attempts"]] == ["succeeded", "failed"]


async def test_a_plan_that_asks_is_landed_when_a_person_agrees(tools: Bench) -> None:
    tools.repo("checkout", "-q", "main")
    made = await tools(
        "create_plan", name="Ask me", target="asked", land="ask", jobs=[{"id": "a", "work": "echo a > a.txt"}]
    )
    plan = made["plan"]
    waits = await tools.ended(plan, "waiting")
    assert "land_plan" in waits["next"]
    waiting = (await tools("list_waiting"))["waiting"]
    assert [(one["plan"], one["tool"]) for one in waiting] == [(plan, "land_plan")]

    asked, elicit = person({"confirm": False}, None, {"confirm": True})
    at_desk = tools.with_(elicit=elicit)
    assert "did not agree" in await at_desk.refused("land_plan", plan=plan)
    assert "did not agree" in await at_desk.refused("land_plan", plan=plan)
    assert not tools.repo.exists("refs/heads/asked")
    await at_desk("land_plan", plan=plan)
    await tools.ended(plan)
    assert "a.txt" in tools.repo.files("asked")
    assert all("Land plan 'Ask me'" in question and "'asked'" in question for question in asked)

    undone = await tools("undo_plan", plan=plan)
    assert undone["branch"] == "asked"
    assert not tools.repo.exists("refs/heads/asked")
    await tools("land_plan", plan=plan)
    assert "a.txt" in tools.repo.files("asked")
