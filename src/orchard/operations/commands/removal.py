"""Commands that take whole plans out of the way, and remove them for good."""

from typing import Annotated

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from orchard.core.run import Run
from orchard.engine.merges.by_hand import end_conflicts
from orchard.engine.turns.turn import remove_private
from orchard.engine.workspace import end_all, folders_of
from orchard.errors import Next, UsageError
from orchard.git.refs import delete_refs, job_ref_part, list_refs
from orchard.model.events.plans import Json, PlanDeleted
from orchard.model.statuses import PlanStatus
from orchard.operations.command import Command, Decision, Scene
from orchard.operations.commands.plans import PLAN, stopping
from orchard.operations.operation import Absent, Done, Fit, OfPlan, Route, Tool, Verb, says
from orchard.process.failpoint import failpoint


class Deleted(Done, frozen=True, kw_only=True):
    """What is left of a plan that was deleted."""

    kept_folders: Annotated[list[str] | UnsetType, says("Folders that could not be saved, and were left.")] = UNSET
    refs: Annotated[int | UnsetType, says("Refs that were removed.")] = UNSET


class DeletePlan(OfPlan, frozen=True, kw_only=True):
    purge: Annotated[
        bool,
        says(
            "Also remove its commits, saved work and logs, for good. What has landed stays.",
            absent={"verb": "`purge` is a command of its own."},
        ),
    ] = False


def _decide_deletion(run: Run, args: OfPlan, _: object, scene: Scene) -> Decision:
    stopped = run.status in (PlanStatus.SUCCEEDED, PlanStatus.CANCELED) or run.canceled is not None
    if run.active or not (stopped or run.deleted):
        # Decided again when its jobs have ended: another client may retry one meanwhile.
        return replace(stopping(run, "the plan was deleted"), again=True)
    return Decision([] if run.deleted else [PlanDeleted()])


async def _end_worktrees(scene: Scene, run: Run, args: OfPlan, _: Decision) -> Json:
    await scene.engine.durable()
    failpoint("delete.recorded")
    await end_all(scene.engine, run, "the plan was deleted")
    await end_conflicts(scene.engine, run, "the plan was deleted")
    failpoint("delete.after-folders")
    return {"kept_folders": [str(worktree.path) for worktree in folders_of(run)]}


async def _delete(scene: Scene, run: Run, args: DeletePlan, decided: Decision) -> Json:
    return await (_purge if args.purge else _end_worktrees)(scene, run, args, decided)


delete_plan = Command(
    name="delete_plan",
    sentence="Hide a plan; its commits are kept until it is purged.",
    details="Stops what it runs, saves what its worktrees hold, and removes them. Its commits are kept under "
    "`refs/orchard` until it is purged.",
    args=DeletePlan,
    answer=Deleted,
    example={"plan": "add-login"},
    route=Route("DELETE", PLAN),
    tool=Tool("plans", "Delete a plan"),
    verb=Verb("delete", asks=True),
    next=("list_plans",),
    whole_names=True,
    fit=Fit(lambda plan: True, "is left to delete"),
    repeatable=True,
    destructive=True,
    decide=_decide_deletion,
    perform=_delete,
)


async def _purge(scene: Scene, run: Run, args: OfPlan, decided: Decision) -> Json:
    """Remove what is left of a plan: refs, logs, journal. This is the one operation that loses something."""
    kept: list[str] = (await _end_worktrees(scene, run, args, decided))["kept_folders"]
    if kept:
        raise UsageError(
            f"Plan '{run.id}' still has folders whose content could not be saved.",
            hint=(
                "'",
                Next("get_plan", run.id),
                f"' says why. Move what you want to keep out of {kept[0]} and remove what is in the way there, "
                "then purge again.",
            ),
        )
    engine, repo, part = scene.engine, scene.engine.world.repo, job_ref_part(run.id)
    places = ("keep", "wip", "base", "integration", "snapshot", "resolutions")
    refs = await engine.world.in_thread(list_refs, repo.git, *(f"refs/orchard/{place}/{part}" for place in places))
    failpoint("purge.before-refs")
    await engine.world.in_thread(delete_refs, repo.git, refs, f"orchard: purge {run.id}")
    failpoint("purge.after-refs")
    await engine.world.in_thread(engine.world.logs.remove, run.id)
    await engine.world.in_thread(remove_private, repo.state, run.id)
    await engine.durable()
    failpoint("purge.before-forget")
    await engine.world.in_thread(engine.journal.forget, run.id)
    failpoint("purge.after-forget")
    engine.drop_run(run.id)
    return {"refs": len(refs), "status": None}


purge_plan = Command(
    name="purge_plan",
    sentence="Remove a plan for good: its refs, saved work and logs. What has landed stays.",
    args=OfPlan,
    answer=Deleted,
    example={"plan": "add-login"},
    route=Absent("`DELETE` with `purge=true` does it, as for `delete_plan`."),
    tool=Absent("`delete_plan` with `purge` does it, and asks a person first."),
    verb=Verb("purge", asks=True),
    next=("list_plans",),
    whole_names=True,
    fit=Fit(lambda plan: True, "is deleted", newest="PlanDeleted", deleted=True),
    destructive=True,
    decide=_decide_deletion,
    perform=_purge,
)
