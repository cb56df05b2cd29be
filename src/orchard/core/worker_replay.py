"""What events about the agents that work on jobs, and about jobs that people deploy or call done, mean for a run."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.model.events import plans as events
from orchard.model.phases import Phase
from orchard.model.plan import JobId
from orchard.model.statuses import JobStatus

PAUSED = "paused"


def pause_reason(job: JobId) -> str:
    return f"The agent of job '{job}' is paused, and waits to be resumed."


def _idle(run: Run, event: events.WorkerIdle, at: float) -> None:
    record = run.records[event.job]
    if record.last is not None:
        record.last.idle = event
    if event.why == PAUSED and record.hold is not None:  # it was idle before
        run.set_hold(event.job, replace(record.hold, reason=pause_reason(event.job)))


def _completed(run: Run, event: events.WorkerCompleted, at: float) -> None:
    record = run.records[event.job]
    if record.state is not JobState.RUNNING:  # else the attempt itself goes on with the commit
        record.resume_from = Phase.COMMIT
    if record.last is not None:
        record.last.idle, record.last.completed = None, event


def _marked_done(run: Run, event: events.JobMarkedDone, at: float) -> None:
    record = run.records[event.job]
    waits_for_slot = record.status is JobStatus.READY and run.takes_slot(event.job)
    record.done, record.resume_from, record.work_commit = event, None, None
    run.deploy(event.job)
    if waits_for_slot:
        run.requeue(event.job)
    run.mark(event.job)


APPLY_WORKERS: Mapping[type[events.Event], Callable[[Run, Any, float], None]] = {
    events.JobDeployed: lambda run, event, at: run.deploy(event.job),
    events.WorkerIdle: _idle,
    events.WorkerCompleted: _completed,
    events.JobMarkedDone: _marked_done,
}
