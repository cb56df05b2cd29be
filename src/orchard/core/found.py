"""What an engine finds when it begins: it happened before, and is recorded only now."""

from orchard.model.events.plans import (
    Event,
    JobCanceled,
    JobContinued,
    JobFailed,
    JobHeld,
    LandingVoided,
    Warned,
    WorkSaved,
    WorktreeGone,
)
from orchard.model.events.subtasks import SubtaskEnded, SubtaskFolderGone

TIDYING = (WorkSaved, Warned, LandingVoided, SubtaskEnded, SubtaskFolderGone, WorktreeGone)
"""What a new engine records before it says what became of a job; none of it shows that the job was worked on."""


def found_since(event: Event, alive_at: float) -> float | None:
    """When this happened, if an engine found it to have happened while there was none, perhaps hours before.

    `alive_at`: of when the plan's last trace is, for journals that do not say how long its engine lived after that.
    """
    if isinstance(event, JobCanceled | JobHeld):
        return (event.since or alive_at) if event.found else None
    if isinstance(event, JobContinued) or (isinstance(event, JobFailed) and event.reason == "interrupted"):
        return event.since or alive_at
    return None
