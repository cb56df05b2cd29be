"""What single values of a plan file have to be, each as a function from what was written to what is meant.

A value that will not do raises `PydanticCustomError`, whose text is shown to people as it is.
"""

import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from orchard.model import endpoints, limits, permissions
from orchard.model.plan import AgentWork, ShellWork, Work
from orchard.patterns import later
from orchard.text import kind_of, quoted

RULE = "plan_rule"

AGENT_TEXT = "A shell command; `@agent TEXT` is a task for the default agent, `@NAME TEXT` for the agent of that name."
NO_FORM = (
    "must be a command line, or an object with one of 'command' (shell), 'executable' (process) "
    "and 'instructions' or 'instructions_file' (agent)"
)

LONGEST_TIMEOUT = 366 * 24 * 3600
DEEPEST_GROUP = 8

_ID = later(limits.JOB_ID_PATTERN.removesuffix("$") + r"\Z")
_CONTROL = later("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_DURATION = later(r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m)?(?:(\d{1,9}(?:\.\d{1,9})?)s)?")
_ENVIRONMENT_NAME = later(r"[A-Za-z_][A-Za-z0-9_]*")
# A job that could point git elsewhere could make our own git commands read another repository.
_GIT_NAMES = frozenset({"GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY"})
_AGENT_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"
_AGENT_TEXT = later(rf"@({_AGENT_NAME}(?::{_AGENT_NAME})?)(?:\s+(.*))?", re.DOTALL)
"""`@claude TEXT`, `@architect TEXT`, `@claude:architect TEXT`."""


def refuse(message: str) -> NoReturn:
    """Say what is wrong with a value; the text may hold anything, so it is passed on as data."""
    from pydantic_core import PydanticCustomError  # a plan without a problem is read without it

    raise PydanticCustomError(RULE, "{message}", {"message": message})


def must_be(wanted: str, value: object) -> str:
    if value is None:
        return "is empty; give it a value or remove it"
    return f"must be {wanted}, not {kind_of(value, 'an object')}"


def checked_text(text: str) -> str:
    return text if text.strip() else refuse("must not be empty")


def checked_line(text: str) -> str:
    """Text for people on one line: a line break in a name would become part of commit messages and tables."""
    if _CONTROL.search(text):
        refuse("must be one line, without control characters")
    return checked_text(text)


def checked_ref(text: str) -> str:
    """A name that is handed to other programs, which must not take it for an option."""
    if text.startswith("-"):
        refuse("must not begin with '-'")
    return checked_line(text)


def checked_url(text: str) -> str:
    """An address that an agent may reach, or the name of a host: nothing on this disk, nothing else than the web."""
    checked_ref(text)
    wrong = endpoints.problem(text)
    return text if wrong is None else refuse(wrong)


def checked_id(text: str) -> str:
    if not _ID.match(text):
        wanted = "up to 64 of a-z, 0-9, '.', '_' and '-', the first a letter or digit"
        refuse(f"{quoted(text)} is not a valid id: use {wanted}")
    return text


def checked_group(text: str) -> str:
    parts = text.split("/")
    if len(parts) > DEEPEST_GROUP:
        refuse(f"groups are nested at most {DEEPEST_GROUP} deep")
    for part in parts:
        if not _ID.match(part):
            refuse(f"{quoted(text)} is not a valid group: use names joined by '/', each like the id of a job")
    return text


def checked_cwd(text: str) -> str:
    """A folder inside the worktree; links are a matter for whoever starts the program."""
    if text.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", text):
        refuse("must be relative to the worktree")
    depth = 0
    for part in re.split(r"[/\\]", text):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            refuse("must stay inside the worktree")
    return checked_text(text)


def checked_environment_name(name: str) -> str:
    if not _ENVIRONMENT_NAME.fullmatch(name):
        refuse(f"{quoted(name)} is not a valid name of a variable: use letters, digits and '_', and no digit first")
    if name.upper().startswith("ORCHARD_"):
        refuse("variables that begin with 'ORCHARD_' are set by Orchard itself")
    if name.upper() in _GIT_NAMES:
        refuse(f"'{name}' would point git at another repository and cannot be set")
    return name


