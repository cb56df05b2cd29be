"""Tools that make plans: at once, or bit by bit while everybody can see them grow."""

from functools import partial
from typing import Any

from msgspec.structs import replace

from orchard.app import App
from orchard.engine.plans.refs import slug
from orchard.errors import InvalidInput, UsageError
from orchard.model.events.plans import Json
from orchard.model.plan import VALIDATION, AgentWork, Plan, PlanId
from orchard.operations.commands import drafts, plans
from orchard.planfile import parse
from orchard.planfile.fields import JobFields, PlanFields
from orchard.surfaces.mcp.messages import compact
from orchard.surfaces.mcp.tool import Call
from orchard.surfaces.mcp.tools.changes import Shaped, add_jobs_request, check_job
from orchard.surfaces.mcp.tools.declaration import declared
from orchard.surfaces.mcp.tools.models import Arguments, Done, plan_fields
from orchard.surfaces.mcp.tools.names import Meant, as_tasks, ask, done, full_ids, meant_plan, watch_command, with_ids

UNCHECKED = (
    "Nothing checks what the agents do: no job has 'postchecks' and the plan has no 'verify'. "
    "update_plan can still set 'verify'."
)


class Created(Done, kw_only=True):
    name: str
    jobs: int
    watch_command: str | None = None


OF_PLAN = ("base", "target", "land", "verify", "budget", "start_paused")


def given_fields(given: Arguments, *, without: tuple[str, ...] = ()) -> Json:
    """What was given, without what is the tool's own."""
    own = {"idempotency_key", *without}
    return {name: getattr(given, name) for name in type(given).model_fields if name in given.model_fields_set - own}


async def create_plan(call: Call, given: Any) -> Json:
    """Make a plan, and let it start."""
    return await _submitted(call, given_fields(given), given.idempotency_key)


async def scaffold_plan(call: Call, given: Any) -> Json:
    """Make a plan without jobs, to which they are added."""
    return await _submitted(call, given_fields(given), given.idempotency_key, scaffolding=True)


async def create_job(call: Call, given: Any) -> Json:
    """Make a plan of one job."""
    value = given_fields(given)
    if "jobs" in value:
        return await _several(call, value, given.idempotency_key)
    around = {name: value.pop(name) for name in OF_PLAN if name in value}
    if "id" not in value and "name" not in value:
        raise UsageError("id: is required, unless 'name' is given to make one from.")
    name = value.get("name", value.get("id"))
    value.setdefault("id", slug(name) if isinstance(name, str) else name)
    try:
        return await _submitted(call, {"name": name, **around, "jobs": [value]}, given.idempotency_key)
    except InvalidInput as error:
        # The job was read as the first of a plan, but its fields were given by themselves.
        problems = [replace(one, path=one.path.removeprefix("jobs[0].")) for one in error.problems]
        raise InvalidInput(error.what, problems, error.hint) from None


async def _several(call: Call, value: Json, key: str | None) -> Json:
    """A plan of these jobs, where a list is given in the place of one job."""
    wrong = sorted(value.keys() - {"name", "jobs", *OF_PLAN})
    if wrong:
        raise UsageError(f"{wrong[0]}: is a field of one job; with 'jobs' it belongs into them.")
    as_tasks(value)
    first = next((job for job in value["jobs"] if isinstance(job, dict)), {}) if isinstance(value["jobs"], list) else {}
    return await _submitted(call, {"name": first.get("name", first.get("id")), **value}, key)


async def _submitted(call: Call, value: Json, key: str | None, *, scaffolding: bool = False) -> Json:
    plan, notes = await call.served.read(_parsed, value, scaffolding)
    return await submitted(call, plan, key, notes, scaffolding=scaffolding)


def _parsed(value: Json, scaffolding: bool) -> tuple[Plan, list[str]]:
    notes = with_ids(value, full_ids(value))
    return parse.parse_value(value, scaffolding=scaffolding), notes


