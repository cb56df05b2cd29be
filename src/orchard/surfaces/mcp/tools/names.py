"""Between a tool and the repository: which plan and job are meant, what the engine says, and what comes next.

Here is the one place where a plan's name becomes a plan, so here is where an agent in a job is held to its own.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field

from orchard.app import App
from orchard.core.job_names import worker_name
from orchard.core.run import Run
from orchard.core.scheduler import group_statuses
from orchard.core.states import JobState
from orchard.core.views.conflicts import is_open, resolve_step
from orchard.core.views.documents import Waiting
from orchard.core.views.plans import needs_person, plan_summary
from orchard.engine.plans.refs import slug
from orchard.errors import InvalidInput, NeedsPerson, Next, NotFound, UsageError
from orchard.model.events.plans import Json
from orchard.model.plan import VALIDATION, Job, JobId, PlanId
from orchard.model.statuses import JobStatus, PlanStatus
from orchard.operations.operation import Operation
from orchard.surfaces.mcp.messages import NEXT_FOR_JOB, NEXT_FOR_PLAN, compact, first_line
from orchard.surfaces.mcp.tool import Call
from orchard.surfaces.next_steps import in_commands, tool_call
from orchard.text import did_you_mean, for_screen, one_line, quoted


class Meant(Struct):
    """The plan that a call is about."""

    plan: PlanId
    job: JobId = JobId("")
    notes: list[str] = field(default_factory=list)


class MeantJob(Meant):
    """The job that a call is about, or the subtask of it."""

    subtask: str | None = None

    @property
    def worker(self) -> JobId:
        return worker_name(self.job, self.subtask)


async def meant_plan(call: Call, name: str | None, verb: str = "") -> Meant:
    """The plan that is meant; without a name the newest one, and for an agent in a job always its own.

    A verb that ends, moves or removes something takes no beginning of an id.
    """
    return await call.served.read(_meant_plan, call.served.app, call, name, verb)


async def meant_job(call: Call, plan: str | None, job: str, verb: str = "", *, or_subtask: bool = False) -> MeantJob:
    """The job that is meant: by full id, id, unique name or, unless the verb forbids it, unique beginning."""
    return await call.served.read(_meant_job, call.served.app, call, plan, job, verb, or_subtask)


def _meant_plan(app: App, call: Call, name: str | None, verb: str = "") -> Meant:
    if call.scope is not None:
        return Meant(_own_plan(app, call.scope.plan, name))
    found = app.find_plan(name, verb)
    row = app.reader.plan(found)
    plain = name is None or name == found or (row is not None and name == row.name)
    return Meant(found, notes=[] if plain else [f"{quoted(name or '')} was taken to mean plan '{found}'."])


def _own_plan(app: App, own: PlanId, name: str | None) -> PlanId:
    """An agent's own plan, by id or name. Whatever else there is, it is not told: not even that a name is near."""
    if name is not None and name != own and name != app.run_of(own).plan.name:
        raise NotFound(f"There is no plan {quoted(name)}.", hint="Leave 'plan' out: it means your own.")
    return own


def _meant_job(app: App, call: Call, plan: str | None, job: str, verb: str, or_subtask: bool) -> MeantJob:
    around = _meant_plan(app, call, plan, verb)
    if or_subtask:
        _, whose, subtask = app.worker_of(job, around.plan, verb) if _names_subtask(job) else (None, None, None)
        if whose is not None and subtask is not None:
            return MeantJob(around.plan, whose, around.notes, subtask)
    try:
        _, found = app.find_job(job, around.plan, verb)
    except NotFound:
        jobs = app.run_of(around.plan).plan.jobs.values()
        same = [one.id for one in jobs if job.strip().casefold() in (one.id.casefold(), one.name.casefold())]
        if len(same) != 1:
            raise
        found = same[0]
    plain = job in (found, found.rpartition("/")[2])
    notes = [] if plain else [f"{quoted(job)} was taken to mean job '{found}'."]
    return MeantJob(around.plan, found, notes=[*around.notes, *notes])


def _names_subtask(name: str) -> bool:
    return name.rpartition("/")[2].startswith("subtask-")


def of_plan(read: Callable[[App, Meant, Any], Json]) -> Callable[[Call, Any], Awaitable[Json]]:
    """A tool that reads something of the plan that is named in its arguments."""

    async def run(call: Call, given: Any) -> Json:
        return await _read(call, read, await meant_plan(call, given.plan), given)

    return run


def of_job(
    read: Callable[[App, MeantJob, Any], Json], *, or_subtask: bool = False
) -> Callable[[Call, Any], Awaitable[Json]]:
    """A tool that reads something of the job that is named in its arguments, or of a subtask."""

    async def run(call: Call, given: Any) -> Json:
        meant = await meant_job(call, given.plan, given.job, or_subtask=or_subtask)
        return await _read(call, read, meant, given)

    return run


async def _read(call: Call, read: Callable[[App, Any, Any], Json], meant: Meant, given: Any) -> Json:
    found = await call.served.read(read, call.served.app, meant, given)
    return {**found, **compact({"notes": [*meant.notes, *found.get("notes", [])]})}


