"""What keys ask for: operations of the table, about the plan that is shown or the row that is chosen."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from orchard.core.views.documents import JobView
from orchard.errors import UsageError
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import safe
from orchard.surfaces.cli.render.tree import Row
from orchard.surfaces.cli.watch.picture import Seen


class Wish(Struct, frozen=True):
    """An operation that a key asks for."""

    operation: str
    """Its name in the table, which is imported when the first key asks for something."""
    values: Mapping[str, Any]
    done: str
    """What is said when it is granted."""
    question: str = ""
    """What a person is asked first, where work could be lost or something lands."""
    person: bool = False
    """Whether only a person may answer it: nothing that a job has started."""

    @property
    def job(self) -> str:
        return str(self.values.get("job", ""))


class Action(Struct, frozen=True):
    key: str
    word: str
    does: str
    wish: Callable[[Seen, Row | None], Wish]


def _cancel(seen: Seen, row: Row | None) -> Wish:
    if row is not None and row.job is None:
        group = safe(row.path)
        values = {"group": row.path}
        return Wish(
            "cancel_jobs", values, f"Group '{group}' is canceled.", f"Cancel all jobs of group '{group}'? {KEPT}"
        )
    job = _job(row, "cancel")
    if job.validation:
        return _cancel_plan(seen, row)
    name = safe(job.id)
    _refuse_over(f"Job '{name}'", str(job.status))
    return Wish("cancel_jobs", {"jobs": [job.id]}, f"Job '{name}' is canceled.", f"Cancel job '{name}'? {KEPT}")


KEPT = "What was written so far is kept."
ENDED = {"succeeded": "succeeded", "failed": "failed", "canceled": "was canceled"}


def _refuse_over(what: str, status: str) -> None:
    """Who would cancel what is over is told so, and not asked."""
    if status in ENDED:
        raise UsageError(f"{what} is over: it {ENDED[status]}. There is nothing to cancel.")


def _cancel_plan(seen: Seen, _: Row | None) -> Wish:
    if seen.settled:
        _refuse_over(f"Plan {safe(seen.plan.id)}", str(seen.plan.status))
    plan = f"plan '{safe(seen.plan.name, 60)}' ({safe(seen.plan.id)})"
    return Wish("cancel_plan", {}, f"Plan {safe(seen.plan.id)} is canceled.", f"Cancel {plan}? {KEPT}")


def _retry(seen: Seen, row: Row | None) -> Wish:
    if row is not None and row.job is None:
        inside = [job for job in seen.jobs if f"{job.group or ''}/".startswith(f"{row.path}/")]
        failed = [job.id for job in inside if job.status in ("failed", "canceled")]
        if not failed:
            raise UsageError(f"No job of group '{safe(row.path)}' has failed.")
        return Wish("retry_plan", {"jobs": failed}, f"Retrying {text.many(len(failed), 'job')} of '{safe(row.path)}'.")
    job = _job(row, "retry")
    return Wish("retry_plan", {"jobs": [job.id]}, f"Retrying job '{safe(job.id)}'.")


def _retry_plan(seen: Seen, _: Row | None) -> Wish:
    return Wish("retry_plan", {}, f"Retrying the failed jobs of plan {safe(seen.plan.id)}.")


def _pause(seen: Seen, _: Row | None) -> Wish:
    plan = safe(seen.plan.id)
    if any(step.operation == "resume_plan" for step in seen.plan.next):
        return Wish("resume_plan", {}, f"Plan {plan} goes on.")
    return Wish("pause_plan", {}, f"Plan {plan} is paused: running jobs finish, and no other starts.")


def _approve(_: Seen, row: Row | None) -> Wish:
    name = safe(_job(row, "approve").id)
    question = f"Approve the changes of job '{name}'? (d shows them)"
    return Wish("approve_job", {"job": _job(row, "approve").id}, f"Job '{name}' is approved.", question, person=True)


def _land(seen: Seen, _: Row | None) -> Wish:
    plan = seen.plan
    where = f" on '{safe(plan.target.branch)}'" if plan.target.branch else ""
    question = f"Land plan '{safe(plan.name, 60)}' ({safe(plan.id)}){where}?"
    return Wish("land_plan", {}, f"Plan {safe(plan.id)} is landed{where}.", question)


def _job(row: Row | None, what: str) -> JobView:
    if row is None or row.job is None:
        raise UsageError(f"Choose a job to {what} first.")
    return row.job


ACTIONS = (
    Action("c", "cancel", "cancel the chosen job or group", _cancel),
    Action("C", "cancel all", "cancel the plan", _cancel_plan),
    Action("r", "retry", "retry the chosen job or group", _retry),
    Action("R", "retry all", "retry all failed jobs of the plan", _retry_plan),
    Action("p", "pause", "pause the plan, or let it go on", _pause),
    Action("a", "approve", "approve the changes of the chosen job", _approve),
    Action("L", "land", "land the plan", _land),
)

OTHER_KEYS = (
    ("up down", "choose a plan or a job, or scroll (also j k, page keys, home, end)"),
    ("left right", "fold and unfold a group, or scroll the text sideways"),
    ("space", "fold or unfold the chosen group"),
    ("tab", "go to the next part of the screen"),
    ("l d i", "show the log, the diff or the details of the chosen job"),
    ("b", "show or hide the list of plans"),
    ("[ ]", "show the plan before or after this one"),
    ("?", "show these keys"),
    ("q", "quit (also ctrl-c); plans go on"),
)
