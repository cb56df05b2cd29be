"""Tools for plans whose tasks are deployed one by one, and for talking with the agents that work on them.

`list_agents`, which belongs to this toolset as well, is the one of `subtasks`.
"""

import asyncio
from copy import deepcopy
from typing import Any

from msgspec import to_builtins
from pydantic import Field

from orchard.app import App
from orchard.core.views import worker_list as views
from orchard.core.views.figures import AgentUsage
from orchard.model.events.plans import Json
from orchard.model.plan import Plan, PlanId
from orchard.operations.commands import drafts
from orchard.operations.queries import system as system_queries
from orchard.operations.queries import workers as worker_queries
from orchard.planfile import parse
from orchard.planfile.fields import JobFields, PlanFields
from orchard.surfaces.mcp.messages import compact
from orchard.surfaces.mcp.tool import Call, Output
from orchard.surfaces.mcp.tools.changes import Shaped, add_jobs_request, check_job
from orchard.surfaces.mcp.tools.creation import Created, check_plan, given_fields, submitted
from orchard.surfaces.mcp.tools.declaration import declared, paged
from orchard.surfaces.mcp.tools.models import (
    Cursor,
    JobStatusName,
    Limit,
    PhaseName,
    PlanStatusName,
    Told,
    WorkerState,
    plan_fields,
)
from orchard.surfaces.mcp.tools.names import MeantJob, as_tasks, full_ids, meant_plan, of_job, with_ids
from orchard.surfaces.mcp.tools.plans import page_of
from orchard.text import for_screen

SAID = 1_000
"""Characters of an agent's last words in a list."""
TASKS = 50
"""Tasks of a plan that are named in a list."""
ENTRY = 2_000
"""Characters of one entry of a conversation, and of one that is asked for alone."""
ONE_ENTRY = 50_000
CUT = "Entries with `whole: false` are cut. One alone is told in full: get_job_talk with limit=1 and since={since}."


# ------------------------------------------------------------------------------------------ looking


class WorkerRow(Output, kw_only=True):
    plan: str
    job: str
    state: WorkerState
    name: str | None = None
    status: JobStatusName | None = None
    phase: PhaseName | None = None
    agent: str | None = None
    definition: str | None = None
    error: str | None = None
    model: str | None = None
    interactive: bool | None = None
    turns: int | None = None
    queued: int | None = None
    said: str | None = None
    progress: dict[str, Any] | None = None
    tokens: int | None = None
    cost: float | None = None
    asks: list[dict[str, Any]] | None = None
    health: list[dict[str, Any]] | None = None
    activity: dict[str, Any] | None = None
    subtasks: list[dict[str, Any]] | None = None


class TaskRow(Output, kw_only=True):
    job: str
    status: JobStatusName
    deployed: bool
    name: str | None = None
    phase: PhaseName | None = None
    agent: str | None = None
    waits_for: list[str] | None = None


class TasksOfPlan(Output, kw_only=True):
    plan: str
    name: str
    status: PlanStatusName
    counts: dict[str, int]
    tasks: list[TaskRow]
    tasks_total: int | None = None
    tokens: int | None = None
    cost: float | None = None


class WorkerList(Told, kw_only=True):
    workers: list[WorkerRow]
    plans: list[TasksOfPlan] | None = None
    total: int
    next_cursor: Cursor | None = None


async def list_workers(call: Call, given: Any) -> Json:
    """Plans, tasks, workers and subtasks; the plans are told with the first page of workers."""
    meant = await meant_plan(call, given.plan) if given.plan is not None else None
    found = await call.served.read(_workers, call.served.app, meant.plan if meant is not None else None, given)
    return {**found, **compact({"notes": meant.notes if meant is not None else []})}


def _workers(app: App, plan: PlanId | None, given: Any) -> Json:
    found = worker_queries.list_workers.read(app, worker_queries.ListWorkers(plan=plan, state=given.state))
    rows = {f"{one.plan}:{one.job}": one for one in found.workers}
    shown, following = page_of(list(rows), given.limit, given.cursor)
    plans = [_tasks(one) for one in found.plans] if given.cursor is None else []
    return {
        "workers": [_row(rows[key]) for key in shown],
        "total": found.total,
        **compact({"plans": plans, "next_cursor": following}),
    }


