"""Commands about workers: deploying jobs by hand, and talking with the agents that work on jobs.

    deploy      let jobs of a plan run that says `deploy: manual`
    send        a message: the next turn of an idle agent, or of one at work when its turn has ended
    interrupt   end the present turn; the agent is idle then, or goes on with what was sent to it
    complete    the work of an idle agent is done, and the attempt goes on with the commit

An agent that is idle is a job that is held (see `idling`), so whoever says something releases it.
"""

from functools import partial
from typing import Annotated, Literal

from orchard.agents.choice import choose
from orchard.core.records import JobRecord
from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.core.views.workers import STATES, worker_state
from orchard.engine.interruption import Interruptible
from orchard.engine.turns.idle import WORKER
from orchard.errors import Next, UsageError
from orchard.model.events.plans import (
    Event,
    HoldReleased,
    JobDeployed,
    Json,
    MessageSent,
    PlanFinalized,
    WorkerCompleted,
)
from orchard.model.phases import Phase, at_or_after
from orchard.model.plan import VALIDATION, AgentWork, JobId
from orchard.operations.command import Command, Decision, Outdated, Scene
from orchard.operations.operation import (
    Absent,
    Alias,
    Args,
    DoneJob,
    DoneJobs,
    Fit,
    OfJob,
    OfPlan,
    Operation,
    Route,
    Tool,
    Verb,
    of_one_job,
    says,
)
from orchard.operations.plans import PLAN, job_of, refuse_if_over

MESSAGE_BYTES = 64 * 1024
QUEUED_MESSAGES = 100
JOB = f"{PLAN}/jobs/{{job}}"

# --------------------------------------------------------------------------------------- looking

WorkerState = Literal["created", "running", "idle", "paused", "completed", "error"]
assert set(WorkerState.__args__) == set(STATES)  # type: ignore[attr-defined]


class ListWorkers(Args, frozen=True, kw_only=True):
    plan: Annotated[str | None, says("Only those of this plan. Left out: of every plan that is not over.")] = None
    state: Annotated[WorkerState | None, says("Only workers in this state.")] = None


list_workers = Operation(
    name="list_workers",
    sentence="List the agents that work on jobs: created, running, idle, paused, completed, error.",
    details="The turn of an idle one is over; it waits for a message or for complete_task. Jobs that have not started "
    "have none.",
    args=ListWorkers,
    answer=None,
    example={"plan": "add-login", "state": "idle"},
    route=Absent("`get_plan` shows the worker of each job."),
    tool=Tool("workers", "List workers"),
    verb=Absent("`status` shows the worker of each job."),
    next=("send_message", "complete_task", "interrupt_worker"),
    repeatable=True,
    reads=True,
)

# ------------------------------------------------------------------------------------- deploying


class DeployJobs(OfPlan, frozen=True, kw_only=True):
    jobs: Annotated[list[str], says("These jobs.", form="jobs")]
    finalize: Annotated[bool, says("Whether a plan that is being scaffolded is finalized with it.")] = False


def _decide_deployment(run: Run, args: DeployJobs, _: object, scene: Scene) -> Decision:
    """Each job starts when what it needs has succeeded; those that were deployed before are left alone."""
    refuse_if_over(run, "deployed")
    if run.plan.deploy != "manual":
        raise UsageError(
            f"Plan '{run.id}' starts its jobs by itself; only one with 'deploy: manual' has jobs to deploy.",
            hint=Next("get_plan", run.id),
        )
    if run.scaffolding and not args.finalize:
        raise UsageError(f"Plan '{run.id}' is still being scaffolded.", hint=Next("finalize_plan", run.id))
    chosen = list(dict.fromkeys(job_of(run, job) for job in args.jobs))
    for job_id in chosen:
        _refuse_if_not_deployable(run, job_id)
    waiting = [job_id for job_id in chosen if run.records[job_id].undeployed]
    if not waiting:
        raise UsageError(
            "Every one of these jobs is deployed already." if chosen else "No job is named.",
            hint=Next("get_plan", run.id),
        )
    final: list[Event] = [PlanFinalized()] if run.scaffolding else []
    return Decision([*final, *(JobDeployed(job_id) for job_id in waiting)], {"jobs": waiting}, listed=True)


