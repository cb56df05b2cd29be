"""Commands for talking with the agents that work on jobs and on subtasks.

    send        a message: the next turn of an idle agent, or of one at work when its turn has ended
    interrupt   end the present turn; the agent is idle then, or goes on with what was sent to it
    pause       end the present turn, and let whatever is sent wait until the agent is resumed
    resume      let it go on in its session

An agent that is idle is a job that is held (see `idling`), so whoever says something releases it. All of it can be
about a subtask as well (`JOB/subtask-xxxxx`): what that means is in `subtask_commands`. Saying that work is done is in
`completion`.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Annotated, Any

from msgspec import Struct

from orchard.agents.definitions.choice import choose
from orchard.core.records import JobRecord
from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.core.views.workers import subtask_state, worker_state
from orchard.engine.interruption import Interruptible
from orchard.engine.turns.idle import WORKER
from orchard.engine.turns.subtask import Order
from orchard.errors import Next, UsageError
from orchard.model.events.plans import Event, HoldReleased, Json, MessageSent, WorkerIdle
from orchard.model.phases import Phase, at_or_after
from orchard.model.plan import VALIDATION, AgentWork, JobId
from orchard.operations.command import Command, Decision, Outdated, Scene
from orchard.operations.commands import subtask_commands
from orchard.operations.commands.plans import PLAN, job_of, worker_of
from orchard.operations.operation import Absent, DoneJob, OfWorker, Operation, Route, Tool, Verb, says

MESSAGE_BYTES = 64 * 1024
QUEUED_MESSAGES = 100
JOB = f"{PLAN}/jobs/{{job}}"


class SendMessage(OfWorker, frozen=True, kw_only=True):
    message: Annotated[str, says("The text, in Markdown.", min_length=1, max_length=MESSAGE_BYTES)]


class Told(DoneJob, frozen=True, kw_only=True):
    """What a worker does now."""

    worker: str | None


class Sent(Told, frozen=True, kw_only=True):
    """A message that will be read."""

    number: int
    queued: bool


class Ready(Struct, frozen=True):
    """What was looked for before a worker is told something."""

    agent: bool = False
    """Whether the agent of an idle worker is still there: released without one it would fail instead of hearing."""
    order: Order | None = None
    """What a subtask that is at rest goes on with."""


async def look_for(scene: Scene, run: Run, args: OfWorker) -> Ready:
    job_id, subtask = worker_of(run, args.job)
    if isinstance(args, SendMessage):
        _check_message(args.message)
    if subtask is not None:
        one = run.records[job_id].subtasks[subtask]
        return Ready(order=await subtask_commands.prepare(scene.engine, run, job_id, one))
    record, work, world = _worker(run, job_id), run.job(job_id).work, scene.engine.world
    if not isinstance(work, AgentWork) or not is_idle(record):
        return Ready()
    described = partial(world.described_at, run.pinned.base_commit)
    await world.in_thread(choose, world.agents, work.agent, described, has_model=True)
    return Ready(agent=True)


async def look_for_nobody(scene: Scene, run: Run, args: OfWorker) -> Ready:
    """What ends a turn, or keeps one from beginning, needs no agent."""
    worker_of(run, args.job)
    return Ready()


def of_subtask(
    scene: Scene, run: Run, args: OfWorker, ready: Ready, action: subtask_commands.Action, message: str = ""
) -> Decision | None:
    """What is decided where a subtask is meant; None: it is about the job's own agent."""
    job_id, subtask = worker_of(run, args.job)
    if subtask is None:
        return None
    one = run.records[job_id].subtasks[subtask]
    if action in subtask_commands.GOES_ON and one.at_rest and ready.order is None:
        raise Outdated  # it fell idle meanwhile
    events = subtask_commands.decide(scene.engine, run, job_id, one, action, message, "person")
    number = {"number": len(one.messages) + 1, "queued": one.status != "idle"} if action == "send" else {}
    return Decision(events, {"job": args.job, **number})


