"""Updates: what an agent is told of its subtasks, and asked about itself, when its next turn begins.

They are events like messages, and are kept like them: an update counts as told only when the agent has taken in the
turn that told it (`agents.protocol.Heard`); until then each further turn tells it again. An update belongs to one
attempt, like the subtasks that it is about. Most wait for a turn that begins anyway; one that `wakes` begins a turn of
an agent that is idle.
"""

from typing import Protocol

from orchard.agents.prompts.updates import Update, with_updates
from orchard.core.records import JobRecord
from orchard.core.run import Run
from orchard.engine.turns.idle import WORKER
from orchard.model.events.plans import Event, HoldReleased, UpdateQueued
from orchard.model.plan import JobId, PlanId

TOLD_IN = frozenset({"work", "subtask"})
"""The purposes of turns that updates join; healing and resolving have a task of their own."""
TEXT = 4000


class Recording(Protocol):
    """Whoever records what happens: the engine."""

    def record(self, plan: PlanId, event: Event, *, listed: bool = False) -> int: ...


def queue_update(
    engine: Recording,
    run: Run,
    job_id: JobId,
    kind: str,
    text: str,
    *,
    about: str | None = None,
    to: str | None = None,
    wakes: bool = False,
) -> None:
    """Have the agent of a job, or of its subtask `to`, told something; `text` is clean of secrets already."""
    record = run.records[job_id]
    number = len(record.updates) + 1
    engine.record(run.id, UpdateQueued(job_id, record.number, number, kind, text[:TEXT], about, to, wakes))
    if wakes and to is None and record.hold is not None and record.hold.kind == WORKER and not record.is_paused:
        engine.record(run.id, HoldReleased(job_id), listed=True)


def _dated(one: UpdateQueued, attempt: int) -> str:
    return one.text if one.attempt == attempt else f"In attempt {one.attempt}, which is over: {one.text}"


def joined(record: JobRecord, subtask: str | None, purpose: str, instructions: str) -> tuple[str, int]:
    """What a turn tells an agent, with the updates that wait for it; and the number of the last one, 0: none waits."""
    waiting = record.updates_for(subtask) if purpose in TOLD_IN else []
    if not waiting:
        return instructions, 0
    newest = max(one.number for one in waiting)
    before = (
        max((turn.updates for turn in record.last.turns if turn.subtask == subtask), default=0) if record.last else 0
    )
    told = [Update(one.kind, _dated(one, record.number), one.about) for one in waiting]
    again = any(one.number <= before for one in waiting)
    return with_updates(instructions, told, again=again), newest
