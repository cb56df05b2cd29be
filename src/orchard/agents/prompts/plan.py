"""The guide for planners: what a good plan is, its format from the models that check it, and examples.

People read it by `orchard help planning`; agents that are asked for a plan are given it.
"""

from importlib.resources import files
from typing import Any

PLACE = "<!-- fields -->"

_TITLES = {
    "PlanFields": "The plan",
    "JobFields": "Each of `jobs`",
    "GroupFields": "Each of `groups`",
    "ShellFields": "A work that is a command",
    "ProcessFields": "A work that is a program",
    "AgentFields": "A work for an agent",
    "OnFailureFields": "`on_failure`",
    "BudgetFields": "`budget`",
}
_WORK = (
    "A work is a text or an object. A text is a command for the shell; `@agent TASK` is a task for the default agent, "
    "`@NAME TASK` for the agent of that name. Wherever a list of works is asked for, one of them will do."
)


def planning_guide() -> str:
    text = files("orchard.agents").joinpath("guide.md").read_text("utf-8")
    assert PLACE in text
    return text.replace(PLACE, format_text())


def format_text() -> str:
    """Every field of a plan file: its type, what it means, and what holds where it is left out."""
    from orchard.planfile.fields import MODELS, WorkFields
    from orchard.planfile.parse import schema  # brings pydantic

    shapes = schema()
    parts = []
    for model in MODELS:
        name = model.__name__
        shape = shapes if name == "PlanFields" else shapes["$defs"][name]
        common = set(WorkFields.model_fields) if issubclass(model, WorkFields) and name != "ShellFields" else set()
        rows = [
            _row(field, info, shape["properties"][field])
            for field, info in model.model_fields.items()
            if field not in common and not info.exclude
        ]
        if common:
            rows.append(f"- and {', '.join(f'`{field}`' for field in WorkFields.model_fields)}, as above")
        if name == "ShellFields":
            parts.append(_WORK)
        parts.append(f"**{_TITLES[name]}.** {model.__doc__}\n\n" + "\n".join(rows))
    return "\n\n".join(parts)


def _row(name: str, info: Any, shape: dict[str, Any]) -> str:
    absent = "required" if info.is_required() else f"left out: {info.json_schema_extra['x-absent']}"
    return f"- `{name}` ({_type(shape)}; {absent}): {info.description}"


def _type(shape: dict[str, Any]) -> str:
    if "$ref" in shape:
        title = _TITLES[shape["$ref"].rpartition("/")[2]].removeprefix("Each of ").strip("`")
        return title if title in ("jobs", "groups") else f"see `{title}`"
    if "enum" in shape or "const" in shape:
        return " or ".join(f"`{choice}`" for choice in shape.get("enum", [shape.get("const")]))
    if "oneOf" in shape:
        forms = shape["oneOf"]
        is_work = any(form.get("$ref", "").endswith("/ShellFields") for form in forms)
        return "a work" if is_work else " or ".join(_type(form) for form in forms)
    if shape["type"] == "array":
        return f"list of {_type(shape['items']).replace('a work', 'works')}"
    words = {
        "string": "text",
        "integer": "whole number",
        "number": "number",
        "boolean": "true or false",
        "object": "names with text or numbers",
    }
    return words[shape["type"]]
