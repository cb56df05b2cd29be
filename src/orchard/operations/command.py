"""Operations that an engine carries out; see the package for the two halves of a command."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

from msgspec import Struct, field

from orchard.core.run import Run
from orchard.engine.engine import Engine, Stop
from orchard.model.events.plans import Event, Json
from orchard.model.plan import JobId, Plan, PlanId
from orchard.operations.operation import Operation


class Outdated(Exception):
    """What was prepared does not fit the plan any more: the handler prepares again."""


class Decision(Struct, frozen=True):
    """What happens because of a command: recorded as a whole, or not at all."""

    events: Sequence[Event] = ()
    answer: Json = field(default_factory=dict)
    listed: bool = False
    """Whether lists show something else of the plan although its status stays."""
    creates: PlanId | None = None
    """The plan that begins with the first of the events."""
    stops: tuple[Stop, Sequence[JobId]] | None = None
    """The jobs whose programs the engine ends afterwards."""
    again: bool = False
    """Whether the command decides once more when these jobs have ended."""


class Scene(Protocol):
    """What a command can see of the engine beside the run that it is about; looking at it takes no time."""

    @property
    def engine(self) -> Engine: ...

    def resuming(self, plan: PlanId) -> bool:
        """Whether another request prepares to let the plan go on."""
        ...

    def first(self, plan: Plan, own: PlanId | None = None) -> PlanId | None:
        """The plan that this one waits for, found; one that waits for this one is refused."""
        ...

    def plan_with(self, key: Json) -> PlanId | None:
        """The plan that was made with this idempotency key."""
        ...

    def new_id(self, name: str) -> PlanId:
        """An id that no plan has."""
        ...


class Command(Operation, frozen=True, kw_only=True):
    """An operation that changes something about a plan, or makes one."""

    decide: Callable[[Run, Any, Any, Scene], Decision]
    """The run, the arguments, what was prepared, and the scene; `create_plan` is given an empty run."""
    prepare: Callable[[Scene, Run, Any], Awaitable[object]] | None = None
    perform: Callable[[Scene, Run, Any, Decision], Awaitable[Json]] | None = None
    """What the engine does about it, under the lock of the plan; gives the answer."""
    after: Callable[[Scene, Run, Any, Decision], Awaitable[Json]] | None = None
    """The same, when others may ask again."""
    finish: Callable[[Run, Any, Decision], Json] | None = None
    """What came of it, when its jobs have been stopped; another end than the wanted one is refused."""
    sets_wall: bool = False
    """Whether who asks for it lets the plan go on, and so says anew which wall stands around its programs."""
    adds_work: bool = False
    """Whether it adds or changes what programs of the plan do: if who asks wants a stricter wall than the plan has, the
    plan gets it. Nobody's work runs without a wall because somebody else wanted none."""
    lets_go_on: bool = False
    """Whether a pause that comes while it is prepared has to be recorded although the plan is paused."""


class Service(Operation, frozen=True, kw_only=True):
    """An operation of the engine that is about no plan's course: it decides nothing that others could contradict."""

    serve: Callable[[Engine, Any], Awaitable[Json]]
