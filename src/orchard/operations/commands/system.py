"""Operations about the engine itself, and what only it can do for other processes of the user's."""

from typing import Annotated

from orchard.engine.engine import Engine
from orchard.engine.workspace import workspace_of
from orchard.errors import Next, NotFound
from orchard.git.worktree.transfer import tree_now
from orchard.model.events.plans import Json
from orchard.model.plan import JobId, PlanId
from orchard.operations.command import Service
from orchard.operations.operation import Absent, Args, OfJob, says

_INNER = Absent("It is how programs of Orchard see that an engine is there.")


async def _ping(engine: Engine, args: Args) -> Json:
    return {"plans": [run.id for run in engine.runs.values() if not run.settled]}


ping = Service(
    name="ping",
    sentence="Say that an engine is there, and which plans it works on.",
    route=_INNER,
    tool=_INNER,
    verb=_INNER,
    serve=_ping,
)


_DIFF = Absent("`get_job_diff` shows what differs there.")


class SeeFolder(OfJob, frozen=True, kw_only=True):
    subtask: Annotated[str | None, says("A subtask of the job's, by its id; else the job itself.")] = None


async def _see_folder(engine: Engine, args: SeeFolder) -> Json:
    """Only the engine can hold the programs still that are at work there."""
    run, job = engine.runs.get(PlanId(args.plan)), JobId(args.job)
    if run is None or job not in run.records or args.subtask not in (None, *run.records[job].subtasks):
        raise NotFound(f"No program works on job '{args.job}' of plan '{args.plan}'.", hint=Next("get_plan", args.plan))
    workspace = workspace_of(engine, run, job, args.subtask)
    if (held := workspace.held) is None:
        raise NotFound(f"'{args.job}' has no folder any more.", hint=Next("get_job", args.plan, args.job))
    async with workspace.enclosure.settled():
        return {"tree": await engine.world.in_thread(tree_now, engine.world.repo, held.worktree)}


see_folder = Service(
    name="see_folder",
    sentence="Say what a worktree in which programs work holds now, as a tree of git's.",
    args=SeeFolder,
    example={"plan": "add-login", "job": "api"},
    route=_DIFF,
    tool=_DIFF,
    verb=_DIFF,
    repeatable=True,
    reads=True,
    serve=_see_folder,
)