def _refuse_if_not_deployable(run: Run, job_id: JobId) -> None:
    state = run.records[job_id].state
    if job_id == VALIDATION:
        raise UsageError("The validation job starts by itself when all others have succeeded.")
    if state in (JobState.FAILED, JobState.CANCELED) and run.records[job_id].undeployed:
        raise UsageError(
            f"Job '{job_id}' is {state}; it has to be retried before it can be deployed.",
            hint=Next("retry_job", run.id, job_id),
        )


deploy_jobs = Command(
    name="deploy_jobs",
    sentence="Let jobs of a plan with `deploy: manual` run.",
    args=DeployJobs,
    answer=DoneJobs,
    example={"plan": "add-login", "jobs": ["api"]},
    route=Route("POST", f"{PLAN}/deploy"),
    tool=Absent("`deploy_task` does it for one of them."),
    verb=Verb("deploy", follows=True),
    next=("wait_plan",),
    fit=Fit(lambda plan: any(step.operation == "deploy_task" for step in plan.next), "waits to be deployed"),
    decide=_decide_deployment,
)

deploy_task = Alias(
    name="deploy_task",
    sentence="Let a task of a saved plan run.",
    details="It starts when the tasks it needs have succeeded; those have to be deployed as well. When all tasks of "
    "the plan have succeeded, the plan is checked and lands, so add tasks before you deploy the last one.",
    args=OfJob,
    answer=DoneJobs,
    example={"plan": "add-login", "job": "models"},
    route=Route("POST", f"{JOB}/deploy"),
    tool=Tool("workers", "Deploy a task"),
    verb=Absent("`deploy` takes jobs."),
    next=("wait_plan", "list_workers"),
    becomes=lambda args: ("deploy_jobs", {**of_one_job(args), "finalize": True}),
)

# --------------------------------------------------------------------------------------- talking


class SendMessage(OfJob, frozen=True, kw_only=True):
    message: Annotated[str, says("The text, in Markdown.", min_length=1, max_length=MESSAGE_BYTES)]


class Told(DoneJob, frozen=True, kw_only=True):
    """What a worker does now."""

    worker: str | None


class Sent(Told, frozen=True, kw_only=True):
    """A message that will be read."""

    number: int
    queued: bool


async def _prepare_message(scene: Scene, run: Run, args: SendMessage) -> bool:
    """Whether the agent of an idle worker is still there: released without one it would fail instead of hearing."""
    job_id = job_of(run, args.job)
    record, work, world = _worker(run, job_id), run.job(job_id).work, scene.engine.world
    _check_message(args.message)
    if not isinstance(work, AgentWork) or not _is_idle(record):
        return False
    described = partial(world.described_at, run.pinned.base_commit)
    await world.in_thread(choose, world.agents, work.agent, described, has_model=True)
    return True


def _decide_message(run: Run, args: SendMessage, looked: bool, scene: Scene) -> Decision:
    job_id = job_of(run, args.job)
    record = _worker(run, job_id)
    idle = _is_idle(record)
    if idle and not looked:
        raise Outdated  # it fell idle meanwhile
    if not idle and not _listens(record):
        raise UsageError(
            f"Nobody would hear it: {_what_it_does(run, job_id)}",
            hint=Next("resume_plan", run.id) if run.paused is not None else Next("get_job", run.id, job_id),
        )
    if len(record.queued) >= QUEUED_MESSAGES:
        raise UsageError(
            f"{QUEUED_MESSAGES} messages for job '{job_id}' wait already.",
            hint=("Let its agent read them first: ", Next("interrupt_worker", run.id, job_id)),
        )
    number = len(record.messages) + 1
    released: list[Event] = [HoldReleased(job_id)] if idle else []
    answer = {"job": job_id, "number": number, "queued": not idle}
    return Decision([MessageSent(job_id, number, args.message), *released], answer, listed=idle)


