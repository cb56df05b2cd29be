"""Every field of every tool, found in the schemas; and for those that are part of a plan, a value that says something.

A field is a place in a schema, not a path: what `work.command` of a job means is written once, in `$defs`, and is
tried once for each tool that has it, on the first way that leads there.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchard.model.events.plans import Json
from orchard.surfaces.mcp import toolbox
from orchard.surfaces.mcp.tool import Tool

Step = tuple[str, str]
"""What leads into a value: ("field", name), ("item", "") or ("part", name of a definition)."""


@dataclass(frozen=True)
class Place:
    """One field of one tool, and the way to it."""

    tool: str
    owner: str
    """The definition that it belongs to; empty for the tool's own fields."""
    field: str
    way: tuple[Step, ...]

    def __str__(self) -> str:
        return f"{self.tool}.{self.owner + '.' if self.owner else ''}{self.field}"


def places(tool: Tool) -> list[Place]:
    """All fields that a tool takes, however deep they lie."""
    schema = toolbox.input_schema(tool)
    definitions = schema.get("$defs", {})
    seen: set[str] = set()

    def inside(part: Json, owner: str, way: tuple[Step, ...]) -> Iterator[Place]:
        for name in part.get("properties", {}):
            yield Place(tool.name, owner, name, (*way, ("field", name)))
        for name, inner in part.get("properties", {}).items():
            yield from within(inner, owner, (*way, ("field", name)))

    def within(part: Json, owner: str, way: tuple[Step, ...]) -> Iterator[Place]:
        reference = part.get("$ref", "").rpartition("/")[2]
        if reference:
            if reference not in seen:
                seen.add(reference)
                part, name = definitions[reference], reference.removesuffix("Fields")
                yield from inside(part, name, (*way, ("part", name)))
            return
        for form in (*part.get("oneOf", ()), *part.get("anyOf", ())):
            if isinstance(form, dict) and "required" not in form:
                yield from within(form, owner, way)
        if "properties" in part:
            yield from inside(part, owner or "change", way)
        if isinstance(part.get("items"), dict):
            yield from within(part["items"], owner, (*way, ("item", "")))

    return list(inside(schema, "", ()))


def every_place() -> list[Place]:
    """All fields of the tools that are ours to prove; subtasks and workers have tests of their own."""
    ours = [tool for tool in toolbox.every_tool() if tool.toolset in ("core", "plans", "jobs", "groups")]
    return [place for tool in sorted(ours, key=lambda tool: tool.name) for place in places(tool)]


SHELL = {"type": "shell", "command": "make x"}

BASES: dict[str, Json] = {
    "Job": {"id": "new", "work": "true"},
    "Group": {"name": "around", "jobs": [{"id": "inner", "work": "true"}]},
    "Shell": {"command": "true"},
    "Process": {"executable": "true"},
    "Agent": {"instructions": "Do it"},
    "OnFailure": {},
    "Budget": {},
}
"""What each part needs besides the field that is tried."""

SAMPLES: dict[str, Any] = {
    "Plan.name": "Another name", "Plan.base": "main", "Plan.target": "somewhere", "Plan.max_parallel": 3,
    "Plan.jobs": [{"id": "one", "work": "true"}, {"id": "two", "work": "true"}],
    "Plan.groups": [{"name": "g", "jobs": [{"id": "three", "work": "true"}]}],
    "Plan.verify": "make check", "Plan.setup": ["make ready"], "Plan.env": {"COLOUR": "blue"},
    "Plan.description": "What it is for",
    "Plan.start_paused": True, "Plan.after": "Standing", "Plan.cleanup": False, "Plan.worktree_root": ".elsewhere",
    "Plan.merge": "merge", "Plan.resolver": "theirs", "Plan.land": "ask", "Plan.push": True, "Plan.deploy": "manual",
    "Plan.budget": {"minutes": 5}, "Plan.sandbox": "bwrap", "Plan.network": "off", "Job.network": "off",
    "Plan.submodules": True, "Plan.params": {"who": "Ada"},
    "Plan.unprotected": [".github"], "Job.unprotected": [".claude"],
    "Job.id": "other", "Job.name": "Other", "Job.task": "For people", "Job.group": "backend", "Job.needs": ["first"],
    "Job.agent": "fake",
    "Job.work": SHELL, "Job.prechecks": [SHELL, "true"], "Job.postchecks": "make test", "Job.setup": "make ready",
    "Job.retries": 2, "Job.allow_failure": True,
    "Job.changes": "forbidden", "Job.heal": 2, "Job.env": {"COLOUR": "red"}, "Job.timeout": "10m",
    "Job.priority": 7, "Job.retry_on_interrupt": True, "Job.approve": True,
    "Group.name": "other", "Group.jobs": [{"id": "a", "work": "true"}],
    "Group.groups": [{"name": "deeper", "jobs": [{"id": "b", "work": "true"}]}],
    "Shell.type": "shell", "Shell.command": "make y", "Shell.shell": "bash",
    "Process.type": "process", "Process.executable": "make", "Process.args": ["a b", "c"],
    "Agent.type": "agent", "Agent.instructions": "Something else", "Agent.instructions_file": "README.md",
    "Agent.agent": "fake", "Agent.model": "big", "Agent.tier": "premium", "Agent.effort": "high",
    "Agent.max_turns": 9, "Agent.context_files": ["README.md"], "Agent.allowed_folders": ["/tmp"],
    "Agent.allowed_urls": ["https://example.com"], "Agent.resume_session": False, "Agent.interactive": True,
    "Agent.mcp_servers": ["docs"],
    **{f"{part}.{name}": value for part in ("Job", "Agent") for name, value in {
        "tools": ["read-only", "bash"], "deny_tools": ["git_*"], "ask_tools": ["git_commit"],
    }.items()},
    "OnFailure.heal": False, "OnFailure.message": "Ask Ada", "OnFailure.resume_from": "prechecks",
    "Budget.tokens": 1000, "Budget.cost": 2.5, "Budget.minutes": 30,
    **{f"{work}.{name}": value for work in ("Shell", "Process", "Agent") for name, value in {
        "env": {"COLOUR": "green"}, "cwd": "sub", "timeout": 90, "on_failure": {"heal": False},
    }.items()},
}  # fmt: skip
"""A value for each field of the plan model that differs from what holds without it; a new field needs one here."""

SAME_ANYWAY = {"Shell.type", "Process.type", "Agent.type"}
"""What only says which form is meant: a wrong one is refused."""


def value_at(way: tuple[Step, ...], leaf: Any) -> Any:
    """The value that has `leaf` at the end of the way, and on it only what each part needs."""
    value = leaf
    for kind, name in reversed(way):
        if kind == "field":
            value = {name: value}
        elif kind == "item":
            value = [value]
        else:
            value = with_base(name, value)
    return value


def with_base(part: str, value: Json) -> Json:
    """A part with what it needs besides these fields."""
    base = dict(BASES[part])
    if part == "Job" and "agent" in value:
        base = {"id": base["id"], "task": "Do it"}  # which is its work
    if part == "Agent" and "instructions_file" in value:
        del base["instructions"]
    return {**base, **value}
