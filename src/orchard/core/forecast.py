"""How long a plan still takes: its jobs, started in their order in as many slots as it has, each for as long as it took
before."""

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from itertools import count

from orchard.core.run import Run
from orchard.model.plan import JobId
from orchard.model.statuses import JobStatus

ENOUGH = 3
"""Jobs that must have ended before they tell of the others."""
LATE = 0.25
"""The share of the time that it took so far by which a late job goes on."""
_TO_COME = (JobStatus.PENDING, JobStatus.READY)


def seconds_taken(run: Run) -> dict[JobId, float]:
    """What the jobs that succeeded took in their last attempt."""
    found = {}
    for job, record in run.records.items():
        last = record.attempts[-1] if record.attempts else None
        if record.status is JobStatus.SUCCEEDED and last is not None and last.ended is not None:
            found[job] = max(0.0, last.ended - last.started - last.idle_seconds)
    return found


def seconds_left(run: Run, before: Mapping[JobId, float], now: float) -> float | None:
    """What is left, by what each job took `before`, else by what this plan's jobs take; None: nothing is known yet."""
    taken = seconds_taken(run)
    usual = sum(taken.values()) / len(taken) if len(taken) >= ENOUGH else None
    expected = {job: before.get(job, usual) for job in run.plan.jobs}
    working = [job for job, record in run.records.items() if record.status in (JobStatus.RUNNING, JobStatus.SCHEDULED)]
    to_come = [job for job in run.plan.in_order if run.records[job].status in _TO_COME]
    if any(expected[job] is None for job in (*working, *to_come)):
        return None
    slots = run.plan.max_parallel or max(len(working), 1)
    order = count()
    ends = [(_left(run, job, expected[job] or 0.0, now), next(order), job) for job in working]
    heapify(ends)
    unmet = {
        job: sum(run.records[need].status is not JobStatus.SUCCEEDED for need in run.job(job).needs) for job in to_come
    }
    place = run.plan.position
    ready = [(place[job], job) for job in to_come if not unmet[job]]
    heapify(ready)
    at = 0.0
    while ends or ready:
        while ready and len(ends) < max(slots, len(working)):
            _, job = heappop(ready)
            heappush(ends, (at + (expected[job] or 0.0), next(order), job))
        at, _, job = heappop(ends)
        for one in run.plan.needed_by[job]:
            if one in unmet:
                unmet[one] -= 1
                if not unmet[one]:
                    heappush(ready, (place[one], one))
    return at


def _left(run: Run, job: JobId, expected: float, now: float) -> float:
    """One that takes longer than it did goes on for a while: nobody knows for how long."""
    attempts = run.records[job].attempts
    worked = now - attempts[-1].started if attempts else 0.0
    return expected - worked if worked < expected else worked * LATE
