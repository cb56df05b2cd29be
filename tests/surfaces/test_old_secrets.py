"""A secret that a plan has ever set stays hidden: after it was changed, and where a retry brought it."""

from pathlib import Path
from typing import Any

import pytest

from tests.mcp.toolbench import Bench, bench

pytestmark = pytest.mark.anyio

OLD, OF_RETRY = "old-s3cret-value", "retry-s3cret-99"


async def failed(tools: Bench) -> dict[str, str]:
    """A plan whose one job has printed a secret, and has failed."""
    job = {"id": "one", "heal": False, "work": "echo says $DEPLOY_TOKEN; exit 3"}
    made = await tools("create_plan", name="Quiet", env={"DEPLOY_TOKEN": OLD}, jobs=[job])
    await ended(tools, made["plan"])
    return {"plan": made["plan"], "job": "one"}


async def ended(tools: Bench, plan: str) -> None:
    await tools("wait_plan", plan=plan, until="end", timeout_s=30)


async def everything(tools: Bench, of: dict[str, str]) -> str:
    names = ("get_job_logs", "get_job", "get_job_failure", "get_job_attempts")
    shown: list[Any] = [await tools(name, **of) for name in names]
    return str([*shown, await tools("list_events", plan=of["plan"]), await tools("get_plan", plan=of["plan"])])


async def test_a_value_that_was_changed_stays_hidden(tmp_path: Path) -> None:
    async with bench(tmp_path / "repo") as tools:
        of = await failed(tools)
        before = await everything(tools, of)
        await tools("update_plan", plan=of["plan"], env={"DEPLOY_TOKEN": "new"})
        after = await everything(tools, of)

    assert "says [redacted]" in before and "says [redacted]" in after
    assert OLD not in before + after


async def test_the_secrets_of_a_retry_are_hidden(tmp_path: Path) -> None:
    async with bench(tmp_path / "repo") as tools:
        of = await failed(tools)
        work = {"type": "shell", "command": "echo w $MY_API_KEY; exit 4", "env": {"MY_API_KEY": OF_RETRY}}
        await tools("retry_job", **of, work=work)
        await ended(tools, of["plan"])
        shown = await everything(tools, of)

    assert "w [redacted]" in shown and OF_RETRY not in shown


async def test_the_message_of_a_failure_hides_what_its_log_hides(tmp_path: Path) -> None:
    async with bench(tmp_path / "repo") as tools:
        of = await failed(tools)
        await tools("retry_job", **of, work=f"test {OLD} = x")
        await ended(tools, of["plan"])
        failure = await tools("get_job_failure", **of)
        plan = await tools("get_plan", plan=of["plan"])

    assert "[redacted]" in failure["message"] and OLD not in str([failure, plan])
