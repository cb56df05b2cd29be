"""Pictures of a folder in which an agent works, and what a subtask changed, brought back into it."""

from collections.abc import Sequence

from orchard.core.subtask_records import Subtask
from orchard.engine.context import Context
from orchard.engine.world import World
from orchard.git.command import GitError
from orchard.git.history import show_path
from orchard.git.merge.conflicts import Merge
from orchard.git.objects.reader import Change, ObjectMissing
from orchard.git.refs import wip_ref
from orchard.git.repository import Worktree
from orchard.git.worktree.save import ensure_saved
from orchard.git.worktree.transfer import changed_paths, in_the_way, is_busy, merge_onto, write_changes
from orchard.model.events.plans import Json, SubtaskPulled, WorkSaved
from orchard.process.failpoint import failpoint

LISTED_PATHS = 100
TRIES = 3


async def picture(context: Context, why: str) -> str:
    """A commit that holds what the folder holds now; where that is more than a commit of ours has, a ref holds it.

    Nothing in the folder is touched.
    """
    assert context.worktree is not None
    world, run, job_id = context.world, context.run, context.job_id
    ref = wip_ref(run.id, job_id, len(context.state.saved) + 1)
    saved = await world.in_thread(ensure_saved, world.repo, context.worktree, ref, f"orchard: {why}", context.base)
    for ref, commit in saved.refs:
        context.engine.record(run.id, WorkSaved(job_id, ref, commit, why))
        await context.engine.durable()
    return saved.commit or saved.head or context.base


async def pull(context: Context, subtask: Subtask) -> Json:
    """Merge a subtask's commit into the folder of whoever asked for it; a conflict is told, and changes nothing."""
    assert subtask.commit is not None
    assert context.worktree is not None
    world = context.world
    ours = await picture(context, f"before the changes of {subtask.id} were pulled")
    commits = (subtask.base, ours, subtask.commit)
    merge, changes, taken = await world.in_thread(_merged, world, context.worktree, commits)
    answer: Json = {"id": subtask.id, "status": "merged", "files": [], "conflicts": []}
    if merge.conflicts or taken:
        told = [{"path": show_path(one.path), "kind": str(one.kind)} for one in merge.conflicts]
        told += [{"path": show_path(path), "kind": "in the way"} for path in taken]
        return {**answer, "status": "conflict", "conflicts": told[:LISTED_PATHS]}
    failpoint("subtask.before-pull")
    try:
        await world.in_thread(write_changes, world.integration.live, context.worktree, ours, merge.tree)
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
    world: World, worktree: Worktree, commits: tuple[str, str, str]
) -> tuple[Merge, Sequence[Change], Sequence[bytes]]:
    """The merge, what it writes, and what lies in the way of that.

    What no ref holds yet can be taken by somebody's `git gc --prune=now`; then it is made again.
    """
    live = world.integration.live
    for number in range(TRIES):
        try:
            merge = merge_onto(live, *commits)
            if merge.conflicts:
                return merge, (), ()
            changes = changed_paths(live, commits[1], merge.tree)
            return merge, changes, in_the_way(live, worktree.path, commits[1], changes)
        except (GitError, ObjectMissing):
            if number == TRIES - 1:
                raise
            # Processes that stay open remember packs that are gone, and would not write their objects again.
            world.integration.close()
    raise AssertionError("the last try returns or raises")