def check_plan(value: Json, scaffolding: bool = False) -> None:
    """Say everything that is wrong with a plan; what is not the plan's own is checked elsewhere."""
    _parsed({name: inner for name, inner in value.items() if name != "idempotency_key"}, scaffolding)


async def submitted(call: Call, plan: Plan, key: str | None, notes: list[str], *, scaffolding: bool) -> Json:
    """Hand a plan to the engine; the answer does not wait for any of its work."""
    answer = await call.served.ask(
        "create_plan", plan=plan, scaffolding=scaffolding, **compact({"idempotency_key": key})
    )
    found = PlanId(answer["plan"])
    if answer["known"]:
        notes = [f"Plan '{found}' was made with this key before; nothing new was made.", *notes]
    elif not scaffolding and _is_unchecked(plan):
        notes = [*notes, UNCHECKED]
    return await _created(call, Meant(found, notes=[*notes, *answer["notes"]]))


async def _created(call: Call, meant: Meant) -> Json:
    answer = await done(call, meant)
    name, jobs = await call.served.read(_name_and_jobs, call.served.app, meant.plan)
    watched = None if answer["status"] == "scaffolding" else watch_command(meant.plan)
    return {**answer, "name": name, "jobs": jobs, **compact({"watch_command": watched})}


def _name_and_jobs(app: App, plan: PlanId) -> tuple[str, int]:
    run = app.run_of(plan)
    return run.plan.name, len(run.plan.jobs) - 1


def _is_unchecked(plan: Plan) -> bool:
    jobs = [job for job in plan.jobs.values() if job.id != VALIDATION]
    agents = any(isinstance(job.work, AgentWork) for job in jobs)
    return agents and plan.verify is None and not any(job.postchecks for job in jobs)


# -------------------------------------------------------------------------------- bit by bit


async def add_job(call: Call, given: Any) -> Json:
    """Add one job to a plan."""
    meant = await meant_plan(call, given.plan)
    return await add_jobs_request(call, meant, [given_fields(given, without=("plan",))], alone=True)


async def finalize_plan(call: Call, given: Any) -> Json:
    """Declare a plan complete, so that it starts."""
    meant = await meant_plan(call, given.plan)
    await ask(call, "finalize_plan", meant, start_paused=given.start_paused)
    return await _created(call, meant)


async def clone_plan(call: Call, given: Any) -> Json:
    """Make a new plan with the jobs of another one, as they are now."""
    meant = await meant_plan(call, given.plan)
    changed = given_fields(given, without=("plan", "scaffolding"))
    plan = await call.served.read(call.served.app.copy_of, meant.plan)
    if changed:
        plan = await call.served.read(parse.parse_plan_update, changed, plan, False, "", clone=True)
    return await submitted(call, plan, given.idempotency_key, meant.notes, scaffolding=given.scaffolding)


ONE_JOB = {
    **plan_fields(JobFields, without=("id", "needs", "group", "priority")),
    **plan_fields(JobFields, only=("id",)),
    **plan_fields(PlanFields, only=(*OF_PLAN, "jobs")),
}
COPY = plan_fields(PlanFields, only=tuple(parse.CLONED))
EMPTY = plan_fields(PlanFields, without=("jobs", "groups"))
TOOLS = (
    declared(
        plans.create_plan,
        Created,
        create_plan,
        without=("plan", "file", "scaffolding"),
        more=plan_fields(PlanFields),
        check=check_plan,
    ),
    declared(
        drafts.scaffold_plan,
        Created,
        scaffold_plan,
        without=("fields",),
        more=EMPTY,
        check=partial(check_plan, scaffolding=True),
    ),
    declared(drafts.add_job, Shaped, add_job, without=("fields",), more=plan_fields(JobFields), check=check_job),
    declared(plans.finalize_plan, Created, finalize_plan),
    declared(plans.clone_plan, Created, clone_plan, without=("fields",), more=COPY),
    declared(drafts.create_job, Created, create_job, without=("fields",), more=ONE_JOB),
)
