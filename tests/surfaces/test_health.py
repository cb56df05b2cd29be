"""What the health monitor knows is shown: in documents, on the command line, by MCP, and in what waits for a person."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import to_builtins

from orchard.agents.protocol import Called, Heard, Result, Said, Session, Task, Watch
from orchard.core.views.documents import ActivityView, time_text
from orchard.engine.server import start as opening
from orchard.engine.turns.health import FILE
from orchard.model.events.plans import HealthCleared, HealthNoted, Recorded
from orchard.model.plan import JobId, PlanId
from orchard.surfaces.cli.render import health
from orchard.surfaces.cli.render.event_lines import event_lines
from orchard.surfaces.cli.render.job_page import job_lines
from orchard.surfaces.cli.render.lines import plain
from orchard.surfaces.cli.render.tree import look_now, status_lines
from tests.engine.scripted import ScriptedAgents
from tests.mcp.toolbench import Bench, bench

pytestmark = pytest.mark.anyio

JOB = {"id": "a", "work": {"type": "agent", "instructions": "Write a", "interactive": True}}
SECRET = "hunter2-very-secret"


@pytest.fixture
def agents(monkeypatch: pytest.MonkeyPatch) -> ScriptedAgents:
    table = ScriptedAgents()
    monkeypatch.setattr(opening, "Agents", lambda config, host: table)
    return table


@pytest.fixture
async def tools(tmp_path: Path, agents: ScriptedAgents) -> AsyncIterator[Bench]:
    async with bench(tmp_path / "repo") as made:
        yield made


class Looping:
    """An agent that makes the same call again and again until it is let go, or interrupted."""

    def __init__(self, agents: ScriptedAgents) -> None:
        self.begun, self.go = asyncio.Event(), asyncio.Event()
        agents.add("one", self.turn)

    async def turn(self, task: Task, watch: Watch) -> Result:
        watch.tell(Session("s1"))
        watch.tell(Heard())
        (task.folder / "a.txt").write_text("a")
        for _ in range(5):
            watch.tell(Called("bash", f"curl -H {SECRET}", input="same"))
        self.begun.set()
        await self.go.wait()
        watch.tell(Called("read", "other", input="other"))
        watch.tell(Said("Now I know.\n"))
        return Result("done", text="Done.", session="s1")


async def shown(tools: Bench, plan: str) -> Any:
    """The job's page, as soon as the engine has published what its worker does."""
    async with asyncio.timeout(20):
        while True:
            found = await tools("get_job", plan=plan, job="a")
            if found.get("worker", {}).get("activity"):
                return found
            await asyncio.sleep(0.1)


async def test_what_a_worker_does_and_what_is_wrong_with_it_is_on_every_page(
    tools: Bench, agents: ScriptedAgents
) -> None:
    looping = Looping(agents)
    plan = (await tools("create_plan", name="Loop", env={"MY_TOKEN": SECRET}, jobs=[JOB]))["plan"]
    await asyncio.wait_for(looping.begun.wait(), 20)

    page = await shown(tools, plan)
    assert page["worker"]["activity"]["doing"].startswith("bash: curl")
    assert [one["condition"] for one in page["worker"]["health"]] == ["looping"]
    assert page["job"]["health"] == ["looping"]
    (row,) = (await tools("list_workers", plan=plan))["workers"]
    assert row["activity"]["doing"] and row["health"][0]["condition"] == "looping"
    (waits,) = (await tools("list_waiting"))["waiting"]
    assert (waits["kind"], waits["job"]) == ("health", "a") and "same call 5 times" in waits["reason"]

    app = tools.served.app
    document, details = app.status(plan), app.job("a", plan)
    tree = "\n".join(map(plain, status_lines(document, document.jobs)))
    assert "looping: It has made the same call" in tree and "active" in tree
    job_page = "\n".join(map(plain, job_lines(details, look_now())))
    assert "looping" in job_page and "active" in job_page and "bash: curl" in job_page
    written = (app.repo.state / FILE).read_text()
    assert all(SECRET not in text for text in (tree, job_page, written, str(page), str(waits)))

    looping.go.set()
    await tools.ended(plan, "waiting")
    after = to_builtins(app.job("a", plan))
    assert after["worker"]["activity"] is None and after["worker"]["health"] == []
    (turn,) = after["attempts_detail"][0]["turns"]
    assert [(one["condition"], bool(one["ended_at"])) for one in turn["health"]] == [("looping", True)]
    assert all(one["kind"] != "health" for one in (await tools("list_waiting"))["waiting"])


async def test_the_step_that_is_named_ends_the_turn(tools: Bench, agents: ScriptedAgents) -> None:
    looping = Looping(agents)
    plan = (await tools("create_plan", name="Loop", jobs=[JOB]))["plan"]
    await asyncio.wait_for(looping.begun.wait(), 20)

    await shown(tools, plan)
    app = tools.served.app
    (waits,) = app.waiting()
    assert (waits.answer, waits.next[0].operation) == ("interrupt", "interrupt_worker")
    assert waits.command.startswith("orchard interrupt")
    await tools("interrupt_worker", plan=plan, job="a")
    assert to_builtins(app.job("a", plan))["worker"]["state"] == "idle"
    assert not any(one.kind == "health" for one in app.waiting())


async def test_without_an_engine_nothing_is_said_of_now(tmp_path: Path, agents: ScriptedAgents) -> None:
    looping = Looping(agents)
    async with bench(tmp_path / "repo") as tools:
        plan = (await tools("create_plan", name="Loop", jobs=[JOB]))["plan"]
        await asyncio.wait_for(looping.begun.wait(), 20)
        await shown(tools, plan)
        app = tools.served.app
        kept = (app.repo.state / FILE).read_bytes()
    assert not (app.repo.state / FILE).exists(), "an engine that ends takes it away"

    (app.repo.state / FILE).write_bytes(kept)  # as one that was killed leaves it
    left = to_builtins(app.job("a", plan))
    assert left["agent"] is None and left["worker"]["activity"] is None and left["worker"]["health"] == []


@pytest.mark.parametrize(
    ("past", "doing", "words"),
    [(0.5, "bash: ls", "active now: bash: ls"), (3, "", "active 3.0s ago"), (190, "x", "active 3m10s ago: x")],
)
def test_how_long_ago_something_was_seen(past: float, doing: str, words: str) -> None:
    now = time.time()

    assert health.active(ActivityView(time_text(now - past), doing), now) == words


async def test_lines_of_a_run_name_conditions(tools: Bench, agents: ScriptedAgents) -> None:
    looping = Looping(agents)
    plan = (await tools("create_plan", name="Loop", jobs=[JOB]))["plan"]
    await asyncio.wait_for(looping.begun.wait(), 20)
    run = tools.served.app.run_of(PlanId(plan))

    def words(event: HealthNoted | HealthCleared) -> str:
        return plain(event_lines(run, Recorded(1, 0.0, run.id, event))[0])

    assert "looping" in words(HealthNoted(JobId("a"), 1, "looping", "Again.", "tell"))
    assert "its turn is ended: Again." in words(HealthNoted(JobId("a"), 1, "looping", "Again.", "interrupt"))
    assert "subtask-1 stuck" in words(HealthNoted(JobId("a"), 1, "stuck", "Silent.", "tell", "subtask-1"))
    assert "not looping any more" in words(HealthCleared(JobId("a"), 1, "looping"))
