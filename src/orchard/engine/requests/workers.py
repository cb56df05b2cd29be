"""Requests about workers: deploying jobs by hand, and talking with the agents that work on jobs.

    deploy      let jobs of a plan run that says `deploy: manual`
    send        a message: the next turn of an idle agent, or of one at work when its turn has ended
    interrupt   end the present turn; the agent is idle then, or goes on with what was sent to it
    complete    the work of an idle agent is done, and the attempt goes on with the commit

An agent that is idle is a job that is held (see `idling`), so whoever says something releases it.
"""

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

from orchard.core.records import JobRecord
from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.core.views.workers import worker_state
from orchard.engine.engine import Engine
from orchard.engine.turns.idle import WORKER
from orchard.errors import UsageError
from orchard.model.events.plans import (
    HoldReleased,
    JobDeployed,
    Json,
    MessageSent,
    PlanFinalized,
    WorkerCompleted,
)
from orchard.model.phases import Phase, at_or_after
from orchard.model.plan import VALIDATION, AgentWork, JobId, PlanId, Work

MESSAGE_BYTES = 64 * 1024
QUEUED_MESSAGES = 100


class Desk(Protocol):
    """What these requests need of whoever takes them: `requests.Requests` is the one."""

    @property
    def engine(self) -> Engine:
        """The engine that they are asked of."""
        ...

    def deciding(self, plan: str) -> AbstractAsyncContextManager[Run]:
        """The run, for the one request that decides about the plan now."""
        ...

    def going_on(self, plan: PlanId) -> AbstractContextManager[None]:
        """For as long as somebody prepares to let the plan go on."""
        ...

    def known(self, run: Run, job: str) -> JobId:
        """The job of this id."""
        ...

    def refuse_if_over(self, run: Run, what: str) -> None:
        """Refuse what cannot be done to a plan that is over."""
        ...


# ------------------------------------------------------------------------------------- deploying


async def deploy(desk: Desk, plan: str, jobs: list[str], finalize: bool = False) -> Json:
    """Let jobs run; each starts when what it needs has succeeded. Jobs that were deployed before are left alone."""
    async with desk.deciding(plan) as run:
        desk.refuse_if_over(run, "deployed")
        if run.plan.deploy != "manual":
            raise UsageError(
                f"Plan '{plan}' starts its jobs by itself; only one with 'deploy: manual' has jobs to deploy.",
                hint=f"orchard status {plan}",
            )
        if run.scaffolding and not finalize:
            raise UsageError(f"Plan '{plan}' is still being scaffolded.", hint="Finalize it first.")
        chosen = list(dict.fromkeys(desk.known(run, job) for job in jobs))
        for job_id in chosen:
            _refuse_if_not_deployable(run, job_id)
        waiting = [job_id for job_id in chosen if run.records[job_id].undeployed]
        if not waiting:
            raise UsageError(
                "Every one of these jobs is deployed already." if chosen else "No job is named.",
                hint=f"orchard status {plan}",
            )
        final = [PlanFinalized()] if run.scaffolding else []
        desk.engine.record_together(run.id, *final, *(JobDeployed(job_id) for job_id in waiting), listed=True)
        return {"jobs": waiting, "status": str(run.status)}


def _refuse_if_not_deployable(run: Run, job_id: JobId) -> None:
    state = run.records[job_id].state
    if job_id == VALIDATION:
        raise UsageError("The validation job starts by itself when all others have succeeded.")
    if state in (JobState.FAILED, JobState.CANCELED) and run.records[job_id].undeployed:
        raise UsageError(
            f"Job '{job_id}' is {state}; it has to be retried before it can be deployed.",
            hint=f"orchard retry {job_id} --plan {run.id}",
        )


# --------------------------------------------------------------------------------------- talking


async def send(desk: Desk, plan: str, job: str, message: str) -> Json:
    """Say something to the agent of a job: at once if it is idle, else when its turn ends."""
    async with desk.deciding(plan) as run:
        job_id = desk.known(run, job)
        record = _worker(run, job_id)
        _check_message(message)
        await _refuse_if_its_agent_is_gone(desk, run, job_id)
        idle = _is_idle(record)  # looked at after the wait: its time may have run out meanwhile
        if not idle and not _listens(record):
            raise UsageError(
                f"Nobody would hear it: {_what_it_does(run, job_id)}",
                hint=f"orchard resume {run.id}" if run.paused is not None else f"orchard job {job_id} --plan {run.id}",
            )
        if len(record.queued) >= QUEUED_MESSAGES:
            raise UsageError(
                f"{QUEUED_MESSAGES} messages for job '{job_id}' wait already.",
                hint=f"Let its agent read them first: orchard interrupt {job_id} --plan {run.id}",
            )
        number = len(record.messages) + 1
        released = [HoldReleased(job_id)] if idle else []
        desk.engine.record_together(run.id, MessageSent(job_id, number, message), *released, listed=idle)
        return {"job": job_id, "number": number, "queued": not idle, "worker": worker_state(run, job_id)}


