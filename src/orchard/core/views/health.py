"""How workers are, as surfaces show it: the conditions they are in, and what they do now.

Conditions follow from the journal. What a worker does now is known to the engine alone, so it is put into documents
by whoever can read it (`with_activity`); where no engine runs it is absent.
"""

from collections.abc import Mapping

from msgspec.structs import replace

from orchard.core.records import Attempt, JobRecord, Turn
from orchard.core.views.documents import ActivityView, AgentAtWork, ConditionView, JobView, SubtaskView, time_text
from orchard.model.health import ALARMS

Key = tuple[str, str, int, str | None]
"""Whose activity it is: plan, job, attempt and subtask."""


def conditions_view(turn: Turn | None) -> list[ConditionView]:
    """Those that a worker is in now, by its last turn."""
    found = turn.conditions if turn is not None else []
    return [ConditionView(one.condition, one.evidence, one.action, time_text(one.since)) for one in found]


def marks_view(turn: Turn) -> list[ConditionView]:
    """All that it was in, in this turn or after it."""
    return [
        ConditionView(one.condition, one.evidence, one.action, time_text(one.since), time_text(one.ended))
        for one in turn.marks
    ]


def alarms_of(record: JobRecord) -> list[str]:
    """What is wrong with the job's own worker, a sentence each."""
    last = record.last
    turn = last.turn_of(None) if last is not None and last.ended is None else None
    marks = turn.conditions if turn is not None else []
    return [f"Its worker is {one.condition}. {one.evidence}" for one in marks if one.condition in ALARMS]


def at_work(attempt: Attempt | None) -> AgentAtWork | None:
    turn = attempt.turn_of(None) if attempt is not None and attempt.ended is None else None
    if turn is None or turn.ended is not None:
        return None
    return AgentAtWork(turn.agent, turn.purpose, conditions_view(turn))


def with_activity(plan: str, job: JobView, seen: Mapping[Key, ActivityView]) -> JobView:
    """A job with what its worker and its subtasks do now."""
    own = seen.get((plan, job.id, job.attempts, None))
    subtasks = [_subtask(plan, job, one, seen) for one in job.subtasks]
    if own is None:
        return job if subtasks == job.subtasks else replace(job, subtasks=subtasks)
    agent = replace(job.agent, activity=own) if job.agent is not None else None
    worker = replace(job.worker, activity=own) if job.worker is not None and job.agent is not None else job.worker
    return replace(job, agent=agent, worker=worker, subtasks=subtasks)


def _subtask(plan: str, job: JobView, subtask: SubtaskView, seen: Mapping[Key, ActivityView]) -> SubtaskView:
    found = seen.get((plan, job.id, job.attempts, subtask.id))
    return replace(subtask, activity=found) if found is not None else subtask