def _with_worker(run: Run, args: OfJob, decided: Decision) -> Json:
    return {**decided.answer, "worker": worker_state(run, decided.answer["job"])}


send_message = Command(
    name="send_message",
    sentence="Say something to the agent of a job.",
    details="An idle one goes on at once, in its session; one at work is told when its turn ends. A job that has not "
    "started, or whose work is done, hears nothing.",
    args=SendMessage,
    answer=Sent,
    example={"plan": "add-login", "job": "api", "message": "Use the other library."},
    route=Route("POST", f"{JOB}/send"),
    tool=Tool("workers", "Send a message"),
    verb=Verb("send", follows=True),
    next=("wait_plan",),
    prepare=_prepare_message,
    decide=_decide_message,
    finish=_with_worker,
)


def _decide_interruption(run: Run, args: OfJob, _: object, scene: Scene) -> Decision:
    job_id = job_of(run, args.job)
    _worker(run, job_id)
    if _turn(scene, run, job_id) is None:
        what = _what_it_does(run, job_id)
        raise UsageError(f"There is no turn to interrupt: {what}", hint=Next("get_job", run.id, job_id))
    return Decision(answer={"job": job_id})


def _turn(scene: Scene, run: Run, job_id: JobId) -> Interruptible | None:
    live = scene.engine.live.get((run.id, job_id))
    return live.turn if live is not None else None


async def _interrupt(scene: Scene, run: Run, args: OfJob, decided: Decision) -> Json:
    turn = _turn(scene, run, decided.answer["job"])
    if turn is not None:
        await turn.interrupt()  # a program may take its time to end
    return _with_worker(run, args, decided)


interrupt_worker = Command(
    name="interrupt_worker",
    sentence="End the present turn of a job's agent; its session and its files are kept, and nothing has failed.",
    details="The agent is idle then; if messages were sent to it, it goes on with those.",
    args=OfJob,
    answer=Told,
    example={"plan": "add-login", "job": "api"},
    route=Route("POST", f"{JOB}/interrupt"),
    tool=Tool("workers", "Interrupt a worker"),
    verb=Verb("interrupt"),
    next=("send_message", "complete_task"),
    destructive=True,
    decide=_decide_interruption,
    after=_interrupt,
)


def _decide_completion(run: Run, args: OfJob, _: object, scene: Scene) -> Decision:
    job_id = job_of(run, args.job)
    record = _worker(run, job_id)
    if not _is_idle(record):
        at_work = worker_state(run, job_id) == "running"
        raise UsageError(
            f"Only the work of an idle agent can be completed: {_what_it_does(run, job_id)}",
            hint=Next("interrupt_worker" if at_work else "get_job", run.id, job_id),
        )
    events = [WorkerCompleted(job_id, record.number), HoldReleased(job_id)]
    return Decision(events, {"job": job_id}, listed=True)


complete_task = Command(
    name="complete_task",
    sentence="Say that the work of an idle agent is done: it is committed, checked and merged like any other.",
    details="An agent at work has to end its turn first, or be interrupted.",
    args=OfJob,
    answer=Told,
    example={"plan": "add-login", "job": "api"},
    route=Route("POST", f"{JOB}/complete", id="complete_worker"),
    tool=Tool("workers", "Complete a task"),
    verb=Verb("complete", follows=True),
    next=("wait_plan",),
    decide=_decide_completion,
    finish=_with_worker,
)


def _worker(run: Run, job_id: JobId) -> JobRecord:
    """What is known of a job that an agent works on."""
    if job_id == VALIDATION or not isinstance(run.job(job_id).work, AgentWork):
        raise UsageError(f"Job '{job_id}' is not the work of an agent, so there is nobody to talk to.")
    return run.records[job_id]


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
