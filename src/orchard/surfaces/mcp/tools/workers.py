"""Tools for plans whose tasks are deployed one by one, and for talking with the agents that work on them.

`list_agents`, which belongs to this toolset as well, is the one of `subtasks`.
"""

import asyncio
from copy import deepcopy
from typing import Any

from msgspec import to_builtins

from orchard.app import App
from orchard.core.views.documents import WorkerView
from orchard.core.views.plans import job_view
from orchard.model.events.plans import Json
from orchard.model.plan import Plan, PlanId
from orchard.operations import drafts, system_queries, workers
from orchard.planfile import parse
from orchard.planfile.fields import JobFields, PlanFields
from orchard.surfaces.mcp.messages import compact
from orchard.surfaces.mcp.tool import Call, Output
from orchard.surfaces.mcp.tools.changes import Shaped, add_jobs_request, check_job
from orchard.surfaces.mcp.tools.creation import Created, check_plan, given_fields, submitted
from orchard.surfaces.mcp.tools.declaration import declared, paged
from orchard.surfaces.mcp.tools.models import Cursor, Told, WorkerState, plan_fields
from orchard.surfaces.mcp.tools.names import as_tasks, full_ids, meant_plan, with_ids
from orchard.surfaces.mcp.tools.plans import page_of

SAID = 1_000
"""Characters of an agent's last words in a list."""


# ------------------------------------------------------------------------------------------ looking


class WorkerRow(Output, kw_only=True):
    plan: str
    job: str
    state: WorkerState
    agent: str | None = None
    interactive: bool | None = None
    turns: int | None = None
    queued: int | None = None
    said: str | None = None
    health: list[dict[str, Any]] | None = None
    activity: dict[str, Any] | None = None


class WorkerList(Told, kw_only=True):
    workers: list[WorkerRow]
    total: int
    next_cursor: Cursor | None = None


async def list_workers(call: Call, given: Any) -> Json:
    """The agents that work on jobs."""
    meant = await meant_plan(call, given.plan) if given.plan is not None else None
    found = await call.served.read(_workers, call.served.app, meant.plan if meant is not None else None, given)
    return {**found, **compact({"notes": meant.notes if meant is not None else []})}


def _workers(app: App, plan: PlanId | None, given: Any) -> Json:
    plans = [plan] if plan is not None else [row.id for row in app.reader.plans() if not row.settled]
    stopped = not app.engine_alive()
    found: dict[str, Json] = {}
    for one in plans:
        run = app.run_of(one)
        for job in run.plan.jobs:
            worker = app.with_activity(run, [job_view(run, job, interrupted=stopped)])[0].worker
            if worker is not None and given.state in (None, worker.state):
                found[f"{one}:{job}"] = {"plan": one, "job": job, **_row(worker)}
    shown, following = page_of(list(found), given.limit, given.cursor)
    return {"workers": [found[key] for key in shown], "total": len(found), **compact({"next_cursor": following})}


def _row(worker: WorkerView) -> Json:
    kept = {name: getattr(worker, name) for name in ("state", "agent", "turns", "queued")}
    how = {"health": to_builtins(worker.health), "activity": to_builtins(worker.activity)}
    return compact({**kept, "interactive": worker.interactive or None, "said": worker.said[-SAID:], **how})


# ----------------------------------------------------------------------------------------- planning


async def save_plan(call: Call, given: Any) -> Json:
    """Make a plan of which nothing runs before it is deployed."""
    plan, notes = await call.served.read(_manual, given_fields(given))
    return await submitted(call, plan, given.idempotency_key, notes, scaffolding=True)


def _manual(value: Json) -> tuple[Plan, list[str]]:
    as_tasks(value)
    notes = with_ids(value, full_ids(value))
    return parse.parse_value({**value, "deploy": "manual"}, scaffolding=True), notes


async def add_plan_task(call: Call, given: Any) -> Json:
    """Add one task to a plan."""
    meant = await meant_plan(call, given.plan)
    task = given_fields(given, without=("plan",))
    as_tasks({"jobs": [task]})
    return await add_jobs_request(call, meant, [task], alone=True)


def _check_task(value: Json) -> None:
    task = dict(value)
    as_tasks({"jobs": [task]})
    check_job(task)


def _check_tasks(value: Json) -> None:
    plan = deepcopy(value)
    as_tasks(plan)
    check_plan(plan, scaffolding=True)


# ------------------------------------------------------------------------------------------- models


class ModelRow(Output, kw_only=True):
    agent: str
    model: str
    tier: str
    vendor: str | None = None


class ModelList(Told, kw_only=True):
    models: list[ModelRow]


async def list_models(call: Call, given: Any) -> Json:
    """Which models the agents have; programs and providers may be asked."""
    query = system_queries.list_models
    found = to_builtins(await asyncio.to_thread(query.read, call.served.app, query.args(**given.model_dump())))
    problems = [f"{name}: {one['problem']}" for name, one in found["agents"].items() if one["problem"]]
    return {"models": [compact(row) for row in found["models"]], **compact({"notes": problems})}


TASK = {**plan_fields(JobFields, without=("id",)), **plan_fields(JobFields, only=("id",))}
TOOLS = (
    declared(workers.list_workers, WorkerList, list_workers, more=paged()),
    declared(
        drafts.save_plan,
        Created,
        save_plan,
        without=("fields",),
        more=plan_fields(PlanFields, without=("deploy", "start_paused")),
        check=_check_tasks,
    ),
    declared(drafts.add_plan_task, Shaped, add_plan_task, without=("fields",), more=TASK, check=_check_task),
    declared(system_queries.list_models, ModelList, list_models),
)
