"""Tools that are derived whole from queries of the table of operations."""

import json
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, get_type_hints

from msgspec import defstruct
from msgspec.structs import asdict, fields, replace
from pydantic import Field, create_model

from orchard.model.events.plans import Json
from orchard.operations.operation import Tool as Declared
from orchard.operations.operation import arguments_of
from orchard.operations.queries import Query, list_events
from orchard.surfaces.mcp.tool import Call, Tool
from orchard.surfaces.mcp.tools.models import Arguments, Told, optional
from orchard.surfaces.mcp.tools.names import meant_plan


def derived(query: Query) -> Tool:
    """A query as a tool: what it takes and gives, and the words about it, are those of its declaration."""
    found = query.tool
    assert isinstance(found, Declared) and query.answer is not None
    gives = " and ".join(spec.name for spec in fields(query.answer))
    words = [query.sentence, query.details, f"Example: {json.dumps(query.example)}"]
    words.append(f"Returns {gives}. Next: {', '.join(query.next)}.")
    title = "".join(word.capitalize() for word in query.name.split("_"))
    return Tool(
        found.name or query.name,
        found.toolset,
        found.title,
        "\n".join(word for word in words if word),
        create_model(title, __base__=Arguments, **_inputs(query)),
        defstruct(f"{title}Answer", list(get_type_hints(query.answer).items()), bases=(Told,), kw_only=True),
        _runs(query),
        read_only=True,
    )


def _inputs(query: Query) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for one in arguments_of(query.args):
        if one.default is None:
            made[one.name] = one.kind | None, optional(one.description)
        else:
            kind = Annotated[one.kind, Field(**one.limits)] if one.limits else one.kind
            made[one.name] = kind, Field(default=one.default, description=one.description)
    return made


def _runs(query: Query) -> Callable[[Call, Any], Awaitable[Json]]:
    async def run(call: Call, given: Arguments) -> Json:
        args = query.args(**given.model_dump())
        if "plan" in type(given).model_fields and (args_plan := asdict(args)["plan"]) is not None:
            args = replace(args, plan=(await meant_plan(call, args_plan)).plan)
        return asdict(await call.served.read(query.read, call.served.app, args))

    return run


TOOLS = (derived(list_events),)
