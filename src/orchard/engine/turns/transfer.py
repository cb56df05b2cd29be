"""What a subtask changed, brought into the worktree of whoever asked for it."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from orchard.core.subtask_records import Subtask
from orchard.engine.context import Context
from orchard.engine.world import World
from orchard.git.command import GitError
from orchard.git.history import show_path
from orchard.git.merge.conflicts import Merge
from orchard.git.objects.reader import Change
from orchard.git.worktree.transfer import changed_paths, in_the_way, is_busy, merge_onto
from orchard.model.events.plans import Json, SubtaskPulled
from orchard.process.failpoint import failpoint

LISTED_PATHS = 100


async def pull(context: Context, subtask: Subtask) -> Json:
    """Merge a subtask's commit into the worktree of whoever asked for it; a conflict is told, and changes nothing."""
    assert subtask.commit is not None
    world, workspace = context.world, context.workspace
    ours = await workspace.picture(context.base, f"before the changes of {subtask.id} were pulled")
    commits = (subtask.base, ours, subtask.commit)
    step = partial(world.in_thread, _merged, world, workspace.folder, commits)
    merge, changes, taken = await world.again_if_vanished(step)
    answer: Json = {"id": subtask.id, "status": "merged", "files": [], "conflicts": []}
    if merge.conflicts or taken:
        told = [{"path": show_path(one.path), "kind": str(one.kind)} for one in merge.conflicts]
        told += [{"path": show_path(path), "kind": "in the way"} for path in taken]
        return {**answer, "status": "conflict", "conflicts": told[:LISTED_PATHS]}
    failpoint("subtask.before-pull")
    try:
        await workspace.write_changes(ours, merge.tree)
    except GitError as error:
        if not is_busy(error):
            raise
        return {**answer, "status": "busy"}
    failpoint("subtask.after-pull")
    paths = [show_path(change.path) for change in changes]
    pulled = SubtaskPulled(context.job_id, context.number, subtask.id, subtask.commit, tuple(paths[:LISTED_PATHS]))
    context.engine.record(context.run.id, pulled)
    return {**answer, "files": paths[:LISTED_PATHS]}


def _merged(
    world: World, folder: Path, commits: tuple[str, str, str]
) -> tuple[Merge, Sequence[Change], Sequence[bytes]]:
    live = world.integration.live
    merge = merge_onto(live, *commits)
    if merge.conflicts:
        return merge, (), ()
    changes = changed_paths(live, commits[1], merge.tree)
    return merge, changes, in_the_way(live, folder, commits[1], changes)
