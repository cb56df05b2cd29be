"""What the facts about calls that a person is asked about mean for a run."""

from collections.abc import Callable, Mapping
from typing import Any

from orchard.core.records import JobRecord, Turn
from orchard.core.run import Run
from orchard.model.events import plans as events


def _turn(record: JobRecord, subtask: str | None) -> Turn | None:
    turns = reversed(record.last.turns) if record.last is not None else ()
    return next((turn for turn in turns if turn.subtask == subtask), None)


def _asked(run: Run, event: events.CallAsked, at: float) -> None:
    record = run.records[event.job]
    record.asked = event.number
    if (turn := _turn(record, event.subtask)) is not None:
        turn.questions[event.number] = (event, at)


def _answered(run: Run, event: events.CallAnswered, at: float) -> None:
    record = run.records[event.job]
    turn = _turn(record, event.subtask)
    question = turn.questions.pop(event.number, None) if turn is not None else None
    if question is not None and event.always and record.last is not None:
        record.last.always.add((event.subtask, question[0].tool))


APPLY_QUESTIONS: Mapping[type[events.Event], Callable[[Run, Any, float], None]] = {
    events.CallAsked: _asked,
    events.CallAnswered: _answered,
}
