"""Whether events could happen to a run, before any of them does."""

from collections.abc import Sequence

from orchard.core.run import Run
from orchard.core.states import JobState, after
from orchard.model.events.event import Event
from orchard.model.events.plans import JobEvent
from orchard.model.plan import JobId


def foresee(run: Run, events: Sequence[Event]) -> None:
    """Raise where one of these events could not happen, each after those before it; nothing is changed."""
    states: dict[JobId, JobState] = {}
    for event in events:
        job = getattr(event, "job", None)
        if job is None:
            continue
        known = run.records[job].state  # of an unknown job nothing can happen
        if isinstance(event, JobEvent):
            states[job] = after(states.get(job, known), event, lambda job=job: run.story(job))  # type: ignore[misc]
