"""What each agent can be held to: the tools that it may use, in its own words, and what of that has no effect.

    calls     each of its calls is looked at, and a person can be asked before it
    tools     each tool that it has can be taken away
    modes     only as far as the modes go: it can be kept from writing, not from a single tool
    asked     it asks before it acts, as far as it wants to, and gets our answer
    nothing   nobody can keep it from anything

What has no effect is said before a plan runs and in each turn. A worktree that changes although its agent may only
read is found in any case (`engine.turns`).
"""

from collections.abc import Mapping
from typing import Literal, Protocol

from orchard.errors import UsageError
from orchard.model.permissions import Kind, Tools, canonical

Holds = Literal["calls", "tools", "modes", "asked", "nothing"]

Catalogue = Mapping[str, str]
"""What a program calls its tools, and what we call them: `""` for one that is always there, since it does nothing."""


def split(tools: Tools, catalogue: Catalogue) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The tools of a program that may be used, and those that may not."""
    allowed = tuple(name for name, ours in catalogue.items() if not ours or tools.permits(ours))
    return allowed, tuple(name for name in catalogue if name not in allowed)


def of_server(tools: Tools, server: str) -> tuple[str, ...] | None:
    """The tools of an MCP server that may be used, as they were named; None: all that are not denied."""
    prefix = canonical(f"mcp__{server}__")
    found: set[str] | None = None
    for each in tools.lists:
        whole = (rule == "all" or (rule.endswith("*") and prefix.startswith(canonical(rule)[:-1])) for rule in each)
        if any(whole):
            continue
        named = {rule for rule in each if canonical(rule).startswith(prefix) and not rule.endswith("*")}
        found = named if found is None else found & named
    return None if found is None else tuple(sorted(rule[len(prefix) :] for rule in found if tools.permits(rule)))


def denied_of_server(tools: Tools, server: str) -> tuple[str, ...]:
    """The tools of an MCP server that are denied one by one."""
    prefix = canonical(f"mcp__{server}__")
    named = (rule for rule in tools.deny if canonical(rule).startswith(prefix) and not rule.endswith("*"))
    return tuple(rule[len(prefix) :] for rule in named)


HELD: Mapping[Holds, str] = {
    "calls": "each call is checked, and you can be asked before it",
    "tools": "each tool can be taken away; it cannot wait for your answer",
    "modes": "read-only and edit hold, by its own sandbox; single tools cannot be taken away",
    "asked": "as far as it asks before it acts; you can be asked then",
    "nothing": "nothing holds: what it may use has no effect",
}
"""How far agents can be held to what they may use, for people."""


def unheld(name: str, holds: Holds, tools: Tools) -> tuple[str, ...]:
    """What of it has no effect with an agent, each as a sentence."""
    found: list[str] = []
    if tools.ask and holds in ("tools", "modes", "nothing"):
        found.append(f"'tools: ask' has no effect with {name}: it cannot be made to wait for a person's answer.")
    if not tools.limits:
        return tuple(found)
    said = Tools(tools.lists, tools.deny).words
    if holds == "nothing":
        found.append(f"'tools: {said}' has no effect with {name}: it has no option for that.")
    elif holds == "asked":
        found.append(f"'tools: {said}' holds for {name} only as far as it asks before it acts.")
    elif holds == "modes" and (tools.deny or tools.lists != ((tools.mode,),)):
        found.append(f"'tools: {said}' holds for {name} only as '{tools.mode}': it cannot be kept from single tools.")
    elif holds == "tools" and (parts := _parts_of_servers(tools)):
        found.append(f"'{', '.join(parts)}' has no effect with {name}: name the tools of a server one by one, or all.")
    return tuple(found)


class _Known(Protocol):
    """The user's agents."""

    def holds(self, name: str) -> Holds: ...

    def listed(self) -> list[dict[str, object]]: ...


_FIRMNESS: tuple[Holds, ...] = ("nothing", "asked", "modes", "tools", "calls")
_WAITS: tuple[Holds, ...] = ("asked", "calls")
_OWN = canonical("mcp__orchard__")


def held_less(child: Holds, parent: Holds, tools: Tools) -> bool:
    """Whether an agent is kept from less than the one whose tools these are; our own tools we refuse to both."""
    if tools.ask and child not in _WAITS and parent in _WAITS:
        return True
    deny = tuple(rule for rule in tools.deny if not canonical(rule).startswith(_OWN))
    lost = unheld("it", child, Tools(tools.lists, deny))
    return bool(lost) and _FIRMNESS.index(child) < _FIRMNESS.index(parent)


def check_handed(agents: _Known, parent: str, child: str, tools: Tools) -> None:
    """Refuse that an agent hands work to one that is not kept from what it is kept from itself."""
    if child == parent or not (tools.limits or tools.ask):
        return
    firm = agents.holds(parent)
    if not held_less(agents.holds(child), firm, tools):
        return
    usable = (str(one["name"]) for one in agents.listed() if one["usable"])
    held = [name for name in usable if name == parent or not held_less(agents.holds(name), firm, tools)]
    raise UsageError(
        f"You may use 'tools: {tools.words}', and {child} cannot be held to that as you are.",
        hint=f"These can be: {', '.join(held)}" if held else "Do it yourself.",
    )


def _parts_of_servers(tools: Tools) -> tuple[str, ...]:
    """Beginnings of names of a server's tools: programs know one tool, or all of them."""
    rules = (rule for each in (*tools.lists, tools.deny) for rule in each if canonical(rule).startswith("mcp__"))
    return tuple(rule for rule in rules if rule.endswith("*") and "__" in rule[5:] and not rule.endswith("__*"))


ACP_KINDS: Mapping[str, Kind] = {
    "read": "read", "search": "read", "think": "other", "edit": "edit", "delete": "edit", "move": "edit",
    "execute": "run", "fetch": "other", "switch_mode": "other", "other": "other",
}  # fmt: skip
"""What the Agent Client Protocol calls the kinds of tools. Any call can be said to be thinking."""

_OF_KIND: Mapping[Kind, tuple[str, ...]] = {
    "read": ("read_file", "list_files", "search_files"),
    "edit": ("edit_file", "write_file"),
    "run": ("bash",),
    "other": ("web_fetch",),
}


def permits_kind(tools: Tools, kind: Kind) -> bool:
    """Whether a call may be made of which only the kind is known: where that kind has several tools, each has to be."""
    return kind == "own" or all(tools.permits(name) for name in _OF_KIND[kind])


def asks_kind(tools: Tools, kind: Kind) -> bool:
    return kind != "own" and any(tools.asks(name) for name in _OF_KIND[kind])
