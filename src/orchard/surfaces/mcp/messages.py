"""What a model is told: what is wrong with a call, how things stand, and which tool to call next.

Tools by their names: what an engine's hints ask for next is written as a call.
"""

import json
import re
from collections.abc import Callable, Container, Iterable
from typing import Any, cast

from msgspec import to_builtins
from pydantic import BaseModel, ValidationError

from orchard.errors import InvalidInput, OrchardError, Problem
from orchard.model.events.plans import Json
from orchard.planfile.fields import Fields
from orchard.planfile.places import Finding, show_path
from orchard.planfile.problems import findings
from orchard.surfaces.mcp.selection import TOOL_NAMES
from orchard.surfaces.next_steps import in_tools
from orchard.text import did_you_mean, quoted

SHOWN_PROBLEMS = 20
SHOWN_NAMES = 10

NEXT_FOR_PLAN = {
    "scaffolding": "add_job adds jobs; finalize_plan then starts the plan.",
    "pending": "wait_plan waits for it; cancel_plan stops it.",
    "running": "wait_plan waits for it; pause_plan or cancel_plan stop it.",
    "paused": "resume_plan lets it go on.",
    "waiting": "list_waiting says for what; approve_job, land_plan or resume_plan (with a budget) answer.",
    "succeeded": "It is over: clone_plan makes a new plan of it; undo_plan takes its landing back.",
    "failed": "get_job_failure says why; retry_job or retry_plan tries again.",
    "canceled": "retry_plan takes it up again.",
}
NEXT_FOR_JOB = {
    "pending": "It has not started: update_job changes it.",
    "ready": "It has not started: update_job changes it.",
    "scheduled": "It is about to start: wait_plan waits for it.",
    "running": "wait_plan waits for it; force_fail_job stops it.",
    "succeeded": "It is done: get_job_diff shows what it changed.",
    "failed": "get_job_failure says why; retry_job tries again.",
    "blocked": "Something that it needs failed or was canceled: retry_plan tries that again.",
    "canceled": "retry_job tries it again.",
}
"""What can be done with a plan, or a job, that is as it is."""


def problems_of(error: ValidationError, value: Json, model: type[BaseModel]) -> InvalidInput:
    """What is wrong with the arguments of a tool, in the words that plan files use."""
    found = findings(error, value, cast("type[Fields]", model))
    return InvalidInput("arguments", [_problem(one, model) for one in found])


def _problem(finding: Finding, model: type[BaseModel]) -> Problem:
    message = finding.message
    if message.startswith("unknown field ") and "did you mean" not in message:
        message += f"; there is {_names(model.model_fields)}"
    return Problem(message, show_path(finding.path))


def _names(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - SHOWN_NAMES
    return ", ".join(listed[:SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def error_text(tool: str, error: OrchardError, shown: Callable[[str], str | None] = str) -> str:
    """An error as a model reads it: which field, which rule, what would do; at most twenty, and how many more.

    `shown` makes of a hint what this caller may read of it.
    """
    hint = in_tools(error.hint) if error.hint else None
    hint = shown(hint) if hint else None
    if isinstance(error, InvalidInput):
        problems = [_told(problem) for problem in error.problems]
        count, more = len(problems), len(problems) - SHOWN_PROBLEMS
        head = f"{tool} was refused: {count} problem{'s' if count != 1 else ''}. Nothing was changed."
        lines = [head, *(f"- {one}" for one in problems[:SHOWN_PROBLEMS])]
        lines += [f"- and {more} more"] if more > 0 else []
        hint = None if hint == "Nothing was changed." else hint
    else:
        lines = [error.message]
    return "\n".join([*lines, *([f"Next: {hint}"] if hint else [])])


def _told(problem: Problem) -> str:
    return f"{problem.path}: {problem.message}" if problem.path else problem.message


def unknown_tool(name: str, known: Iterable[str]) -> str:
    """What is said about a tool that is not there."""
    listed = sorted(known)
    near = did_you_mean(name, listed)
    return f"There is no tool {quoted(name)}{near or '. There is: ' + _names(listed)}"


def not_enabled(text: str, enabled: Container[str]) -> list[str]:
    """The tools that a text names and that cannot be called."""
    named = dict.fromkeys(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", text))
    return [name for name in named if name in TOOL_NAMES and name not in enabled]


def with_toolsets(text: str, enabled: Container[str], why: Callable[[str], str]) -> str:
    """A text that names tools; of those that are not enabled it says `why`, and what to do instead."""
    away: dict[str, list[str]] = {}
    for name in not_enabled(text, enabled):
        away.setdefault(why(name), []).append(name)
    if not away:
        return text
    told = [f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} {reason}" for reason, names in away.items()]
    return f"{text} ({'; '.join(told)}; 'orchard --help' lists the same as commands for a shell)"


def value_text(value: Json) -> str:
    """A value as the text of an answer."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def compact(row: Json) -> Json:
    """A row without what it does not have: a model pays for every null."""
    plain: Json = to_builtins(row, enc_hook=str)
    return {name: value for name, value in plain.items() if value is not None and value not in ("", [], {})}


def first_line(text: Any, most: int = 240) -> str | None:
    """The beginning of a message, on one line."""
    if not text:
        return None
    line = str(text).strip().split("\n", 1)[0]
    return line if len(line) <= most else line[: most - 3] + "..."
