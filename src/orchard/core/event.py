"""What an event is; the kinds that there are stand in `events`."""

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Self, dataclass_transform

from orchard.core.names import JobId

Json = dict[str, Any]


@dataclass_transform(frozen_default=True)
class Event:
    """Something that happened.

    A kind of event is written like a frozen dataclass, but no code is generated for it: there are
    forty kinds, and every command that shows a plan would pay for all of them when it starts.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        own = inspect.get_annotations(cls)
        cls._fields = (*cls._fields, *own)
        cls._defaults = {**cls._defaults, **{name: cls.__dict__[name] for name in own if name in cls.__dict__}}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = dict(zip(self._fields, args, strict=False))
        if not kwargs and len(args) == len(self._fields):
            self.__dict__.update(given)  # nearly always; twice as fast
            return
        given |= kwargs
        values = {**self._defaults, **given}
        if len(given) != len(args) + len(kwargs) or values.keys() != set(self._fields):
            missing = [name for name in self._fields if name not in values]
            raise TypeError(
                f"{type(self).__name__} takes {', '.join(self._fields)}; missing: {missing}, given: {given}"
            )
        self.__dict__.update(values)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """The event with these fields, as a journal holds them."""
        if values.keys() != set(cls._fields):
            return cls(**values)  # written by a program that knew fewer fields
        event = cls.__new__(cls)
        event.__dict__.update(values)
        return event

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"an event cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *(str(value) for value in self.__dict__.values())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"


class PlanEvent(Event):
    """Something that happened to a plan as a whole."""


class JobEvent(Event):
    """Something that moves a job from one state to the next."""

    job: JobId


class JobFact(Event):
    """Something remembered about a job that changes no state."""

    job: JobId
