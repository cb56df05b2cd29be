"""The JSON Schemas of tools: each stands alone, and what is part of a plan comes from the one plan model.

An input model marks such a part with `plan_part("Job")`; here the mark becomes a reference, and what is referred to
is taken over from the schema of plan files. What that schema writes out in many places (a work, a list of works,
variables, a duration) is given a name first, since a model reads every byte of a tool.
"""

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from pydantic import BaseModel

from orchard.model.events.plans import Json
from orchard.planfile import parse
from orchard.surfaces.mcp.tool import Tool

MARK = "x-plan-part"

_NAMES = {
    "JobFields": "Job", "GroupFields": "Group", "ShellFields": "Shell", "ProcessFields": "Process",
    "AgentFields": "Agent", "OnFailureFields": "OnFailure", "BudgetFields": "Budget",
}  # fmt: skip


def plan_part(name: str, **more: Any) -> Json:
    """The schema of a field that holds a part of a plan: `Work`, `Works`, `Job`, `Job.name`, `Plan.budget`, ..."""
    return {MARK: name, **more}


@cache
def plan_definitions() -> Json:
    """Everything a plan is made of, by name; `Plan` is the whole of it."""
    whole = parse.schema()
    found: Json = whole.pop("$defs")
    del whole["$schema"]
    found = {_NAMES[name]: part for name, part in found.items()}
    found["Plan"] = whole
    job = found["Job"]["properties"]
    named = {"Work": _bare(job["work"]), "Env": _bare(job["env"]), "Duration": _bare(job["timeout"])}
    found = {
        name: _named(_renamed(part), {key: _renamed(one) for key, one in named.items()}) for name, part in found.items()
    }
    works = {"Works": _bare(found["Job"]["properties"]["prechecks"])}
    found = {name: _named(part, works) for name, part in found.items()}
    return {**found, **{name: _renamed(part) for name, part in named.items()}, **works}


@cache
def plan_property(path: str) -> Json:
    """The schema of one field, such as `Job.name`, or of a named part, such as `Work`."""
    name, _, field = path.partition(".")
    return plan_definitions()[name]["properties"][field] if field else {"$ref": f"#/$defs/{name}"}


def input_schema(tool: Tool) -> Json:
    """What a tool takes, with everything it refers to."""
    return _input_schema(tool.input)


def output_schema(tool: Tool) -> Json:
    """What a tool gives."""
    return _output_schema(tool.output)


@cache
def _input_schema(model: type[BaseModel]) -> Json:
    made = _standing_alone(model, brief=bool(getattr(model, "BRIEF", False)))
    found: Json = _walk(made, _without_null)
    return found


@cache
def _output_schema(model: type[BaseModel]) -> Json:
    made = _standing_alone(model, brief=False)
    made.pop("description", None)
    return made


def _standing_alone(model: type[BaseModel], *, brief: bool) -> Json:
    """The schema of a model with what it refers to; `brief`: what is inside a work is not explained once more."""
    made: Json = _walk(model.model_json_schema(), _unmarked)
    made.pop("title", None)
    made.pop("description", None)
    own: Json = made.pop("$defs", {})
    needed: Json = {}
    waiting = _references(made)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            known = own.get(name)
            needed[name] = known if known is not None else plan_definitions()[name]
            if brief and known is None:
                needed[name] = _walk(needed[name], _unexplained)
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
    if len(left) != 1 or len(forms) == 1:
        return part
    return {**left[0], **{name: value for name, value in part.items() if name not in ("anyOf", "default")}}


def _unexplained(part: Json) -> Json:
    return {name: value for name, value in part.items() if not (name == "description" and isinstance(value, str))}


def _references(part: Any) -> set[str]:
    if isinstance(part, list):
        return {name for item in part for name in _references(item)}
    if not isinstance(part, dict):
        return set()
    found = {name for value in part.values() for name in _references(value)}
    reference = part.get("$ref")
    return found | {reference.rpartition("/")[2]} if isinstance(reference, str) else found


def _bare(part: Json) -> Json:
    return {name: value for name, value in part.items() if name != "description"}


def _renamed(part: Json) -> Json:
    text = json.dumps(part)
    for old, new in _NAMES.items():
        text = text.replace(f"#/$defs/{old}", f"#/$defs/{new}")
    found: Json = json.loads(text)
    return found


def _named(part: Json, named: Json) -> Json:
    """The same with a reference wherever something stands that has a name."""

    def look(inner: Json) -> Json:
        for name, known in named.items():
            if _bare(inner) == known:
                told = {"description": inner["description"]} if "description" in inner else {}
                return {"$ref": f"#/$defs/{name}", **told}
        return inner

    found: Json = _walk(part, look)
    return found


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
