"""What an agent is told of its subtasks in its next turn, where it was not there to be told at once."""

from orchard.core.records import JobRecord, Subtask, children_of
from orchard.core.run import Run
from orchard.engine.engine import Engine
from orchard.engine.turns.scope import Desk
from orchard.engine.turns.updates import queue_update
from orchard.errors import Next
from orchard.model.events.plans import MessagesUnheard, SubtaskEnded
from orchard.model.plan import JobId
from orchard.text import shortened

SUMMARY = 1500
LISTED = 5


def tell_of(desk: Desk, id: str) -> None:
    """Have the agent told how a subtask ended, if no turn of its is under way; a turn that is can ask itself."""
    context = desk.context
    subtask = context.state.subtasks[id]
    if not subtask.told and not desk.seated and subtask.over and _is_heard(context.run, context.job_id, subtask):
        _queue(context.engine, context.run, context.job_id, subtask)


def tell_unseen(desk: Desk) -> None:
    """Have the agent told of the subtasks that ended in its last turn, and of which it has not asked there."""
    context = desk.context
    for one in children_of(context.state.subtasks, context.number, context.subtask):
        if one.over and not one.told:
            _queue(context.engine, context.run, context.job_id, one)


def tell_of_interruption(engine: Engine, run: Run, job_id: JobId, subtask: Subtask) -> None:
    if _is_heard(run, job_id, subtask):
        _queue(engine, run, job_id, subtask)


def _is_heard(run: Run, job_id: JobId, subtask: Subtask) -> bool:
    """Whether whoever asked for it may have another turn."""
    record = run.records[job_id]
    parent = record.subtasks.get(subtask.parent) if subtask.parent is not None else None
    return subtask.attempt == record.number and not (parent is not None and parent.over)


def _queue(engine: Engine, run: Run, job_id: JobId, one: Subtask) -> None:
    kind = "progress" if one.status == "completed" else "error"
    parts = [f"It is over: {one.status}.", one.message, shortened(one.summary, SUMMARY)]
    if one.commit is not None and one.status in ("completed", "failed"):
        parts.append("It changed files; pull_subtask_changes merges them into your folder.")
    text = "\n".join(part for part in parts if part)
    queue_update(engine, run, job_id, kind, text, about=one.id, to=one.parent)


def record_end(engine: Engine, run: Run, ended: SubtaskEnded) -> None:
    """Record that a subtask is over, and which messages its agent was not told before."""
    note_unheard(engine, run, ended.job, ended.attempt, ended.subtask)
    engine.record(run.id, ended)


def note_unheard(engine: Engine, run: Run, job_id: JobId, attempt: int, subtask: str | None = None) -> None:
    """Record the messages that no turn will tell, because the work is over that they were about."""
    record = run.records[job_id]
    whom: JobRecord | Subtask = record if subtask is None else record.subtasks[subtask]
    if queued := whom.queued:
        engine.record(run.id, MessagesUnheard(job_id, attempt, queued[-1].number, len(queued), subtask))


def warn_of_unpulled(engine: Engine, run: Run, job_id: JobId, attempt: int) -> None:
    """Tell people which subtasks changed something that no agent pulled, so that it is not in the result."""
    tried = (one for one in run.records[job_id].subtasks.values() if one.attempt == attempt)
    left = [one.id for one in tried if one.commit is not None and one.pulled is None]
    if not left:
        return
    listed = ", ".join(left[:LISTED]) + (f" and {len(left) - LISTED} more" if len(left) > LISTED else "")
    look = Next("get_job_diff", run.id, f"{job_id}/{left[0]}")
    told = f"What {listed} of job '{job_id}' changed was not pulled, and is not in the result. See it: "
    engine.warn(run.id, engine.world.say((told, look)), job_id)
