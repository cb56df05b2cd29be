"""Questions that the API asks of an App, each answered with plain values; `Served.read` runs them beside the loop."""

from collections import Counter, OrderedDict
from contextlib import closing
from typing import Literal

from orchard.app import App
from orchard.core.run import Run
from orchard.core.scheduler import group_statuses
from orchard.core.views import graph as drawing
from orchard.core.views.attempts import attempt_view, failure_view
from orchard.core.views.documents import PlanSummary
from orchard.core.views.plans import job_view
from orchard.errors import NotFound
from orchard.model.events.plans import Json
from orchard.model.plan import JobId, PlanId
from orchard.model.statuses import JobStatus
from orchard.process.identity import Identity, is_alive
from orchard.store.db import StoreError, explained, open_read_only
from orchard.store.masked_settings import shown_settings
from orchard.store.slots import SLOTS
from orchard.surfaces.http.problems import json_bytes
from orchard.surfaces.next_steps import in_commands

GraphForm = Literal["mermaid", "dot", "svg", "json"]
SLOTS_FILE = "slots.db"
KEPT_DOCUMENTS = 8


# ---------------------------------------------------------------------------------------- plans


class Documents:
    """Documents of plans as they were sent last: one in which nothing has happened since is not made again."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[PlanId, int | None], tuple[tuple[int, bool, bool], bytes]] = OrderedDict()

    def of(self, app: App, name: str, since: int | None) -> tuple[int, bytes]:
        """The number of an event up to which a plan's document is complete, and the document.

        `since`: only what is another than after that event.
        """
        newest = app.reader.last_seq()
        run, gone = app.seen(plan_named(app, name))
        return newest, self._document(app, run, gone, since)

    def after(self, app: App, plan: PlanId, since: int) -> tuple[int, bytes] | None:
        """What happened to a plan after event `since`: the number of its last event, and what is another now."""
        run, gone = app.seen(plan)
        return (run.seq, self._document(app, run, gone, since)) if run.seq > since else None

    def _document(self, app: App, run: Run, gone: bool, since: int | None) -> bytes:
        name, state = (run.id, since), (run.seq, gone, run.ahead)
        kept = self._kept.pop(name, None)
        if kept is None or kept[0] != state:
            made = app.document(run, gone) if since is None else app.changes(run, gone, since)
            kept = state, json_bytes(made)
        self._kept[name] = kept
        while len(self._kept) > KEPT_DOCUMENTS:
            self._kept.popitem(last=False)
        return kept[1]


def plan_named(app: App, name: str, verb: str = "") -> PlanId:
    """The plan that is meant; one that is named by its whole id is found without looking at the others."""
    return PlanId(name) if app.reader.plan(PlanId(name)) is not None else app.find_plan(name, verb)


def plans_page(app: App, status: str | None, deleted: bool, limit: int, cursor: str | None) -> Json:
    """Some plans, the newest first. A cursor is the number of the first event of the last plan that was shown."""
    found: list[PlanSummary] = []
    last = ""
    for row in reversed(app.reader.plans()):
        if (cursor is not None and row.first_seq >= int(cursor)) or (not deleted and row.summary.deleted):
            continue
        summary = row.summary if row.settled else app.summary(row.id)
        if status is not None and summary.status != status:
            continue
        if len(found) == limit:
            return {"plans": found, "next": last}
        found.append(summary)
        last = str(row.first_seq)
    return {"plans": found, "next": None}


def jobs_page(app: App, plan: PlanId, status: str | None, group: str | None, limit: int, cursor: str | None) -> Json:
    """Some jobs of a plan, in its order. A cursor is the number of jobs, of all, that were looked at."""
    run, gone = app.seen(plan)
    if group is not None:
        find_group(run, group)
    views = [(number, job_view(run, job, interrupted=gone)) for number, job in enumerate(_in_group(run, group), 1)]
    fitting = [(number, view) for number, view in views if status is None or view.status == status]
    after = [(number, view) for number, view in fitting if number > int(cursor or 0)]
    shown = after[:limit]
    return {
        "plan": run.id,
        "jobs": [view for _, view in shown],
        "total": len(fitting),
        "next": str(shown[-1][0]) if len(after) > limit else None,
    }


def _in_group(run: Run, group: str | None) -> list[JobId]:
    """The jobs of a group and of the groups inside it."""
    jobs = run.plan.jobs.values()
    return [job.id for job in jobs if group is None or _is_in(job.group, group)]


def _is_in(own: str | None, group: str) -> bool:
    return own == group or (own or "").startswith(f"{group}/")


def graph(app: App, plan: PlanId, form: GraphForm) -> str | Json:
    """A plan as a picture, or as jobs and edges."""
    run, gone = app.seen(plan)
    if form == "json":
        views = [job_view(run, job, interrupted=gone) for job in run.plan.jobs]
        fields = ("id", "name", "group", "status", "validation")
        nodes = [{name: getattr(view, name) for name in fields} for view in views]
        return {"plan": run.id, "jobs": nodes, "edges": [list(edge) for edge in drawing.edges(run.plan)]}
    statuses = {job: str(JobStatus(record.status)) for job, record in run.records.items()}
    draw = {"mermaid": drawing.mermaid, "dot": drawing.dot, "svg": drawing.svg}[form]
    return draw(run.plan, statuses)


def groups(app: App, plan: PlanId) -> Json:
    """Every group of a plan, with what it shows."""
    run = app.run_of(plan)
    statuses = group_statuses(run)
    own: dict[str, list[JobId]] = {path: [] for path in statuses}
    counts: dict[str, Counter[str]] = {path: Counter() for path in statuses}
    for job in run.plan.jobs.values():
        if job.group is None:
            continue
        own[job.group].append(job.id)
        for path in _around(job.group):
            counts[path][str(run.records[job.id].status)] += 1
            counts[path]["total"] += 1
    rows = [
        {"path": path, "status": str(statuses[path]), "counts": dict(counts[path]), "jobs": own[path]}
        for path in sorted(statuses)
    ]
    return {"plan": run.id, "groups": rows}


def _around(group: str) -> list[str]:
    """A group, and every group that it is inside of."""
    parts = group.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]


def find_group(run: Run, group: str) -> str:
    """A group that the plan has."""
    if not any(_is_in(job.group, group) for job in run.plan.jobs.values()):
        known = ", ".join(list(group_statuses(run))[:8]) or "none"
        raise NotFound(f"Plan '{run.id}' has no group '{group}'.", f"There is: {known}")
    return group


def open_jobs(app: App, plan: PlanId, group: str) -> list[JobId]:
    """The jobs of a group, and of the groups inside it, that are not over."""
    run = app.run_of(plan)
    find_group(run, group)
    over = (JobStatus.SUCCEEDED, JobStatus.FAILED, JobStatus.CANCELED)
    return [job for job in _in_group(run, group) if run.records[job].status not in over]


# ----------------------------------------------------------------------------------------- jobs


def attempts(app: App, plan: PlanId, job: JobId) -> Json:
    """Every attempt at a job."""
    run, gone = app.seen(plan)
    return {"plan": plan, "job": job, "attempts": attempt_view(run, job, interrupted=gone)}


def failure(app: App, plan: PlanId, job: JobId) -> Json:
    """Why a job is not done."""
    run, gone = app.seen(plan)
    tries, view = attempt_view(run, job, interrupted=gone), job_view(run, job, interrupted=gone)
    last = tries[-1] if tries else None
    found = last.failure if last else None
    if found is None and (failed := run.records[job].failure) is not None:  # failed before it was tried
        found = failure_view(failed)
    phase = found.phase if found else None
    log = app.logs.path(plan, job, last.number, phase) if last and phase else None
    return {
        "plan": plan,
        "job": job,
        "status": view.status,
        "attempt": last.number if last else None,
        "failure": found,
        "log": str(log) if log is not None and log.is_file() else None,
        "hint": view.hint,
    }


# ---------------------------------------------------------------------------------------- place


def config(app: App) -> Json:
    """The settings, and where each comes from."""
    return {"settings": shown_settings(app.settings), "untrusted": sorted(app.settings.untrusted)}


def doctor(app: App) -> Json:
    """What could go wrong here."""
    from orchard.engine.doctor import examine, health

    found = examine(app.repo, app.settings, app.dirs, engine_alive=app.engine_alive())
    return health(found, in_commands)


def capacity(app: App) -> Json:
    """The slots of this user, and who has them; a holder that is gone has none."""
    rows: list[tuple[int, float, str, int]] = []
    place = app.dirs.state / SLOTS_FILE
    try:
        if place.is_file():
            with explained(place, SLOTS.what), closing(open_read_only(place, SLOTS)) as db:
                rows = db.execute("SELECT pid, started, boot, count(*) FROM leases GROUP BY 1, 2, 3").fetchall()
    except StoreError:
        rows = []  # nobody can count them now; jobs are counted by each process alone
    holders = [{"pid": pid, "slots": count} for pid, started, boot, count in rows if _lives(pid, started, boot)]
    config = app.settings.config
    return {
        "total": config.capacity.global_,
        "used": sum(one["slots"] for one in holders),
        "holders": holders,
        "max_parallel": config.max_parallel,
    }


def _lives(pid: int, started: float, boot: str) -> bool:
    return is_alive(Identity(pid, started, boot))
