"""Tools for agents in jobs: help of other agents, and a word to people. Whom a call speaks for, its pass says."""

from typing import Annotated, Any, Literal

from pydantic import Field

from orchard.errors import UsageError
from orchard.model.events.plans import Json
from orchard.surfaces.mcp.messages import compact
from orchard.surfaces.mcp.tool import Call, Output, Tool
from orchard.surfaces.mcp.tools.models import Arguments, Name, Told, optional

LONGEST_WAIT = 45.0
INSTRUCTIONS = 256 * 1024
RESULT = 4000

Seconds = Annotated[float, Field(ge=0, le=LONGEST_WAIT)]
SubtaskStatus = Literal["waiting", "running", "completed", "failed", "stopped", "interrupted"]

ID = Field(description="As spawn_subtask gave it.")


async def _ask(call: Call, verb: str, **args: Any) -> Json:
    """Ask the engine in the name of the job whose pass was shown."""
    scope = call.scope
    if scope is None:
        raise UsageError(
            "This tool is for an agent at work on a job of a plan; nobody else has subtasks.",
            hint="create_plan runs several agents beside each other.",
        )
    return await call.served.ask(
        verb, plan=scope.plan, job=scope.job, attempt=scope.attempt, subtask=scope.subtask, **args
    )


# -------------------------------------------------------------------------------------- list_agents


class ListAgents(Arguments):
    """Nothing."""


class AgentRow(Output, kw_only=True):
    name: str
    usable: bool
    default: bool
    why_not: str | None = None


class DefinitionRow(Output, kw_only=True):
    name: str
    description: str | None = None
    model: str | None = None
    tools: list[str] | None = None
    file: str


class AgentList(Told, kw_only=True):
    agents: list[AgentRow]
    definitions: list[DefinitionRow]


async def list_agents(call: Call, given: ListAgents) -> Json:
    """The user's agents, and those that the repository describes."""
    scope = call.scope
    args: Json = {}
    if scope is not None:
        args = {"plan": scope.plan, "job": scope.job, "attempt": scope.attempt, "subtask": scope.subtask}
    found = await call.served.ask("list_helpers", **args)
    return {name: [compact(row) for row in rows] for name, rows in found.items()}


# -------------------------------------------------------------------------------------------- others


class SubtaskRow(Output, kw_only=True):
    id: str
    name: str
    agent: str
    status: SubtaskStatus
    summary: str | None = None
    message: str | None = None
    commit: str | None = None
    changes: dict[str, int]
    files: list[str] | None = None
    pulled: bool


class SpawnSubtask(Arguments):
    """What is to be done, and by whom."""

    instructions: Annotated[str, Field(min_length=1, max_length=INSTRUCTIONS)] = Field(
        description="The whole task: it knows nothing of what you know, and cannot ask."
    )
    agent: Name | None = optional("From list_agents. Left out: one like you.")
    blocking: bool = Field(default=False, description="Wait for its end.")
    name: Annotated[str, Field(max_length=200)] = Field(default="", description="For people.")
    timeout_s: Seconds = Field(default=LONGEST_WAIT)


class Spawned(Told, kw_only=True):
    subtask: SubtaskRow
    next: str


async def spawn_subtask(call: Call, given: SpawnSubtask) -> Json:
    """Hand work to another agent."""
    found = await _ask(
        call,
        "spawn_subtask",
        instructions=given.instructions,
        agent=given.agent,
        blocking=given.blocking,
        name=given.name,
        timeout_s=given.timeout_s,
    )
    return {"subtask": compact(found), "next": _next([found])}


class AwaitSubtasks(Arguments):
    """For which, and how long."""

    ids: list[Name] | None = optional("Left out: all of yours.")
    timeout_s: Seconds = Field(default=LONGEST_WAIT)
    until: Literal["all", "any"] = Field(default="all", description="`any`: until one more has ended.")
    cursor: Annotated[int, Field(ge=0)] = Field(default=0, description="Of an earlier answer.")


class Awaited(Told, kw_only=True):
    ended: list[SubtaskRow]
    running: list[str]
    cursor: int
    next: str


async def await_subtasks(call: Call, given: AwaitSubtasks) -> Json:
    """Wait for subtasks, a while."""
    found = await _ask(
        call, "await_subtasks", ids=given.ids, timeout_s=given.timeout_s, until=given.until, cursor=given.cursor
    )
    step = _next(found["ended"])
    if found["running"]:
        step = "Some still run: work on something else, or call await_subtasks again with this cursor."
    return {**found, "ended": [compact(one) for one in found["ended"]], "next": step}


