"""Conflicts that a person resolves: a worktree with both sides in it, and what the person made of it.

The worktree of a conflict is one of the job's, beside that in which it works. The journal knows it (`ConflictOpened`),
so it is there until somebody goes on with it, gives it up, or the plan is deleted, whatever becomes of the engine. What
was resolved is saved under a ref first, then remembered for the plan; the job is retried, and its merge, made again,
finds it there. If others were merged meanwhile the conflict may be another one, and is told as such.
"""

from pathlib import Path

from msgspec import Struct

from orchard.core.run import Run
from orchard.engine.enclosure import Enclosure
from orchard.engine.engine import Engine
from orchard.engine.merges.gather import commit_time
from orchard.engine.workspace import Held, Workspace
from orchard.engine.world import World
from orchard.errors import Next, OrchardError, UsageError
from orchard.git.history import show_path
from orchard.git.merge.by_hand import (
    Left,
    Names,
    is_untouched,
    leftover,
    marked_tree,
    refuse_impossible,
    resolution,
    unmerge,
)
from orchard.git.merge.conflicts import Conflict, Merge, Resolution
from orchard.git.merge.integration import compose_message
from orchard.git.merge.memory import remember_all
from orchard.git.objects.reader import ObjectMissing
from orchard.git.repository import Worktree
from orchard.git.worktree.save import Saved
from orchard.model.events.plans import ConflictClosed, ConflictOpened
from orchard.model.plan import JobId
from orchard.process.failpoint import failpoint

LISTED = 10


class _Unwalled(Enclosure):
    """None of the plan's programs runs in a worktree that a person works in."""

    async def build(self, worktree: Worktree | None) -> None:
        self.wall = None


class ConflictWorkspace(Workspace):
    """That of a conflict that somebody resolves by hand."""

    def __init__(self, engine: Engine, run: Run, job_id: JobId, merge: Merge | None = None) -> None:
        last = run.records[job_id].last
        whose = f"{job_id} conflict"
        super().__init__(engine, run, job_id, last.number if last is not None else 1, whose)
        self.enclosure = _Unwalled(engine, run, job_id, whose)
        self._merge = merge

    @property
    def held(self) -> Held | None:
        opened = self._run.records[self._job].conflict
        return Held(Worktree(opened.worktree, Path(opened.path)), opened.base) if opened is not None else None

    def _note_taken(self, worktree: Worktree, commit: str) -> None:
        assert self._merge is not None
        sides = self._merge.ours, self._merge.theirs
        self._record(ConflictOpened(self._job, self._attempt, worktree.name, str(worktree.path), commit, *sides))

    def _note_gone(self, name: str) -> None:
        self._record(ConflictClosed(self._job, name))


class Opened(Struct, frozen=True):
    """A conflict in a worktree."""

    folder: Path
    merge: Merge
    names: Names
    left: list[Left]
    """What is still to be decided."""


async def open_conflict(engine: Engine, run: Run, job_id: JobId) -> Opened:
    """Put both sides of a job's conflict into a worktree; the one that it has already stays as it is."""
    world, failure = engine.world, run.records[job_id].failure
    assert failure is not None
    names = Names(*failure.sides)
    merge = await _merged(world, failure.merge, run, job_id)
    refuse_impossible(merge)
    commit = await world.in_thread(_marked, world, merge, names)
    workspace = ConflictWorkspace(engine, run, job_id, merge)
    await workspace.prepare(commit)
    await engine.durable()
    failpoint("conflict.before-unmerge")
    worktree = workspace.held
    assert worktree is not None
    git = world.repo.worktree_git(worktree.worktree.name, worktree.worktree.path)
    if workspace.is_new or await world.in_thread(is_untouched, git):
        await world.in_thread(unmerge, git, merge)
    workspace.leave()
    objects = world.integration.objects
    left = await world.in_thread(leftover, world.repo, git, objects, merge, objects.tree_of(commit))
    return Opened(workspace.folder, merge, names, left)


def _marked(world: World, merge: Merge, names: Names) -> str:
    """The commit that the worktree of a conflict stands at; the same conflict makes the same one."""
    tree = marked_tree(world.repo, world.integration.objects, merge, names)
    when = max(commit_time(world, merge.ours), commit_time(world, merge.theirs))
    message = compose_message(f"Conflict between {names.ours} and {names.theirs}", "Resolve it in the worktree.")
    return world.integration.merger.commit(tree, (merge.ours, merge.theirs), message, when=when)


