"""Commands of the table of operations as operations of the API: their parameters, bodies and handlers are derived."""

from collections.abc import Callable, Iterable
from typing import Annotated, Any

from msgspec.structs import fields, replace
from pydantic import Field, WithJsonSchema, create_model
from starlette.responses import Response

from orchard.model import limits
from orchard.model.events.plans import Json
from orchard.model.plan import JobId, PlanId
from orchard.model.plan_codec import work_json
from orchard.operations.operation import Alias, Argument, Route, arguments_of
from orchard.operations.operation import Operation as Declared
from orchard.operations.queries import Query as Asking
from orchard.planfile.fields import BudgetFields, Checks, Fields, PhaseName, Work, names_of
from orchard.planfile.parse import parse_work
from orchard.surfaces.http.operation import Asked, Nothing, Operation, Query

JobNames = Annotated[list[Annotated[str, Field(min_length=1, max_length=500)]], Field(min_length=1, max_length=1000)]


def _change(op: str, description: str, **fields: Json) -> Json:
    return {
        "type": "object",
        "description": description,
        "properties": {"op": {"const": op}, **fields},
        "required": ["op", *fields],
        "additionalProperties": False,
    }


_ID: Json = {"type": "string", "minLength": 1}
_JOB: Json = {"$ref": "#/components/schemas/JobFields"}
CHANGES: Json = {
    "type": "array",
    "minItems": 1,
    "maxItems": limits.RESHAPE_CHANGES,
    "items": {
        "oneOf": [
            _change("add", "A new job, with needs of its own.", job=_JOB),
            _change("remove", "What needed the job now needs what it needed.", id=_ID),
            _change("set_needs", "What the job needs.", id=_ID, needs={"type": "array", "items": _ID, "maxItems": 200}),
            _change(
                "add_before", "The new job takes over what the other needs, which needs only it.", id=_ID, job=_JOB
            ),
            _change("add_after", "The new job needs the other; what needed that one now needs it.", id=_ID, job=_JOB),
            _change("update", "Other fields.", id=_ID, set={"$ref": "#/components/schemas/JobUpdate"}),
            _change("update_plan", "Fields of the plan itself.", set={"$ref": "#/components/schemas/PlanUpdate"}),
        ]
    },
}

FORMS: dict[str, Any] = {
    "work": Work,
    "works": Checks,
    "budget": BudgetFields,
    "phase": PhaseName,
    "jobs": JobNames,
    "changes": Annotated[
        list[dict[str, Any]], Field(min_length=1, max_length=limits.RESHAPE_CHANGES), WithJsonSchema(CHANGES)
    ],
}
"""What a body holds for an argument of this form."""


def derived(command: Declared) -> Operation:
    """A command or query as an operation of the API."""
    route = command.route
    assert isinstance(route, Route)
    named = {part[1:-1] for part in route.path.split("/") if part.startswith("{")}
    own = [one for one in arguments_of(command.args) if one.name not in named]
    found = Operation(
        camel(route.id or command.name),
        route.method,
        route.path,
        command.sentence.rstrip("."),
        _reads(command) if isinstance(command, Asking) else _runs(command, own),
        command.answer,
        description=command.details,
        status=route.status,
    )
    if isinstance(command, Asking):
        return replace(found, query=model(command, own, Query, "Query"))
    return replace(found, body=model(command, own) if own else Nothing, body_required=any(one.required for one in own))


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def model(command: Declared, own: list[Argument], base: type[Fields] = Fields, what: str = "Body") -> type[Fields]:
    """Some arguments of an operation as fields, in which everything that is wrong is told at once."""
    name = camel(command.name)
    title = f"{name[0].upper()}{name[1:]}{what}"
    made = {one.name: _field(one) for one in own}
    found: type[Fields] = create_model(title, __base__=base, __doc__=command.sentence, **made)  # type: ignore[call-overload]
    return found


def _field(argument: Argument) -> tuple[Any, Any]:
    kind = FORMS[argument.form] if argument.form is not None else argument.kind
    default = {} if argument.required else {"default": argument.default}
    limited = Annotated[kind, Field(**argument.limits)] if argument.limits else kind
    return limited, Field(description=argument.description, **default)


def _runs(command: Declared, own: list[Argument]) -> Callable[[Asked], Any]:
    forms = {one.name: one.form for one in own}

    async def run(asked: Asked) -> Json:
        """Find what the path names, read what was sent, and ask the engine."""
        where: dict[str, Any] = {}
        if "job" in asked.path:
            where["plan"], where["job"] = await asked.job(command.name)
        else:
            where["plan"] = await asked.plan(command.name)
        given = {name: await _read(asked, where["plan"], name, forms[name]) for name in _sent(asked, forms)}
        name, args = command.name, {**where, **given}
        if isinstance(command, Alias):
            name, args = command.becomes(args)
        return await asked.served.ask(name, **args)

    return run


def _reads(query: Asking) -> Callable[[Asked], Any]:
    names = [spec.name for spec in fields(query.args)]

    async def run(asked: Asked) -> Response:
        """Ask the journal."""
        args = query.args(**{name: getattr(asked.query, name) for name in names})
        return await asked.read(query.read, asked.served.app, args)

    return run


def _sent(asked: Asked, forms: Iterable[str]) -> list[str]:
    return [name for name in forms if any(known in asked.raw for known in names_of(name))]


async def _read(asked: Asked, plan: PlanId, name: str, form: str | None) -> Any:
    """An argument as the engine takes it."""
    value = next(asked.raw[known] for known in names_of(name) if known in asked.raw)
    if form in ("work", "works"):
        return read_works(name, value)
    return await named_jobs(asked, plan, value) if form == "jobs" else value


async def named_jobs(asked: Asked, plan: PlanId, names: list[str]) -> list[JobId]:
    """The jobs that are meant, each once."""
    find = asked.served.app.find_job
    return list(dict.fromkeys([(await asked.served.read(find, name, plan))[1] for name in names]))


def read_works(name: str, value: Any) -> Json | list[Json]:
    """A work, or a list of checks, as in a plan file."""
    if name == "work":
        return work_json(parse_work(value, name))
    many = value if isinstance(value, list) else [value]
    return [work_json(parse_work(one, f"{name}[{number}]")) for number, one in enumerate(many)]
