"""What `tools/list` shows of a tool: enough to call it and no more, because a model pays for every byte in every turn.

The server checks calls against the whole schemas (`schemas`) and takes everything that they know. Shown are

    what is taken   a tool's own fields with type and description; the form of a plan once, in `create_plan`, with a few
                    words each; in other tools the fields of plans and jobs by name and type
    what is given   the fields that every answer has, by name and type

An agent in a job is shown its subtasks like that, without titles and without what they give; of what reads its plan it
is shown one sentence, and what a call must have.

Nothing that is shown forbids a field that is not: what lies deeper is in the planning guide (`orchard://help/planning`).
"""

from collections.abc import Collection, Iterable, Mapping

from orchard.engine.turns.job_tokens import Scope
from orchard.model.events.plans import Json
from orchard.surfaces.mcp.schemas import MARK, input_schema, output_schema, plan_schema
from orchard.surfaces.mcp.selection import DEFAULT
from orchard.surfaces.mcp.tool import Tool, next_words

TELLS = "create_plan"
"""The tool that describes the form of a plan."""

IN_JOBS = ("get_plan", "get_job", "get_job_logs", "get_job_diff", "get_subtask")
"""What an agent in a job is shown besides its subtasks. The other tools of `OWN_PLAN` tell the same in other ways, and
answer when they are called."""

FORM: Mapping[str, Mapping[str, str]] = {
    "Plan": {
        "name": "",
        "base": "Branch or commit to start from (default: the current branch).",
        "target": "Branch to land on; made if it does not exist.",
        "jobs": "",
        "groups": "Jobs in groups: name, jobs, groups.",
        "max_parallel": "",
        "verify": "Work that checks the merged result before it lands.",
        "setup": "Works that make a worktree ready.",
        "env": "",
        "start_paused": "Wait for resume_plan.",
        "land": "`ask`: a person approves; `never`: it stays on `orchard/<name>`; `pr`: a pull request.",
        "budget": "Where it pauses: tokens, cost, minutes.",
    },
    "Job": {
        "id": "Small letters, digits, . _ -",
        "name": "",
        "group": "Such as `api/tests`.",
        "needs": "Jobs whose results it starts from.",
        "work": "A shell command, `@agent TASK`, or an object with command, executable or instructions.",
        "prechecks": "Works that must pass before.",
        "postchecks": "Works that must pass on its commit.",
        "changes": "Whether it has to change files.",
        "heal": "Whether an agent repairs failures, or how often.",
        "env": "",
        "timeout": "Of each work: seconds, or `10m`.",
        "approve": "Wait until a person approves the change.",
    },
    "Work": {
        "command": "",
        "executable": "",
        "args": "",
        "instructions": "The task of an agent, in Markdown.",
        "agent": "",
        "model": "",
        "tier": "",
        "effort": "",
        "interactive": "Wait for messages after its turn.",
    },
}
"""What `create_plan` shows of a plan, with what it says where the name does not; the other fields are only named."""

MAIN = {"Plan": {"name", "base", "target", "verify", "land"}, "Job": {"id", "needs", "work", "postchecks"}}
"""What the other tools of the default toolset show of a plan, or of a job."""


def shown(tools: Iterable[Tool], scope: Scope | None) -> list[Tool]:
    """Those of the tools that a caller may have which are listed to it."""
    return [tool for tool in tools if scope is None or tool.toolset == "subtasks" or tool.name in IN_JOBS]


def shown_words(tool: Tool, offered: Collection[str], scope: Scope | None = None) -> str:
    """What a model reads about a tool; of those that usually follow, the ones that it can call."""
    if _in_passing(tool, scope):
        return tool.description.partition("\n")[0]
    following = [name for name in tool.next if name in offered]
    return tool.description.replace(next_words(tool.next), next_words(following))


