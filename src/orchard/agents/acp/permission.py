"""What an agent may do when it asks: whatever stays inside of its folders and goes to allowed addresses.

This is a courtesy among programs that ask. What a command line does cannot be seen from its text, and an agent need
not ask at all: the sandbox is the wall.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from orchard.agents.permissions import ACP_KINDS, asks_kind, permits_kind
from orchard.agents.protocol import Task
from orchard.model.permissions import Kind, Tools
from orchard.text import one_line

MOST_NAMES, DEEPEST = 256, 6
"""A request that names more than this, or hides it deeper, is not looked through: it is denied."""

_PLACE = re.compile(r"(^|_)(path|paths|file|files|file_?names?|dir|directory|folder|cwd|workdir)$")
_ADDRESS = re.compile(r"(^|_)(url|urls|uri)$")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z])")


class _TooMany(Exception):
    pass


def kind_of_call(call: Mapping[str, Any]) -> Kind:
    """What a call does, as far as the agent says; of what it does not say the worst is assumed."""
    said = call.get("kind")
    return ACP_KINDS.get(said, "other") if isinstance(said, str) else "other"


def named_tool(call: Mapping[str, Any]) -> str | None:
    """The name of a server's tool, where the agent tells it."""
    meta = call.get("_meta")
    tables = [call, *(meta.values() if isinstance(meta, dict) else ())]
    for table in tables:
        found = (table.get("toolName") or table.get("tool_name")) if isinstance(table, dict) else None
        if isinstance(found, str) and found.startswith("mcp__"):
            return found
    return None


def _is_own(name: str, servers: Sequence[str]) -> bool:
    """Whether a tool is of one of these servers, and not of one whose name only begins like theirs: `orchard__evil`."""
    return any(re.fullmatch(rf"mcp__{re.escape(one)}__(?!_)(?!.*__).+", name) is not None for one in servers)


def tool_of_call(call: Mapping[str, Any], title: str) -> str:
    """What a person allows for good: the tool by its name, or by its title where its kind says nothing."""
    said = call.get("kind")
    told = isinstance(said, str) and said in ACP_KINDS and said not in ("other", "think")
    # A title is never taken for a name or a kind.
    return named_tool(call) or (str(said) if told else f"other: {title}" if title else "other")


def permitted(call: Mapping[str, Any], tools: Tools, own: Sequence[str]) -> bool:
    """Whether a call is among what may be used; `own`: the names of servers that are the orchestrator's."""
    if (name := named_tool(call)) is not None:
        return tools.permits(name, "own" if _is_own(name, own) else None)
    return permits_kind(tools, kind_of_call(call))


def asked_about(call: Mapping[str, Any], tools: Tools, own: Sequence[str]) -> bool:
    if (name := named_tool(call)) is not None:
        return tools.asks(name, "own" if _is_own(name, own) else None)
    return asks_kind(tools, kind_of_call(call))


def objection(call: Mapping[str, Any], task: Task) -> str | None:
    """Why a tool call that was asked for must not be made; None: it may."""
    tools = task.settings.tools
    own = [server.name for server in task.settings.mcp_servers if server.offered]
    if tools.limits and not permitted(call, tools, own):
        return f"the tools of this work are: {tools.words}"
    wall = task.launcher.wall
    scratch = (task.scratch,) if wall is None else (task.scratch, wall.temporary)
    roots = [os.path.realpath(root) for root in (task.folder, *scratch, *task.settings.allowed_folders)]
    try:
        for kind, name in _named(call):
            if kind == "address":
                if not _address_allowed(name, task.settings.allowed_urls):
                    return f"{one_line(name)} is not among the addresses it may reach"
            elif not _inside(name, task, roots):
                return f"{one_line(name)} is outside of its folders"
    except _TooMany:
        return "it names more than can be looked through"
    return None


def _named(call: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    found = 0
    for part in ("locations", "content", "rawInput"):
        for kind, name in _search(call.get(part), "", 0, trusted_text=part == "content"):
            found += 1
            if found > MOST_NAMES:
                raise _TooMany
            yield kind, name


def _search(value: Any, key: str, depth: int, *, trusted_text: bool) -> Iterator[tuple[str, str]]:
    if depth > DEEPEST:
        if isinstance(value, dict | list):
            raise _TooMany
        return
    if isinstance(value, str):
        yield from _meant(value, key)
    elif isinstance(value, list):
        for each in value:
            yield from _search(each, key, depth + 1, trusted_text=trusted_text)
    elif isinstance(value, dict):
        for name, each in value.items():
            if not trusted_text and name.startswith(("/", "~", "../")):
                # Changes by file: the name is the path.
                yield "path", name
            yield from _search(each, name, depth + 1, trusted_text=trusted_text)


def _meant(value: str, key: str) -> Iterator[tuple[str, str]]:
    word = _HUMP.sub("_", key).lower()
    if value.startswith("file://"):
        if _PLACE.search(word) or _ADDRESS.search(word):
            yield "path", unquote(urlsplit(value).path)
    elif _ADDRESS.search(word):
        if "://" in value:
            yield "address", value
    elif value and _PLACE.search(word):
        yield "path", value


def _inside(name: str, task: Task, roots: Sequence[str]) -> bool:
    if name.startswith("~"):
        name = task.env.get("HOME", "/") + name[1:] if name[1:2] in ("", "/") else "/"
    try:
        real = os.path.realpath(os.path.join(task.folder, name))  # noqa: PTH118 - a Path would fold `..` too early
    except (OSError, ValueError):
        return False
    return any(Path(real).is_relative_to(root) for root in roots)


def _address_allowed(url: str, allowed: Sequence[str]) -> bool:
    """Whether an address is one of those: a host, `*.` and a host, or the beginning of an address."""
    try:
        asked = urlsplit(url)
        host = asked.hostname or ""
    except ValueError:
        return False
    return any(_covers(rule, url, host) for rule in allowed)


def _covers(rule: str, url: str, host: str) -> bool:
    if "://" not in rule:
        name = rule.partition("/")[0].partition(":")[0].lower()
        return host == name or (name.startswith("*.") and host.endswith(name[1:]))
    given, asked = urlsplit(rule), urlsplit(url)
    same = (given.scheme, given.netloc.lower()) == (asked.scheme, asked.netloc.lower())
    path = given.path.rstrip("/")
    return same and ".." not in asked.path and (asked.path == path or asked.path.startswith(path + "/"))


def choice(options: Sequence[Mapping[str, Any]], *, allow: bool) -> str | None:
    """The option to take, by its kind: never for longer than once where that can be had; None: there is none."""
    kinds = ("allow_once", "allow_always") if allow else ("reject_once", "reject_always")
    by_kind = {option.get("kind"): option.get("optionId") for option in reversed(options)}
    return next((found for kind in kinds if isinstance(found := by_kind.get(kind), str)), None)
