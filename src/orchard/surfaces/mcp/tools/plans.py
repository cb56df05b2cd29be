"""Tools that look at plans, and that wait for them."""

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from orchard.app import App
from orchard.core.run import Run
from orchard.core.views.documents import PlanSummary
from orchard.core.views.graph import mermaid
from orchard.core.views.plans import changed_jobs, job_view, plan_summary
from orchard.errors import UsageError
from orchard.model.events.event import JobEvent, PlanEvent
from orchard.model.events.plans import JobPicked, Json
from orchard.model.plan import JobId, PlanId
from orchard.operations.queries import plans as plan_queries
from orchard.surfaces.mcp.messages import compact, first_line
from orchard.surfaces.mcp.tool import Call, Output
from orchard.surfaces.mcp.tools.declaration import declared, paged
from orchard.surfaces.mcp.tools.models import PLAN, Cursor, Done, JobRow, Name, PlanRow, Told, optional
from orchard.surfaces.mcp.tools.names import Meant, meant_plan, next_step, of_plan
from orchard.surfaces.next_steps import in_commands
from orchard.text import quoted

GATHER_SECONDS = 0.3
PLANS_PAGE = 20
NAMED = 10
"""How many neighbours of a job are named: a job may need two hundred others, and any number may need it."""
DRAWN_JOBS = 150
"""A larger plan is not drawn: nobody could read the picture."""


# ------------------------------------------------------------------------------------ looking


class PlanPage(Told, kw_only=True):
    plan: PlanRow
    description: str | None = None
    base: str | None = None
    result: str | None = None
    sandbox: str | None = None
    limits: list[str] | None = None
    warnings: list[str] | None = None
    healed: list[dict[str, str]] | None = None
    resolutions: list[dict[str, Any]] | None = None
    jobs: list[JobRow]
    removed: list[str] | None = None
    next_cursor: Cursor | None = None
    cursor: int
    next: str | None = None


def _plan_page(app: App, meant: Meant, given: Any) -> Json:
    run, interrupted = app.seen(meant.plan)
    summary = plan_summary(run, in_commands, interrupted=interrupted)
    jobs, removed = list(run.plan.jobs), list[str]()
    if given.since is not None:
        jobs = changed_jobs(run, given.since, interrupted=interrupted)
        removed = app.changes(run, interrupted, given.since).removed
    shown, following = page_of(jobs, given.limit, given.cursor)
    result = summary.result
    return {
        "plan": plan_row(summary),
        "jobs": [job_row(run, job, interrupted=interrupted) for job in shown],
        "cursor": run.seq,
        "next": next_step(run, summary.status),
        **compact({
            "description": run.plan.description if given.since is None else None,
            "base": summary.base.branch,
            "result": result.branch if result else None,
            "sandbox": summary.sandbox if given.since is None else None,
            "limits": summary.limits if given.since is None else None,
            "warnings": summary.warnings[-5:],
            "healed": summary.healed[-NAMED:],
            "resolutions": summary.resolutions[-NAMED:],
            "next_cursor": following,
            "removed": removed,
        }),
    }  # fmt: skip


def plan_row(summary: PlanSummary) -> Json:
    """A plan in a few fields."""
    kept = {
        "target": summary.target.branch,
        "landed": summary.landed or None,
        "pull_request": summary.pull_request.url if summary.pull_request is not None else None,
        "created_at": summary.created_at,
        "ended_at": summary.ended_at,
        "error": first_line(summary.error),
    }
    named = {"plan": summary.id, "name": summary.name, "status": summary.status}
    return {**named, "counts": summary.counts, **compact(kept)}


def job_row(run: Run, job: JobId, *, interrupted: bool) -> Json:
    """A job in a few fields."""
    view = job_view(run, job, interrupted=interrupted)
    waiting = view.waiting
    kept = {
        "name": view.name if view.name != job.rpartition("/")[2] else None,
        "phase": view.phase,
        "attempts": view.attempts or None,
        **few("needs", [] if view.validation else view.needs),
        "error": first_line(view.error),
        "waiting": first_line(waiting.reason) if waiting else None,
        "health": [one.condition for one in view.agent.health] if view.agent else None,
    }
    return {"id": job, "status": view.status, **compact(kept)}


def few(name: str, jobs: Sequence[str]) -> Json:
    """The first of a list of jobs, and how many there are where that is more."""
    return {name: list(jobs[:NAMED]), f"{name}_total": len(jobs) if len(jobs) > NAMED else None}


def page_of(rows: list[Any], limit: int, cursor: str | None) -> tuple[list[Any], str | None]:
    """A page of names, and the name after which the next one begins."""
    start = 0
    if cursor is not None:
        if cursor not in rows:
            raise UsageError(
                f"cursor: {quoted(cursor)} is no page of this list.",
                hint="Leave 'cursor' out to begin anew. For what changed meanwhile, get_plan has 'since'.",
            )
        start = rows.index(cursor) + 1
    shown = rows[start : start + limit]
    return shown, str(shown[-1]) if start + limit < len(rows) else None


class PlanList(Told, kw_only=True):
    plans: list[PlanRow]
    next_cursor: Cursor | None = None


