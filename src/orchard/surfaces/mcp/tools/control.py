"""Tools that tell a plan to go on, to stop, to land, or to go away."""

from typing import Annotated, Any

from pydantic import Field, WithJsonSchema

from orchard.app import App
from orchard.core.views.documents import Waiting as NeedsPerson
from orchard.model.events.plans import Json
from orchard.model.plan import PlanId
from orchard.surfaces.mcp.messages import compact
from orchard.surfaces.mcp.schemas import plan_part
from orchard.surfaces.mcp.tool import Call, Output, Tool
from orchard.surfaces.mcp.tools.descriptions import WORDS
from orchard.surfaces.mcp.tools.models import Arguments, Done, Name, OfPlan, Reason, Told, optional
from orchard.surfaces.mcp.tools.names import ask, confirm, done, meant_plan
from orchard.surfaces.mcp.tools.retry import Retried, Retry, retry_request
from orchard.surfaces.mcp.tools.work_args import budget_of


async def pause_plan(call: Call, given: OfPlan) -> Json:
    """Let running jobs finish and start nothing new."""
    meant = await meant_plan(call, given.plan)
    await ask(call, "pause_plan", meant)
    return await done(call, meant)


class ResumePlan(OfPlan):
    """Which plan, and what it may use."""

    budget: Annotated[Any, WithJsonSchema(plan_part("Plan.budget"))] | None = optional("What it may use from now on.")


async def resume_plan(call: Call, given: ResumePlan) -> Json:
    """Let a paused plan go on."""
    meant = await meant_plan(call, given.plan)
    await ask(call, "resume_plan", meant, **compact({"budget": budget_of(given.budget)}))
    return await done(call, meant)


class CancelPlan(OfPlan):
    """Which plan, and why."""

    reason: Reason = Field(default="", description="Why, for those who read the plan later.")


async def cancel_plan(call: Call, given: CancelPlan) -> Json:
    """Stop everything of a plan."""
    meant = await meant_plan(call, given.plan, "cancel_plan")
    await ask(call, "cancel_plan", meant, reason=given.reason)
    return await done(call, meant)


class RetryPlan(OfPlan, Retry):
    """Which jobs of a plan to try again, and how."""

    jobs: Annotated[list[Name], Field(min_length=1)] | None = optional(
        "Jobs to retry. Left out: all that failed or were canceled."
    )


async def retry_plan(call: Call, given: RetryPlan) -> Json:
    """Put failed and canceled jobs back in the queue."""
    meant = await meant_plan(call, given.plan)
    return await retry_request(call, meant, given.jobs, given)


class DeletePlan(OfPlan):
    """Which plan, and how much of it."""

    purge: bool = Field(
        default=False, description="Also remove its commits, saved work and logs: this cannot be undone."
    )


class Deleted(Told):
    """What is left of it."""

    plan: str
    deleted: bool
    purged: bool
    kept_folders: list[str] = optional("Folders whose content could not be saved, and which stay.")


async def delete_plan(call: Call, given: DeletePlan) -> Json:
    """Take a plan out of the way."""
    meant = await meant_plan(call, given.plan, "delete_plan")
    if given.purge:
        await confirm(call, f"Remove plan '{meant.plan}' with all its commits, saved work and logs, for good?")
    answer = await ask(call, "purge_plan" if given.purge else "delete_plan", meant)
    left = {"kept_folders": answer.get("kept_folders"), "notes": meant.notes}
    return {"plan": meant.plan, "deleted": True, "purged": given.purge, **compact(left)}


class Moved(Done):
    """Where a branch is now."""

    branch: str = optional()
    commit: str = optional()


async def land_plan(call: Call, given: OfPlan) -> Json:
    """Land a validated result."""
    meant = await meant_plan(call, given.plan, "land_plan")
    await confirm(call, await call.served.read(_landing_question, call.served.app, meant.plan))
    answer = await ask(call, "land_plan", meant)
    return await done(call, meant, **compact(answer))


def _landing_question(app: App, plan: PlanId) -> str:
    summary = app.summary(plan)
    jobs = summary.counts["total"] - 1
    target = summary.target.branch or "its target"
    return f"Land plan '{summary.name}' ({plan}, {jobs} jobs) on branch '{target}'?"


async def undo_plan(call: Call, given: OfPlan) -> Json:
    """Take a landing back."""
    meant = await meant_plan(call, given.plan, "undo_plan")
    branch = (await call.served.read(call.served.app.summary, meant.plan)).target.branch
    await confirm(call, f"Take the landing of plan '{meant.plan}' on branch '{branch}' back?")
    answer = await ask(call, "undo_plan", meant)
    return await done(call, meant, **compact(answer))


class NoArguments(Arguments):
    """Nothing."""


class WaitingRow(Output):
    """One thing that needs a person."""

    plan: str
    name: str
    kind: str
    reason: str
    tool: str = Field(description="The tool that answers.")
    job: str = optional()
    since: str = optional()


class Waiting(Told):
    """What needs a person, the oldest first."""

    waiting: list[WaitingRow]


async def list_waiting(call: Call, given: NoArguments) -> Json:
    """Everything that waits for a person."""
    rows = await call.served.read(call.served.app.waiting)
    return {"waiting": [_waiting(row) for row in rows]}


def _waiting(row: NeedsPerson) -> Json:
    named = {"plan": row.plan, "name": row.name, "kind": row.kind, "reason": row.reason}
    return {**named, "tool": row.next[0].operation, **compact({"job": row.job, "since": row.since})}


TOOLS = (
    Tool("pause_plan", "core", "Pause a plan", WORDS["pause_plan"], OfPlan, Done, pause_plan, idempotent=True),
    Tool("resume_plan", "core", "Resume a plan", WORDS["resume_plan"], ResumePlan, Done, resume_plan, idempotent=True),
    Tool("cancel_plan", "core", "Cancel a plan", WORDS["cancel_plan"], CancelPlan, Done, cancel_plan,
         destructive=True),
    Tool("retry_plan", "core", "Retry failed jobs", WORDS["retry_plan"], RetryPlan, Retried, retry_plan),
    Tool("delete_plan", "plans", "Delete a plan", WORDS["delete_plan"], DeletePlan, Deleted, delete_plan,
         destructive=True, idempotent=True),
    Tool("land_plan", "core", "Land a plan", WORDS["land_plan"], OfPlan, Moved, land_plan, destructive=True),
    Tool("undo_plan", "plans", "Undo a landing", WORDS["undo_plan"], OfPlan, Moved, undo_plan, destructive=True),
    Tool("list_waiting", "plans", "List what needs a person", WORDS["list_waiting"], NoArguments, Waiting,
         list_waiting, read_only=True),
)  # fmt: skip
