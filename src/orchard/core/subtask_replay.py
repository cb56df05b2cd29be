"""What each event about subtasks means for a run."""

from collections.abc import Callable, Mapping
from typing import Any

from orchard.core.records import JobRecord
from orchard.core.run import Run
from orchard.core.subtask_records import Subtask
from orchard.model.events.event import Event
from orchard.model.events.subtasks import (
    ProgressReported,
    SubtaskCompleted,
    SubtaskEnded,
    SubtaskFolderGone,
    SubtaskPlaced,
    SubtaskPulled,
    SubtasksAnswered,
    SubtasksAwaited,
    SubtaskSpawned,
    SubtaskStarted,
)


def _spawned(run: Run, event: SubtaskSpawned, at: float) -> None:
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
    )


def _started(run: Run, event: SubtaskStarted, at: float) -> None:
    subtask = run.records[event.job].subtasks[event.subtask]
    subtask.status, subtask.started = "running", at
    run.slots_used += 1


def _placed(run: Run, event: SubtaskPlaced, at: float) -> None:
    subtask = run.records[event.job].subtasks[event.subtask]
    subtask.worktree, subtask.path = event.worktree, event.path


def _completed(run: Run, event: SubtaskCompleted, at: float) -> None:
    subtask = run.records[event.job].subtasks[event.subtask]
    subtask.result, subtask.succeeded = event.result, event.succeeded


def _ended(run: Run, event: SubtaskEnded, at: float) -> None:
    subtask = run.records[event.job].subtasks[event.subtask]
    if subtask.status == "running" and not subtask.awaits:
        run.slots_used -= 1
    subtask.status, subtask.awaits, subtask.ended, subtask.ended_seq = event.status, False, at, run.seq
    subtask.message, subtask.summary, subtask.commit = event.message, event.summary, event.commit
    subtask.counts, subtask.paths = event.counts, event.paths


def _folder_gone(run: Run, event: SubtaskFolderGone, at: float) -> None:
    subtask = run.records[event.job].subtasks[event.subtask]
    if subtask.worktree == event.worktree:
        subtask.worktree = subtask.path = None


def _pulled(run: Run, event: SubtaskPulled, at: float) -> None:
    run.records[event.job].subtasks[event.subtask].pulled = event.commit


def _awaited(run: Run, event: SubtasksAwaited | SubtasksAnswered, at: float) -> None:
    """Who waits gives its slot back, and takes it again when it goes on, even where that is one too many."""
    waits = isinstance(event, SubtasksAwaited)
    record = run.records[event.job]
    who = record.last if event.parent is None else record.subtasks[event.parent]
    if who is not None and who.awaits is not waits:
        who.awaits = waits
        run.slots_used += -1 if waits else 1


def _progress(run: Run, event: ProgressReported, at: float) -> None:
    record = run.records[event.job]
    who = record.last if event.subtask is None else record.subtasks[event.subtask]
    if who is not None:
        who.progress = event


def stop_waiting(run: Run, record: JobRecord) -> None:
    """An attempt that ends while its agent waits has no slot to give back; the job's own end gives one back."""
    if record.last is not None and record.last.awaits:
        record.last.awaits = False
        run.slots_used += 1


APPLY_SUBTASKS: Mapping[type[Event], Callable[[Run, Any, float], None]] = {
    SubtaskSpawned: _spawned,
    SubtaskStarted: _started,
    SubtaskPlaced: _placed,
    SubtaskCompleted: _completed,
    SubtaskEnded: _ended,
    SubtaskFolderGone: _folder_gone,
    SubtaskPulled: _pulled,
    SubtasksAwaited: _awaited,
    SubtasksAnswered: _awaited,
    ProgressReported: _progress,
}
