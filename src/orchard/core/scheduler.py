"""Which jobs start next: values in, intentions out.

Plans take turns, so that a large plan does not starve a small one: each round gives every plan that
has a ready job one slot. Within a plan the order is `priority`, longest remaining path, most
dependents, order of the plan. Jobs that run nothing need no slot and never wait for one.
"""

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from orchard.core.run import Run
from orchard.model.plan import JobId, PlanId
from orchard.model.statuses import JobStatus

UNLIMITED = 1 << 30


class StartJob(Struct, frozen=True):
    """An intention: give this job a slot and begin its attempt."""

    plan: PlanId
    job: JobId
    takes_slot: bool


def free_slots(run: Run, default_limit: int) -> int:
    """How many more jobs of this plan may run a program at once, as far as the plan itself says."""
    limit = run.plan.max_parallel if run.plan.max_parallel is not None else default_limit
    return UNLIMITED if limit == 0 else max(0, limit - run.slots_used)


def pick(runs: Sequence[Run], free: int, default_limit: int) -> list[StartJob]:
    """The jobs to start now, when `free` slots are left for all plans together.

    `runs` is the order in which the plans have their turn; `next_turns` says who is next. What is picked
    leaves its plan's queue: it must be started, or given back by `Run.push`.
    """
    ready = [run for run in runs if run.may_start and run.has_ready()]
    picked: list[StartJob] = []
    for run in ready:
        picked += [StartJob(run.id, job, takes_slot=False) for job in run.ready_jobs(0)]
    room = {run.id: free_slots(run, default_limit) for run in ready}
    while free > 0:
        round_ = _one_each(ready, room, free)
        if not round_:
            break
        free -= len(round_)
        picked += round_
    return picked


def _one_each(ready: Sequence[Run], room: dict[PlanId, int], free: int) -> list[StartJob]:
    """One job of each plan that has both a ready job and room for it."""
    found: list[StartJob] = []
    for run in ready:
        if len(found) == free:
            break
        if room[run.id] == 0:
            continue
        job = next(run.ready_jobs(1), None)
        if job is not None:
            room[run.id] -= 1
            found.append(StartJob(run.id, job, takes_slot=True))
    return found


def next_turns(turns: Sequence[PlanId], starts: Sequence[StartJob]) -> list[PlanId]:
    """The order of the plans from now on: who was given a slot goes to the end, so who waited longest is first."""
    served = dict.fromkeys(start.plan for start in reversed(starts) if start.takes_slot)
    return [plan for plan in turns if plan not in served] + list(reversed(served))


GROUP_ORDER = (JobStatus.RUNNING, JobStatus.FAILED, JobStatus.BLOCKED)


def roll_up(children: Iterable[JobStatus]) -> JobStatus:
    seen = set(children)
    if JobStatus.SCHEDULED in seen:
        return JobStatus.RUNNING
    for status in GROUP_ORDER:
        if status in seen:
            return status
    if seen == {JobStatus.SUCCEEDED}:
        return JobStatus.SUCCEEDED
    return JobStatus.CANCELED if JobStatus.CANCELED in seen else JobStatus.PENDING


def group_statuses(run: Run) -> Mapping[str, JobStatus]:
    """Every group of a plan with what it shows, the deepest computed first."""
    children: dict[str, set[JobStatus]] = {}
    for group, counts in run.group_counts.items():
        children[group] = {*children.get(group, ()), *[status for status, count in counts.items() if count]}
        around = group
        while (around := around.rpartition("/")[0]) and around not in children:
            children[around] = set()
    if not any("/" in path for path in children):
        return {path: roll_up(seen) for path, seen in children.items()}
    found: dict[str, JobStatus] = {}
    for path in sorted(children, key=lambda path: -path.count("/")):
        found[path] = roll_up(children[path])
        parent = path.rpartition("/")[0]
        if parent:
            children[parent].add(found[path])
    return found
