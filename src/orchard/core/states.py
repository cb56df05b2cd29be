"""The life of a job, as one table.

Everything that changes a job's state is an event looked up in `TRANSITIONS`; no other code assigns
a state. A missing key is the error, and the error tells the job's story.

Two of the eight statuses that people see are not states. Whether a *pending* job is `ready` or
`blocked` follows from what it needs, so it is computed: nothing has to be propagated when a job
fails, and nothing has to be undone when it is retried.

docs/states.md is drawn from this table by `tools/state_diagram.py`; a test compares them.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum

from orchard.model.events import plans as events


class JobState(StrEnum):
    PENDING = "pending"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


ENDED = frozenset({JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELED})
ACTIVE = frozenset({JobState.SCHEDULED, JobState.RUNNING})

_S = JobState

TRANSITIONS: Mapping[tuple[JobState, type[events.JobEvent]], JobState] = {
    (_S.PENDING, events.JobPicked): _S.SCHEDULED,
    (_S.PENDING, events.JobCanceled): _S.CANCELED,
    (_S.PENDING, events.JobFailed): _S.FAILED,  # force-failed before it ran, or while it was held
    (_S.SCHEDULED, events.JobStarted): _S.RUNNING,
    (_S.SCHEDULED, events.JobFailed): _S.FAILED,
    (_S.SCHEDULED, events.JobCanceled): _S.CANCELED,
    (_S.SCHEDULED, events.JobContinued): _S.PENDING,  # the engine died before the attempt began
    (_S.RUNNING, events.JobSucceeded): _S.SUCCEEDED,
    (_S.RUNNING, events.JobFailed): _S.FAILED,
    (_S.RUNNING, events.JobCanceled): _S.CANCELED,
    (_S.RUNNING, events.JobHeld): _S.PENDING,  # waits for a person, without a slot
    (_S.RUNNING, events.JobContinued): _S.PENDING,  # the engine died in a phase that is safe to repeat
    (_S.FAILED, events.JobRetried): _S.PENDING,
    (_S.CANCELED, events.JobRetried): _S.PENDING,
}


class IllegalTransition(Exception):
    """An event that cannot happen to a job in its state: a bug, told with the job's story."""

    def __init__(self, state: JobState, event: events.JobEvent, story: tuple[str, ...]) -> None:
        past = "".join(f"\n  {line}" for line in story) or "\n  (nothing yet)"
        what = f"{type(event).__name__} cannot happen to job '{event.job}' while it is {state}"
        super().__init__(f"{what}. Its story:{past}")


def after(state: JobState, event: events.JobEvent, story: Callable[[], tuple[str, ...]] = tuple) -> JobState:
    try:
        return TRANSITIONS[state, type(event)]
    except KeyError:
        raise IllegalTransition(state, event, story()) from None
