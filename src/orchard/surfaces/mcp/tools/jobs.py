"""Tools for single jobs: how they went, why they failed, and what to do with them."""

from typing import Annotated, Any, Literal

from msgspec import to_builtins
from msgspec.structs import asdict
from pydantic import Field

from orchard.app import App
from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.core.views.attempts import attempt_view
from orchard.core.views.documents import AttemptView, Changes
from orchard.core.views.plans import job_view
from orchard.errors import UsageError, hint_from
from orchard.model.events.plans import Json
from orchard.model.plan import VALIDATION, JobId
from orchard.operations.queries import jobs as job_queries
from orchard.operations.queries import plans as plan_queries
from orchard.store.redact import Redactor
from orchard.surfaces.mcp.messages import compact, first_line
from orchard.surfaces.mcp.tool import Output
from orchard.surfaces.mcp.tools.declaration import declared, paged
from orchard.surfaces.mcp.tools.models import (
    Cursor,
    JobRow,
    PhaseName,
    Told,
    optional,
)
from orchard.surfaces.mcp.tools.names import Meant, MeantJob, blocked_by, jobs_in, next_for_job, of_job, of_plan
from orchard.surfaces.mcp.tools.plans import few, job_row, page_of
from orchard.surfaces.next_steps import in_tools
from orchard.text import for_screen

ATTEMPTS_PAGE = 5
TAIL_BYTES = 6_000
AGENT_TEXT = 2_000
COMMITS = 20


# ------------------------------------------------------------------------------------ looking


class JobList(Told, kw_only=True):
    plan: str
    jobs: list[JobRow]
    total: int
    next_cursor: Cursor | None = None


def _job_list(app: App, meant: Meant, given: Any) -> Json:
    run, interrupted = app.seen(meant.plan)
    jobs = jobs_in(run, given.group) if given.group is not None else list(run.plan.jobs)
    if given.status is not None:
        jobs = [job for job in jobs if job_view(run, job, interrupted=interrupted).status == given.status]
    shown, following = page_of(jobs, given.limit, given.cursor)
    rows = [job_row(run, job, interrupted=interrupted) for job in shown]
    return {"plan": meant.plan, "jobs": rows, "total": len(jobs), **compact({"next_cursor": following})}


class LogRow(Output, kw_only=True):
    attempt: int
    phase: PhaseName
    bytes: int


class JobPage(Told, kw_only=True):
    plan: str
    job: JobRow
    group: str | None = None
    task: str | None = None
    needed_by: list[str] | None = None
    needed_by_total: int | None = None
    agent: dict[str, Any] | None = None
    base_commit: str | None = None
    commit: str | None = None
    summary: dict[str, int] | None = None
    aggregated: dict[str, int] | None = None
    commits: list[dict[str, Any]] | None = None
    usage: dict[str, Any] | None = None
    sandbox: str | None = None
    limits: list[str] | None = None
    worktree: str | None = None
    failed_phase: PhaseName | None = None
    evidence: dict[str, Any] | None = None
    healed: list[dict[str, str]] | None = None
    progress: dict[str, Any] | None = None
    subtasks: list[dict[str, Any]] | None = None
    worker: dict[str, Any] | None = None
    configuration: dict[str, Any]
    logs: list[LogRow] | None = None
    saved: list[str] | None = None
    scheduled_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    next: str | None = None


def _job_page(app: App, meant: MeantJob, given: Any) -> Json:
    whole = app.job(meant.job, meant.plan)
    run, interrupted = app.seen(meant.plan)
    last = whole.attempts
    logs = [one for one in whole.logs if one.attempt == last and one.size]
    changed = changed_counts(whole.summary)
    kept = {name: getattr(whole, name) for name in (
        "group", "task", "agent", "base_commit", "commit", "usage", "worktree", "failed_phase", "evidence", "subtasks",
        "healed", "progress", "worker", "sandbox", "limits",
        "scheduled_at", "started_at", "ended_at",
    )}  # fmt: skip
    return {
        "plan": meant.plan,
        "job": job_row(run, meant.job, interrupted=interrupted),
        "configuration": whole.configuration,
        "next": next_for_job(run, meant.job, whole.status),
        **compact(kept),
        **compact({
            **few("needed_by", [job for job in run.plan.needed_by[meant.job] if job != VALIDATION]),
            "summary": changed,
            "aggregated": changed_counts(whole.aggregated) if whole.aggregated else None,
            "commits": [{"commit": one.commit, "subject": one.subject} for one in whole.commits[-COMMITS:]],
            "logs": [{"attempt": one.attempt, "phase": one.phase, "bytes": one.size} for one in logs],
            "saved": [one.ref for one in whole.saved],
        }),
    }  # fmt: skip


