"""Answers to agents that want to use a tool which needs a person's word."""

from typing import Annotated

from orchard.core.run import Run
from orchard.errors import Next, UsageError
from orchard.model.events.plans import CallAnswered, CallAsked, Json
from orchard.model.plan import JobId
from orchard.operations.command import Command, Decision, Scene
from orchard.operations.commands.plans import PLAN, job_of
from orchard.operations.operation import DoneJob, OfJob, Route, Tool, Verb, says

JOB = f"{PLAN}/jobs/{{job}}"
REASON = 1000


class OfCall(OfJob, frozen=True, kw_only=True):
    question: Annotated[int | None, says("The number of the question (default: the only one).", ge=1)] = None


class AllowCall(OfCall, frozen=True, kw_only=True):
    always: Annotated[bool, says("Allow this tool until the attempt ends, and do not ask again.")] = False


class DenyCall(OfCall, frozen=True, kw_only=True):
    reason: Annotated[str, says("Why; the agent is told.", max_length=REASON)] = ""


class Answered(DoneJob, frozen=True, kw_only=True):
    """The agent has its answer."""

    question: int
    tool: str
    about: str
    input: str
    """What it is called with, whole."""


def open_call(run: Run, job: JobId, number: int | None) -> CallAsked:
    """The question that is meant; UsageError where there is none, or several."""
    found = {one.number: one for one, _ in run.records[job].questions}
    if number is not None and number in found:
        return found[number]
    if not found:
        raise UsageError(f"No agent of job '{job}' waits for an answer about a call.", hint=Next("list_waiting"))
    listed = "; ".join(f"{one.number}: {one.call}" for one in found.values())
    if number is not None:
        raise UsageError(f"Job '{job}' has no open question {number}. It asks about: {listed}")
    if len(found) > 1:
        raise UsageError(f"Job '{job}' asks about {len(found)} calls: {listed}", hint="Say which by its number.")
    return next(iter(found.values()))


def _refuse(run: Run, job: str) -> None:
    if not run.records[JobId(job)].questions:
        open_call(run, JobId(job), None)


def _decide_allow(run: Run, args: AllowCall, _: object, scene: Scene) -> Decision:
    job = job_of(run, args.job)
    return _decided(job, open_call(run, job, args.question), allowed=True, always=args.always)


def _decide_deny(run: Run, args: DenyCall, _: object, scene: Scene) -> Decision:
    job = job_of(run, args.job)
    why = " ".join(args.reason.split())
    return _decided(job, open_call(run, job, args.question), allowed=False, why=why)


def _decided(job: JobId, call: CallAsked, *, allowed: bool, why: str = "", always: bool = False) -> Decision:
    where = (job, call.attempt, call.number)
    answered = CallAnswered(*where, allowed=allowed, why=why, always=always, subtask=call.subtask)
    told = {"question": call.number, "tool": call.tool, "about": call.about, "input": call.input}
    return Decision([answered], {"job": job, **told})


async def _tell(scene: Scene, run: Run, args: OfCall, decided: Decision) -> Json:
    """Let the turn go on that waits; the answer is recorded by now."""
    (answered,) = decided.events
    assert isinstance(answered, CallAnswered)
    waits = scene.engine.questions.get((run.id, answered.job, answered.number))
    if waits is not None and not waits.done():
        waits.set_result(answered)
    return decided.answer


allow_call = Command(
    name="allow_call",
    sentence="Let an agent make the call that it asks about.",
    details="Look at what it would do first: list_waiting shows it. A person may be asked first.",
    args=AllowCall,
    answer=Answered,
    example={"plan": "add-login", "job": "api", "question": 1},
    route=Route("POST", f"{JOB}/allow"),
    tool=Tool("workers", "Allow a call", asks=True),
    verb=Verb("allow"),
    next=("wait_plan",),
    refuses=_refuse,
    decide=_decide_allow,
    perform=_tell,
)

deny_call = Command(
    name="deny_call",
    sentence="Refuse the call that an agent asks about; the agent goes on without it.",
    args=DenyCall,
    answer=Answered,
    example={"plan": "add-login", "job": "api", "question": 1, "reason": "use the test database"},
    route=Route("POST", f"{JOB}/deny"),
    tool=Tool("workers", "Deny a call"),
    verb=Verb("deny"),
    next=("wait_plan", "send_message"),
    refuses=_refuse,
    decide=_decide_deny,
    perform=_tell,
)

OPERATIONS = (allow_call, deny_call)