def shown_input(tool: Tool, scope: Scope | None = None) -> Json:
    """What is shown of what a tool takes."""
    whole = input_schema(tool)
    fields = {name: _field(part, whole.get("$defs", {})) for name, part in whole["properties"].items()}
    if tool.name == TELLS:
        form = _plan_form()
        own = {name: part for name, part in fields.items() if name not in plan_schema()["properties"]}
        return _object(whole, {**form.pop("properties"), **own}, **form)
    if _in_passing(tool, scope):
        return _object(whole, {name: fields[name] for name in whole.get("required", ())})
    for name, mark in tool.input.model_json_schema()["properties"].items():
        owner, _, part = mark.get(MARK, "").partition(".")
        if owner and tool.toolset in DEFAULT and part not in MAIN[owner]:
            del fields[name]
        elif owner:
            fields[name].pop("description", None)
    return _object(whole, fields)


def shown_output(tool: Tool, scope: Scope | None = None) -> Json:
    """What is shown of what a tool gives; what an agent in a job is given says what it is."""
    if scope is not None:
        return {"type": "object"}
    whole = output_schema(tool)
    kinds = {name: _shape(whole["properties"][name], whole.get("$defs", {}))["type"] for name in whole["required"]}
    return {"type": "object", "properties": {name: {"type": kind} for name, kind in kinds.items()}}


def _in_passing(tool: Tool, scope: Scope | None) -> bool:
    return scope is not None and tool.toolset != "subtasks"


def _plan_form() -> Json:
    """The form of a plan, with that of its jobs and of their work."""
    plan, job, work = (_form(owner) for owner in ("Plan", "Job", "Work"))
    own = job["properties"]["work"]
    own.update(properties=work["properties"], description=f"{own['description']} {work['description']}")
    plan["properties"]["jobs"]["items"] = {**job, "required": ["id"]}
    return plan


def _form(owner: str) -> Json:
    """The fields that are shown of a plan, a job or a work, and the names of the others."""
    definitions = plan_schema()["$defs"]
    holders = {"Plan": [plan_schema()], "Job": [definitions["JobFields"]]}.get(
        owner, [definitions[f"{form}Fields"] for form in ("Shell", "Process", "Agent")]
    )
    parts: Json = {name: part for holder in holders for name, part in holder["properties"].items()}
    told = FORM[owner]
    fields = {name: _field({**parts[name], "description": words}, definitions) for name, words in told.items()}
    others = ", ".join(name for name in parts if name not in told)
    return {"type": "object", "description": f"Also: {others}.", "properties": fields}


def _object(whole: Json, fields: Json, **more: str) -> Json:
    """An object with these fields, those first that it must have."""
    required = whole.get("required", [])
    ordered = {name: fields[name] for name in (*required, *(one for one in fields if one not in required))}
    return {**more, "type": "object", "properties": ordered, **({"required": required} if required else {})}


def _field(part: Json, definitions: Json) -> Json:
    kept = {name: part[name] for name in ("maximum", "default", "description") if part.get(name)}
    return {**_shape(part, definitions), **kept}


def _shape(part: Json, definitions: Json) -> Json:
    """The type of a value, without the rules for it and without what lies deeper."""
    if "$ref" in part:
        known = definitions[part["$ref"].rpartition("/")[2]]
        return {"type": "object"} if "properties" in known else _shape(known, definitions)
    if "enum" in part:
        return {"type": "string", "enum": part["enum"]}
    forms = part.get("oneOf") or part.get("anyOf")
    if forms and "properties" not in part:
        shapes = [_shape(form, definitions) for form in forms]
        kinds = dict.fromkeys(kind for one in shapes for kind in _kinds(one))
        items: Json = {"items": {}} if "array" in kinds else {}
        return {"type": list(kinds) if len(kinds) > 1 else next(iter(kinds)), **items}
    found: Json = {"type": part["type"]}
    if found["type"] == "array":
        found["items"] = _shape(part["items"], definitions)
    elif "properties" in part:
        found = _object(part, {name: _field(inner, definitions) for name, inner in part["properties"].items()})
    return found


def _kinds(shape: Json) -> list[str]:
    kind = shape["type"]
    return kind if isinstance(kind, list) else [kind]
