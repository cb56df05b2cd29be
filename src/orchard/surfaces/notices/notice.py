"""What people are told of a plan: that it is done, that it failed, or that it waits for them."""

from collections.abc import Callable, Iterator
from typing import Any, Literal

from msgspec import Struct

from orchard.core.run import Run
from orchard.core.views.documents import Waiting, time_text
from orchard.core.views.plans import needs_person, plan_summary
from orchard.errors import Say
from orchard.model.statuses import PlanStatus
from orchard.text import one_line

Event = Literal["done", "waiting", "failed"]
VERSION = 1
ENDS: dict[PlanStatus, Event] = {PlanStatus.SUCCEEDED: "done", PlanStatus.FAILED: "failed"}
JOBS_NAMED = 3


class Known(Struct, frozen=True):
    """As much of a run as decides what is news."""

    end: Event | None = None
    waits: tuple[Waiting, ...] = ()


class Notice(Struct, frozen=True):
    """One thing to tell; every text in it is redacted."""

    event: Event
    plan: str
    title: str
    message: str
    document: dict[str, Any]
    """What programs get, as JSON."""


def known_of(run: Run, say: Say) -> Known:
    if not run.plan.jobs:
        return Known()
    waits = tuple(needs_person(run, say, engine=True)) if not run.settled else ()
    return Known(ENDS.get(run.status), waits)


def event_of(status: str) -> Event | None:
    """What a plan that a command has followed to its end is told as."""
    return ENDS.get(PlanStatus(status), "waiting" if status == "waiting" else None)


def notices_of(
    before: Known, after: Known, run: Run, say: Say, at: float, repository: str, hide: Callable[[str], str]
) -> Iterator[Notice]:
    """What is new; a job that waits for the same as before is none."""
    summary = plan_summary(run, say)
    about = {
        "version": VERSION,
        "plan": {
            "id": run.id, "name": hide(summary.name), "status": str(summary.status), "landed": summary.landed,
            "target": summary.target.branch, "commit": summary.target.commit, "counts": summary.counts,
            "pull_request": summary.pull_request.url if summary.pull_request is not None else None,
        },
        "repository": repository,
        "at": time_text(at),
    }  # fmt: skip

    def notice(event: Event, sentence: str, hint: str | None, waiting: list[dict[str, Any]]) -> Notice:
        said = one_line(hide(sentence), 500)
        document = {**about, "event": event, "message": said, "hint": hint and hide(hint), "waiting": waiting}
        return Notice(event, run.id, one_line(hide(f"{summary.name}: {event}"), 120), said, document)

    if after.end is not None and after.end != before.end:
        landed = f"It landed on {summary.target.branch}." if summary.landed else "It has succeeded."
        if summary.pull_request is not None and not summary.landed:
            landed = f"Its pull request is {summary.pull_request.url}."
        sentence = landed if after.end == "done" else summary.error or "The plan has failed."
        yield notice(after.end, sentence, summary.hint, [])
    seen = {(one.job, one.kind, one.reason) for one in before.waits}
    fresh = [one for one in after.waits if (one.job, one.kind, one.reason) not in seen]
    if fresh:
        rows = [{"job": one.job, "kind": one.kind, "reason": hide(one.reason)} for one in fresh]
        more = f" and {len(fresh) - JOBS_NAMED} more" if len(fresh) > JOBS_NAMED else ""
        said = "; ".join(f"{one.job or 'the plan'}: {one.reason}" for one in fresh[:JOBS_NAMED])
        yield notice("waiting", f"It waits for you. {said}{more}", summary.hint, rows)