def then(
    action: subtask_commands.Action, perform: Callable[[Scene, Run, OfWorker], Awaitable[None]] | None = None
) -> Callable[[Scene, Run, Any, Decision], Awaitable[Json]]:
    """What follows a decision about a worker: it is done, and how the worker stands is told."""

    async def after(scene: Scene, run: Run, args: OfWorker, decided: Decision) -> Json:
        job_id, subtask = worker_of(run, args.job)
        goes_on = action in subtask_commands.GOES_ON
        if subtask is None:
            if perform is not None:
                await perform(scene, run, args)
            released = any(isinstance(one, HoldReleased) for one in decided.events)
            # One that waits for a slot counts as paused; this one has just been told to go on.
            begins = goes_on and released and run.paused is None
            return {**decided.answer, "worker": "running" if begins else worker_state(run, job_id)}
        one = run.records[job_id].subtasks[subtask]
        order = await subtask_commands.prepare(scene.engine, run, job_id, one, again=True) if goes_on else None
        await subtask_commands.perform(scene.engine, run, job_id, one, action, order)
        resumed = goes_on and one.status == "waiting" and not decided.answer.get("queued")
        return {**decided.answer, "worker": "running" if resumed else subtask_state(one)}

    return after


def _decide_message(run: Run, args: SendMessage, ready: Ready, scene: Scene) -> Decision:
    if (decided := of_subtask(scene, run, args, ready, "send", args.message)) is not None:
        return decided
    job_id = job_of(run, args.job)
    record = _worker(run, job_id)
    idle = is_idle(record)
    if idle and not ready.agent:
        raise Outdated  # it fell idle meanwhile
    live = scene.engine.live.get((run.id, job_id))
    is_ending = _listens(record) and live is not None and not live.listens
    if not idle and (is_ending or not _listens(record)):
        why = f"the agent of job '{job_id}' has had its last turn." if is_ending else what_it_does(run, job_id)
        raise UsageError(
            f"Its agent would not hear it: {why}",
            hint=Next("resume_plan", run.id) if run.paused is not None else Next("get_job", run.id, job_id),
        )
    if len(record.queued) >= QUEUED_MESSAGES:
        raise UsageError(
            f"{QUEUED_MESSAGES} messages for job '{job_id}' wait already.",
            hint=("Let its agent read them first: ", Next("interrupt_worker", run.id, job_id)),
        )
    number, goes_on = len(record.messages) + 1, idle and not record.is_paused
    released: list[Event] = [HoldReleased(job_id)] if goes_on else []
    answer = {"job": job_id, "number": number, "queued": not goes_on}
    return Decision([MessageSent(job_id, number, args.message), *released], answer, listed=goes_on)


send_message = Command(
    name="send_message",
    sentence="Send a message to the agent of a job or of a subtask.",
    details="An idle one goes on at once, in its session; one at work is told when its turn ends, a paused one when it "
    "is resumed. A job that has not started, or whose work is done, hears nothing.",
    args=SendMessage,
    answer=Sent,
    example={"plan": "add-login", "job": "api", "message": "Use the other library."},
    route=Route("POST", f"{JOB}/send"),
    tool=Tool("workers", "Send a message"),
    verb=Verb("send", follows=True),
    next=("wait_plan",),
    of_subtasks=True,
    prepare=look_for,
    decide=_decide_message,
    adds_work=True,
    after=then("send"),
)


def _decide_interruption(run: Run, args: OfWorker, ready: Ready, scene: Scene) -> Decision:
    if (decided := of_subtask(scene, run, args, ready, "interrupt")) is not None:
        return decided
    job_id = job_of(run, args.job)
    _worker(run, job_id)
    if turn_of(scene, run, job_id) is None:
        what = what_it_does(run, job_id)
        raise UsageError(f"There is no turn to interrupt: {what}", hint=Next("get_job", run.id, job_id))
    return Decision(answer={"job": job_id})


def turn_of(scene: Scene, run: Run, job_id: JobId) -> Interruptible | None:
    live = scene.engine.live.get((run.id, job_id))
    return live.turn if live is not None else None


def ends_turn(why: str) -> Callable[[Scene, Run, OfWorker], Awaitable[None]]:
    async def end(scene: Scene, run: Run, args: OfWorker) -> None:
        turn = turn_of(scene, run, job_of(run, args.job))
        if turn is not None:
            await turn.interrupt(why)  # a program may take its time to end

    return end


