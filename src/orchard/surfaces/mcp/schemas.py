"""The whole JSON Schemas of tools: what calls are repaired by, and what answers keep to.

An input model marks a part of a plan with `plan_part("Job.work")`; here the mark becomes the schema that plan files
have for it. What a model is shown of all this is in `tool_list`.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

from msgspec import Struct, json
from pydantic import BaseModel

from orchard.model.events.plans import Json
from orchard.planfile import parse
from orchard.surfaces.mcp.tool import Tool

MARK = "x-plan-part"


def plan_part(name: str, **more: Any) -> Json:
    """The schema of a field that holds a part of a plan: `Job`, `Job.name`, `Plan.budget`, ..."""
    return {MARK: name, **more}


@cache
def plan_schema() -> Json:
    """The schema of plan files."""
    return parse.schema()


def plan_property(path: str) -> Json:
    """The schema of one field, such as `Job.name`, or of a whole `Job`."""
    owner, _, field = path.partition(".")
    if not field:
        return {"$ref": f"#/$defs/{owner}Fields"}
    holder = plan_schema() if owner == "Plan" else plan_schema()["$defs"][f"{owner}Fields"]
    found: Json = holder["properties"][field]
    return found


def input_schema(tool: Tool) -> Json:
    """What a tool takes, with everything it refers to."""
    return _input_schema(tool.input)


def output_schema(tool: Tool) -> Json:
    """What a tool gives."""
    return _answer_schema(tool.output)


@cache
def _answer_schema(model: type[Struct]) -> Json:
    made = json.schema(model)
    definitions: Json = made["$defs"]
    whole: Json = definitions.pop(made["$ref"].rpartition("/")[2])
    found: Json = _walk({**whole, **({"$defs": definitions} if definitions else {})}, _untitled)
    return found


def _untitled(part: Json) -> Json:
    return {name: value for name, value in part.items() if name not in ("title", "default")}


@cache
def _input_schema(model: type[BaseModel]) -> Json:
    found: Json = _walk(_standing_alone(model), _without_null)
    return found


@cache
def _standing_alone(model: type[BaseModel]) -> Json:
    """The schema of a model with what it refers to."""
    made: Json = _walk(model.model_json_schema(), _unmarked)
    made.pop("title", None)
    made.pop("description", None)
    known: Json = {**plan_schema()["$defs"], **made.pop("$defs", {})}
    needed: Json = {}
    waiting = _references(made)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed[name] = known[name]
            waiting |= _references(needed[name])
    if needed:
        made["$defs"] = {name: needed[name] for name in sorted(needed)}
    return made


def _unmarked(part: Json) -> Json:
    """Without what pydantic adds and nobody reads, and with the plan's own schema where a part is marked."""
    found = {name: value for name, value in part.items() if not (name == "title" and isinstance(value, str))}
    if found.get("default", part) is None:
        del found["default"]
    path = found.pop(MARK, None)
    return {**plan_property(path), **found} if path else found


def _without_null(part: Json) -> Json:
    """Null is no value of a field that may be left out; a call that gives it is repaired."""
    forms = part.get("anyOf", [])
    left = [form for form in forms if form != {"type": "null"}]
    if len(left) == len(forms):
        return part
    if len(left) != 1:
        return {**{name: value for name, value in part.items() if name != "default"}, "anyOf": left}
    return {**left[0], **{name: value for name, value in part.items() if name not in ("anyOf", "default")}}


def _references(part: Any) -> set[str]:
    if isinstance(part, list):
        return {name for item in part for name in _references(item)}
    if not isinstance(part, dict):
        return set()
    found = {name for value in part.values() for name in _references(value)}
    reference = part.get("$ref")
    return found | {reference.rpartition("/")[2]} if isinstance(reference, str) else found


def _walk(part: Any, change: Callable[[Json], Json]) -> Any:
    """The schema with every schema in it changed, from the outside in; the names of properties are not schemas."""
    if isinstance(part, list):
        return [_walk(item, change) for item in part]
    if not isinstance(part, dict):
        return part
    found: Json = {}
    for name, value in change(part).items():
        if name in ("properties", "$defs", "patternProperties"):
            found[name] = {key: _walk(inner, change) for key, inner in value.items()}
        elif name in ("enum", "const", "default", "examples", "required"):
            found[name] = value
        else:
            found[name] = _walk(value, change)
    return found
