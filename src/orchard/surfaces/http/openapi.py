"""The OpenAPI document of the API, made from the table of operations and from the one model of plans."""

import re
from copy import deepcopy
from functools import cache
from typing import Any

from msgspec.json import schema_components
from pydantic.json_schema import models_json_schema

from orchard import __version__
from orchard.model.events.plans import Json
from orchard.planfile.parse import schema as plan_schema
from orchard.surfaces.http.operation import EVENTS, JSON, Operation, Part
from orchard.surfaces.http.operations import ROUTES
from orchard.surfaces.http.problems import MEDIA, ProblemDocument, json_bytes

SCHEMAS = "#/components/schemas/"
ABOUT = """What `orchard` can do in a terminal, for programs. Every request needs the daemon's token.

Plans and jobs are named by id, unique prefix or unique name. A job of a group has a `/` in its id, which is written
`%2F` in a path: `/plans/login-3f2a/jobs/backend%2Fapi`. Lists are given page by page. Every error is a problem
document (RFC 9457) with a hint."""

REFUSALS: dict[int, str] = {
    400: "The request cannot be read: broken JSON, an unknown parameter, a field of the wrong type.",
    401: "The token is missing or wrong.",
    403: "The request comes from another site.",
    404: "There is no such repository, plan, job or result.",
    409: "A person has to do something first, or the world refused it: the hint says what.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    421: "The host that was asked for is not this one.",
    422: "The request can be read, but what it asks for cannot be done: problems of a plan, or a wrong moment.",
    431: "The head of the request is too large.",
    503: "No engine works on the repository at the moment, or too many clients listen.",
    504: "What was waited for did not happen in time.",
}
"""What every operation may answer instead, as far as it applies."""
ONLY_WITH_BODY = (413, 415)
EVENT: Json = {
    "type": "object",
    "description": "Each event of the stream.",
    "properties": {
        "id": {"type": "string", "description": "What `Last-Event-ID` is after it."},
        "event": {"type": "string", "description": "Its name."},
        "data": {"type": "string", "description": "A JSON object."},
        "retry": {"type": "integer"},
    },
}
WHOLE_WORDS = {
    "plan": "The plan: its id, or its unique name; the beginning of an id is not enough here.",
    "job": "The job: its full id, or its bare id or name where that is unique; `/` is written `%2F`.",
}
PATH_WORDS = {
    "plan": "The plan: its id, a unique beginning of it, or its unique name.",
    "job": "The job: its full id, or its bare id, a beginning or its name where that is unique; `/` is written `%2F`.",
    "group": "The group, such as `backend/api`; `/` is written `%2F`.",
}


@cache
def document_bytes() -> bytes:
    return json_bytes(document())


@cache
def document() -> Json:
    paths: Json = {}
    for one in ROUTES:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Orchard", "version": __version__, "description": ABOUT},
        "servers": [{"url": "/api/v1"}],
        "security": [{"token": []}],
        "tags": [
            {"name": "plans", "description": "Plans: submit, look at, control, land."},
            {"name": "jobs", "description": "Jobs: look at, control, talk to."},
            {"name": "events", "description": "What happens, as it happens."},
            {"name": "system", "description": "Repositories, agents, settings, and how this machine fares."},
        ],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The daemon's token, from the file that `orchard serve --json` names.",
                }
            },
            "responses": {str(status): _refusal(text) for status, text in REFUSALS.items()},
        },
    }


# ------------------------------------------------------------------------------------ operations


def _operation(one: Operation) -> Json:
    made: Json = {
        "operationId": one.name,
        **({"x-operation": one.operation} if one.operation else {}),
        "tags": [one.tag],
        "summary": one.summary,
        "parameters": [*_path_parameters(one), *_query_parameters(one), *_header_parameters(one)],
        "responses": {str(one.status): _answer(one), **_refusals(one)},
    }
    if one.description:
        made["description"] = one.description
    if one.body is not None:
        name = one.body.name if isinstance(one.body, Part) else one.body.__name__
        content = {JSON: {"schema": {"$ref": f"{SCHEMAS}{name}"}}}
        made["requestBody"] = {"required": one.body_required, "content": content}
    return made


