"""The groups of a plan, as surfaces show them."""

from collections import Counter
from typing import Annotated

from msgspec import Meta, Struct

from orchard.core.job_names import jobs_in_group
from orchard.core.run import Run
from orchard.core.scheduler import group_statuses
from orchard.errors import NotFound
from orchard.model.plan import JobId
from orchard.model.statuses import JobStatus


class Group(Struct, frozen=True):
    """Jobs that belong together."""

    path: str
    status: JobStatus
    counts: dict[str, int]
    jobs: Annotated[list[JobId], Meta(description="Its own, not those of the groups inside it.")]


class Groups(Struct, frozen=True):
    """Every group of a plan."""

    plan: str
    groups: list[Group]


def group_list(run: Run) -> Groups:
    statuses = group_statuses(run)
    own: dict[str, list[JobId]] = {path: [] for path in statuses}
    counts: dict[str, Counter[str]] = {path: Counter() for path in statuses}
    for job in run.plan.jobs.values():
        if job.group is None:
            continue
        own[job.group].append(job.id)
        for path in _around(job.group):
            counts[path].update([str(run.records[job.id].status), "total"])
    return Groups(run.id, [Group(path, statuses[path], dict(counts[path]), own[path]) for path in sorted(statuses)])


def _around(group: str) -> list[str]:
    """A group, and every group that it is inside of."""
    parts = group.split("/")
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]


def jobs_of_group(run: Run, group: str) -> list[JobId]:
    """The jobs of a group and of the groups inside it; a group that the plan does not have is refused."""
    found = jobs_in_group(run.plan.jobs, group)
    if not found:
        known = ", ".join(list(group_statuses(run))[:8]) or "none"
        raise NotFound(f"Plan '{run.id}' has no group '{group}'.", f"There is: {known}")
    return found