async def ask(call: Call, verb: str, meant: Meant, **args: Any) -> Json:
    """Ask the engine about this plan; what it refuses is told with how things stand and what would help."""
    try:
        return await call.served.ask(verb, plan=meant.plan, **args)
    except InvalidInput:
        raise
    except UsageError as error:
        raise await _with_state(call, meant, error) from error


async def refuse_first(call: Call, operation: Operation, meant: Meant, args: Json) -> None:
    """Refuse what is impossible before a person is asked about it."""
    try:
        await call.served.read(_refuse, call.served.app, operation, meant, args)
    except UsageError as error:
        raise await _with_state(call, meant, error) from error


def _refuse(app: App, operation: Operation, meant: Meant, args: Json) -> None:
    if operation.refuses is not None:
        operation.refuses(app.run_of(meant.plan), meant.job)
    if operation.refuses_here is not None:
        operation.refuses_here(app.repo, app.run_of(meant.plan), args)


async def _with_state(call: Call, meant: Meant, error: UsageError) -> UsageError:
    """A refusal with how things stand and what would help."""
    state, remedy = await call.served.read(_state, call.served.app, meant)
    told = error.message if f"is {state}" in error.message else f"{error.message} {state_text(meant, state)}"
    # That one can look at the plan is no remedy: the caller has just been told how it stands.
    looks = isinstance(error.hint, Next) and error.hint.operation == "get_plan"
    return UsageError(told, hint=error.hint if error.hint and not looks else remedy)


def state_text(meant: Meant, state: str) -> str:
    """How a plan or a job stands, as a sentence."""
    return f"Job '{meant.job}' is {state}." if isinstance(meant, MeantJob) else f"Plan '{meant.plan}' is {state}."


def _state(app: App, meant: Meant) -> tuple[str, str]:
    run, interrupted = app.seen(meant.plan)
    if isinstance(meant, MeantJob) and meant.job in run.records:
        status = str(run.records[meant.job].status)
        return status, next_for_job(run, meant.job, status)
    shown: str = plan_summary(run, in_commands, interrupted=interrupted).status
    return shown, NEXT_FOR_PLAN[shown]


async def done(call: Call, meant: Meant, **more: Any) -> Json:
    """A plan as it is after something was asked of it."""
    state = await call.served.read(standing, call.served.app, meant.plan)
    return {**state, **compact({"notes": meant.notes}), **more}


def standing(app: App, plan: PlanId) -> Json:
    """How a plan stands, in the fewest words."""
    run, interrupted = app.seen(plan)
    status = plan_summary(run, in_commands, interrupted=interrupted).status
    return {"plan": plan, "status": status, "cursor": run.seq, "next": next_step(run, status)}


def next_step(run: Run, status: str) -> str:
    """What to do about a plan that stands like this."""
    asking = needs_person(run, in_commands) if status == PlanStatus.WAITING else []
    if asking:
        return "It waits: " + "; ".join(_answer(one) for one in asking[:3])
    if status == PlanStatus.FAILED:
        failed = run.failed
        if being := [step for one in failed if is_open(run, one) and (step := resolve_step(run, one)) is not None]:
            return f"Resolve the files in the worktree, then {tool_call(being[0])}."
        job = failed[0] if failed else VALIDATION
        return f'get_job_failure(plan="{run.id}", job="{job}"), then retry_job or retry_plan.'
    if status == PlanStatus.SUCCEEDED:
        return _over(run)
    if status == PlanStatus.SCAFFOLDING and run.plan.deploy == "manual":
        return f'add_plan_task(plan="{run.id}", ...) adds tasks; deploy_task lets one of them run.'
    if status == PlanStatus.PENDING and run.plan.after is not None and run.started is None:
        return f"It starts when plan '{run.plan.after}' has succeeded."
    if status in (PlanStatus.RUNNING, PlanStatus.PENDING):
        return f'In a shell: {watch_command(run.id)}. Else wait_plan(plan="{run.id}", cursor={run.seq}).'
    return NEXT_FOR_PLAN[status]


def _over(run: Run) -> str:
    if run.landed is not None and run.undone is None:
        return f"It has landed on '{run.landed.branch}'. undo_plan takes that back."
    if run.undone is not None and run.undone.revert:
        return f"Its landing was undone by commit {run.undone.commit:.12} on top of '{run.undone.branch}'."
    if run.undone is not None:
        return "Its landing was undone. land_plan lands it again."
    if run.pull_request is not None:
        return f"Its pull request is {one_line(run.pull_request.url)}. propose_plan updates it."
    if run.unlanded is not None and run.unlanded.branch is not None:
        return f"Its result is on branch '{run.unlanded.branch}'."
    return "It is over; there was nothing to land."


def _answer(asked: Waiting) -> str:
    more = ", budget={...})" if asked.kind in ("plan", "budget") else ")"
    return f"{first_line(asked.reason)} -> {tool_call(asked.next[0]).removesuffix(')')}{more}"


