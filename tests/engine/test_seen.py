"""An engine that brings a plan to its end while somebody looks at the plan has not left it behind."""

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from orchard.app import App, open_app
from orchard.core.run import Run
from orchard.engine.server.session import Session
from orchard.model.plan import PlanId
from orchard.operations.operation import OfJob
from orchard.operations.queries import jobs as job_queries
from orchard.operations.queries import plans as plan_queries
from orchard.surfaces.mcp.tools.names import standing
from orchard.surfaces.next_steps import in_commands
from tests.engine.conftest import Orchard, until

pytestmark = pytest.mark.anyio

PLAN = "name: slow\njobs: [{id: a, work: 'until [ -e GO ]; do sleep 0.05; done; echo a > a.txt'}]\n"


class Late(App):
    """Looks at a plan in the last moment of its engine: when the run has been read, the engine is gone."""

    has_read = False

    def run_of(self, plan: PlanId) -> Run:
        self.has_read = True
        return super().run_of(plan)

    def engine_alive(self) -> bool:
        return not self.has_read and super().engine_alive()


LOOKS: dict[str, Callable[[App, PlanId], Any]] = {
    "status": lambda app, plan: app.status(plan),
    "summary": lambda app, plan: app.summary(plan),
    "job": lambda app, plan: app.job("a", plan),
    "attempts": lambda app, plan: app.attempts("a", plan),
    "waiting": lambda app, _: app.waiting(),
    "list_jobs": lambda app, plan: plan_queries.list_jobs.read(app, plan_queries.ListJobs(plan=plan)),
    "get_job_attempts": lambda app, plan: job_queries.get_job_attempts.read(app, OfJob(plan=plan, job="a")),
    "get_job_failure": lambda app, plan: job_queries.get_job_failure.read(app, OfJob(plan=plan, job="a")),
    "an answer of MCP": standing,
}


async def test_a_plan_whose_engine_ends_while_it_is_looked_at_is_not_called_interrupted(orchard: Orchard) -> None:
    shown: dict[str, str] = {}
    go = orchard.repo.path.parent / "go"

    async def look(_: Session, plan: PlanId) -> None:
        await until(lambda: orchard.job("a", plan)["status"] == "running")
        for name, ask in LOOKS.items():
            app = open_app(orchard.repo.path, in_commands)
            shown[name] = json.dumps(
                msgspec.to_builtins(ask(Late(app.repo, app.settings, app.dirs, in_commands), plan))
            )
        go.touch()

    await orchard.run(PLAN.replace("GO", str(go)), look)

    assert shown.keys() == LOOKS.keys()
    for name, text in shown.items():
        assert "interrupted" not in text and "paused" not in text.replace('"paused": null', ""), (name, text)