def _tasks(plan: views.PlanRow) -> Json:
    kept = {"plan": plan.plan, "name": plan.name, "status": plan.status, "counts": plan.counts}
    tasks = [_task(one) for one in plan.tasks[:TASKS]]
    total = len(plan.tasks) if len(plan.tasks) > TASKS else None
    return {**kept, "tasks": tasks, **compact({"tasks_total": total, **_used(plan.usage)})}


def _task(task: views.TaskRow) -> Json:
    kept = {"job": task.job, "status": task.status, "deployed": task.deployed}
    more = {"name": _other(task.name, task.job), "phase": task.phase, "agent": task.agent, "waits_for": task.waits_for}
    return {**kept, **compact(more)}


def _row(worker: views.WorkerRow) -> Json:
    kept = {name: getattr(worker, name) for name in ("plan", "job", "state", "status", "agent", "turns", "queued")}
    more = {
        "name": _other(worker.name, worker.job),
        "phase": worker.phase,
        "subtasks": [_subtask(one) for one in worker.subtasks],
    }
    return compact({**kept, **more, **_how(worker)})


def _subtask(one: views.SubtaskRow) -> Json:
    kept = {name: getattr(one, name) for name in ("job", "parent", "state", "status", "agent", "turns", "queued")}
    return compact({**kept, "name": _other(one.name, one.subtask), **_how(one)})


def _how(one: views.WorkerRow | views.SubtaskRow) -> Json:
    return {
        "model": one.model,
        "definition": one.definition,
        "error": one.error,
        "interactive": one.interactive or None,
        "said": one.said if len(one.said) <= SAID else f"[get_job_talk has all of it] {one.said[-SAID:]}",
        "progress": to_builtins(one.progress),
        **_used(one.usage),
        "asks": [{"question": asked.number, "tool": asked.tool, "about": asked.about} for asked in one.asks],
        "health": to_builtins(one.health),
        "activity": to_builtins(one.activity),
    }


def _used(usage: AgentUsage) -> Json:
    """As far as something was used, and its cost is known."""
    return {"tokens": usage.tokens or None, "cost": usage.cost or None}


def _other(name: str, id: str) -> str | None:
    return name if name != id.rpartition("/")[2] else None


# ------------------------------------------------------------------------------------------- talk


class Talk(Told, kw_only=True):
    plan: str
    job: str
    entries: list[dict[str, Any]]
    total: int
    next: int


def _talk(app: App, meant: MeantJob, given: Any) -> Json:
    args = worker_queries.GetJobTalk(plan=meant.plan, job=meant.worker, since=given.since, limit=given.limit)
    found: Json = to_builtins(worker_queries.get_job_talk.read(app, args))
    most = ENTRY if given.limit > 1 else ONE_ENTRY
    entries = [_entry(one, most) for one in found["entries"]]
    # What the journal has only a part of is no longer when it is told alone.
    cut = next((one["seq"] for one in found["entries"] if len(one["text"]) > most), None)
    notes = [CUT.format(since=cut - 1)] if cut is not None and given.limit > 1 else []
    return {**found, "entries": entries, **compact({"notes": notes})}


def _entry(entry: Json, most: int) -> Json:
    cut = len(entry["text"]) > most
    told = {**entry, "text": for_screen(entry["text"][:most]), "whole": None if entry["whole"] and not cut else False}
    return compact(told)


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


class HolderRow(Output, kw_only=True):
    pid: int
    slots: int
    repository: str | None = None
    plans: list[str] | None = None


class CapacityTold(Told, kw_only=True):
    total: int
    used: int
    max_parallel: int
    holders: list[HolderRow]
    problem: str | None = None


async def get_capacity(call: Call, given: Any) -> Json:
    """How many jobs of the user may run at once, and which engines run how many."""
    query = system_queries.get_capacity
    found: Json = to_builtins(await call.served.read(query.read, call.served.app, query.args()))
    return {
        **compact(found),
        "used": found["used"],
        "total": found["total"],
        "holders": [*map(compact, found["holders"])],
    }


TASK = {**plan_fields(JobFields, without=("id",)), **plan_fields(JobFields, only=("id",))}
TOOLS = (
    declared(worker_queries.list_workers, WorkerList, list_workers, without=("all",), more=paged()),
    declared(
        worker_queries.get_job_talk,
        Talk,
        of_job(_talk, or_subtask=True),
        more={"limit": (Limit, Field(default=30, description="At most this many."))},
    ),
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
    declared(system_queries.get_capacity, CapacityTold, get_capacity),
)