interrupt_worker = Command(
    name="interrupt_worker",
    sentence="End the present turn of an agent; its session and its files are kept, and nothing has failed.",
    details="The agent is idle then; if messages were sent to it, it goes on with those.",
    args=OfWorker,
    answer=Told,
    example={"plan": "add-login", "job": "api"},
    route=Route("POST", f"{JOB}/interrupt"),
    tool=Tool("workers", "Interrupt a worker"),
    verb=Verb("interrupt"),
    next=("send_message", "complete_task"),
    of_subtasks=True,
    destructive=True,
    prepare=look_for_nobody,
    decide=_decide_interruption,
    after=then("interrupt", ends_turn("interrupted")),
)


def _decide_pause(run: Run, args: OfWorker, ready: Ready, scene: Scene) -> Decision:
    if (decided := of_subtask(scene, run, args, ready, "pause")) is not None:
        return decided
    job_id = job_of(run, args.job)
    record = _worker(run, job_id)
    if record.is_paused:
        raise UsageError(f"The agent of job '{job_id}' is paused already.", hint=Next("resume_worker", run.id, job_id))
    if is_idle(record):
        return Decision([WorkerIdle(job_id, record.number, "paused")], {"job": job_id}, listed=True)
    called_done = record.last is not None and record.last.completed is not None
    if turn_of(scene, run, job_id) is None or called_done:
        what = "it was just called done." if called_done else what_it_does(run, job_id)
        raise UsageError(f"There is no agent to pause: {what}", hint=Next("get_job", run.id, job_id))
    return Decision(answer={"job": job_id})


pause_worker = Command(
    name="pause_worker",
    sentence="End the present turn of an agent, and let everything that is sent to it wait until it is resumed.",
    details="Its session and its files are kept. It has no slot meanwhile. Subtasks that it handed out go on.",
    args=OfWorker,
    answer=Told,
    example={"plan": "add-login", "job": "api"},
    route=Route("POST", f"{JOB}/pause"),
    tool=Tool("workers", "Pause a worker"),
    verb=Absent("`pause` takes workers as well."),
    next=("resume_worker",),
    of_subtasks=True,
    prepare=look_for_nobody,
    decide=_decide_pause,
    after=then("pause", ends_turn("paused")),
)


def _decide_resumption(run: Run, args: OfWorker, ready: Ready, scene: Scene) -> Decision:
    if (decided := of_subtask(scene, run, args, ready, "resume")) is not None:
        return decided
    job_id = job_of(run, args.job)
    record = _worker(run, job_id)
    if not record.is_paused:
        raise UsageError(f"No agent is paused: {what_it_does(run, job_id)}", hint=Next("get_job", run.id, job_id))
    if not ready.agent:
        raise Outdated  # it was paused meanwhile
    return Decision([HoldReleased(job_id)], {"job": job_id}, listed=True)


resume_worker = Command(
    name="resume_worker",
    sentence="Let a paused agent go on in its session, with what was sent to it meanwhile.",
    args=OfWorker,
    answer=Told,
    example={"plan": "add-login", "job": "api"},
    route=Route("POST", f"{JOB}/resume"),
    tool=Tool("workers", "Resume a worker"),
    verb=Absent("`resume` takes workers as well."),
    next=("wait_plan",),
    of_subtasks=True,
    prepare=look_for,
    decide=_decide_resumption,
    adds_work=True,
    after=then("resume"),
)


def _worker(run: Run, job_id: JobId) -> JobRecord:
    """What is known of a job that an agent works on."""
    if job_id == VALIDATION or not isinstance(run.job(job_id).work, AgentWork):
        raise UsageError(f"Job '{job_id}' is not the work of an agent, so there is no agent to talk to.")
    return run.records[job_id]


def is_idle(record: JobRecord) -> bool:
    return record.hold is not None and record.hold.kind == WORKER


def _listens(record: JobRecord) -> bool:
    """Whether a turn of the agent is still to end, or to begin, in the attempt that is under way."""
    if record.state is JobState.RUNNING:
        last = record.last
        return last is not None and last.completed is None and not at_or_after(last.where, Phase.COMMIT)
    tried = record.continues or (bool(record.attempts) and not record.dead)
    under_way = record.state is JobState.SCHEDULED or (record.state is JobState.PENDING and tried)
    return under_way and not at_or_after(record.resume_from or Phase.MERGE_FI, Phase.COMMIT)


def what_it_does(run: Run, job_id: JobId) -> str:
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


OPERATIONS: tuple[Operation, ...] = (send_message, interrupt_worker, pause_worker, resume_worker)
