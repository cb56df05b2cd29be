"""What an engine finds when it begins: it happened before, and is recorded only now."""

from orchard.core.events import (
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
from orchard.core.subtaskevents import SubtaskEnded, SubtaskFolderGone

TIDYING = (WorkSaved, Warned, LandingVoided, SubtaskEnded, SubtaskFolderGone, WorktreeGone)
"""What a new engine records before it says what became of a job; none of it shows that the job was worked on."""


def is_found(event: Event) -> bool:
    """Whether an engine found this to have happened while there was none, perhaps hours before."""
    if isinstance(event, JobCanceled | JobHeld):
        return event.found
    return isinstance(event, JobContinued) or (isinstance(event, JobFailed) and event.reason == "interrupted")
