"""Tools that are derived whole from queries of the table of operations."""

from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

from msgspec import defstruct
from msgspec.structs import asdict, replace

from orchard.model.events.plans import Json
from orchard.operations.query import Query, list_events
from orchard.surfaces.mcp.tool import Call, Tool
from orchard.surfaces.mcp.tools.declaration import declared
from orchard.surfaces.mcp.tools.models import Arguments, Told
from orchard.surfaces.mcp.tools.names import meant_plan


def derived(query: Query) -> Tool:
    assert query.answer is not None
    told = list(get_type_hints(query.answer).items())
    gives = defstruct(f"Answer_{query.name}", told, bases=(Told,), kw_only=True)
    return declared(query, gives, _runs(query))


def _runs(query: Query) -> Callable[[Call, Any], Awaitable[Json]]:
    async def run(call: Call, given: Arguments) -> Json:
        args = query.args(**given.model_dump())
        if "plan" in type(given).model_fields and (args_plan := asdict(args)["plan"]) is not None:
            args = replace(args, plan=(await meant_plan(call, args_plan)).plan)
        return asdict(await call.served.read(query.read, call.served.app, args))

    return run


TOOLS = (derived(list_events),)
