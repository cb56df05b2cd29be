"""Commands about whole plans: making them, letting them go on, and stopping them."""

from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from orchard.config.layers import Config
from orchard.config.places import missing_places
from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.core.views.documents import PlanSummary
from orchard.engine.engine import Stop
from orchard.engine.machine.reach import reach_warnings
from orchard.errors import Next, UsageError
from orchard.model.events.plans import (
    Event,
    JobCanceled,
    Json,
    PlanCanceled,
    PlanFinalized,
    PlanPaused,
    PlanResumed,
    PlanSubmitted,
    Warned,
)
from orchard.model.plan import JobId, Plan
from orchard.model.plan_codec import plan_json
from orchard.model.statuses import OVER, PlanStatus
from orchard.operations.arguments import plan_of
from orchard.operations.command import Command, Decision, Scene
from orchard.operations.idempotency import KEY_LENGTH, KEY_PATTERN, remembered_key
from orchard.operations.operation import Args, Done, Fit, OfPlan, Operation, Route, Tool, Verb, says
from orchard.operations.preparation import (
    agent_warnings,
    check_agents,
    check_place,
    proposal_warnings,
    settings_warnings,
)
from orchard.planfile.works import named

PLAN = "/plans/{plan}"
BY_USER = "paused by the user"
REASON = "Why; it is kept with the plan."


def is_open(plan: PlanSummary) -> bool:
    return plan.status not in OVER


class OfPlanWithReason(OfPlan, frozen=True, kw_only=True):
    reason: Annotated[str, says(REASON, max_length=2000)] = ""


# ----------------------------------------------------------------------------------------------- making


Key = Annotated[
    str | None,
    says(
        "A key of your choice: a second request with the same key creates no second plan.",
        also=("key",),
        min_length=1,
        max_length=KEY_LENGTH,
        pattern=KEY_PATTERN,
    ),
]


class CreatePlan(Args, frozen=True, kw_only=True):
    plan: Annotated[dict[str, Any], says("The plan, as in a plan file.", form="plan")]
    file: Annotated[
        str | None,
        says(
            "The file that it comes from.",
            absent={"route": "A request comes from no file.", "tool": "A call comes from no file."},
        ),
    ] = None
    scaffolding: Annotated[
        bool,
        says(
            "Whether it is still being built: nothing starts before it is finalized, and it may be empty.",
            absent={"tool": "`scaffold_plan` does it.", "verb": "A plan file is complete."},
        ),
    ] = False
    idempotency_key: Key = None


class Made(Struct, frozen=True):
    """A plan that was accepted."""

    plan: str
    known: Annotated[bool, says("Whether the same request had made it before.")]
    notes: list[str]


class _Asked(Struct, frozen=True):
    """A plan that can be made."""

    plan: Plan
    key: Json | None
    warnings: list[str]


async def _prepare_creation(scene: Scene, _: Run, args: CreatePlan) -> _Asked | None:
    key = remembered_key(args.plan, args.idempotency_key, scaffolding=args.scaffolding)
    if key is not None and scene.plan_with(key) is not None:
        return None
    world = scene.engine.world
    asked = _with_defaults(world.config, plan_of(args.plan))
    await check_agents(world, asked)
    await check_place(world, asked)
    reach = await world.in_thread(reach_warnings, world.repo, asked, named(asked))
    settings = await settings_warnings(world)
    proposed = await proposal_warnings(world, asked)
    told = [*settings, *missing_places(world.config.sandbox), *reach, *proposed]
    return _Asked(asked, key, [*told, *await agent_warnings(world, asked)])


def _with_defaults(config: Config, plan: Plan) -> Plan:
    """The plan with what it leaves to the configuration filled in: it stays as it was submitted."""
    limit = plan.max_parallel if plan.max_parallel is not None else config.max_parallel
    return replace(plan, max_parallel=limit, resolver=plan.resolver or config.resolver)


def _decide_creation(_: Run, args: CreatePlan, ready: _Asked | None, scene: Scene) -> Decision:
    # Another client may have asked for the same with the same key meanwhile.
    key = remembered_key(args.plan, args.idempotency_key, scaffolding=args.scaffolding)
    if key is not None and (known := scene.plan_with(key)) is not None:
        return Decision(answer={"plan": known, "notes": [], "known": True})
    assert ready is not None, "a key is never forgotten"
    plan = replace(ready.plan, after=scene.first(ready.plan))
    made = scene.new_id(plan.name)
    submitted = PlanSubmitted(plan_json(plan), args.scaffolding, args.file, ready.key)
    notes = [*scene.engine.notes, *ready.warnings]
    return Decision([submitted], {"plan": made, "notes": notes, "known": False}, creates=made)


