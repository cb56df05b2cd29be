"""The one table of everything that the API can be asked for: routes, checks and the document are made from it.

It is derived from the table of operations: their routes, arguments and words. What an answer needs beyond that (other
media than JSON, headers, streams) is in `answers`.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Annotated, Any

from msgspec.structs import fields, replace
from pydantic import AliasChoices, Field, TypeAdapter, WithJsonSchema, create_model
from starlette.responses import Response

from orchard.errors import InvalidInput
from orchard.model import limits
from orchard.model.events.plans import Json
from orchard.model.plan import JobId, PlanId
from orchard.model.plan_codec import work_json
from orchard.operations import operation as declared
from orchard.operations import query as queries
from orchard.operations.operation import Alias, Argument, Route, arguments_of
from orchard.operations.table import OPERATIONS
from orchard.planfile.fields import BudgetFields, Checks, Fields, JobFields, Work
from orchard.planfile.forms import HIDDEN, names_of
from orchard.planfile.parse import CLONED, UPDATED_ALWAYS, UPDATED_BEFORE, parse, parse_work
from orchard.planfile.values import PhaseName
from orchard.surfaces.http.answers import DOCUMENT, RENDERED
from orchard.surfaces.http.operation import Asked, Nothing, Operation, Part, Query

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

PARTS = {
    "plan": Part("Plan", "A plan, as in a plan file.", "PlanFields"),
    "plan_update": Part(
        "PlanUpdate",
        "Fields of a plan that can be changed after it was submitted; some only before it starts.",
        "PlanFields",
        UPDATED_ALWAYS | UPDATED_BEFORE,
    ),
    "plan_clone": Part(
        "PlanClone",
        "What is different in the copy; everything else, and every job, is the same.",
        "PlanFields",
        CLONED,
    ),
    "job_update": Part(
        "JobUpdate",
        "Fields of a job that has not started. Its `id` and `group` stay.",
        "JobFields",
        frozenset(JobFields.model_fields) - HIDDEN - {"id", "group"},
    ),
}
"""What the whole body is for an argument of this form."""


def derived(command: declared.Operation) -> Operation:
    """A row of the table of operations as an operation of the API."""
    route = command.route
    assert isinstance(route, Route)
    named = {part[1:-1] for part in route.path.split("/") if part.startswith("{")}
    own = [one for one in arguments_of(command.args) if one.name not in named]
    asked = [one for one in own if one.name in route.query or route.method in ("GET", "DELETE")]
    headers = {route.headers[one.name]: _header(one) for one in own if one.name in route.headers}
    sent = [one for one in own if one not in asked and one.name not in route.headers]
    whole = next((one for one in sent if one.form in PARTS), None)
    body: type[Fields] | Part | None = None
    if whole is not None:
        sent, body = [whole], PARTS[str(whole.form)]
    elif route.method not in ("GET", "DELETE"):
        body = _model(command, sent) if sent else Nothing
    found = Operation(
        camel(route.id or command.name),
        route.method,
        route.path,
        command.sentence.rstrip("."),
        _reads(command, sent) if isinstance(command, queries.Query) else _runs(command, asked, sent),
        command.answer,
        description=command.details,
        operation=command.name,
        whole_names=command.whole_names,
        query=_model(command, asked, Query, "Query") if asked else Query,
        body=body,
        body_required=any(one.required for one in sent),
        status=route.status,
        headers=headers,
    )
    return replace(found, **RENDERED.get(command.name, {}))


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _model(
    command: declared.Operation, own: list[Argument], base: type[Fields] = Fields, what: str = "Body"
) -> type[Fields]:
    """Some arguments of an operation as fields, in which everything that is wrong is told at once."""
    name = camel(command.name)
    title = f"{name[0].upper()}{name[1:]}{what}"
    made = {one.name: _field(one) for one in own}
    found: type[Fields] = create_model(title, __base__=base, __doc__=command.sentence, **made)  # type: ignore[call-overload]
    return found


def _field(argument: Argument) -> tuple[Any, Any]:
    kind = FORMS[argument.form] if argument.form is not None else argument.kind
    more: Json = {} if argument.required else {"default": argument.default}
    if argument.also:
        more["validation_alias"] = AliasChoices(*_names(argument))
    limited = Annotated[kind, Field(**argument.limits)] if argument.limits else kind
    return limited, Field(description=argument.description, **more)


def _names(argument: Argument) -> tuple[str, ...]:
    """Every name that an argument may be given by; its own comes first."""
    return (*names_of(argument.name), *argument.also)


def _header(argument: Argument) -> Json:
    kind, _ = _field(argument)
    return {"description": argument.description, "schema": TypeAdapter(kind).json_schema()}


# ---------------------------------------------------------------------------------------- asking


def _runs(command: declared.Operation, asked_for: list[Argument], sent: list[Argument]) -> Callable[[Asked], Any]:
    route = command.route
    assert isinstance(route, Route)

    async def run(asked: Asked) -> Json:
        """Find what the path names, read what was sent, and ask the engine."""
        args: dict[str, Any] = dict(asked.path)
        if "job" in asked.path:
            args["plan"], args["job"] = await asked.job(command.name)
        elif "plan" in asked.path:
            args["plan"] = await asked.plan(command.name)
        args |= {one.name: getattr(asked.query, one.name) for one in asked_for}
        args |= {name: asked.request.headers.get(header) for name, header in route.headers.items()}
        args |= {one.name: await _read(asked, args, one) for one in _sent(asked, sent)}
        name = command.name
        if isinstance(command, Alias):
            name, args = command.becomes(args)
        try:
            return await asked.served.ask(name, **args)
        except InvalidInput as error:
            if not isinstance(command, Alias):
                raise
            own = [replace(one, path=command.own_path(one.path)) for one in error.problems]
            raise InvalidInput(error.what, own, error.hint) from None

    return run


def _reads(query: queries.Query, sent: list[Argument]) -> Callable[[Asked], Any]:
    names = [spec.name for spec in fields(query.args)]

    async def run(asked: Asked) -> Response:
        args: dict[str, Any] = {name: getattr(asked.query, name) for name in names if hasattr(asked.query, name)}
        args |= {one.name: await _read(asked, args, one) for one in sent}
        question = partial(query.read, asked.served.app, query.args(**args, **asked.path))
        return await asked.read(question, apart=query.apart)

    return run


def _sent(asked: Asked, own: list[Argument]) -> Iterable[Argument]:
    """The arguments for which the body has something."""
    return [one for one in own if one.form in PARTS or any(known in asked.raw for known in _names(one))]


async def _read(asked: Asked, args: dict[str, Any], argument: Argument) -> Any:
    """An argument as the engine takes it."""
    form = argument.form
    if form == "plan":
        scaffolding = args.get("scaffolding", False)
        return await asked.aside(partial(parse, asked.data, "plan", "json", scaffolding=scaffolding))
    if form in PARTS:
        return asked.body
    given = next(known for known in _names(argument) if known in asked.raw)
    value = asked.raw[given]
    if form in ("work", "works"):
        return _works(given, value, many=form == "works")
    return await _jobs(asked, args["plan"], value) if form == "jobs" else value


async def _jobs(asked: Asked, plan: PlanId, names: list[str]) -> list[JobId]:
    find = asked.served.app.find_job
    return list(dict.fromkeys([(await asked.served.read(find, name, plan))[1] for name in names]))


def _works(name: str, value: Any, *, many: bool) -> Json | list[Json]:
    """A work, or a list of checks, as in a plan file; `name` is what the client calls it."""
    if many and isinstance(value, list):
        return [work_json(parse_work(one, f"{name}[{number}]")) for number, one in enumerate(value)]
    work = work_json(parse_work(value, name))
    return [work] if many else work


# --------------------------------------------------------------------------------------- finding

ROUTES = (*(derived(one) for one in OPERATIONS.values() if isinstance(one.route, Route)), DOCUMENT)


_ALIKE: dict[tuple[int, str], list[Operation]] = {}
"""The routes by how many parts they have, and by the word that they begin with."""
for _route in ROUTES:
    _ALIKE.setdefault((len(_route.parts), _route.parts[0]), []).append(_route)


def matching(parts: tuple[str, ...]) -> list[Operation]:
    """The operations with this path, one for each method.

    Where two have the method, a word in a path counts more than a name that anything could have: there may be a plan
    that is called `validate`.
    """
    found = sorted((one for one in _ALIKE.get((len(parts), parts[0]), ()) if one.fits(parts)), key=_words)
    return list({one.method: one for one in found}.values())


def _words(operation: Operation) -> int:
    return sum(not part.startswith("{") for part in operation.parts)
