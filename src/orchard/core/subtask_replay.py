"""What each event about subtasks, and about messages to agents, means for a run."""

from collections.abc import Callable, Mapping
from typing import Any

from orchard.core.records import JobRecord, Subtask
from orchard.core.run import Run
from orchard.model.events import plans as events


def _spawned(run: Run, event: events.SubtaskSpawned, at: float) -> None:
    run.records[event.job].subtasks[event.subtask] = Subtask(
        event.subtask,
        event.attempt,
        event.agent,
        event.instructions,
        event.base,
        at,
        event.parent,
        event.name,
        event.definition,
        event.blocking,
        event.interactive,
        tools=event.tools,
    )


def _started(run: Run, event: events.SubtaskStarted, at: float) -> None:
    subtask = run.records[event.job].subtasks[event.subtask]
    subtask.status = "running"
    subtask.started = at if subtask.started is None else subtask.started
    run.slots_used += 1


def _rested(run: Run, event: events.SubtaskIdle, at: float) -> None:
    subtask = run.records[event.job].subtasks[event.subtask]
    _give_slot_back(run, subtask)
    subtask.status, subtask.idle = "paused" if event.why == "paused" else "idle", event.why
    subtask.awaits, subtask.ended_seq = False, run.seq


def _released(run: Run, event: events.SubtaskReleased, at: float) -> None:
    run.records[event.job].subtasks[event.subtask].status = "waiting"


def _give_slot_back(run: Run, subtask: Subtask) -> None:
    if subtask.status == "running" and not subtask.awaits:
        run.slots_used -= 1


def _placed(run: Run, event: events.SubtaskPlaced, at: float) -> None:
    subtask = run.records[event.job].subtasks[event.subtask]
    subtask.worktree, subtask.path = event.worktree, event.path


def _completed(run: Run, event: events.SubtaskCompleted, at: float) -> None:
    subtask = run.records[event.job].subtasks[event.subtask]
    subtask.succeeded, subtask.completed_by = event.succeeded, event.by
    if event.by == "itself" or event.result:
        subtask.result, subtask.size = event.result, event.size


def _ended(run: Run, event: events.SubtaskEnded, at: float) -> None:
    subtask = run.records[event.job].subtasks[event.subtask]
    _give_slot_back(run, subtask)
    subtask.size = event.size or subtask.size
    subtask.status, subtask.awaits, subtask.ended, subtask.ended_seq = event.status, False, at, run.seq
    subtask.message, subtask.summary, subtask.commit = event.message, event.summary, event.commit
    subtask.counts, subtask.paths = event.counts, event.paths


def _folder_gone(run: Run, event: events.SubtaskFolderGone, at: float) -> None:
    subtask = run.records[event.job].subtasks[event.subtask]
    if subtask.worktree == event.worktree:
        subtask.worktree = subtask.path = None


def _pulled(run: Run, event: events.SubtaskPulled, at: float) -> None:
    run.records[event.job].subtasks[event.subtask].pulled = event.commit


def _told(run: Run, event: events.SubtaskTold, at: float) -> None:
    run.records[event.job].subtasks[event.subtask].told = True


def _awaited(run: Run, event: events.SubtasksAwaited | events.SubtasksAnswered, at: float) -> None:
    """Who waits gives its slot back, and takes it again when it goes on, even where that is one too many."""
    waits = isinstance(event, events.SubtasksAwaited)
    record = run.records[event.job]
    who = record.last if event.parent is None else record.subtasks[event.parent]
    if who is not None and who.awaits is not waits:
        who.awaits = waits
        run.slots_used += -1 if waits else 1


def _progress(run: Run, event: events.ProgressReported, at: float) -> None:
    record = run.records[event.job]
    who = record.last if event.subtask is None else record.subtasks[event.subtask]
    if who is not None:
        who.progress = event


def _message_sent(run: Run, event: events.MessageSent, at: float) -> None:
    _listener(run, event).messages.append(event)


def _messages_settled(run: Run, event: events.MessagesDelivered | events.MessagesUnheard, at: float) -> None:
    """None of them waits any more: they were heard, or never will be."""
    listener = _listener(run, event)
    listener.delivered = max(listener.delivered, event.number)


def _listener(
    run: Run, event: events.MessageSent | events.MessagesDelivered | events.MessagesUnheard
) -> JobRecord | Subtask:
    record = run.records[event.job]
    return record if event.subtask is None else record.subtasks[event.subtask]


def stop_waiting(run: Run, record: JobRecord) -> None:
    """An attempt that ends while its agent waits has no slot to give back; the job's own end gives one back."""
    if record.last is not None and record.last.awaits:
        record.last.awaits = False
        run.slots_used += 1


APPLY_SUBTASKS: Mapping[type[events.Event], Callable[[Run, Any, float], None]] = {
    events.SubtaskSpawned: _spawned,
    events.SubtaskStarted: _started,
    events.SubtaskIdle: _rested,
    events.SubtaskReleased: _released,
    events.SubtaskPlaced: _placed,
    events.SubtaskCompleted: _completed,
    events.SubtaskEnded: _ended,
    events.SubtaskFolderGone: _folder_gone,
    events.SubtaskPulled: _pulled,
    events.SubtaskTold: _told,
    events.SubtasksAwaited: _awaited,
    events.SubtasksAnswered: _awaited,
    events.ProgressReported: _progress,
    events.MessageSent: _message_sent,
    events.MessagesDelivered: _messages_settled,
    events.MessagesUnheard: _messages_settled,
}
