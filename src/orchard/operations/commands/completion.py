"""Saying that a task is done, and what it came to.

idle, paused     what lies in its folder is committed, checked and merged like any other work
running          the same, and the turn of its agent ends at once
not begun        it runs nothing, and hands on what it starts from; what it needs has to succeed all the same
failed           is retried from the commit instead: a failure is not taken back by a word
"""

from typing import Annotated

from orchard.core.records import Attempt, JobRecord
from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.engine.programs import redacted
from orchard.engine.turns.idle import WORKER
from orchard.errors import Next, UsageError
from orchard.model.events.plans import Event, HoldReleased, JobMarkedDone, PlanFinalized, WorkerCompleted
from orchard.model.phases import Phase, at_or_after
from orchard.model.plan import VALIDATION, AgentWork, JobId
from orchard.operations.command import Command, Decision, Scene
from orchard.operations.commands.conversation import (
    JOB,
    Ready,
    Told,
    ends_turn,
    look_for_nobody,
    of_subtask,
    then,
    turn_of,
    what_it_does,
)
from orchard.operations.commands.plans import job_of
from orchard.operations.operation import OfWorker, Route, Tool, Verb, says

RESULT = 16_000
"""Characters of a result."""


class CompleteTask(OfWorker, frozen=True, kw_only=True):
    result: Annotated[
        str, says("The result in words: kept, and told to people and to the agents of later jobs.", max_length=RESULT)
    ] = ""


def _decide_completion(run: Run, args: CompleteTask, ready: Ready, scene: Scene) -> Decision:
    said = args.result.strip()
    if len(said) > RESULT:
        raise UsageError(f"A result holds at most {RESULT} characters.", hint="Put a long text into a file of the job.")
    result = redacted(said, scene.engine.world.hidden_in, run) if said else ""
    if (decided := of_subtask(scene, run, args, ready, "complete", result)) is not None:
        return decided
    job_id = job_of(run, args.job)
    record = run.records[job_id]
    _refuse_if_ended(run, job_id, record)
    if run.deleted:
        raise UsageError(f"Plan '{run.id}' was deleted.", hint=Next("list_saved_work", run.id))
    if record.state is JobState.PENDING:
        events = _without_slot(run, job_id, record, result)
    else:
        events = [WorkerCompleted(job_id, _at_work(scene, run, job_id).number, result)]
    return Decision(events, {"job": job_id}, listed=True)


def _refuse_if_ended(run: Run, job_id: JobId, record: JobRecord) -> None:
    if job_id == VALIDATION:
        raise UsageError("The validation job is done when it has checked the result.", hint=Next("get_plan", run.id))
    if record.state in (JobState.FAILED, JobState.CANCELED):
        as_it_is = Next("retry_job", run.id, job_id, {"from_phase": "commit"})
        raise UsageError(
            f"It cannot be completed: job '{job_id}' is {record.status}.",
            hint=("Take what it left as done: ", as_it_is),
        )
    if record.state is JobState.SUCCEEDED or record.done is not None:
        raise UsageError(f"Job '{job_id}' is done already.", hint=Next("get_job", run.id, job_id))


def _without_slot(run: Run, job_id: JobId, record: JobRecord, result: str) -> list[Event]:
    """What happens to a job that waits in the middle of its work, or that nobody has begun."""
    hold = record.hold
    if hold is not None and hold.kind not in (WORKER, "budget"):
        raise UsageError(f"It cannot be completed: {hold.reason}", hint=Next("approve_job", run.id, job_id))
    if record.continues and at_or_after(record.resume_from or Phase.MERGE_FI, Phase.COMMIT):
        raise UsageError(f"It cannot be completed: {what_it_does(run, job_id)}", hint=Next("get_job", run.id, job_id))
    last = record.last
    if hold is not None or (record.continues and last is not None and last.turn_of(None) is not None):
        released: list[Event] = [HoldReleased(job_id)] if hold is not None else []
        return [WorkerCompleted(job_id, record.number, result), *released]
    final: list[Event] = [PlanFinalized()] if run.scaffolding and run.plan.deploy == "manual" else []
    return [*final, JobMarkedDone(job_id, result)]


def _at_work(scene: Scene, run: Run, job_id: JobId) -> Attempt:
    """The attempt whose agent is in a turn, or has its first one still to come."""
    record, said = run.records[job_id], "It cannot be completed now"
    last = record.last
    if not isinstance(run.job(job_id).work, AgentWork):
        raise UsageError(
            f"{said}: job '{job_id}' runs a program, and is done when that ends.",
            hint=("To stop it: ", Next("cancel_job", run.id, job_id)),
        )
    if record.state is not JobState.RUNNING or last is None or at_or_after(last.where, Phase.COMMIT):
        raise UsageError(f"{said}: {what_it_does(run, job_id)}", hint=Next("get_job", run.id, job_id))
    if last.completed is not None:
        raise UsageError(f"Job '{job_id}' is done already.", hint=Next("get_job", run.id, job_id))
    begun = any(turn.purpose == "work" and turn.subtask is None for turn in last.turns)
    if begun and last.entered and last.where is Phase.WORK and turn_of(scene, run, job_id) is None:
        raise UsageError(f"{said}: the turn of its agent ends just now.", hint="Ask again in a moment.")
    return last


complete_task = Command(
    name="complete_task",
    sentence="Say that a task is done, and what it came to.",
    details="What an agent did is committed, checked and merged; one at work ends its turn first. A task that has not "
    "begun runs nothing, and hands on what it starts from. A subtask ends, and the agent that asked for it can pull "
    "what it changed. A failed task is retried from `commit` instead.",
    args=CompleteTask,
    answer=Told,
    example={"plan": "add-login", "job": "api", "result": "Merged by hand"},
    route=Route("POST", f"{JOB}/complete", id="complete_worker"),
    tool=Tool("workers", "Complete a task"),
    verb=Verb("complete", follows=True),
    next=("wait_plan",),
    of_subtasks=True,
    prepare=look_for_nobody,
    decide=_decide_completion,
    after=then("complete", ends_turn("completed")),
)