# ----------------------------------------------------------------------------------- failures


class Failure(Told, kw_only=True):
    plan: str
    job: str
    status: Literal["failed", "blocked", "canceled"]
    attempt: int | None = None
    phase: PhaseName | None = None
    reason: str | None = None
    message: str | None = None
    hint: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    tail: str | None = None
    blocked_by: list[str] | None = None
    attempts: int
    worktree: str | None = None
    healing: list[str] | None = None
    next: list[str]


def _failure(app: App, meant: MeantJob, given: Any) -> Json:
    run, interrupted = app.seen(meant.plan)
    record, job = run.records[meant.job], meant.job
    view = job_view(run, job, interrupted=interrupted)
    status = view.status
    if status not in ("failed", "blocked", "canceled"):
        failed = [one for one, other in run.records.items() if other.state is JobState.FAILED]
        others = f" What failed in this plan: {', '.join(failed[:5])}." if failed else ""
        raise UsageError(f"Job '{job}' is {status}: it has not failed.{others}", hint=next_for_job(run, job, status))
    hidden = Redactor(app.secrets(run))
    failure = record.failure
    head: Json = {"plan": meant.plan, "job": job, "status": status, "attempts": len(record.attempts)}
    if status == "blocked":
        causes = blocked_by(run, job)
        todo = [f'get_job_failure(plan="{run.id}", job="{cause}")' for cause in causes[:3]]
        return {**head, "blocked_by": causes[:20], "message": "Something that it needs did not succeed.", "next": todo}
    heals = [turn for attempt in record.attempts[-1:] for turn in attempt.turns if turn.purpose == "heal"]
    told = {
        "attempt": record.last.number if record.last else None,
        "phase": view.failed_phase,
        "reason": view.reason or ("canceled" if status == "canceled" else None),
        "message": view.error or (_why_canceled(run) if status == "canceled" else None),
        "hint": in_tools(said) if failure and (said := hint_from(failure.advice)) else view.hint,
        "exit_code": view.exit_code,
        "signal": failure.signal if failure else None,
        "tail": _plain(hidden, failure.tail)[-TAIL_BYTES:] if failure else None,
        "worktree": view.worktree,
        "healing": [f"{turn.agent}: {turn.healed or turn.reason or 'under way'}" for turn in heals],
    }
    return {**head, **compact(told), "next": _remedies(run, job, told)}


def _why_canceled(run: Run) -> str:
    return (run.canceled.reason if run.canceled else "") or "The job was canceled."


def _plain(hidden: Redactor, text: str) -> str:
    shown = hidden.whole(text.encode(errors="replace")).decode(errors="replace")
    return for_screen(shown)


def _remedies(run: Run, job: JobId, told: Json) -> list[str]:
    """What can be done about a failure, by what it was."""
    at = f'plan="{run.id}", job="{job}"'
    phase, reason = told["phase"], told["reason"]
    log = f'get_job_logs({at}, phase="{phase}") for all that it printed.' if phase else f"get_job({at}) for all of it."
    again = f"retry_job({at}) once the cause is gone."
    if reason in ("canceled", "interrupted"):
        return [f"retry_job({at}) goes on where it stopped.", log]
    if reason == "no-changes":
        return [
            f"retry_job({at}, work=...) with work that changes files.",
            "If no change is right: retry after update, or clone_plan and set changes: optional.",
            log,
        ]
    if reason == "timeout":
        return [f"retry_job({at}, work={{..., timeout: ...}}) with more time, or less to do.", log]
    if reason == "conflict":
        return [
            f"get_job_diff({at}, stat=true), then retry_job({at}): a conflict may be gone once others changed.",
            log,
        ]
    if phase == "postchecks":
        return [
            log,
            f'retry_job({at}, from_phase="work") does the work again.',
            f"retry_job({at}, postchecks=...) if the check is wrong.",
        ]
    if phase == "prechecks":
        return [log, f"retry_job({at}, prechecks=...) if the check is wrong.", again]
    if phase == "work":
        return [log, f"retry_job({at}, work=...) with other work.", again]
    return [log, again]


