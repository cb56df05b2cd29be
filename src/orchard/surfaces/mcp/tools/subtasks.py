"""Tools for agents in jobs: help of other agents, and a word to people. Their job token says for whom they ask."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from msgspec import Struct

from orchard.errors import UsageError
from orchard.model.events.plans import Json
from orchard.operations.commands import subtask_commands, subtasks
from orchard.operations.commands.subtasks import OfTurn
from orchard.operations.operation import Operation
from orchard.operations.queries.system import AgentItem, list_agents
from orchard.surfaces.mcp.messages import compact
from orchard.surfaces.mcp.tool import Call, Output, Tool
from orchard.surfaces.mcp.tools.declaration import declared
from orchard.surfaces.mcp.tools.models import Arguments, Told

SubtaskStatus = Literal["waiting", "running", "idle", "paused", "completed", "failed", "stopped", "interrupted"]
TURN = OfTurn.__struct_fields__
"""What the job token says, and no argument."""


class AgentRow(Output, kw_only=True):
    name: str
    usable: bool
    default: bool
    why_not: str | None = None
    vendor: str | None = None
    installed: bool | None = None
    version: str | None = None
    logged_in: str | None = None
    abilities: list[str] | None = None
    permissions: str | None = None
    install: str | None = None
    login: str | None = None


class DefinitionRow(Output, kw_only=True):
    name: str
    description: str | None = None
    origin: str
    file: str
    model: str | None = None
    tools: list[str] | None = None
    agent: str | None = None
    usable: bool
    why_not: str | None = None


class AgentList(Told, kw_only=True):
    agents: list[AgentRow]
    definitions: list[DefinitionRow]


class SubtaskRow(Output, kw_only=True):
    id: str
    name: str
    agent: str
    status: SubtaskStatus
    summary: str | None = None
    cut: str | None = None
    message: str | None = None
    commit: str | None = None
    changes: dict[str, int]
    files: list[str] | None = None
    pulled: bool


class Spawned(Told, kw_only=True):
    subtask: SubtaskRow
    next: str


class Awaited(Told, kw_only=True):
    ended: list[SubtaskRow]
    idle: list[SubtaskRow]
    running: list[str]
    cursor: int
    next: str


class Completed(Told, kw_only=True):
    subtask: str
    next: str


class ConflictRow(Output, kw_only=True):
    path: str
    kind: str


class Pulled(Told, kw_only=True):
    id: str
    status: Literal["merged", "conflict", "nothing", "busy"]
    files: list[str]
    conflicts: list[ConflictRow]
    next: str


class Reported(Told, kw_only=True):
    recorded: bool


def _runs(operation: Operation, shown: Callable[[Json], Json]) -> Callable[[Call, Any], Awaitable[Json]]:
    async def run(call: Call, given: Arguments) -> Json:
        scope = call.scope
        if scope is None and operation.name != "list_helpers":
            raise UsageError(
                "This tool is for an agent at work on a job of a plan; only such an agent has subtasks.",
                hint="create_plan runs several agents beside each other.",
            )
        turn = {name: getattr(scope, name) for name in TURN} if scope is not None else {}
        found = await call.served.ask(operation.name, **turn, **given.model_dump())
        if scope is None:
            found = {**found, "agents": await _with_facts(call, found["agents"])}
        return shown(found)

    return run


async def _with_facts(call: Call, rows: list[Json]) -> list[Json]:
    """Agents with what `orchard agents` tells of each; an agent in a job needs none of it, and waits for no program."""
    known = await asyncio.to_thread(list_agents.read, call.served.app, list_agents.args())
    facts = {one.name: one for one in known.agents}
    return [{**row, **(_facts(facts[row["name"]]) if row["name"] in facts else {})} for row in rows]


def _facts(one: AgentItem) -> Json:
    ready = one.installed and one.logged_in == "yes"
    return {
        **{name: getattr(one, name) for name in ("vendor", "installed", "version", "logged_in", "permissions")},
        "abilities": [name for name, can in one.abilities.items() if can],
        "install": None if one.installed else one.install,
        "login": None if ready or not one.installed else one.login,
    }


def _agents(found: Json) -> Json:
    return {name: [compact(row) for row in rows] for name, rows in found.items()}


def _spawned(found: Json) -> Json:
    return {"subtask": compact(found), "next": _next([found])}


def _awaited(found: Json) -> Json:
    step = _next(found["ended"])
    if found["running"]:
        step = "Some still run: work on something else, or call await_subtasks again with this cursor."
    elif found["idle"]:
        step = "Who is idle waits for steer_subtask: `send` more, or `complete` it."
    return {**found, **{name: [compact(one) for one in found[name]] for name in ("ended", "idle")}, "next": step}


def _next(found: list[Json]) -> str:
    if any(one["status"] in ("waiting", "running") for one in found):
        return "await_subtasks waits for it. It goes on when your turn ends, and is stopped when your work does."
    if any(one["status"] in ("idle", "paused") for one in found):
        return "It waits for steer_subtask: `send` more, `resume` it if it is paused, or `complete` it."
    if any(one["commit"] and not one["pulled"] for one in found):
        return "pull_subtask_changes merges what it changed into your folder."
    return "There is nothing to pull."


_AFTER_PULL = {
    "merged": "The files lie in your folder now, uncommitted like your own changes: look at them.",
    "conflict": "Nothing was written. Change or move your own version of these paths out of the way, then pull again; "
    "or take over by hand what you need (get_job_diff with its id as `job` shows it).",
    "nothing": "It changed no file.",
    "busy": "Nothing was written: files of your folder were being changed meanwhile. Pull again.",
}

SHOWN: Mapping[str, tuple[type[Struct], Callable[[Json], Json]]] = {
    "list_helpers": (AgentList, _agents),
    "spawn_subtask": (Spawned, _spawned),
    "await_subtasks": (Awaited, _awaited),
    "complete_subtask": (
        Completed,
        lambda found: {**found, "next": "End your turn: your changes are committed then."},
    ),
    "pull_subtask_changes": (Pulled, lambda found: {**found, "next": _AFTER_PULL[found["status"]]}),
    "steer_subtask": (Spawned, _spawned),
    "report_progress": (Reported, lambda found: found),
}
"""What each answers, and how what the engine said is shown."""

TOOLS: tuple[Tool, ...] = tuple(
    declared(one, gives, _runs(one, shown), without=TURN)
    for one, (gives, shown) in ((one, SHOWN[one.name]) for one in (*subtasks.OPERATIONS, *subtask_commands.OPERATIONS))
)
