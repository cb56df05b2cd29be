"""Putting failed and canceled jobs back in the queue."""

from collections.abc import Mapping

from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.engine.requests.arguments import phase_of, work_of
from orchard.engine.requests.preparation import check_works, fetch
from orchard.engine.requests.workers import Desk, refuse_interactive
from orchard.errors import UsageError
from orchard.model.events.plans import JobRetried, Json, PlanResumed
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, JobId, PlanId


async def retry(
    desk: Desk,
    plan: str,
    jobs: list[str] | None = None,
    phase: str | None = None,
    fresh: bool = False,
    fresh_session: bool = False,
    work: Json | None = None,
    prechecks: list[Json] | None = None,
    postchecks: list[Json] | None = None,
) -> Json:
    """Put failed and canceled jobs back in the queue.

    Remotes are fetched and agents looked for while others may ask; which jobs are meant is looked up once more then.
    """
    first = phase_of(phase)
    given = [work_of(one) for one in [work, *(prechecks or ()), *(postchecks or ())] if one is not None]
    refuse_interactive("The retry", given[work is not None :])
    with desk.going_on(PlanId(plan)):
        async with desk.deciding(plan) as run:
            _chosen(desk, run, jobs)
            paused, canceled = run.paused, run.canceled
        await check_works(desk.engine.world, [("The new work", given)])
        if fresh:
            await fetch(desk.engine, run)
        if first is None and (fresh or work is not None or prechecks is not None):
            # What ran before says nothing about other work, or about another folder.
            first = Phase.MERGE_FI if fresh else Phase.PRECHECKS
        checks = [tuple(checks) if checks is not None else None for checks in (prechecks, postchecks)]
        async with desk.deciding(plan) as run:
            chosen = _chosen(desk, run, jobs)
            if run.canceled is not None and run.canceled is not canceled:
                raise UsageError(
                    f"Plan '{plan}' was canceled while its retry was prepared.", hint=f"orchard retry --plan {plan}"
                )
            for job_id in _with_canceled(run, chosen):
                event = JobRetried(job_id)
                if job_id in chosen:
                    event = JobRetried(
                        job_id, first, fresh, work, checks[0], checks[1], fresh_session=fresh or fresh_session
                    )
                desk.engine.record(run.id, event)
            # A pause that somebody asked for while the remotes were fetched came after this request, and holds.
            if run.paused is not None and run.paused is paused and not run.paused.waiting:
                desk.engine.record(run.id, PlanResumed())
    return {"jobs": chosen}


def _chosen(desk: Desk, run: Run, jobs: list[str] | None) -> list[JobId]:
    """The jobs that are meant, all of which can be retried now."""
    if run.deleted:
        raise UsageError(f"Plan '{run.id}' was deleted.", hint=f"orchard recover --plan {run.id}")
    chosen = [desk.known(run, job) for job in jobs] if jobs else _retriable(run)
    for job_id in chosen:
        if run.records[job_id].state not in (JobState.FAILED, JobState.CANCELED):
            state = run.records[job_id].status
            raise UsageError(
                f"Job '{job_id}' is {state}; only a failed or canceled job can be retried.",
                hint=f"orchard status {run.id}",
            )
    if not chosen:
        raise UsageError(f"Plan '{run.id}' has no failed or canceled job.", hint=f"orchard status {run.id}")
    return chosen


def _retriable(run: Run) -> list[JobId]:
    return [job for job, record in run.records.items() if record.state in (JobState.FAILED, JobState.CANCELED)]


def _with_canceled(run: Run, chosen: list[JobId]) -> list[JobId]:
    """These jobs, and every canceled job before or after them: without those they would lead nowhere."""
    needs = {job.id: job.needs for job in run.plan.jobs.values()}
    found = dict.fromkeys([*chosen, *_canceled(run, needs, chosen), *_canceled(run, run.plan.needed_by, chosen)])
    if run.records[VALIDATION].state is JobState.CANCELED:
        found[VALIDATION] = None
    return list(found)


def _canceled(run: Run, edges: Mapping[JobId, tuple[JobId, ...]], chosen: list[JobId]) -> list[JobId]:
    waiting, found = list(chosen), dict.fromkeys(chosen)
    while waiting:
        for other in edges[waiting.pop()]:
            if other not in found and run.records[other].state is JobState.CANCELED:
                found[other] = None
                waiting.append(other)
    return list(found)


VERBS = {"retry": retry}
