"""What each event about the health of workers, and about updates for agents, means for a run."""

from collections.abc import Callable, Mapping
from typing import Any

from orchard.core.records import Mark, Turn
from orchard.core.run import Run
from orchard.model.events import plans as events


def _queued(run: Run, event: events.UpdateQueued, at: float) -> None:
    record = run.records[event.job]
    record.updates.append(event)
    about = record.subtasks.get(event.about) if event.about is not None else None
    if about is not None and about.over:
        about.told = True  # all that is said of one that is over is how it ended


def _delivered(run: Run, event: events.UpdatesDelivered, at: float) -> None:
    delivered = run.records[event.job].updates_delivered
    delivered[event.to] = max(delivered.get(event.to, 0), event.number)


def _noted(run: Run, event: events.HealthNoted, at: float) -> None:
    if (turn := _turn(run, event)) is not None:
        messages = run.records[event.job].messages_to(event.subtask)
        turn.marks.append(Mark(event.condition, event.evidence, event.action, at, messages=messages))


def _cleared(run: Run, event: events.HealthCleared, at: float) -> None:
    turn = _turn(run, event)
    for mark in turn.marks if turn is not None else ():
        if mark.condition == event.condition and mark.ended is None:
            mark.ended = at


def _turn(run: Run, event: events.HealthNoted | events.HealthCleared) -> Turn | None:
    attempt = run.records[event.job].last
    return attempt.turn_of(event.subtask) if attempt is not None else None


APPLY_HEALTH: Mapping[type[events.Event], Callable[[Run, Any, float], None]] = {
    events.UpdateQueued: _queued,
    events.UpdatesDelivered: _delivered,
    events.HealthNoted: _noted,
    events.HealthCleared: _cleared,
}
