"""The folders of subtasks: saved before they are given back, by the engine that made them or by the one after it."""

from pathlib import Path

from orchard.core.run import Run
from orchard.core.subtask_records import Subtask
from orchard.engine.context import token_of
from orchard.engine.engine import Engine
from orchard.errors import OrchardError
from orchard.git.refs import subtask_ref, wip_ref
from orchard.git.repository import Worktree
from orchard.git.worktree.save import Saved, ensure_saved
from orchard.model.events.plans import SubtaskEnded, SubtaskFolderGone, WorkSaved
from orchard.model.plan import JobId
from orchard.process.family import end_family_now
from orchard.process.identity import Identity


def subtask_folders(run: Run) -> list[str]:
    """The names of the folders that subtasks of a plan hold."""
    found = (one.worktree for record in run.records.values() for one in record.subtasks.values())
    return [name for name in found if name is not None]


def subtask_paths(run: Run) -> list[str]:
    """Where those folders are."""
    found = (one.path for record in run.records.values() for one in record.subtasks.values())
    return [path for path in found if path is not None]


async def save_subtask(engine: Engine, run: Run, job_id: JobId, subtask: Subtask, why: str) -> Saved | None:
    """Save what lies in a subtask's folder beyond its result; CannotSave leaves everything as it is."""
    if subtask.worktree is None or subtask.path is None:
        return None
    worktree = Worktree(subtask.worktree, Path(subtask.path))
    base, held_by = subtask.base, None
    if subtask.commit is not None and subtask.status in ("completed", "failed"):
        base, held_by = subtask.commit, subtask_ref(run.id, job_id, subtask.attempt, subtask.id)
    trees, world = engine.pool(run).worktrees, engine.world
    saved = await world.in_thread(
        ensure_saved,
        world.repo,
        worktree,
        wip_ref(run.id, job_id, len(run.records[job_id].saved) + 1),
        f"orchard: {why}",
        base,
        world.integration.live,
        made_from=trees.made_from(worktree),
        held_by=held_by,
        left=trees.left_by(worktree),
    )
    for ref, commit in saved.refs:
        engine.record(run.id, WorkSaved(job_id, ref, commit, why))
    return saved


async def give_back_subtask(
    engine: Engine, run: Run, job_id: JobId, subtask: Subtask, why: str, saved: Saved | None = None
) -> None:
    """Return a subtask's folder to the pool after saving what is in it; kept, with a warning, if that fails."""
    name = subtask.worktree
    if name is None:
        return
    try:
        saved = saved or await save_subtask(engine, run, job_id, subtask, why)
    except OrchardError as error:
        engine.warn(run.id, error.message, job_id)
        return
    if saved is None:
        return
    engine.record(run.id, SubtaskFolderGone(job_id, subtask.id, name))
    await engine.durable()
    try:
        await engine.pool(run).give(saved)
    except OrchardError as error:
        engine.warn(run.id, error.message, job_id)


async def remove_subtask_folders(engine: Engine, run: Run, why: str) -> None:
    """Take away every folder that a subtask of the plan still holds, each after what it holds is saved."""
    for job_id, record in run.records.items():
        for subtask in record.subtasks.values():
            await give_back_subtask(engine, run, job_id, subtask, why)


async def settle_subtasks(engine: Engine, run: Run, job_id: JobId) -> None:
    """After a crash: end what subtasks left running, save what they did, and say that they were interrupted."""
    for subtask in run.records[job_id].subtasks.values():
        if subtask.over and subtask.worktree is None:
            continue
        if not subtask.over:
            await _end_survivors(engine, run, job_id, subtask)
            saved = await _try_to_save(engine, run, job_id, subtask)
            ended = SubtaskEnded(
                job_id,
                subtask.attempt,
                subtask.id,
                "interrupted",
                "The engine was stopped while it ran.",
                commit=saved.commit if saved is not None else None,
            )
            engine.record(run.id, ended)
            if saved is not None:
                await give_back_subtask(engine, run, job_id, subtask, "interrupted", saved)
            continue
        await give_back_subtask(engine, run, job_id, subtask, "left over after a subtask")


async def _end_survivors(engine: Engine, run: Run, job_id: JobId, subtask: Subtask) -> None:
    world = engine.world
    token = token_of(run.id, job_id, subtask.attempt, subtask.id)
    log = world.logs.subtask_path(run.id, job_id, subtask.attempt, subtask.id)
    if subtask.program is not None:
        await world.in_thread(end_family_now, token, Identity(*subtask.program), log)
    # Its turn may have started programs before the last one that it told of, or one that it could not tell of.
    await world.in_thread(end_family_now, token, None, log)


async def _try_to_save(engine: Engine, run: Run, job_id: JobId, subtask: Subtask) -> Saved | None:
    try:
        return await save_subtask(engine, run, job_id, subtask, f"interrupted: {subtask.id}")
    except OrchardError as error:
        engine.warn(run.id, error.message, job_id)
        return None
