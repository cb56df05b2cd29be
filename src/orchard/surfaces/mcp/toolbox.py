"""All tools in one box: which of them there are, and how one is called.

A call goes: name -> tool, if it is enabled for this caller -> arguments put right where that is clear -> checked ->
run -> an answer. Whatever a caller did wrong ends in an answer that says what to do about it, never in an exception.
"""

from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from msgspec import to_builtins
from msgspec.structs import replace
from pydantic import ValidationError

from orchard import own_log
from orchard.engine.turns.job_tokens import Scope
from orchard.errors import InvalidInput, NotFound, OrchardError, Problem, SystemRefused, UsageError
from orchard.model.events.plans import Json
from orchard.planfile.document import value_findings
from orchard.planfile.places import show_path
from orchard.surfaces.mcp import messages
from orchard.surfaces.mcp.aliases import ALIASES
from orchard.surfaces.mcp.argument_fixes import Repair
from orchard.surfaces.mcp.schemas import input_schema as input_schema
from orchard.surfaces.mcp.schemas import output_schema as output_schema
from orchard.surfaces.mcp.selection import OWN_PLAN, TOOLSETS, Selection, toolsets_of
from orchard.surfaces.mcp.tool import Answer, Call, Input, Tool

MODULES = (
    "creation",
    "groups",
    "jobs",
    "plans",
    "output",
    "changes",
    "control",
    "subtasks",
    "workers",
    "commands",
    "queries",
)


@cache
def every_tool() -> tuple[Tool, ...]:
    """Every tool there is; the same name may be in two toolsets."""
    names = [f"orchard.surfaces.mcp.tools.{name}" for name in MODULES]
    return tuple(tool for name in names if find_spec(name) is not None for tool in import_module(name).TOOLS)


def tools(selection: Selection, scope: Scope | None = None) -> list[Tool]:
    """What a caller is offered, by name."""
    return [tool for _, tool in sorted(_offered(selection, scope).items())]


def _offered(selection: Selection, scope: Scope | None) -> dict[str, Tool]:
    """An agent in a job gets its subtasks and what it may read, whatever it asks for; it can only ask for less."""
    found: dict[str, Tool] = {}
    for tool in every_tool():
        if selection.read_only and not tool.read_only:
            continue
        if tool.name in selection.exclude:
            continue
        if scope is not None:
            if tool.toolset != "subtasks" and tool.name not in OWN_PLAN:
                continue
        elif tool.name not in selection.names or toolsets_of(tool.name) == ("subtasks",):
            continue  # outside of a job nobody has subtasks
        known = found.get(tool.name)
        if known is None or _rank(tool, selection, scope) < _rank(known, selection, scope):
            found[tool.name] = tool
    return found


def _rank(tool: Tool, selection: Selection, scope: Scope | None) -> tuple[bool, int]:
    """Of two tools with one name: for an agent in a job its own kind, else the one whose toolset was asked for."""
    if scope is not None:
        return tool.toolset != "subtasks", 0
    return tool.toolset not in selection.toolsets, list(TOOLSETS).index(tool.toolset)


async def call(call: Call, selection: Selection, name: str, arguments: Json) -> Answer:
    """Call a tool by its name, or by one that another orchestrator has for it."""
    own_log.info("mcp", f"call of {name[:60]}")
    offered = _offered(selection, call.scope)

    def shown(step: str) -> str | None:
        """A next step as this caller may read it: an agent in a job is not told of tools that it cannot have."""
        if call.scope is None:
            return messages.with_toolsets(step, offered, partial(_why_away, selection=selection))
        return None if messages.not_enabled(step, offered) else step

    repair = Repair({})
    try:
        tool, notes = _tool(name, offered, selection, call.scope)
        repair = _repair(tool)
        given = _checked(tool, arguments, repair)
        value: Json = to_builtins(await tool.run(call, given), enc_hook=str)
    except InvalidInput as error:
        problems = [replace(one, path=repair.as_given(one.path)) for one in error.problems]
        told = InvalidInput(error.what, problems, error.hint)
        return Answer(messages.error_text(name, told, shown), is_error=True)
    except OrchardError as error:
        return Answer(messages.error_text(name, error, shown), is_error=True)
    except OSError as error:
        return Answer(messages.error_text(name, SystemRefused(error), shown), is_error=True)
    return _answer(tool, value, [*notes, *repair.told()], shown)


