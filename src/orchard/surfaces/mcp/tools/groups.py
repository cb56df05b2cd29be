"""Tools for groups: jobs that belong together."""

from collections import Counter
from typing import Any

from orchard.app import App
from orchard.core.run import Run
from orchard.core.scheduler import group_statuses
from orchard.model.events.plans import Json
from orchard.operations.queries import plans as plan_queries
from orchard.surfaces.mcp.messages import compact
from orchard.surfaces.mcp.tool import Output
from orchard.surfaces.mcp.tools.declaration import declared, paged
from orchard.surfaces.mcp.tools.models import (
    Cursor,
    JobRow,
    JobStatusName,
    Told,
)
from orchard.surfaces.mcp.tools.names import Meant, jobs_in, known_group, of_plan
from orchard.surfaces.mcp.tools.plans import job_row, page_of


class GroupRow(Output, kw_only=True):
    group: str
    status: JobStatusName
    counts: dict[str, int]


class GroupList(Told, kw_only=True):
    plan: str
    groups: list[GroupRow]
    next_cursor: Cursor | None = None


def _group_list(app: App, meant: Meant, given: Any) -> Json:
    run = app.run_of(meant.plan)
    shown, following = page_of(sorted(group_statuses(run)), given.limit, given.cursor)
    return {"plan": meant.plan, "groups": [_row(run, path) for path in shown], **compact({"next_cursor": following})}


def _row(run: Run, path: str) -> Json:
    counted = Counter(str(run.records[job].status) for job in jobs_in(run, path))
    counts = {**counted, "total": counted.total()}
    return {"group": path, "status": str(group_statuses(run)[path]), "counts": counts}


class GroupPage(Told, kw_only=True):
    plan: str
    group: GroupRow
    groups: list[str] | None = None
    jobs: list[JobRow]
    next_cursor: Cursor | None = None


def _group_page(app: App, meant: Meant, given: Any) -> Json:
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


TOOLS = (
    declared(plan_queries.list_groups, GroupList, of_plan(_group_list), more=paged()),
    declared(plan_queries.get_group, GroupPage, of_plan(_group_page), more=paged()),
)  # fmt: skip