def environment_value(value: Any) -> str:
    """A variable's value: numbers stay as they were written."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        hint = "; put it in quotes" if isinstance(value, bool) else ""
        refuse(must_be("text or a number", value) + hint)
    text = str(value)
    return refuse("holds a NUL character") if "\0" in text else text


def heal_value(value: Any) -> bool | int:
    if isinstance(value, bool):
        return value
    if not isinstance(value, int):
        refuse(must_be("true, false or a whole number", value))
    return int(value) if 0 <= value <= 100 else refuse("must be a whole number from 0 to 100")


def switch(value: Any) -> str:
    """`on` and `off`, which some readers of YAML take for true and false."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if value not in ("on", "off"):
        refuse(must_be("on or off", value))
    return str(value)


def seconds(value: Any) -> float:
    if isinstance(value, str):
        parts = _DURATION.fullmatch(value.strip()) if value.strip() else None
        if parts is None:
            refuse(f"{quoted(value)} is not a duration: give seconds, or text such as '90s', '10m' or '1h30m'")
        days, hours, minutes, rest = (float(part or 0) for part in parts.groups())
        found = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if isinstance(value, float) and not math.isfinite(value):
            refuse("must be a finite number")
        found = float(min(value, 2 * LONGEST_TIMEOUT))
    else:
        refuse(must_be("a number of seconds or text such as '10m'", value))
    if found <= 0:
        refuse("must be more than 0")
    return found if found <= LONGEST_TIMEOUT else refuse("must be at most 366 days")


def tool_set(value: Any) -> str | list[str]:
    """What `tools` may be: a word, or a list of tools."""
    return _tools(value, modes=True)


def tool_names(value: Any) -> list[str]:
    found = _tools(value, modes=False)
    return [found] if isinstance(found, str) else found


def _tools(value: Any, *, modes: bool) -> str | list[str]:
    if value is None:
        refuse(must_be("", value))
    problem = permissions.wrong(value, modes=modes)
    if problem is not None:
        refuse(problem)
    found: str | list[str] = value
    return found


def checked_work_text(text: str) -> str:
    if not text.strip():
        refuse("must not be empty")
    named = _AGENT_TEXT.fullmatch(text.strip())
    if named and not (named[2] or "").strip():
        refuse(f"{quoted('@' + named[1])} must be followed by instructions")
    return text


def work_from_text(text: str) -> Work:
    named = _AGENT_TEXT.fullmatch(text.strip())
    if named is None:
        return ShellWork(command=text)
    return work_of_agent(named[1], named[2].strip())


def work_of_agent(agent: str, task: str) -> AgentWork:
    """A task for the agent of this name, with or without the `@` that texts have; `agent` is the usual one."""
    return AgentWork(instructions=task, agent=agent_meant(agent))


def checked_agent(text: str) -> str:
    """The name of an agent or a definition, written with `@` or without."""
    checked_ref(text.removeprefix("@"))
    return text if text != "@" else refuse("must be followed by a name")


def agent_meant(text: str) -> str | None:
    """The agent that a work names; None: `agent` is the default one."""
    name = text.removeprefix("@")
    return None if name == "agent" else name


# ---------------------------------------------------------------------------------------- fields that go together


def heal_is_said_once(given: Mapping[str, Any]) -> None:
    """Refuse two answers to one question."""
    if {"heal", "no_auto_heal"} <= given.keys():
        refuse("'heal' and 'no_auto_heal' are opposites; give one of them")


def task_is_given_once(given: Mapping[str, Any]) -> None:
    """Refuse an agent without a task, and one with two."""
    tasks = {"instructions", "instructions_file"} & given.keys()
    if not tasks:
        refuse("an agent needs 'instructions' or 'instructions_file'")
    if len(tasks) > 1:
        refuse("'instructions' and 'instructions_file' are both given; give one of them")


def changes_are_said_once(given: Mapping[str, Any]) -> None:
    """Refuse two answers to one question."""
    if {"changes", "expects_no_changes"} <= given.keys():
        refuse("'changes' and 'expects_no_changes' are both given; give 'changes'")


def task_of_an_agent_is_its_work(given: Mapping[str, Any]) -> None:
    """Refuse an agent that would have two tasks, or none."""
    if "agent" in given:
        if "work" in given:
            refuse("'agent' and 'work' are both given; name the agent in 'work'")
        if not given.get("task", "").strip():
            refuse("'agent' needs a 'task', which the agent does")
