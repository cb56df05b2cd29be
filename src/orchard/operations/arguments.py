"""What a request may be given: checked against the arguments of its operation before anything is done.

Requests come over a socket too, so an argument can be anything that JSON can hold.
"""

import math
from collections.abc import Callable, Mapping
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec.structs import fields

from orchard.errors import OrchardError, UsageError
from orchard.model.events.plans import Json
from orchard.model.phases import PHASES, Phase
from orchard.model.plan import Plan, Work
from orchard.model.plan_codec import plan_from_json, work_from_json
from orchard.operations.operation import Args, Operation, arguments_of
from orchard.text import did_you_mean, one_of, quoted

T = TypeVar("T")

_SORTS: Mapping[Any, str] = {
    str: "a text", bool: "true or false", int: "a whole number", float: "a number", list: "a list", dict: "an object",
}  # fmt: skip

BUDGETS = ("minutes", "tokens", "cost")


def read_arguments(operation: Operation, args: Mapping[str, Any]) -> Args:
    """The arguments of an operation; what is unknown, missing, or of another sort than it takes is refused."""
    older = _older_names(operation.args)
    own = by_own_names(operation.args, args)
    hints = _types(operation.args)
    for name in own:
        if name not in hints:
            guess = did_you_mean(name, hints)
            raise UsageError(f"The request '{operation.name}' has no argument {quoted(str(name))}{guess}")
    for spec in fields(operation.args):
        if spec.required and spec.name not in own:
            raise UsageError(f"The request '{operation.name}' needs the argument '{spec.name}'.")
    for name, value in args.items():
        hint = hints[older.get(name, name)]
        if not _fits(value, hint):
            raise UsageError(f"The request '{operation.name}' takes for '{name}' {_named(hint)}.")
    return operation.args(**own)


def by_own_names(kind: type[Args], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by the names that they are declared with; an older name of one that is given as well stays."""
    own = {old: name for old, name in _older_names(kind).items() if name not in given}
    return {own.get(name, name): value for name, value in given.items()}


@cache
def _older_names(kind: type[Args]) -> dict[str, str]:
    return {old: one.name for one in arguments_of(kind) for old in one.also}


@cache
def _types(args: type[Args]) -> dict[str, Any]:
    return get_type_hints(args)


def _fits(value: Any, hint: Any) -> bool:
    if hint is Any:
        return True
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in get_args(hint))
    if origin is Literal:
        return value in get_args(hint)
    if origin in (list, tuple):
        return isinstance(value, list | tuple) and all(_fits(one, get_args(hint)[0]) for one in value)
    if origin in (dict, Mapping):
        return isinstance(value, Mapping) and all(_fits(one, get_args(hint)[1]) for one in value.values())
    if hint in (int, float) and isinstance(value, bool):
        return False
    return isinstance(value, (int, float) if hint is float else hint)


def _named(hint: Any) -> str:
    options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return " or ".join(_named_one(one) for one in options if one is not NoneType)


def _named_one(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return one_of(str(word) for word in get_args(hint))
    return _SORTS.get(get_origin(hint) or hint, str(hint))


# ------------------------------------------------------------------------------------ what they hold


def phase_of(name: str | None) -> Phase | None:
    """The phase of this name."""
    if name is None:
        return None
    try:
        return Phase(name)
    except ValueError:
        known = [str(phase) for phase in PHASES]
        guess = did_you_mean(name, known)
        raise UsageError(f"There is no phase {quoted(name)}{guess}", hint=f"Phases are: {', '.join(known)}") from None


def work_of(body: Json) -> Work:
    """A work as `work_json` writes it."""
    return _read("The work", body, work_from_json)


def plan_of(body: Json) -> Plan:
    """A plan as `plan_json` writes it."""
    return _read("The plan", body, plan_from_json)


def _read(what: str, body: Json, read: Callable[[Json], T]) -> T:
    try:
        return read(body)
    except OrchardError:
        raise
    except Exception as error:  # whatever is wrong with it, the one who asked gave it
        why = f"it has no {error}" if isinstance(error, KeyError) else str(error)
        raise UsageError(f"{what} of the request cannot be read: {why}") from error


def check_budget(budget: Json | None) -> None:
    """Refuse a budget that no plan could have."""
    if budget is not None and not any(limit is not None for limit in budget.values()):
        raise UsageError("A budget needs at least one limit.", hint=f"Budgets: {', '.join(BUDGETS)}")
    for name, limit in (budget or {}).items():
        if name not in BUDGETS:
            raise UsageError(f"There is no budget of {quoted(str(name))}.", hint=f"Budgets: {', '.join(BUDGETS)}")
        if limit is not None and (
            isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit < math.inf
        ):
            raise UsageError(f"The budget of {name} is a number above 0.")