async def list_plans(call: Call, given: Any) -> Json:
    """Plans, the newest first."""
    return await call.served.read(_plan_list, call.served.app, given)


def _plan_list(app: App, given: Any) -> Json:
    found = {one.id: one for one in reversed(app.plans(deleted=given.deleted)) if given.status in (None, one.status)}
    shown, following = page_of(list(found), given.limit, given.cursor)
    return {"plans": [plan_row(found[plan]) for plan in shown], **compact({"next_cursor": following})}


class GraphRow(Output, kw_only=True):
    id: str
    status: str
    needs: list[str] | None = None
    needs_total: int | None = None
    needed_by: list[str] | None = None
    needed_by_total: int | None = None


class Graph(Told, kw_only=True):
    plan: str
    mermaid: str | None = None
    jobs: list[GraphRow]
    next_cursor: Cursor | None = None


def _graph(app: App, meant: Meant, given: Any) -> Json:
    run = app.run_of(meant.plan)
    statuses = {job: str(record.status) for job, record in run.records.items()}
    shown, following = page_of(list(run.plan.jobs), given.limit, given.cursor)
    rows = [
        {"id": job, "status": statuses[job]}
        | compact({**few("needs", run.plan.jobs[job].needs), **few("needed_by", run.plan.needed_by[job])})
        for job in shown
    ]
    small = len(run.plan.jobs) <= DRAWN_JOBS
    picture = mermaid(run.plan, statuses) if small and given.cursor is None else None
    note = [] if small else [f"The plan has {len(run.plan.jobs)} jobs; only up to {DRAWN_JOBS} are drawn."]
    return {"plan": meant.plan, "jobs": rows, **compact({"mermaid": picture, "next_cursor": following, "notes": note})}


# ------------------------------------------------------------------------------------ waiting


class Waited(Done, kw_only=True):
    happened: bool
    counts: dict[str, int]
    changed: list[JobRow] | None = None
    removed: list[str] | None = None
    error: str | None = None


async def wait_plan(call: Call, given: Any) -> Json:
    """Wait until something happens to a plan; the journal wakes us, nothing is asked again and again."""
    meant = await meant_plan(call, given.plan)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + given.timeout_s
    since, told, gathered = given.cursor, 0, False
    while True:
        newest = call.served.newest
        seen = await call.served.read(_seen, call.served.app, meant.plan, since, given.until)
        since = seen["since"]
        left = deadline - loop.time()
        if seen["happened"] and not seen["over"] and not gathered:
            # What comes in quick succession is told at once: each answer costs a turn of a model.
            gathered = True
            await asyncio.sleep(min(GATHER_SECONDS, max(0.0, left)))
            continue
        if seen["happened"] or left <= 0:
            break
        if call.progress is not None and seen["ended"] > told:
            told = seen["ended"]
            await call.progress(told, seen["total"], f"{told} of {seen['total']} jobs have ended")
        await call.served.newer(newest, left)
    return {**seen["answer"], **compact({"notes": meant.notes})}


def _seen(app: App, plan: PlanId, since: int | None, until: str) -> Json:
    run, interrupted = app.seen(plan)
    since = run.seq if since is None else since
    app.check_since(run, since, "cursor")
    summary = plan_summary(run, in_commands, interrupted=interrupted)
    over = _is_over(run, summary.status)
    happened = over or (until == "change" and _has_news(app, run, since))
    changed = changed_jobs(run, since, interrupted=interrupted)
    counts = summary.counts
    answer = {
        "plan": plan,
        "status": summary.status,
        "cursor": run.seq,
        "next": next_step(run, summary.status),
        "happened": happened,
        "counts": counts,
        **compact({
            "changed": [job_row(run, job, interrupted=interrupted) for job in changed[:20]],
            "removed": app.changes(run, interrupted, since).removed,
            "error": first_line(summary.error),
        }),
    }  # fmt: skip
    ended = sum(counts.get(name, 0) for name in ("succeeded", "failed", "canceled", "blocked"))
    return {
        "since": since,
        "happened": happened,
        "over": over,
        "answer": answer,
        "ended": ended,
        "total": counts["total"],
    }


def _is_over(run: Run, status: str) -> bool:
    """Whether nothing more happens by itself."""
    return run.settled or (not run.is_active and status in ("paused", "waiting", "scaffolding"))


def _has_news(app: App, run: Run, since: int) -> bool:
    """Whether something happened that is worth a turn of a model: no phase, no program, no slot that was given."""
    return any(
        isinstance(recorded.event, PlanEvent | JobEvent) and not isinstance(recorded.event, JobPicked)
        for recorded in app.reader.events(run.id, since)
    )


SINCE = (
    Annotated[int, Field(ge=0)] | None,
    optional("`cursor` of an earlier answer: only jobs that changed since."),
)
TOOLS = (
    declared(plan_queries.get_plan, PlanPage, of_plan(_plan_page), more={"since": SINCE, **paged()}),
    declared(plan_queries.list_plans, PlanList, list_plans, more=paged(PLANS_PAGE)),
    declared(plan_queries.wait_plan, Waited, wait_plan, more={"plan": (Name, PLAN)}),
    declared(plan_queries.get_plan_graph, Graph, of_plan(_graph), without=("format",), more=paged()),
)
