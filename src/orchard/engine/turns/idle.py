"""Agents that wait for a message: for how long, and what happens when nobody comes.

An idle worker is a job that is held: it has no slot, no process and no task, only a folder. So all that has to be kept
is a timer, and even that follows from the journal: whoever opens the engine again sets it anew.
"""

import asyncio
from collections.abc import Callable

from orchard.core.run import Run
from orchard.core.worker_replay import PAUSED, pause_reason
from orchard.errors import Next, Say, plain_hint
from orchard.model.events.plans import Event, JobFailed, JobHeld
from orchard.model.phases import Phase
from orchard.model.plan import JobId, PlanId

WORKER = "worker"
"""The kind of hold that an idle worker is."""


def waiting_worker(job_id: JobId, attempt: int, why: str, since: float | None = None) -> JobHeld:
    """That the agent of a job is idle, and the job held until somebody says more."""
    what = "was interrupted and waits" if why == "interrupted" else "has ended its turn and waits"
    reason = f"The agent of job '{job_id}' {what} for a message, or to be told that it is done."
    reason = pause_reason(job_id) if why == PAUSED else reason
    return JobHeld(job_id, attempt, WORKER, reason, Phase.WORK, since is not None, since or 0.0)


def overdue(run: Run, seconds: float | None, now: float, say: Say) -> list[JobFailed]:
    """How the workers end whose time is over, while no engine is there to record it: the next one does."""
    idle = [hold for hold in run.waiting_for if hold.kind == WORKER and not run.records[hold.job].is_paused]
    holds = idle if seconds is not None else []
    since = {hold.job: run.records[hold.job].last for hold in holds}
    late = [
        hold
        for hold in holds
        if (last := since[hold.job]) is not None and (last.ended or 0.0) + (seconds or 0.0) <= now
    ]
    return [_nobody_came(run, hold, seconds or 0.0, say) for hold in late]


def _nobody_came(run: Run, hold: JobHeld, seconds: float, say: Say) -> JobFailed:
    message = f"work: its agent waited {seconds:g} seconds for a message, and none came."
    as_it_is = Next("retry_job", run.id, hold.job, {"from_phase": "commit"})
    hint = ("What it did is kept. Take it as it is: ", as_it_is, "; without '--from' its agent goes on in its session.")
    return JobFailed(hold.job, hold.attempt, Phase.WORK, "timeout", message, say(hint), advice=plain_hint(hint))


class Idling:
    def __init__(
        self, record: Callable[[PlanId, Event], int], clock: Callable[[], float], say: Say, seconds: float | None
    ) -> None:
        self._record, self._clock, self._say, self._seconds = record, clock, say, seconds
        self._timers: dict[tuple[PlanId, JobId], asyncio.TimerHandle] = {}

    def watch(self, run: Run, job_id: JobId) -> None:
        """Fail a job whose worker is idle, when nobody has said anything for too long."""
        record = run.records[job_id]
        if self._seconds is None or record.hold is None or record.hold.kind != WORKER or record.last is None:
            return
        if record.is_paused:  # who paused it may take any time
            return
        left = (record.last.ended or 0.0) + self._seconds - self._clock()
        known = self._timers.pop((run.id, job_id), None)
        if known is not None:
            known.cancel()
        if left <= 0:
            self._give_up(run, job_id, record.hold)
        else:
            loop = asyncio.get_running_loop()
            self._timers[run.id, job_id] = loop.call_later(left, self._give_up, run, job_id, record.hold)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _give_up(self, run: Run, job_id: JobId, hold: JobHeld) -> None:
        self._timers.pop((run.id, job_id), None)
        record = run.records.get(job_id)
        if record is None or record.hold is not hold or run.canceled is not None:
            return
        if self._seconds is not None:
            self._record(run.id, _nobody_came(run, hold, self._seconds, self._say))
