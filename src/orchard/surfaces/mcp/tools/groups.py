"""Tools for groups: jobs that belong together."""

from collections import Counter

from pydantic import Field

from orchard.app import App
from orchard.core.run import Run
from orchard.core.scheduler import group_statuses
from orchard.model.events.plans import Json
from orchard.model.plan import PlanId
from orchard.surfaces.mcp.messages import compact
from orchard.surfaces.mcp.tool import Call, Output, Tool
from orchard.surfaces.mcp.tools.descriptions import WORDS
from orchard.surfaces.mcp.tools.models import (
    PAGE,
    AboutPlan,
    Cursor,
    Done,
    JobRow,
    JobStatusName,
    Limit,
    Name,
    OfPlan,
    Reason,
    Told,
    optional,
)
from orchard.surfaces.mcp.tools.names import Meant, ask, done, jobs_in, known_group, meant_plan, of_plan
from orchard.surfaces.mcp.tools.plans import job_row, page_of

GROUP = Field(description="The group's path, such as `backend/api`.")


class GroupRow(Output, kw_only=True):
    group: str
    status: JobStatusName
    counts: dict[str, int]


class ListGroups(AboutPlan):
    """Which groups of a plan."""

    limit: Limit = Field(default=PAGE, description="Groups per page.")
    cursor: Cursor | None = optional("`next_cursor` of the page before.")


class GroupList(Told, kw_only=True):
    plan: str
    groups: list[GroupRow]
    next_cursor: Cursor | None = None


def _group_list(app: App, meant: Meant, given: ListGroups) -> Json:
    run = app.run_of(meant.plan)
    shown, following = page_of(sorted(group_statuses(run)), given.limit, given.cursor)
    return {"plan": meant.plan, "groups": [_row(run, path) for path in shown], **compact({"next_cursor": following})}


def _row(run: Run, path: str) -> Json:
    counted = Counter(str(run.records[job].status) for job in jobs_in(run, path))
    counts = {**counted, "total": counted.total()}
    return {"group": path, "status": str(group_statuses(run)[path]), "counts": counts}


class GetGroup(AboutPlan):
    """Which group, and which of its jobs."""

    group: Name = GROUP
    limit: Limit = Field(default=PAGE, description="Jobs per page.")
    cursor: Cursor | None = optional("`next_cursor` of the page before.")


class GroupPage(Told, kw_only=True):
    plan: str
    group: GroupRow
    groups: list[str] | None = None
    jobs: list[JobRow]
    next_cursor: Cursor | None = None


def _group_page(app: App, meant: Meant, given: GetGroup) -> Json:
    run, interrupted = app.seen(meant.plan)
    path = known_group(run, given.group)
    shown, following = page_of(jobs_in(run, path), given.limit, given.cursor)
    inside = [one for one in sorted(group_statuses(run)) if one.startswith(f"{path}/")]
    rows = [job_row(run, job, interrupted=interrupted) for job in shown]
    return {
        "plan": meant.plan,
        "group": _row(run, path),
        "jobs": rows,
        **compact({"groups": inside, "next_cursor": following}),
    }


class CancelGroup(OfPlan):
    """Which group, and why."""

    group: Name = GROUP
    reason: Reason = Field(default="", description="Why, for those who read the plan later.")


class Canceled(Done, kw_only=True):
    canceled: list[str]


async def cancel_group(call: Call, given: CancelGroup) -> Json:
    """Stop the jobs of a group, and keep the others of it from starting."""
    meant = await meant_plan(call, given.plan, "cancel_plan")
    jobs = await call.served.read(_jobs, call.served.app, meant.plan, given.group)
    answer = await ask(call, "cancel_jobs", meant, jobs=jobs, reason=given.reason)
    return await done(call, meant, canceled=answer["jobs"])


def _jobs(app: App, plan: PlanId, group: str) -> list[str]:
    return [*jobs_in(app.run_of(plan), group)]


TOOLS = (
    Tool("list_groups", "groups", "List groups", WORDS["list_groups"], ListGroups, GroupList, of_plan(_group_list),
         read_only=True),
    Tool("get_group", "groups", "Look at a group", WORDS["get_group"], GetGroup, GroupPage, of_plan(_group_page),
         read_only=True),
    Tool("cancel_group", "groups", "Cancel a group", WORDS["cancel_group"], CancelGroup, Canceled, cancel_group,
         destructive=True),
)  # fmt: skip
