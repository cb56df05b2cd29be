"""A tool as the table of operations declares it: its name, its words, and what it takes."""

import json
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import fields
from pydantic import Field, WithJsonSchema, create_model

from orchard.model.events.plans import Json
from orchard.operations.operation import Argument, Operation, arguments_of
from orchard.operations.operation import Tool as Declared
from orchard.surfaces.mcp.schemas import plan_part
from orchard.surfaces.mcp.tool import Call, Tool, next_words
from orchard.surfaces.mcp.tools.models import (
    JOB,
    PAGE,
    PLAN,
    SOME_PLAN,
    Arguments,
    Cursor,
    Limit,
    Name,
    PhaseName,
    Work,
    Works,
    optional,
)

FORMS: Mapping[str, Any] = {
    "work": Work,
    "works": Works,
    "budget": Annotated[Any, WithJsonSchema(plan_part("Plan.budget"))],
    "phase": PhaseName,
    "jobs": Annotated[list[Name], Field(min_length=1)],
}
"""What a tool takes for an argument of this form."""
_NAMED = {"plan": PLAN, "job": JOB}
COMMON = ("plan", "job", "cursor", "notes", "next")
"""Parts of an answer that go without saying."""


def paged(size: int = PAGE) -> dict[str, tuple[Any, Any]]:
    """The arguments of a list that is given page by page."""
    return {
        "limit": (Limit, Field(default=size, description="How many per page.")),
        "cursor": (Cursor | None, optional("`next_cursor` of the page before.")),
    }


def declared(
    operation: Operation,
    gives: type[Struct],
    run: Callable[[Call, Any], Awaitable[Json]],
    *,
    without: tuple[str, ...] = (),
    more: Mapping[str, tuple[Any, Any]] = MappingProxyType({}),
    asked_null: tuple[str, ...] = (),
    check: Callable[[Json], object] | None = None,
) -> Tool:
    """The tool of an operation, without some of its arguments and with others; one that reads needs no plan's name."""
    found = operation.tool
    assert isinstance(found, Declared)
    name = found.name or operation.name
    own = [one for one in arguments_of(operation.args) if one.name not in without]
    own.sort(key=lambda one: list(_NAMED).index(one.name) if one.name in _NAMED else len(_NAMED))
    takes: type[Arguments] = create_model(
        "".join(word.capitalize() for word in name.split("_")),
        __base__=Arguments,
        **{one.name: _field(one, operation) for one in own if one.name not in more},
        **more,
    )  # type: ignore[call-overload]
    takes.ASKED_NULL = frozenset([*asked_null, *(one.name for one in own if one.form == "works")])
    return Tool(
        name,
        found.toolset,
        found.title,
        _description(operation, found, gives),
        takes,
        gives,
        run,
        read_only=operation.reads,
        destructive=operation.destructive or found.asks,
        idempotent=operation.repeatable and not operation.reads,
        next=operation.next,
        check=check,
    )


def _description(operation: Operation, tool: Declared, gives: type[Struct]) -> str:
    """What a model reads about a tool: what it does, an example, what it returns, what to call next."""
    told = [one.name for one in fields(gives) if one.required and one.name not in COMMON]
    words = [
        operation.sentence,
        operation.details if tool.details is None else tool.details,
        f"Example: {json.dumps(operation.example if tool.example is None else tool.example)}",
        f"Returns {', '.join(told) or 'nothing more'}. {next_words(operation.next)}",
    ]
    return "\n".join(word for word in words if word)


def _field(argument: Argument, operation: Operation) -> tuple[Any, Any]:
    if argument.name == "plan" and argument.required and operation.whole_names:
        return Name, Field(description="Id or unique name.")
    if argument.name == "plan" and argument.required and operation.reads:
        return Name | None, SOME_PLAN
    if argument.name in _NAMED:
        return (Name, _NAMED[argument.name]) if argument.required else (Name | None, optional(argument.description))
    kind = FORMS.get(argument.form or "", argument.kind)
    if argument.limits:
        kind = Annotated[kind, Field(**argument.limits)]
    if argument.required:
        return kind, Field(description=argument.description)
    assert isinstance(operation.tool, Declared)
    default = operation.tool.defaults.get(argument.name, argument.default)
    if default is None:
        return kind | None, optional(argument.description)
    return kind, Field(default=default, description=argument.description or None)