class Attempt(Output, kw_only=True):
    number: int
    outcome: str
    first_phase: PhaseName
    scheduled_at: str | None = None
    started_at: str | None = None
    ended_at: str | None = None
    base_commit: str | None = None
    commit: str | None = None
    worktree: str | None = None
    work: dict[str, Any] | None = None
    prechecks: list[dict[str, Any]] | None = None
    postchecks: list[dict[str, Any]] | None = None
    phases: list[dict[str, str]]
    agents: list[dict[str, Any]] | None = None
    failure: dict[str, Any] | None = None
    usage: dict[str, Any] | None = None


class Attempts(Told, kw_only=True):
    plan: str
    job: str
    attempts: list[Attempt]
    total: int
    next_cursor: Cursor | None = None


def _attempts(app: App, meant: MeantJob, given: Any) -> Json:
    run, interrupted = app.seen(meant.plan)
    rows = {str(one.number): one for one in reversed(attempt_view(run, meant.job, interrupted=interrupted))}
    if given.attempt is not None:
        if str(given.attempt) not in rows:
            had = f"it has had {len(rows)}" if rows else "it has not started"
            raise UsageError(f"attempt: job '{meant.job}' has no attempt {given.attempt}; {had}.")
        rows = {str(given.attempt): rows[str(given.attempt)]}
    shown, following = page_of(list(rows), given.limit, given.cursor)
    hidden = Redactor(app.secrets(run))
    found = [_attempt(rows[number], hidden) for number in shown]
    head = {"plan": meant.plan, "job": meant.job, "attempts": found, "total": len(rows)}
    return {**head, **compact({"next_cursor": following})}


def changed_counts(changes: Changes) -> dict[str, int]:
    """What of a summary is not zero."""
    return {name: count for name, count in to_builtins(changes).items() if count}


def _attempt(row: AttemptView, hidden: Redactor) -> Json:
    failure: Json | None = None
    if row.failure is not None:
        failure = compact({**asdict(row.failure), "tail": _plain(hidden, row.failure.tail)[-TAIL_BYTES:]})
    agents = [
        compact({
            **{name: getattr(turn, name) for name in ("agent", "trigger", "model", "outcome", "healed")},
            "phase": turn.phase,
            "message": first_line(turn.message),
            "text": _plain(hidden, turn.text or "")[-AGENT_TEXT:],
        })
        for turn in row.turns
    ]  # fmt: skip
    phases = [
        compact({"phase": one.phase, "outcome": one.outcome or "running", "note": one.note}) for one in row.phases
    ]
    names = ("scheduled_at", "started_at", "ended_at", "base_commit", "commit", "worktree")
    kept = {name: getattr(row, name) for name in (*names, "usage", "work", "prechecks", "postchecks")}
    head = {name: getattr(row, name) for name in ("number", "outcome", "first_phase")}
    return {**head, "phases": phases, **compact({**kept, "agents": agents, "failure": failure})}


NUMBER = (Annotated[int, Field(ge=1)] | None, optional("Only this one."))
TOOLS = (
    declared(job_queries.get_job, JobPage, of_job(_job_page)),
    declared(job_queries.get_job_failure, Failure, of_job(_failure)),
    declared(plan_queries.list_jobs, JobList, of_plan(_job_list), more=paged()),
    declared(
        job_queries.get_job_attempts, Attempts, of_job(_attempts), more={"attempt": NUMBER, **paged(ATTEMPTS_PAGE)}
    ),
)