def _next(found: list[Json]) -> str:
    if any(one["status"] in ("waiting", "running") for one in found):
        return "await_subtasks waits for it. It is stopped if your turn ends before it does."
    if any(one["commit"] and not one["pulled"] for one in found):
        return "pull_subtask_changes merges what it changed into your folder."
    return "There is nothing to pull."


class CompleteSubtask(Arguments):
    """What came of it."""

    result: Annotated[str, Field(min_length=1, max_length=RESULT)] = Field(
        description="What you did or found, and what is not done."
    )
    succeeded: bool = Field(default=True, description="False: you could not do it.")


class Completed(Told, kw_only=True):
    subtask: str
    next: str


async def complete_subtask(call: Call, given: CompleteSubtask) -> Json:
    """Tell the result of one's own subtask."""
    found = await _ask(call, "complete_subtask", result=given.result, succeeded=given.succeeded)
    return {**found, "next": "End your turn: your changes are committed then."}


class PullSubtaskChanges(Arguments):
    """Whose changes."""

    id: Name = ID


class ConflictRow(Output, kw_only=True):
    path: str
    kind: str


class Pulled(Told, kw_only=True):
    id: str
    status: Literal["merged", "conflict", "nothing", "busy"]
    files: list[str]
    conflicts: list[ConflictRow]
    next: str


_AFTER_PULL = {
    "merged": "The files lie in your folder now, uncommitted like your own changes: look at them.",
    "conflict": "Nothing was written. Change or move your own version of these paths out of the way, then pull again; "
    "or take over by hand what you need (get_job_diff does not show it: `git show COMMIT` does).",
    "nothing": "It changed no file.",
    "busy": "Nothing was written: files of your folder were being changed meanwhile. Pull again.",
}


async def pull_subtask_changes(call: Call, given: PullSubtaskChanges) -> Json:
    """Merge what a subtask changed into the caller's folder."""
    found = await _ask(call, "pull_subtask_changes", id=given.id)
    return {**found, "next": _AFTER_PULL[found["status"]]}


class ReportProgress(Arguments):
    """How far it is."""

    message: Annotated[str, Field(min_length=1, max_length=500)] = Field(description="One sentence.")
    percent: Annotated[float, Field(ge=0, le=100)] | None = optional()


class Reported(Told, kw_only=True):
    recorded: bool


async def report_progress(call: Call, given: ReportProgress) -> Json:
    """Tell people how far one is."""
    return await _ask(call, "report_progress", message=given.message, percent=given.percent)


LIST_AGENTS = """\
List the agents that work can be given to: the user's, and those that the repository describes.
Example: {}
Returns agents and definitions. Next: spawn_subtask."""

_SPAWN = """\
Hand a large, independent part of your work to another agent, which works in its own copy of your folder.
Example: {"instructions": "Write tests for src/login.py in tests/test_login.py. Run them."}
Returns its id and status; with `blocking` its result. Next: await_subtasks."""

_AWAIT = """\
Wait for your subtasks, for at most 45 seconds; then call again with the cursor.
Example: {"ids": ["subtask-k3x9p"]}
Returns those that ended, with results, and those that run. Next: pull_subtask_changes."""

_COMPLETE = """\
As the agent of a subtask: tell your result to the agent that handed it to you.
Example: {"result": "Wrote 12 tests; all pass."}
Returns the id of your subtask. Next: end your turn."""

_PULL = """\
Merge what a subtask changed into your folder; on a conflict nothing is written.
Example: {"id": "subtask-k3x9p"}
Returns status, files, conflicts. Next: what `next` says."""

_REPORT = """\
Tell people how far you are, in the status of your job.
Example: {"message": "Parser done, now the tests", "percent": 60}
Returns whether it was recorded. Next: go on."""

TOOLS = (
    Tool("list_agents", "subtasks", "List agents", LIST_AGENTS, ListAgents, AgentList, list_agents, read_only=True),
    Tool("spawn_subtask", "subtasks", "Hand out a subtask", _SPAWN, SpawnSubtask, Spawned, spawn_subtask),
    Tool("await_subtasks", "subtasks", "Wait for subtasks", _AWAIT, AwaitSubtasks, Awaited, await_subtasks,
         read_only=True),
    Tool("complete_subtask", "subtasks", "Complete a subtask", _COMPLETE, CompleteSubtask, Completed,
         complete_subtask, idempotent=True),
    Tool("pull_subtask_changes", "subtasks", "Pull a subtask's changes", _PULL, PullSubtaskChanges, Pulled,
         pull_subtask_changes),
    Tool("report_progress", "subtasks", "Report progress", _REPORT, ReportProgress, Reported, report_progress),
)  # fmt: skip