async def _merged(world: World, sides: tuple[str, ...], run: Run, job_id: JobId) -> Merge:
    ours, theirs = sides
    try:
        if gone := await world.in_thread(world.integration.objects.missing, sides):
            raise ObjectMissing(gone)
        return await world.in_thread(world.integration.merger.merge, ours, theirs)
    except ObjectMissing as error:
        raise OrchardError(
            f"The conflict of job '{job_id}' cannot be opened any more: commit {error.name:.12} is gone.",
            hint=("Let the job meet it again: ", Next("retry_job", run.id, job_id)),
        ) from error


class Taken(Struct, frozen=True):
    """What a person made of a conflict, saved and remembered."""

    merge: Merge
    resolution: Resolution
    attempt: int
    saved: Saved


async def take_resolution(engine: Engine, run: Run, job_id: JobId) -> Taken:
    """Save and remember what lies in the worktree of a conflict; refused while something there is not decided."""
    world, opened = engine.world, run.records[job_id].conflict
    assert opened is not None
    worktree = Worktree(opened.worktree, Path(opened.path))
    if not worktree.path.is_dir() or worktree.path.is_symlink():
        raise UsageError(
            f"The worktree of the conflict, {worktree.path}, is gone.",
            hint=("Begin again: ", Next("resolve_conflict", run.id, job_id)),
        )
    merge = await _merged(world, (opened.ours, opened.theirs), run, job_id)
    objects, git = world.integration.objects, world.repo.worktree_git(worktree.name, worktree.path)
    marked = objects.tree_of(opened.base)
    left = await world.in_thread(leftover, world.repo, git, objects, merge, marked)
    if left:
        raise UsageError(
            f"The conflict is not resolved yet: {_todo(left)}.",
            hint=(
                f"The files are in {worktree.path}. Then: ",
                Next("resolve_conflict", run.id, job_id, {"step": "continue"}),
            ),
        )
    workspace = ConflictWorkspace(engine, run, job_id, merge)
    await workspace.prepare(opened.base)
    workspace.leave()
    saved = await workspace.save("the resolution of a conflict")
    assert saved is not None
    failpoint("conflict.saved")
    tree = objects.tree_of(saved.commit or saved.head or opened.base)
    found = await world.in_thread(resolution, objects, merge, marked, tree)
    await world.in_thread(remember_all, world.repo, objects, run.id, merge, found)
    failpoint("conflict.remembered")
    return Taken(merge, found, opened.attempt, saved)


def _todo(left: list[Left]) -> str:
    said = [
        f"{show_path(one.path)} has conflict markers (line {one.line})"
        if one.line is not None
        else f"{show_path(one.path)} is as the merge left it (edit or remove it, or keep it so with 'git add')"
        for one in left[:LISTED]
    ]
    return "; ".join(said) + (f"; and {len(left) - LISTED} more" if len(left) > LISTED else "")


def words(conflict: Conflict, names: Names) -> str:
    """What happened to a path, in a person's words."""
    ours, theirs = conflict.ours, conflict.theirs
    if conflict.kind == "modify/delete" and (ours is None) is not (theirs is None):
        gone, kept = (names.ours, names.theirs) if ours is None else (names.theirs, names.ours)
        return f"{gone} deleted it, {kept} changed it"
    said = {
        "content": "both changed the same lines",
        "add/add": "both added it",
        "binary": "both changed it, and it is no text; the worktree has the version of {ours}",
        "rename": "it was renamed in two ways, or renamed and deleted",
        "directory-rename": "its folder was renamed on one side",
        "file/directory": "it is a file on one side and a folder on the other",
        "mode": "both changed what kind of file it is",
        "symlink": "both changed it, and it is a link; the worktree has the version of {ours}",
    }
    return said.get(conflict.kind, "git cannot merge it").format(ours=names.ours)


async def end_conflict(engine: Engine, run: Run, job_id: JobId, why: str, saved: Saved | None = None) -> Saved | None:
    """Give the worktree of a conflict back, after saving what is in it; `saved`: that was done."""
    return await ConflictWorkspace(engine, run, job_id).end(why, saved)


async def end_conflicts(engine: Engine, run: Run, why: str) -> None:
    for job_id, record in run.records.items():
        if record.conflict is not None:
            await end_conflict(engine, run, job_id, why)