create_plan = Command(
    name="create_plan",
    sentence="Create a plan and start it.",
    details="It begins at once, unless it says `start_paused` or is being scaffolded. All that is wrong with it is "
    "told at once, with its line; then nothing is made.",
    args=CreatePlan,
    answer=Made,
    example={"plan": {"name": "Add login", "jobs": [{"id": "api", "work": "make api"}]}},
    route=Route(
        "POST",
        "/plans",
        id="submitPlan",
        query=frozenset({"scaffolding"}),
        headers={"idempotency_key": "Idempotency-Key"},
        status=201,
    ),
    tool=Tool(
        "core",
        "Create a plan",
        details="Jobs run in parallel, each in its own git worktree, after the jobs they need; their work is merged, "
        "checked by `verify` and landed on `target`. The user's checkout is not touched.\n"
        "An agent's job must change files, unless it has `changes: optional`. Do not commit: Orchard does. Put "
        "detailed tasks into work.instructions; `name` and `task` are for people. For many jobs use "
        "scaffold_plan, add_job, finalize_plan. Everything about fields: resource orchard://help/planning.",
        example={
            "name": "Add login",
            "target": "feature/login",
            "verify": "make test",
            "jobs": [
                {"id": "models", "work": "@agent Add a User model with a hashed password"},
                {
                    "id": "api",
                    "needs": ["models"],
                    "work": {"instructions": "# Login\nPOST /login ..."},
                    "postchecks": "pytest -q tests/api",
                },
                {"id": "docs", "needs": ["models"], "work": "python tools/gen_docs.py"},
            ],
        },
    ),
    verb=Verb("run"),
    next=("wait_plan",),
    prepare=_prepare_creation,
    decide=_decide_creation,
)


class ClonePlan(OfPlan, frozen=True, kw_only=True):
    fields: Annotated[
        dict[str, Any] | None,
        says(
            "What is different in the copy; everything else, and every job, is the same.",
            form="plan_clone",
            absent={"verb": "Options name the usual ones; the rest is changed in the file that it prints."},
        ),
    ] = None
    scaffolding: Annotated[
        bool,
        says(
            "Whether it waits to be finalized, so that it can be changed first.",
            also=("scaffold",),
            absent={"verb": "The file that it prints can be changed first."},
        ),
    ] = False
    idempotency_key: Key = None


clone_plan = Operation(
    name="clone_plan",
    sentence="Submit the same plan again, with other fields if wanted.",
    args=ClonePlan,
    answer=Made,
    example={"plan": "add-login", "fields": {"target": "feature/login-2"}},
    route=Route(
        "POST",
        f"{PLAN}/clone",
        query=frozenset({"scaffolding"}),
        headers={"idempotency_key": "Idempotency-Key"},
        status=201,
    ),
    tool=Tool(
        "plans",
        "Clone a plan",
        details="The new plan waits for finalize_plan, unless `scaffolding` is false.",
        example={"plan": "add-login", "target": "feature/login-2"},
        defaults={"scaffolding": True},
    ),
    verb=Verb("clone"),
    next=("update_job", "reshape_plan", "finalize_plan"),
)


class FinalizePlan(OfPlan, frozen=True, kw_only=True):
    start_paused: Annotated[
        bool | None, says("Whether it waits to be resumed before it starts (default: what the plan says).")
    ] = None


def _decide_finalization(run: Run, args: FinalizePlan, _: object, scene: Scene) -> Decision:
    if not run.scaffolding:
        raise UsageError(f"Plan '{run.id}' is not being scaffolded.")
    if len(run.plan.jobs) == 1:
        raise UsageError(f"Plan '{run.id}' has no job yet.", hint="Add one first.")
    # Both are recorded together, so no job starts in between.
    if args.start_paused and run.paused is None:
        return Decision([PlanPaused(BY_USER), PlanFinalized()])
    if args.start_paused is False and run.paused is not None:
        return Decision([PlanFinalized(), PlanResumed(None, is_alone(run, scene))])
    return Decision([PlanFinalized()])


