"""Tools that are derived from commands of the table of operations: what each takes, gives and says, and how it runs.

A command that has `asks` puts a question to a person first; the questions are here.
"""

from collections.abc import Awaitable, Callable, Mapping
from types import UnionType
from typing import Any, get_origin, get_type_hints

from msgspec import Struct, defstruct
from pydantic import ValidationError

from orchard.app import App
from orchard.core.views.plans import asked_words, job_view
from orchard.errors import InvalidInput, Problem, UsageError
from orchard.model.events.plans import Json
from orchard.model.plan import JobId
from orchard.model.plan_codec import work_json
from orchard.operations.command import Command
from orchard.operations.commands.permissions import open_call
from orchard.operations.operation import Alias, Argument, Operation, arguments_of
from orchard.operations.operation import Tool as Declared
from orchard.operations.table import OPERATIONS
from orchard.planfile import parse
from orchard.planfile.fields import BudgetFields
from orchard.planfile.places import show_path
from orchard.planfile.problems import findings
from orchard.surfaces.mcp.messages import compact
from orchard.surfaces.mcp.tool import Call, Tool
from orchard.surfaces.mcp.tools.declaration import declared
from orchard.surfaces.mcp.tools.models import Done, JobStatusName, WorkerState
from orchard.surfaces.mcp.tools.names import (
    Meant,
    MeantJob,
    ask,
    confirm,
    done,
    known_group,
    meant_job,
    meant_plan,
    refuse_first,
)

BY_HAND = frozenset(
    {"create_plan", "finalize_plan", "delete_plan", "purge_plan", "reshape_plan", "update_plan", "update_job"}
)  # fmt: skip
"""Commands that take parts of a plan here, or that are several operations in one."""

LISTS = {"retry_plan": "retried", "retry_job": "retried", "retry_task": "retried", "cancel_group": "canceled"}
"""What an answer calls the jobs that a command was about."""


def derived(command: Operation) -> Tool:
    gives = _gives(command, TaskDone if _is_of_job(command) else Done)
    return declared(command, gives, _runs(command, gives.__struct_fields__))


class TaskDone(Done, kw_only=True):
    job: str
    job_status: JobStatusName
    worker: WorkerState | None = None


def _is_of_job(command: Operation) -> bool:
    return "job" in command.args.__struct_fields__


def _gives(command: Operation, base: type[Done]) -> type[Struct]:
    """What a tool answers: how the plan and its job stand, and what else the operation tells."""
    assert command.answer is not None
    found = {_told_as(command, name): hint for name, hint in get_type_hints(command.answer).items()}
    more: list[Any] = [
        (name, hint, None) if get_origin(hint) is UnionType else (name, hint)
        for name, hint in found.items()
        if name is not None and name not in base.__struct_fields__
    ]
    return defstruct(f"Answer_{command.name}", more, bases=(base,), kw_only=True)


def _told_as(command: Operation, name: str) -> str | None:
    """What a part of an operation's answer is called here; None: it is not told, since `job` says it."""
    return LISTS.get(command.name) if name == "jobs" else name


def _runs(command: Operation, more: tuple[str, ...]) -> Callable[[Call, Any], Awaitable[Json]]:
    own = [one for one in arguments_of(command.args) if one.name not in ("plan", "job")]
    verb = command.name if command.whole_names else ""
    of_job = _is_of_job(command)
    question = QUESTIONS.get(command.name)

    async def run(call: Call, given: Any) -> Json:
        meant: Meant
        if of_job:
            meant = await meant_job(call, given.plan, given.job, verb, or_subtask=command.of_subtasks)
        else:
            meant = await meant_plan(call, given.plan, verb)
        args: Json = {"job": meant.worker} if isinstance(meant, MeantJob) else {}
        for one in own:
            value = getattr(given, one.name)
            if one.name in given.model_fields_set and (value is not None or one.form == "works"):
                args[one.name] = await _read(call, meant, one, value)
        if question is not None or command.name in ANSWERS:
            await refuse_first(call, command, meant, args)
        if command.name in ANSWERS:  # the answer is to what is shown now, whatever is asked meanwhile
            args["question"] = await call.served.read(_number, call.served.app, meant, args.get("question"))
        if question is not None:
            await confirm(call, await call.served.read(question, call.served.app, meant, args))
        name, args = command.becomes(args) if isinstance(command, Alias) else (command.name, args)
        answer = await ask(call, name, _asked_about(meant, args), **args)
        told = {_told_as(command, name): value for name, value in answer.items()}
        standing = await call.served.read(_standing, call.served.app, meant) if isinstance(meant, MeantJob) else {}
        return {**compact({name: told[name] for name in more if name in told}), **await done(call, meant, **standing)}

    return run


