"""Commands that change the graph of a plan, or the branch that it lands on."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from orchard.core.run import Run
from orchard.core.states import ACTIVE, JobState
from orchard.core.views.documents import PlanSummary
from orchard.engine import landing
from orchard.engine.pull_requests import KIND
from orchard.errors import Next, UsageError
from orchard.git.repository import Repository
from orchard.model.events.plans import Event, HoldReleased, Json, PlanReshaped, PullRequestAsked
from orchard.model.plan import VALIDATION, Plan
from orchard.model.plan_codec import plan_json
from orchard.operations.command import Command, Decision, Outdated, Scene
from orchard.operations.commands.plans import PLAN
from orchard.operations.operation import Absent, Alias, Done, DoneJobs, Fit, OfJob, OfPlan, Route, Tool, Verb, says
from orchard.operations.preparation import check_agents, check_place
from orchard.planfile.reshape import reshape

WHERE_IT_STARTS = ("base", "target", "after", "worktree_root")

# ----------------------------------------------------------------------------------------------- the graph


class ReshapePlan(OfPlan, frozen=True, kw_only=True):
    changes: Annotated[list[Any], says("In this order: all of them are made, or none.", form="changes")]


class _Shaped(Struct, frozen=True):
    """The plan that was looked at, and whether it starts elsewhere with these changes."""

    seen: Plan
    moved: bool


async def _prepare_reshape(scene: Scene, run: Run, args: ReshapePlan) -> _Shaped:
    seen, shaped = run.plan, _shaped(run, args.changes)
    await check_agents(scene.engine.world, shaped, run)
    moved = any(getattr(shaped, name) != getattr(seen, name) for name in WHERE_IT_STARTS)
    if moved:
        await check_place(scene.engine.world, shaped)
    return _Shaped(seen, moved)


def _decide_reshape(run: Run, args: ReshapePlan, ready: _Shaped, scene: Scene) -> Decision:
    if run.plan is not ready.seen:
        raise Outdated  # another client changed it meanwhile: that stays
    shaped = _shaped(run, args.changes)  # a job may have started meanwhile
    if ready.moved:
        shaped = replace(shaped, after=scene.first(shaped, run.id))
    jobs = [job for job in shaped.jobs if job != VALIDATION]
    return Decision([PlanReshaped(tuple(args.changes), plan_json(shaped))], {"jobs": jobs})


def _shaped(run: Run, changes: list[Any]) -> Plan:
    """The plan as these changes would leave it; changes that are not allowed now are refused."""
    validation = run.records[VALIDATION].state
    if validation in ACTIVE or validation is JobState.SUCCEEDED or run.deleted or run.landed is not None:
        raise UsageError(f"Plan '{run.id}' is being landed or over; its graph can no longer be changed.")
    started = {job_id for job_id, record in run.records.items() if record.started and job_id != VALIDATION}
    return reshape(run.plan, started, changes, pinned=run.started is not None)


reshape_plan = Command(
    name="reshape_plan",
    sentence="Change the graph: jobs that have not started.",
    args=ReshapePlan,
    answer=DoneJobs,
    example={"plan": "add-login", "changes": [{"op": "remove", "id": "docs"}]},
    route=Route("POST", f"{PLAN}/reshape"),
    tool=Tool(
        "plans",
        "Change the graph",
        details="Only jobs that have not started, all changes or none. Ops: add, remove (what needed it then needs "
        "what it needed), set_needs, add_before, add_after, update, update_plan. Fields of jobs and plans are as in "
        "create_plan.",
        example={
            "plan": "add-login",
            "changes": [
                {
                    "op": "add_after",
                    "id": "api",
                    "job": {"id": "lint", "work": "ruff check", "changes": "forbidden"},
                },
                {"op": "remove", "id": "docs"},
            ],
        },
    ),
    verb=Verb("reshape"),
    next=("get_plan_graph", "wait_plan"),
    destructive=True,
    prepare=_prepare_reshape,
    decide=_decide_reshape,
    adds_work=True,
)


class UpdatePlan(OfPlan, frozen=True, kw_only=True):
    fields: Annotated[dict[str, Any], says("The fields that change, as in a plan file.", form="plan_update")]


update_plan = Alias(
    name="update_plan",
    sentence="Change fields of a plan.",
    details="At any time: `max_parallel env verify land push budget resolver cleanup network unprotected`; before it "
    "has started also `name base target setup submodules after worktree_root merge deploy sandbox`.",
    args=UpdatePlan,
    answer=DoneJobs,
    example={"plan": "add-login", "fields": {"verify": "make test", "max_parallel": 2}},
    route=Route("PATCH", PLAN),
    tool=Tool("plans", "Change a plan", example={"plan": "add-login", "verify": "make test", "max_parallel": 2}),
    verb=Absent("`reshape` takes fields of the plan as well."),
    next=("finalize_plan", "wait_plan"),
    repeatable=True,
    becomes=lambda args: ("reshape_plan", _as_change(args, "update_plan")),
    place="changes[0].set",
)


class UpdateJob(OfJob, frozen=True, kw_only=True):
    fields: Annotated[dict[str, Any], says("The fields that change; its `id` and `group` stay.", form="job_update")]


update_job = Alias(
    name="update_job",
    sentence="Change fields of a job that has not started.",
    args=UpdateJob,
    answer=DoneJobs,
    example={"plan": "add-login", "job": "api", "fields": {"timeout": "10m"}},
    route=Route("PATCH", f"{PLAN}/jobs/{{job}}"),
    tool=Tool(
        "jobs",
        "Change a job",
        details="Its fields are described in create_plan. For a job that failed use retry_job.",
        example={"plan": "add-login", "job": "api", "postchecks": "pytest -q", "timeout": "10m"},
    ),
    verb=Absent("`reshape` takes fields of jobs as well."),
    next=("finalize_plan", "wait_plan"),
    repeatable=True,
    becomes=lambda args: ("reshape_plan", _as_change(args, "update", id=args["job"])),
    place="changes[0].set",
)


def _as_change(args: dict[str, Any], op: str, **where: str) -> dict[str, Any]:
    return {"plan": args["plan"], "changes": [{"op": op, **where, "set": args["fields"]}]}


# ----------------------------------------------------------------------------------------------- the branch


class Moved(Done, frozen=True, kw_only=True):
    """A branch that was moved; of a landing that is only under way, nothing is known yet."""

    branch: str | UnsetType | None = UNSET
    commit: str | UnsetType | None = UNSET
    undone_before: Annotated[
        bool | UnsetType, says("Of an undo: it had been done before, and nothing was changed now.")
    ] = UNSET


def _decide_landing(run: Run, args: OfPlan, _: object, scene: Scene) -> Decision:
    hold = run.records[VALIDATION].hold
    instead: list[Event] = [PullRequestAsked(wanted=False)] if hold is not None and hold.kind == KIND else []
    return Decision([*instead, HoldReleased(VALIDATION)] if hold is not None else [])


async def _land(scene: Scene, run: Run, args: OfPlan, decided: Decision) -> Json:
    if decided.events or (run.records[VALIDATION].released is not None and not run.settled):
        return {}  # it is under way, for this client or for one before it
    landed = await landing.land_again(scene.engine, run)
    return {"branch": landed.branch, "commit": landed.new}


def _refuse_landing(run: Run, _: str) -> None:
    validation, landed = run.records[VALIDATION], run.landed
    if landed is None and validation.hold is None and validation.released is None:
        raise UsageError(f"Plan '{run.id}' has nothing to land.", hint=Next("get_plan", run.id))
    if landed is not None and not landed.found and run.undone is None and run.moving is None:
        raise UsageError(f"Plan '{run.id}' has landed on '{landed.branch}' already.", hint=Next("get_plan", run.id))
    if run.undone is not None and run.undone.revert:
        landing.refuse_reverted(run.id, run.undone)


def landable(plan: PlanSummary) -> bool:
    return any(hold.kind in ("landing", "rewritten") for hold in plan.waiting) or plan.landing


def _landable_by_name(plan: PlanSummary) -> str | None:
    if any(hold.kind == KIND for hold in plan.waiting):
        return "waits for its pull request; name it to land it here instead"
    return "was undone; name it to land it again" if plan.undone and not plan.reverted else None


land_plan = Command(
    name="land_plan",
    sentence="Land a result that waits, or whose landing was undone.",
    details="It waits with `land: ask`, where edits in the checkout were in the way, or for a pull request.",
    args=OfPlan,
    answer=Moved,
    example={"plan": "add-login"},
    route=Route("POST", f"{PLAN}/land"),
    tool=Tool("core", "Land a plan", asks=True),
    verb=Verb("land", asks=True, follows=True),
    next=("wait_plan", "undo_plan"),
    whole_names=True,
    fit=Fit(landable, "waits to be landed", by_name=_landable_by_name),
    refuses=_refuse_landing,
    destructive=True,
    decide=_decide_landing,
    perform=_land,
)


class UndoPlan(OfPlan, frozen=True, kw_only=True):
    revert: Annotated[
        bool,
        says("Add a commit that reverts the landing, also if the branch has moved on; its history keeps the landing."),
    ] = False


def _decide_nothing(run: Run, args: UndoPlan, _: object, scene: Scene) -> Decision:
    """Whether a landing can be taken back is seen while it is done, step by step, with the plan locked."""
    return Decision()


async def _undo(scene: Scene, run: Run, args: UndoPlan, _: Decision) -> Json:
    undone, now = await (landing.revert if args.revert else landing.undo)(scene.engine, run)
    return {"branch": undone.branch, "commit": undone.commit, **({} if now else {"undone_before": True})}


def _refuse_undo(run: Run, _: str) -> None:
    made = run.pull_request
    if run.landed is None and run.moving is None and made is not None:
        raise UsageError(
            f"Plan '{run.id}' has not landed here: its result is proposed by {made.url}, and no branch of yours moved.",
            hint=f"To take that back, close the pull request there and remove '{made.branch}' from the remote.",
        )
    if run.landed is None and run.moving is None:
        raise UsageError(f"Plan '{run.id}' has not landed, so there is nothing to undo.", hint=Next("get_plan", run.id))


def _refuse_moved(repo: Repository, run: Run, args: Mapping[str, Any]) -> None:
    if not args.get("revert"):
        landing.refuse_moved(repo, run)


undo_plan = Command(
    name="undo_plan",
    sentence="Take a landing back: the target branch goes to where it was, unless it has moved since.",
    details="Where it has, `revert` takes the landing back by a commit on top. A person may be asked first.",
    args=UndoPlan,
    answer=Moved,
    example={"plan": "add-login"},
    route=Route("POST", f"{PLAN}/undo"),
    tool=Tool("plans", "Undo a landing", asks=True),
    verb=Verb("undo", asks=True),
    next=("land_plan",),
    whole_names=True,
    fit=Fit(lambda plan: plan.landed, "has landed and is not undone", newest="Landed", deleted=None),
    refuses=_refuse_undo,
    refuses_here=_refuse_moved,
    destructive=True,
    decide=_decide_nothing,
    perform=_undo,
)