async def interrupt(desk: Desk, plan: str, job: str) -> Json:
    """End the present turn of a job's agent; its session and its files are kept, and nothing has failed."""
    async with desk.deciding(plan) as run:
        job_id = desk.known(run, job)
        _worker(run, job_id)
        live = desk.engine.live.get((run.id, job_id))
        turn = live.turn if live is not None else None
        if turn is None:
            what = _what_it_does(run, job_id)
            raise UsageError(f"There is no turn to interrupt: {what}", hint=f"orchard job {job_id} --plan {run.id}")
    await turn.interrupt()  # others may ask meanwhile: a program may take its time to end
    return {"job": job_id, "worker": worker_state(run, job_id)}


async def complete(desk: Desk, plan: str, job: str) -> Json:
    """Say that the work of an idle agent is done: it is committed, checked and merged like any other."""
    async with desk.deciding(plan) as run:
        job_id = desk.known(run, job)
        record = _worker(run, job_id)
        if not _is_idle(record):
            at_work = worker_state(run, job_id) == "running"
            raise UsageError(
                f"Only the work of an idle agent can be completed: {_what_it_does(run, job_id)}",
                hint=f"orchard interrupt {job_id} --plan {run.id}"
                if at_work
                else f"orchard job {job_id} --plan {run.id}",
            )
        completed = WorkerCompleted(job_id, record.number)
        desk.engine.record_together(run.id, completed, HoldReleased(job_id), listed=True)
        return {"job": job_id, "worker": worker_state(run, job_id)}


def _worker(run: Run, job_id: JobId) -> JobRecord:
    """What is known of a job that an agent works on."""
    if job_id == VALIDATION or not isinstance(run.job(job_id).work, AgentWork):
        raise UsageError(f"Job '{job_id}' is not the work of an agent, so there is nobody to talk to.")
    return run.records[job_id]


async def _refuse_if_its_agent_is_gone(desk: Desk, run: Run, job_id: JobId) -> None:
    """A message releases an idle worker: one whose agent is no longer there would fail instead of hearing it."""
    work, world = run.job(job_id).work, desk.engine.world
    if isinstance(work, AgentWork) and _is_idle(run.records[job_id]):
        await world.in_thread(world.agents.find, work.agent)


def _is_idle(record: JobRecord) -> bool:
    return record.hold is not None and record.hold.kind == WORKER


def _listens(record: JobRecord) -> bool:
    """Whether a turn of the agent is still to end, or to begin, in the attempt that is under way."""
    if record.state is JobState.RUNNING:
        return record.last is not None and not at_or_after(record.last.where, Phase.COMMIT)
    tried = record.continues or (bool(record.attempts) and not record.dead)
    under_way = record.state is JobState.SCHEDULED or (record.state is JobState.PENDING and tried)
    return under_way and not at_or_after(record.resume_from or Phase.MERGE_FI, Phase.COMMIT)


def _what_it_does(run: Run, job_id: JobId) -> str:
    """Why an agent cannot be talked to now, as a clause."""
    record, state = run.records[job_id], worker_state(run, job_id)
    if state == "idle":
        return f"the agent of job '{job_id}' is idle already."
    if record.state is JobState.RUNNING and state == "completed":
        return f"the agent of job '{job_id}' has done its work, and the job is at {record.last and record.last.where}."
    if state == "running":
        return f"the agent of job '{job_id}' is at work."
    if state == "paused":
        return f"job '{job_id}' has begun and waits to go on."
    return f"job '{job_id}' is {record.status}."


def _check_message(message: object) -> None:
    if not isinstance(message, str) or not message.strip():
        raise UsageError("A message needs a text.")
    if "\0" in message:
        raise UsageError("A message cannot hold a NUL character.")
    if len(message.encode(errors="replace")) > MESSAGE_BYTES:
        raise UsageError(
            f"A message holds at most {MESSAGE_BYTES // 1024} KiB.",
            hint="Put long text into a file of the repository and name that.",
        )


def refuse_interactive(who: str, works: Iterable[Work]) -> None:
    """Refuse works that nobody can talk to: what is not the job's own work decides by itself."""
    if any(isinstance(work, AgentWork) and work.interactive for work in works):
        raise UsageError(
            f"{who} has a check or a setup that is interactive; only the work of a job can be.",
            hint="Remove 'interactive' there.",
        )


VERBS = {"deploy": deploy, "send": send, "interrupt": interrupt, "complete": complete}