def _why_away(name: str, *, selection: Selection) -> str:
    """Why a tool that there is cannot be called here, after "is"."""
    known = next(tool for tool in every_tool() if tool.name == name)
    if name in selection.exclude:
        return "excluded here"
    if selection.read_only and not known.read_only:
        return "left out here, where only reading is enabled"
    if toolsets_of(name) == ("subtasks",):
        return "for agents at work on a job"
    return f"in toolset '{toolsets_of(name)[0]}', which is not enabled here"


def _tool(name: str, offered: dict[str, Tool], selection: Selection, scope: Scope | None) -> tuple[Tool, list[str]]:
    """The tool that is meant, if this caller may call it."""
    own = ALIASES.get(name, name) if name not in offered else name
    if own in offered:
        return offered[own], [f"'{name}' is called '{own}' here."] if own != name else []
    known = next((tool for tool in every_tool() if tool.name == own), None)
    if scope is not None or known is None:
        raise NotFound(messages.unknown_tool(name, offered))
    if own in selection.exclude:
        raise UsageError(f"The tool '{own}' is excluded here (--exclude-tools).")
    if selection.read_only and not known.read_only:
        raise UsageError(f"The tool '{own}' changes something, and only reading is enabled here (--read-only).")
    if toolsets_of(own) == ("subtasks",):
        raise UsageError(f"The tool '{own}' is for an agent at work on a job; only such an agent has subtasks.")
    sets = " and ".join(f"'{one}'" for one in toolsets_of(own))
    raise UsageError(
        f"The tool '{own}' is not enabled; it is in toolset {sets}.",
        hint=f"Start the server with --toolsets {','.join([*selection.toolsets, toolsets_of(own)[0]])}",
    )


def _repair(tool: Tool) -> Repair:
    return Repair(input_schema(tool).get("$defs", {}), getattr(tool.input, "ASKED_NULL", frozenset()))


def _checked(tool: Tool, arguments: Any, repair: Repair) -> Input:
    """The arguments as the tool takes them; what has to be put right for that, `repair` does and remembers."""
    if not isinstance(arguments, dict):
        raise UsageError("The arguments must be an object.")
    found = value_findings(arguments)
    if found:
        raise InvalidInput("arguments", [Problem(one.message, show_path(one.path)) for one in found])
    schema = input_schema(tool)
    repaired = repair.value(arguments, {name: part for name, part in schema.items() if name != "$defs"}, "")
    try:
        return tool.input.model_validate(repaired)
    except ValidationError as error:
        raise _with_all(tool, repaired, messages.problems_of(error, repaired, tool.input)) from None


def _with_all(tool: Tool, value: Json, known: InvalidInput) -> InvalidInput:
    """The problems of a call, and what is wrong with the plan inside of it: a caller should hear everything at once."""
    if tool.check is None:
        return known
    try:
        tool.check({name: inner for name, inner in value.items() if name in tool.input.model_fields})
    except InvalidInput as error:
        paths = {problem.path for problem in known.problems}
        more = [problem for problem in error.problems if problem.path not in paths]
        return InvalidInput(known.what, [*known.problems, *more], known.hint)
    return known


def _answer(tool: Tool, value: Json, notes: list[str], shown: Callable[[str], str | None]) -> Answer:
    """What a tool gave, with the notes about the call where they can be."""
    value = _with_steps(value, shown)
    if notes and "notes" in tool.output.__struct_fields__:
        value = {**value, "notes": [*notes, *value.get("notes", [])]}
        notes = []
    return Answer("\n".join([*(f"Note: {note}" for note in notes), messages.value_text(value)]), value)


def _with_steps(value: Json, shown: Callable[[str], str | None]) -> Json:
    """An answer in which each next step, also those of its rows, and each note is as this caller may read it."""
    found: Json = {}
    for name, inner in value.items():
        if name in ("next", "notes") and isinstance(inner, list):
            found[name] = [told for one in inner if (told := shown(one)) is not None]
        elif name == "next" and isinstance(inner, str):
            if (told := shown(inner)) is not None:
                found[name] = told
        elif isinstance(inner, list):
            found[name] = [_with_steps(one, shown) if isinstance(one, dict) else one for one in inner]
        else:
            found[name] = inner
    return found