def next_for_job(run: Run, job: JobId, status: str) -> str:
    """What to do about a job that stands like this."""
    asks = needs_person(run, in_commands, engine=status != JobStatus.FAILED)
    asking = [one for one in asks if one.job == job]
    if asking:
        return "It waits: " + _answer(asking[0])
    if status == JobStatus.BLOCKED:
        causes = ", ".join(f"'{cause}'" for cause in blocked_by(run, job)[:5])
        return f"It is blocked by {causes}: get_job_failure says why, retry_plan tries again."
    return NEXT_FOR_JOB[status]


def blocked_by(run: Run, job: JobId) -> list[JobId]:
    """The jobs whose failure or cancellation keeps a job from starting."""
    found: dict[JobId, None] = {}
    seen, waiting = {job}, list(run.plan.jobs[job].needs)
    while waiting:
        need = waiting.pop(0)
        if need in seen:
            continue
        seen.add(need)
        if run.records[need].state in (JobState.FAILED, JobState.CANCELED):
            found[need] = None
        else:
            waiting += run.plan.jobs[need].needs
    return list(found)


def watch_command(plan: PlanId) -> str:
    """How somebody with a shell waits for a plan."""
    return f"orchard wait {plan} --json"


async def confirm(call: Call, question: str) -> None:
    """Have the person at the other end agree, where one can be asked; otherwise the host asks by its own rules."""
    if call.elicit is None:
        return
    schema = {
        "type": "object",
        "properties": {"confirm": {"type": "boolean", "title": "Go ahead?"}},
        "required": ["confirm"],
    }
    answer = await call.elicit(for_screen(question), schema)
    if answer is None or answer.get("confirm") is not True:
        raise NeedsPerson("The person who was asked did not agree. Nothing was changed.")


def known_group(run: Run, name: str) -> str:
    """The path of a group, or of the only one whose last part is this."""
    paths = list(group_statuses(run))
    path = name.strip().strip("/")
    if path in paths:
        return path
    same = [one for one in paths if one.rpartition("/")[2] == path]
    if len(same) == 1:
        return same[0]
    near = did_you_mean(path, paths) or (
        f"; there is {', '.join(sorted(paths)[:10])}" if paths else "; it has no groups"
    )
    raise NotFound(f"Plan '{run.id}' has no group {quoted(name)}{near}")


def jobs_in(run: Run, group: str) -> list[JobId]:
    """The jobs of a group and of the groups in it."""
    path = known_group(run, group)
    return [job.id for job in run.plan.jobs.values() if job.group and f"{job.group}/".startswith(f"{path}/")]


_DEEP = 8


def full_ids(value: Json) -> dict[str, str | None]:
    """The full ids of the jobs in a plan, or in a list of jobs, with the names that people see."""
    return {
        f"{group}/{job['id']}" if group else job["id"]: job.get("name")
        for job, group in _jobs(value)
        if isinstance(job.get("id"), str)
    }


def names_in(jobs: Iterable[Job]) -> dict[str, str | None]:
    """The same of jobs that a plan has."""
    return {job.id: job.name for job in jobs}


def with_ids(value: Json, known: Mapping[str, str | None]) -> list[str]:
    """Put the id in the place of each name that only one job has; a word that is an id stays what it is."""
    notes = []
    for job, _ in _jobs(value):
        needs = job.get("needs")
        given = needs if isinstance(needs, list) else [needs]
        found = [id_of(need, known) if isinstance(need, str) else need for need in given]
        if found != given:
            changed = [(old, new) for old, new in zip(given, found, strict=True) if old != new]
            notes += [f"needs: {quoted(old)} was taken to mean job '{new}'." for old, new in changed]
            job["needs"] = found
    return notes


def as_tasks(value: Json) -> None:
    """Have each job be a task: one without an id is named after its name, and a text without work is for an agent."""
    for job, _ in _jobs(value):
        if "id" not in job and isinstance(job.get("name"), str):
            job["id"] = slug(job["name"])
        if not {"work", "agent"} & job.keys() and isinstance(job.get("task"), str) and job["task"].strip():
            job["agent"] = "agent"


def id_of(word: str, known: Mapping[str, str | None]) -> str:
    """The full id of the one job with this name; the word itself where it is an id, or where nothing is clear."""
    if word in known or any(full.rpartition("/")[2] == word for full in known):
        return word
    wanted = word.strip().casefold()
    same = [full for full, name in known.items() if isinstance(name, str) and name.strip().casefold() == wanted]
    return same[0] if len(same) == 1 else word


def _jobs(value: Any, group: str = "", depth: int = 0) -> Iterator[tuple[Json, str]]:
    """Every job that can be read, with its group; what cannot be read is left to the parser."""
    if not isinstance(value, dict) or depth > _DEEP:
        return
    for job in _list(value.get("jobs")):
        if isinstance(job, dict):
            own = job.get("group")
            yield job, group or (own if isinstance(own, str) else "")
    for inner in _list(value.get("groups")):
        name = inner.get("name") if isinstance(inner, dict) else None
        if isinstance(name, str):
            yield from _jobs(inner, f"{group}/{name}" if group else name, depth + 1)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
