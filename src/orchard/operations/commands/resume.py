"""The command that lets a paused or interrupted plan go on, with what was interrupted if that is asked for."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Struct

from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.errors import Next, UsageError
from orchard.model.events.plans import Event, HoldReleased, JobRetried, Json, PlanResumed
from orchard.model.plan import JobId
from orchard.model.statuses import PlanStatus
from orchard.operations.arguments import check_budget
from orchard.operations.command import Command, Decision, Scene
from orchard.operations.commands.plans import PLAN, is_alone, new_warnings
from orchard.operations.commands.retry import edits_of, placed
from orchard.operations.operation import Done, Fit, OfPlan, Route, Tool, Verb, says
from orchard.operations.preparation import fetched


class ResumePlan(OfPlan, frozen=True, kw_only=True):
    budget: Annotated[
        dict[str, Any] | None, says("What it may use from now on, where its budget is used up.", form="budget")
    ] = None
    again: Annotated[bool | None, says("Run again what a crash cut off.")] = None


class _Fetched(Struct, frozen=True):
    """What a fresh look at the remotes came to, and the pause that was to end."""

    paused: object | None
    edited: Mapping[tuple[JobId, int], bool]
    warning: str | None = None


async def _prepare_resume(scene: Scene, run: Run, args: ResumePlan) -> _Fetched:
    check_budget(args.budget)
    _refuse_resume(run, args.budget, scene)
    paused = run.paused
    edited = await edits_of(scene, run, _interrupted(run) if args.again else [])
    return _Fetched(paused, edited, await fetched(scene.engine.world) if paused is not None else None)


def _decide_resume(run: Run, args: ResumePlan, ready: _Fetched, scene: Scene) -> Decision:
    _refuse_resume(run, args.budget if run.paused is not ready.paused else None, scene)
    if run.paused is not ready.paused and run.paused is not None:
        raise UsageError(
            f"Plan '{run.id}' was paused again while it was about to go on: {run.paused.reason}.",
            hint=Next("resume_plan", run.id),
        )
    events: list[Event] = [] if ready.warning is None else new_warnings(run, ready.warning)
    if run.paused is not None:
        events.append(PlanResumed(args.budget, is_alone(run, scene)))
    held = {job: record.hold for job, record in run.records.items() if record.hold is not None}
    again = [placed(run, JobRetried(job), ready.edited) for job in (_interrupted(run) if args.again else [])]
    released = [HoldReleased(job) for job, hold in held.items() if hold.kind == "budget"]
    return Decision([*events, *released, *again])


def _interrupted(run: Run) -> list[JobId]:
    """The jobs whose programs were cut off when their engine died, and that have not been tried again."""
    return [
        job
        for job, record in run.records.items()
        if record.state is JobState.FAILED and record.failure is not None and record.failure.reason == "interrupted"
    ]


def _refuse_resume(run: Run, budget: Json | None, scene: Scene) -> None:
    if run.scaffolding:
        raise UsageError(f"Plan '{run.id}' is still being scaffolded.", hint=Next("finalize_plan", run.id))
    if run.deleted:
        raise UsageError(f"Plan '{run.id}' was deleted.", hint=Next("list_saved_work", run.id))
    # What this engine found interrupted goes on by itself, and may be over before anybody asks for that.
    if run.settled and (run.canceled is not None or run.id not in scene.engine.found):
        raise UsageError(f"Plan '{run.id}' is {run.status} and cannot be resumed.", hint=instead_of_resume(run))
    if run.paused is None and budget is not None:
        raise UsageError(f"Plan '{run.id}' is {run.status}: it does not wait for a budget.")


def instead_of_resume(run: Run) -> Next:
    """What takes a plan further that is over."""
    return Next("get_plan" if run.status is PlanStatus.SUCCEEDED else "retry_plan", run.id)


resume_plan = Command(
    name="resume_plan",
    sentence="Continue a paused or interrupted plan.",
    details="One whose budget is used up needs a new `budget`.",
    args=ResumePlan,
    answer=Done,
    example={"plan": "add-login", "budget": {"tokens": 500000}},
    route=Route("POST", f"{PLAN}/resume"),
    tool=Tool("core", "Resume a plan"),
    verb=Verb("resume", follows=True),
    next=("wait_plan",),
    fit=Fit(  # one that is under way may have an engine that is about to end
        lambda plan: any(step.operation == "resume_plan" for step in plan.next),
        "is paused or interrupted",
        already=lambda plan: plan.status in (PlanStatus.RUNNING, PlanStatus.PENDING),
    ),
    repeatable=True,
    prepare=_prepare_resume,
    decide=_decide_resume,
    sets_wall=True,
    lets_go_on=True,
)