def _path_parameters(one: Operation) -> list[Json]:
    names = re.findall(r"{(\w+)}", one.path)
    text = {"type": "string", "minLength": 1, "maxLength": 1000}
    words = PATH_WORDS | (WHOLE_WORDS if one.whole_names else {})
    return [
        {"name": name, "in": "path", "required": True, "description": words[name], "schema": text} for name in names
    ]


def _query_parameters(one: Operation) -> list[Json]:
    schema = one.query.model_json_schema()
    found: list[Json] = []
    for name, part in schema.get("properties", {}).items():
        own = {key: value for key, value in part.items() if key not in ("title", "description")}
        if own.get("default", own) is None:
            del own["default"]
        found.append({"name": name, "in": "query", "description": part.get("description", ""), "schema": own})
    return found


def _header_parameters(one: Operation) -> list[Json]:
    return [{"name": name, "in": "header", **spec} for name, spec in one.headers.items()]


def _answer(one: Operation) -> Json:
    content: Json = {}
    for media in one.media:
        schema: Json = EVENT if media == EVENTS else {"type": "string"}
        if media == JSON and one.answer is not None:
            forms = [{"$ref": f"{SCHEMAS}{form.__name__}"} for form in (one.answer, one.also) if form is not None]
            schema = {"anyOf": forms} if one.also is not None else forms[0]
        content[media] = {"schema": schema}
    made: Json = {"description": "Done." if one.writes else "Here it is.", "content": content}
    if one.told:
        made["headers"] = dict(one.told)
    if one.media == (EVENTS,):
        made["description"] = "Events, for as long as the client listens."
    return made


def _refusals(one: Operation) -> Json:
    wanted = [status for status in REFUSALS if one.body is not None or status not in ONLY_WITH_BODY]
    return {str(status): {"$ref": f"#/components/responses/{status}"} for status in wanted}


def _refusal(text: str) -> Json:
    return {"description": text, "content": {MEDIA: {"schema": {"$ref": f"{SCHEMAS}{ProblemDocument.__name__}"}}}}


# --------------------------------------------------------------------------------------- schemas


def _schemas() -> Json:
    """Every model once. Those of a plan are as the schema of plan files has them."""
    bodies = {one.body: None for one in ROUTES if one.body is not None and not isinstance(one.body, Part)}
    answers = {form: None for one in ROUTES for form in (one.answer, one.also) if form is not None}
    _, made = models_json_schema([(body, "validation") for body in bodies], ref_template=f"{SCHEMAS}{{model}}")
    schemas: Json = {name: _plain(part) for name, part in made["$defs"].items()}
    _, told = schema_components([ProblemDocument, *answers], ref_template=f"{SCHEMAS}{{name}}")
    schemas.update(told)
    whole = _moved(plan_schema())
    schemas.update(whole.pop("$defs"))
    del whole["$schema"], whole["$id"]
    schemas["PlanFields"] = whole
    for one in ROUTES:
        if isinstance(one.body, Part):
            schemas[one.body.name] = _part(one.body, schemas[one.body.model], required=one.body_required)
    del schemas["PlanFields"]
    return dict(sorted(schemas.items()))


def _part(part: Part, whole: Json, *, required: bool) -> Json:
    made = deepcopy(whole)
    made["title"], made["description"] = part.name, part.description
    if part.fields is not None:
        made["properties"] = {name: spec for name, spec in made["properties"].items() if name in part.fields}
        made.pop("required", None)
        if required:
            made["minProperties"] = 1
    return made


def _moved(part: Any) -> Any:
    """The same, with its definitions where this document has them."""
    if isinstance(part, list):
        return [_moved(one) for one in part]
    if isinstance(part, dict):
        made = {name: _moved(one) for name, one in part.items()}
        if isinstance(made.get("$ref"), str):
            made["$ref"] = made["$ref"].replace("#/$defs/", SCHEMAS)
        return made
    return part


def _plain(part: Any) -> Any:
    """Without the titles and the empty defaults that pydantic adds."""
    if isinstance(part, list):
        return [_plain(one) for one in part]
    if not isinstance(part, dict):
        return part
    made = {name: _plain(one) for name, one in part.items() if name != "x-absent"}
    if isinstance(made.get("title"), str) and "properties" not in made:
        del made["title"]
    if "default" in made and made["default"] is None:
        del made["default"]
    return made
