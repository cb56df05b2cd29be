"""Operations on plans."""

from functools import partial
from typing import Annotated

from msgspec.structs import replace
from pydantic import Field
from starlette.responses import Response

from orchard.errors import InvalidInput, Problem
from orchard.git.history import LONGEST_DIFF
from orchard.model.events.plans import Json
from orchard.model.plan import Plan, PlanId
from orchard.model.statuses import JobStatusName, PlanStatusName
from orchard.operations.idempotency import KEY_LENGTH
from orchard.planfile.fields import Fields, names_of
from orchard.planfile.parse import UPDATED_ALWAYS, UPDATED_BEFORE, parse, parse_plan_update
from orchard.surfaces.http import queries
from orchard.surfaces.http.events import plan_frames
from orchard.surfaces.http.operation import JSON, SVG, TEXT, Asked, Idle, Part, Query, Seq, maybe

MOST = 200
REASON = "Why, for people who look at it later."
SET = "changes[0].set"

Cursor = Annotated[str, Field(pattern=r"^[0-9]{1,15}$")]
Text = Annotated[str, Field(max_length=2000)]
JobNames = Annotated[list[Annotated[str, Field(min_length=1, max_length=500)]], Field(min_length=1, max_length=1000)]


class Page(Query):
    """Parameters of a list that is given page by page."""

    limit: Annotated[int, Field(ge=1, le=MOST)] = Field(default=50, description="How many at most.")
    cursor: Cursor = maybe(description="Where to go on: the `next` of the page before.")


class PlansQuery(Page):
    """Which plans."""

    status: PlanStatusName = maybe(description="Only those that show this.")
    deleted: bool = Field(default=False, description="Also those that were deleted, but not purged.")


class PlanDocumentQuery(Query):
    """How much of a plan."""

    since: Seq = maybe(description="Only what is another than after this event: its jobs that changed.")


class FollowPlanQuery(Query):
    """From where on a plan is followed."""

    since: Seq = maybe(description="The event up to which the plan is known; left out: nothing is.")
    idle: Idle = maybe(description="The stream ends when nothing has come for so many seconds; `0`: when all was sent.")


class JobsQuery(Page):
    """Which jobs."""

    status: JobStatusName = maybe(description="Only those that show this.")
    group: Annotated[str, Field(min_length=1, max_length=600)] = maybe(
        description="Only those of this group and the groups inside it."
    )


class GraphQuery(Query):
    """How a graph is drawn."""

    format: queries.GraphForm = Field(default="mermaid", description="`json`: jobs and edges as data.")


class DiffQuery(Query):
    """How a change is shown."""

    stat: bool = Field(default=False, description="Only how much changed in which file.")


class SubmitQuery(Query):
    """How a plan is submitted."""

    scaffolding: bool = Field(
        default=False,
        description="Whether it is still being built: nothing starts before it is finalized, and it may be empty.",
    )


class DeleteQuery(Query):
    """How much of a plan is removed."""

    purge: bool = Field(
        default=False, description="Its refs, saved work and logs as well, for good. What has landed stays."
    )


class Reason(Fields):
    """Why something is stopped."""

    reason: Text = Field(default="", description=REASON)


PLAN = Part("Plan", "A plan, as in a plan file.", "PlanFields")
UPDATE = Part(
    "PlanUpdate",
    "Fields of a plan that can be changed after it was submitted; some only before it starts.",
    "PlanFields",
    UPDATED_ALWAYS | UPDATED_BEFORE,
)
CLONE = Part(
    "PlanClone",
    "What is different in the copy; everything else, and every job, is the same.",
    "PlanFields",
    UPDATED_ALWAYS | UPDATED_BEFORE | {"start_paused"},
)


# -------------------------------------------------------------------------------------- looking


async def list_plans(asked: Asked) -> Response:
    """Parse, ask, answer."""
    wanted, app = asked.query, asked.served.app
    return await asked.read(queries.plans_page, app, wanted.status, wanted.deleted, wanted.limit, wanted.cursor)


async def get_plan(asked: Asked) -> Response:
    """The document, and up to which event it holds at least."""
    of, app = asked.kept.documents.of, asked.served.app
    newest, document = await asked.served.read(of, app, asked.path["plan"], asked.query.since)
    return Response(document, headers={"Orchard-Seq": str(newest)}, media_type=JSON)


async def follow_plan(asked: Asked) -> Response:
    """A stream of documents."""
    plan, seen = await asked.plan(), await asked.kept.feed.begin(asked.seen or 0)
    following = plan_frames(asked.kept.documents, asked.served, asked.streams, plan, seen, asked.query.idle)
    return asked.streams.stream(following)


async def list_jobs(asked: Asked) -> Response:
    """Some jobs of a plan."""
    wanted, plan = asked.query, await asked.plan()
    page = partial(queries.jobs_page, asked.served.app, plan, wanted.status, wanted.group)
    return await asked.read(page, wanted.limit, wanted.cursor)


