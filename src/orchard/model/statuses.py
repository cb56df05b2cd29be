"""What people see of jobs and plans; all of it is computed, see `core.states`."""

from enum import StrEnum
from typing import Literal, get_args


class JobStatus(StrEnum):
    """What people see: the states, and what follows from the states of the needs."""

    PENDING = "pending"
    READY = "ready"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    BLOCKED = "blocked"
    CANCELED = "canceled"


class PlanStatus(StrEnum):
    """What people see of a plan; all of it is computed."""

    SCAFFOLDING = "scaffolding"
    PENDING = "pending"
    RUNNING = "running"
    PAUSED = "paused"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"


OVER = frozenset({PlanStatus.SUCCEEDED, PlanStatus.FAILED, PlanStatus.CANCELED})

# Where a value is checked by pydantic, its schema and its messages name the choices by themselves.
PlanStatusName = Literal["scaffolding", "pending", "running", "paused", "waiting", "succeeded", "failed", "canceled"]
JobStatusName = Literal["pending", "ready", "scheduled", "running", "succeeded", "failed", "blocked", "canceled"]
assert set(get_args(PlanStatusName)) == set(PlanStatus)
assert set(get_args(JobStatusName)) == set(JobStatus)
