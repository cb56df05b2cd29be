"""What things are called, for those who need no more of a plan than its names."""

from typing import Literal, NewType

JobId = NewType("JobId", str)
"""The full id of a job, `group/id`; unique in its plan."""

PlanId = NewType("PlanId", str)

Resolver = Literal["agent", "ours", "theirs", "fail"]


def token_of(plan: PlanId, job: JobId, attempt: int, subtask: str | None = None) -> str:
    """What every process of an attempt carries, or of one of its subtasks, which can end without it."""
    return f"{plan}:{job}:{attempt}" + (f":{subtask}" if subtask is not None else "")
