"""What things are called, for those who need no more of a plan than its names."""

from typing import Literal, NewType

JobId = NewType("JobId", str)
"""The full id of a job, `group/id`; unique in its plan."""

PlanId = NewType("PlanId", str)

Resolver = Literal["agent", "ours", "theirs", "fail"]
"""Who settles a conflict."""
