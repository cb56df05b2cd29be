"""What an event is; the kinds that there are stand in `events`."""

from typing import Any

from msgspec import Struct

from orchard.model.names import JobId
from orchard.model.phases import Phase

Json = dict[str, Any]


class Event(Struct, frozen=True, forbid_unknown_fields=True):
    """Something that happened."""

    def __hash__(self) -> int:
        return hash((type(self), *(str(getattr(self, name)) for name in self.__struct_fields__)))


class PlanEvent(Event, frozen=True):
    """Something that happened to a plan as a whole."""


class JobEvent(Event, frozen=True):
    """Something that moves a job from one state to the next."""

    job: JobId


class JobFact(Event, frozen=True):
    """Something remembered about a job that changes no state."""

    job: JobId


class AttemptFact(JobFact, frozen=True):
    attempt: int


class PhaseFact(AttemptFact, frozen=True):
    phase: Phase


class TurnFact(PhaseFact, frozen=True):
    """Something about a turn of an agent."""

    agent: str
    purpose: str
    """`work`, `check`, `heal`, `resolve`, or `subtask`."""