finalize_plan = Command(
    name="finalize_plan",
    sentence="Declare a scaffolded plan complete: it starts.",
    args=FinalizePlan,
    answer=Done,
    example={"plan": "add-login"},
    route=Route("POST", f"{PLAN}/finalize"),
    tool=Tool("core", "Finalize a plan"),
    verb=Verb("finalize", follows=True),
    next=("wait_plan",),
    fit=Fit(lambda plan: plan.status == "scaffolding", "is being scaffolded"),
    decide=_decide_finalization,
    sets_wall=True,
)


# --------------------------------------------------------------------------------------------- going on


def _decide_pause(run: Run, args: OfPlan, _: object, scene: Scene) -> Decision:
    refuse_if_over(run, "paused")
    if run.paused is not None and not scene.resuming(run.id):
        return Decision()
    return Decision([PlanPaused(BY_USER)])


pause_plan = Command(
    name="pause_plan",
    sentence="Pause a plan: running jobs finish, no new job starts.",
    args=OfPlan,
    answer=Done,
    example={"plan": "add-login"},
    route=Route("POST", f"{PLAN}/pause"),
    tool=Tool("core", "Pause a plan"),
    verb=Verb("pause"),
    next=("resume_plan",),
    fit=Fit(lambda plan: is_open(plan) and plan.status != "paused", "is under way", already=is_open),
    repeatable=True,
    decide=_decide_pause,
)


def is_alone(run: Run, scene: Scene) -> bool:
    """Whether the plan begins without the one that it was to follow."""
    return run.started is None and scene.engine.chain.is_lost(scene.engine.runs, run)


def new_warnings(run: Run, message: str) -> list[Event]:
    """A warning, unless the plan has it."""
    warned = Warned(message, None)
    return [] if warned in run.warnings else [warned]


# --------------------------------------------------------------------------------------------- stopping


def _decide_cancel(run: Run, args: OfPlanWithReason, _: object, scene: Scene) -> Decision:
    if run.status in (PlanStatus.SUCCEEDED, PlanStatus.CANCELED):
        raise UsageError(f"Plan '{run.id}' is {run.status} already; there is nothing to cancel.")
    refuse_if_landed(run)
    return stopping(run, args.reason or "canceled by the user")


def stopping(run: Run, why: str) -> Decision:
    """The end of everything of a plan that has not ended."""
    events: list[Event] = []
    if run.canceled is None:
        pending = [job for job, record in run.records.items() if record.state is JobState.PENDING]
        events = [PlanCanceled(why), *(JobCanceled(job, why) for job in pending)]
    return Decision(events, listed=len(events) > 1, stops=(Stop("cancel", why), list(run.active)))


def _finish_cancel(run: Run, args: OfPlanWithReason, _: Decision) -> Json:
    refuse_if_landed(run)
    return {}


cancel_plan = Command(
    name="cancel_plan",
    sentence="Stop everything of a plan; its worktrees are kept.",
    details="A retry goes on with it.",
    args=OfPlanWithReason,
    answer=Done,
    example={"plan": "add-login", "reason": "wrong approach"},
    route=Route("POST", f"{PLAN}/cancel"),
    tool=Tool("core", "Cancel a plan"),
    verb=Verb("cancel"),
    next=("retry_plan", "delete_plan"),
    whole_names=True,
    fit=Fit(is_open, "is under way"),
    destructive=True,
    decide=_decide_cancel,
    finish=_finish_cancel,
)


# ---------------------------------------------------------------------------------------------- refusals


def refuse_if_over(run: Run, what: str) -> None:
    """Refuse what cannot be done to a plan that is over."""
    if run.settled:
        raise UsageError(f"Plan '{run.id}' is {run.status} and cannot be {what}.")


def refuse_if_landed(run: Run) -> None:
    """Stopping what has landed would be half an undo."""
    if run.landed is not None and run.undone is None:
        raise UsageError(
            f"Plan '{run.id}' has landed on '{run.landed.branch}' already.", hint=Next("undo_plan", run.id)
        )


def worker_of(run: Run, name: str) -> tuple[JobId, str | None]:
    """The job, or the subtask of it, of this whole name."""
    from orchard.core.job_names import find_worker

    return find_worker(run.id, run.plan.jobs, run.records, name, exact=True)


def job_of(run: Run, job: str) -> JobId:
    """The job of this whole name."""
    from orchard.core.job_names import find_job

    return find_job(run.id, run.plan.jobs, job, exact=True)