async def _read(call: Call, meant: Meant, argument: Argument, value: Any) -> Any:
    """An argument as the engine takes it."""
    match argument.form:
        case "work":
            return work_of(value, argument.name)
        case "works":
            return works_of(value, argument.name)
        case "budget":
            return budget_of(value)
        case "jobs":
            found = [await meant_job(call, meant.plan, name) for name in value]
            meant.notes += [note for one in found for note in one.notes if note not in meant.notes]
            return list(dict.fromkeys(one.job for one in found))
        case "group":
            return await call.served.read(_group, call.served.app, meant, value)
    return value


def _group(app: App, meant: Meant, name: str) -> str:
    return known_group(app.run_of(meant.plan), name)


def _asked_about(meant: Meant, args: Json) -> Meant:
    """What a refusal is about: one job, if only one is named."""
    jobs = args.get("jobs") or []
    return MeantJob(meant.plan, jobs[0]) if len(jobs) == 1 else meant


def _standing(app: App, meant: MeantJob) -> Json:
    view = job_view(app.run_of(meant.plan), meant.job)
    worker = view.worker.state if view.worker is not None else None
    return {"job": meant.job, "job_status": view.status, **compact({"worker": worker})}


# ---------------------------------------------------------------------------------------- questions


def _landing(app: App, meant: Meant, args: Json) -> str:
    summary = app.summary(meant.plan)
    jobs = summary.counts["total"] - 1
    target = summary.target.branch or "its target"
    return f"Land plan '{summary.name}' ({meant.plan}, {jobs} jobs) on branch '{target}'?"


def _undo(app: App, meant: Meant, args: Json) -> str:
    how = " by a new commit on top" if args.get("revert") else ""
    return f"Take the landing of plan '{meant.plan}' on branch '{app.summary(meant.plan).target.branch}' back{how}?"


def _approval(app: App, meant: Meant, args: Json) -> str:
    view = job_view(app.run_of(meant.plan), meant.job)
    files = view.summary.added + view.summary.modified + view.summary.deleted
    why = f" {view.waiting.reason}" if view.waiting else ""
    changed = f"which changes {files} {'file' if files == 1 else 'files'}"
    return f"Approve job '{view.name}' ({meant.job}) of plan '{meant.plan}', {changed}?{why}"


def _call(app: App, meant: Meant, args: Json) -> str:
    """The call that is asked about, with all that it would be made with: what it is about is said by the agent."""
    call = open_call(app.run_of(meant.plan), JobId(meant.job), args["question"])
    always = " It would not be asked about this tool again." if args.get("always") else ""
    return f"{call.number}. {asked_words(call)}?{always}\n{call.input}".rstrip()


def _number(app: App, meant: Meant, number: int | None) -> int:
    return open_call(app.run_of(meant.plan), JobId(meant.job), number).number


ANSWERS = ("allow_call", "deny_call")
"""Commands that answer one question of an agent."""


QUESTIONS: Mapping[str, Callable[[App, Meant, Json], str]] = {
    "land_plan": _landing,
    "undo_plan": _undo,
    "approve_job": _approval,
    "allow_call": _call,
}

TOOLS = tuple(
    derived(one)
    for one in OPERATIONS.values()
    if isinstance(one, Command | Alias) and isinstance(one.tool, Declared) and one.name not in BY_HAND
)


def work_of(value: Any, path: str) -> Json:
    """A work as the engine takes it."""
    return work_json(parse.parse_work(value, path))


def works_of(value: Any, path: str) -> list[Json]:
    """A work or a list of works as the engine takes it; an empty list means that there are none."""
    if value is None:
        raise UsageError(
            f"{path}: null could mean to keep them or to remove them.",
            hint=f"Leave '{path}' out to keep what the job has, or give [] to have none.",
        )
    if not isinstance(value, list):
        return [work_of(value, path)]
    return [work_of(one, f"{path}[{number}]") for number, one in enumerate(value)]


def budget_of(value: Any) -> Json | None:
    """A budget as the engine takes it."""
    if value is None:
        return None
    try:
        model = BudgetFields.model_validate(value)
    except ValidationError as error:
        found = findings(error, value, BudgetFields)
        problems = [Problem(one.message, show_path(one.path, "budget") or "budget") for one in found]
        raise InvalidInput("budget", problems) from None
    if not model.model_fields_set:
        raise UsageError("budget: give at least one of 'tokens', 'cost' and 'minutes'.")
    return {name: getattr(model, name) for name in model.model_fields_set}
