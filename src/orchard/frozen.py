"""Frozen dataclasses that cost nothing to define.

A frozen dataclass has seven methods written as text and compiled when its module is imported. That takes most of a
millisecond, and a command that runs a plan defines two hundred of them in a start that people wait for. The methods of
a class here are the same few functions for every class, and an object is made as fast.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, NamedTuple, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[T]) -> type[T]:
    """As `dataclass(frozen=True)`; `replace`, `fields`, `asdict` and `match` know it as a dataclass."""
    made: Any = dataclass(init=False, repr=False, eq=False)(cls)
    listed = fields(made)
    made.__frozen__ = _Shape(
        tuple(one.name for one in listed),
        {one.name: one.default for one in listed if one.default is not MISSING},
        {one.name: one.default_factory for one in listed if one.default_factory is not MISSING},
        tuple(one.name for one in listed if one.compare),
    )
    for name, method in _METHODS.items():
        if name not in vars(cls):
            setattr(made, name, method)
    return cls


class _Shape(NamedTuple):
    """What the methods have to know of a class."""

    names: tuple[str, ...]
    defaults: Mapping[str, Any]
    factories: Mapping[str, Callable[[], Any]]
    compared: tuple[str, ...]


def _init(self: Any, *args: Any, **kwargs: Any) -> None:
    names, defaults, factories, _ = self.__frozen__
    given = dict(zip(names, args, strict=False))
    if kwargs or len(args) != len(names):
        if len(args) > len(names) or not given.keys().isdisjoint(kwargs):
            raise TypeError(f"{type(self).__name__} takes {', '.join(names)}, each once")
        given = {**defaults, **given, **kwargs}
        for name, make in factories.items():
            if name not in given:
                given[name] = make()
        if len(given) != len(names) or not given.keys() >= set(names):
            raise TypeError(f"{type(self).__name__} takes {', '.join(names)}; it was given {', '.join(given)}")
    self.__dict__.update(given)


def _repr(self: Any) -> str:
    held = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({held})"


def _compared(self: Any) -> tuple[Any, ...]:
    held = self.__dict__
    return tuple([held[name] for name in self.__frozen__.compared])


def _eq(self: Any, other: object) -> bool:
    return _compared(self) == _compared(other) if type(other) is type(self) else NotImplemented


def _hash(self: Any) -> int:
    return hash(_compared(self))


def _set(self: Any, name: str, new: object) -> None:
    raise AttributeError(f"{type(self).__name__} cannot be changed: {name}")


def _delete(self: Any, name: str) -> None:
    raise AttributeError(f"{type(self).__name__} cannot be changed: {name}")


_METHODS: Mapping[str, Callable[..., Any]] = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _set,
    "__delattr__": _delete,
}
