"""Subtasks as surfaces show them."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from orchard.core.records import Attempt, JobRecord, Subtask
from orchard.core.views.documents import FileCounts, Progress, SubtaskView
from orchard.core.views.figures import AgentUsage
from orchard.model.events.subtasks import ProgressReported
from orchard.model.usage import Usage

Times = Callable[[float | None], str | None]
Used = Callable[[Iterable[Usage]], AgentUsage]

INSTRUCTIONS = 2000
"""Characters of what a subtask was asked to do that are shown."""


def subtasks_view(
    record: JobRecord, attempt: Attempt | None, times: Times, used: Used, *, stopped: bool = False
) -> list[SubtaskView]:
    """The subtasks of one attempt, in the order in which they were asked for; `stopped`: no engine works on them."""
    if attempt is None or not record.subtasks:
        return []
    found = [one for one in record.subtasks.values() if one.attempt == attempt.number]
    shown = [_subtask(one, attempt, times, used) for one in found]
    return [replace(one, status="interrupted") if stopped and not one.ended_at else one for one in shown]


def _subtask(one: Subtask, attempt: Attempt, times: Times, used: Used) -> SubtaskView:
    return SubtaskView(
        id=one.id,
        name=one.name or one.id,
        parent=one.parent,
        agent=one.agent,
        definition=one.definition,
        instructions=one.instructions[:INSTRUCTIONS],
        blocking=one.blocking,
        status=one.status,
        message=one.message or None,
        summary=one.summary or None,
        base_commit=one.base,
        commit=one.commit,
        changes=FileCounts(**{name: one.counts.get(name, 0) for name in ("added", "modified", "deleted")}),
        files=list(one.paths),
        pulled=one.pulled is not None,
        worktree=one.path,
        progress=progress_view(one.progress),
        usage=used(usage for turn in attempt.turns if turn.subtask == one.id for usage in turn.used.values()),
        spawned_at=times(one.spawned),
        started_at=times(one.started),
        ended_at=times(one.ended),
    )


def progress_view(told: ProgressReported | None) -> Progress | None:
    return None if told is None else Progress(told.message, told.percent)