async def get_graph(asked: Asked) -> Response:
    """A picture, or data."""
    form = asked.query.format
    if form == "json":
        return await asked.read(queries.graph, asked.served.app, await asked.plan(), form)
    drawn = await asked.served.read(queries.graph, asked.served.app, await asked.plan(), form)
    return Response(str(drawn).encode(errors="replace"), media_type=SVG if form == "svg" else TEXT)


async def get_usage(asked: Asked) -> Response:
    """What agents used."""
    return await asked.read(asked.served.app.usage, asked.path["plan"])


async def get_plan_diff(asked: Asked) -> Response:
    """Exactly what git printed; what is too long to be held is cut, and says so."""
    diff = await asked.served.read(
        asked.served.app.diff, None, asked.path["plan"], stat=asked.query.stat, most=LONGEST_DIFF
    )
    return Response(diff, media_type=TEXT)


async def list_groups(asked: Asked) -> Response:
    """Every group."""
    return await asked.read(queries.groups, asked.served.app, await asked.plan())


# --------------------------------------------------------------------------------------- acting


async def submit_plan(asked: Asked) -> Json:
    """Parse it, and hand it in."""
    plan = await _parsed(asked, asked.query.scaffolding)
    key = asked.request.headers.get("idempotency-key")
    return await asked.served.ask("create_plan", plan=plan, scaffolding=asked.query.scaffolding, key=key)


async def validate_plan(asked: Asked) -> Json:
    """Parse it, and say what it holds."""
    plan = await _parsed(asked, False)
    groups = {job.group for job in plan.jobs.values() if job.group}
    leaves = list(plan.leaves)
    return {"valid": True, "name": plan.name, "jobs": len(plan.jobs) - 1, "groups": len(groups), "leaves": leaves}


async def _parsed(asked: Asked, scaffolding: bool) -> Plan:
    return await asked.aside(partial(parse, asked.data, "plan", "json", scaffolding=scaffolding))


async def clone_plan(asked: Asked) -> Json:
    """The same plan again, with some fields given anew."""
    plan = await asked.served.read(asked.served.app.copy_of, await asked.plan())
    given = dict(asked.body)
    paused = [given.pop(name) for name in names_of("start_paused") if name in given]
    if paused:
        plan = replace(plan, start_paused=_truth(paused, "start_paused"))
    if given:
        plan = parse_plan_update(given, plan, False, "")
    return await asked.served.ask("create_plan", plan=plan, key=asked.request.headers.get("idempotency-key"))


def _truth(given: list[object], name: str) -> bool:
    if len(given) == 1 and isinstance(given[0], bool):
        return given[0]
    raise InvalidInput("plan", [Problem("must be true or false, once", path=name)])


async def update_plan(asked: Asked) -> Json:
    """Change the plan's own fields."""
    plan = await asked.plan()
    return await done(asked, plan, await changed(asked, plan, {"op": "update_plan", "set": asked.body}))


async def changed(asked: Asked, plan: PlanId, change: Json) -> Json:
    """Make one change; problems are told with the paths of the body."""
    try:
        return await asked.served.ask("reshape_plan", plan=plan, changes=[change])
    except InvalidInput as error:
        own = [replace(one, path=one.path.removeprefix(SET).lstrip(".")) for one in error.problems]
        raise InvalidInput(error.what, own, error.hint) from None


async def delete_plan(asked: Asked) -> Json:
    """Take a plan out of the way, or remove it for good."""
    plan = await asked.plan("delete_plan")
    if not asked.query.purge:
        return await done(asked, plan, await asked.served.ask("delete_plan", plan=plan))
    return {"plan": plan, "status": None, **await asked.served.ask("purge_plan", plan=plan)}


async def cancel_group(asked: Asked) -> Json:
    """Stop the jobs of a group."""
    plan = await asked.plan("cancel_plan")
    jobs = await asked.served.read(queries.open_jobs, asked.served.app, plan, asked.path["group"])
    answer = await asked.served.ask("cancel_jobs", plan=plan, jobs=jobs, reason=asked.body.reason)
    return await done(asked, plan, answer)


async def done(asked: Asked, plan: PlanId, answer: Json) -> Json:
    """What an action came to, and what its plan shows now."""
    summary = await asked.served.read(asked.served.app.summary, plan)
    return {"plan": plan, **answer, "status": summary.status}


KEY: dict[str, Json] = {
    "Idempotency-Key": {
        "description": "Who sends the same plan with the same key again, because the answer did not arrive, gets the "
        "plan that was made the first time.",
        "schema": {"type": "string", "minLength": 1, "maxLength": KEY_LENGTH, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    }
}
SEQ: dict[str, Json] = {
    "Orchard-Seq": {
        "description": "The number of an event: the document holds everything up to it.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[0-9]+$"},
    }
}
