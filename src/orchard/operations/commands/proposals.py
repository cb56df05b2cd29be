"""The command that makes a pull request of a plan's result."""

from typing import Annotated

from msgspec import UNSET, UnsetType

from orchard.core.run import Run
from orchard.core.views.documents import PlanSummary
from orchard.engine import pull_requests as proposals
from orchard.errors import Next, OrchardError, UsageError
from orchard.model.events.plans import Event, HoldReleased, Json, PullRequestAsked
from orchard.model.plan import VALIDATION
from orchard.model.statuses import PlanStatus
from orchard.operations.command import Command, Decision, Scene
from orchard.operations.commands.plans import PLAN
from orchard.operations.operation import Done, Fit, OfPlan, Route, Tool, Verb, says

WAITS = ("landing", proposals.KIND)
"""The kinds of hold in which a validated result waits."""


class ProposePlan(OfPlan, frozen=True, kw_only=True):
    draft: Annotated[bool, says("Open it as a draft, so that the forge asks no reviewers yet.")] = False


class Proposed(Done, frozen=True, kw_only=True):
    """A pull request; of one that is only under way, nothing is known yet."""

    url: str | UnsetType = UNSET
    number: int | UnsetType = UNSET
    branch: Annotated[str | UnsetType, says("The branch of the remote that holds the result.")] = UNSET
    target: Annotated[str | UnsetType, says("The branch that it is to be merged into.")] = UNSET
    created: Annotated[bool | UnsetType, says("False: it was open before, and was updated.")] = UNSET


def _decide(run: Run, args: ProposePlan, _: object, scene: Scene) -> Decision:
    _refuse(run, "")
    if not _waits(run):
        return Decision()
    asked: list[Event] = [PullRequestAsked(draft=args.draft), HoldReleased(VALIDATION)]
    return Decision(asked)


async def _perform(scene: Scene, run: Run, args: ProposePlan, decided: Decision) -> Json:
    if decided.events:
        return {}  # it is under way: the result is validated once more where the target has moved
    made = await proposals.propose(scene.engine, run, lambda: proposals.of_result(run, draft=args.draft))
    if isinstance(made, OrchardError):
        raise made
    return {
        "url": made.url,
        "number": made.number,
        "branch": made.branch,
        "target": made.target,
        "created": made.created,
    }


def _waits(run: Run) -> bool:
    hold = run.records[VALIDATION].hold
    return hold is not None and hold.kind in WAITS


def _refuse(run: Run, _: str) -> None:
    if _waits(run):
        return
    if run.status is not PlanStatus.SUCCEEDED:
        raise UsageError(
            f"Plan '{run.id}' is {run.status}, so it has no validated result to propose.",
            hint=Next("get_plan", run.id),
        )
    proposals.of_result(run, draft=False)


def proposable(plan: PlanSummary) -> bool:
    if any(hold.kind in WAITS for hold in plan.waiting):
        return True
    if plan.status is not PlanStatus.SUCCEEDED or plan.undone or plan.result is None or plan.result.commit is None:
        return False
    return not plan.landed or plan.base.branch not in (None, plan.result.branch)


propose_plan = Command(
    name="propose_plan",
    sentence="Push a plan's result to a branch of a remote and open a pull request for it, or update the open one.",
    details="For a result that waits to land, that is on a branch of its own, or whose pull request is open. The token "
    "is the user's, from the engine's environment or from `gh` or `glab`.",
    args=ProposePlan,
    answer=Proposed,
    example={"plan": "add-login"},
    route=Route("POST", f"{PLAN}/pull-request"),
    tool=Tool("plans", "Open a pull request", asks=True),
    verb=Verb("pr", follows=True),
    next=("wait_plan", "get_plan"),
    whole_names=True,
    fit=Fit(proposable, "has a result for a pull request"),
    refuses=_refuse,
    repeatable=True,
    decide=_decide,
    perform=_perform,
)
