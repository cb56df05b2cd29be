"""The folders that jobs work in: taken from a warm pool, given back as soon as their job has succeeded.

A folder is given back only with proof that everything in it is saved. Where saving fails, the
folder stays where it is and a person is told: deleting is the last thing we do.
"""

import asyncio
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.engine.context import Context
from orchard.engine.engine import Engine
from orchard.errors import OrchardError
from orchard.git.refs import keep_ref, wip_ref
from orchard.git.repository import Worktree
from orchard.git.worktree.save import Saved, ensure_saved
from orchard.git.worktree.setup import fills_nothing, included_files
from orchard.model.events.plans import WorkSaved, WorktreeGone, WorktreeTaken
from orchard.model.plan import AgentWork, Job, JobId, Plan, Work
from orchard.model.plan_codec import work_json
from orchard.process.failpoint import failpoint


async def take_worktree(context: Context, commit: str) -> None:
    """Give the attempt a folder at `commit`: the one it had, if it may go on there, else a clean one."""
    record, pool = context.state, context.engine.pool(context.run)
    had = record.worktree
    if had is not None:
        worktree = Worktree(had.worktree, Path(had.path))
        usable = had.base == commit and not context.fresh
        if usable and await context.world.in_thread(pool.worktrees.exists, worktree):
            pool.keep(worktree)
            context.worktree, context.base = worktree, commit
            return
        await give_back(context.engine, context.run, context.job_id, "before a new start")
        if record.worktree is not None:
            context.engine.record(context.run.id, WorktreeGone(context.job_id, had.worktree))
    failpoint("worktree.before-take")
    setup = await setup_key(context, commit)
    context.worktree = await pool.take(commit, f"{context.run.id} {context.job_id}", setup)
    context.setup_key, context.is_set_up = setup, setup is not None and pool.is_ready(context.worktree, setup)
    failpoint("worktree.after-take")
    context.base, context.new_worktree = commit, True
    taken = WorktreeTaken(context.job_id, context.number, context.worktree.name, str(context.worktree.path), commit)
    context.engine.record(context.run.id, taken)


async def setup_key(context: Context, commit: str) -> str | None:
    """What decides how a folder is set up: the tree, the works, their variables, what is copied and linked.

    None where there is nothing to set up. The work of an agent is done anew for each job.
    """
    world, config, plan, job = context.world, context.world.config.worktree, context.plan, context.job
    works, top = setup_works(plan, job, world.setup), world.repo.main_top
    if any(isinstance(work, AgentWork) for work in works):
        return None
    fills = not fills_nothing(top, config.include, config.link)
    if not works and not fills:
        return None
    root = context.engine.pool(context.run).worktrees.root

    def key() -> str:
        included = included_files(world.repo, top, config.include, (root,)) if fills else ()
        said = [[work_json(work) for work in works], plan.env, job.env, config.link, world.config.pass_env]
        facts = (world.integration.objects.tree_of(commit), json.dumps(said, sort_keys=True, default=str), included)
        return hashlib.sha256(repr(facts).encode()).hexdigest()

    return await world.in_thread(key)


def setup_works(plan: Plan, job: Job, configured: tuple[Work, ...]) -> tuple[Work, ...]:
    """What is run in a new folder: what the job says, else the plan, else the configuration."""
    if job.setup is not None:
        return job.setup
    return plan.setup if plan.setup is not None else configured


async def save_work(engine: Engine, run: Run, job_id: JobId, why: str) -> Saved | None:
    """Save what lies in a job's folder under a ref; CannotSave leaves everything as it is."""
    record = run.records[job_id]
    if record.worktree is None:
        return None
    worktree = Worktree(record.worktree.worktree, Path(record.worktree.path))
    base, held_by = record.worktree.base, None
    if record.work_commit is not None and record.work_commit.base == base:
        base = record.work_commit.commit
        held_by = keep_ref(run.id, job_id, record.work_commit.attempt)
    ref = wip_ref(run.id, job_id, len(record.saved) + 1)
    failpoint("wip.before-save")
    trees, world = engine.pool(run).worktrees, engine.world
    saved = await world.in_thread(
        ensure_saved,
        world.repo,
        worktree,
        ref,
        f"orchard: {why}",
        base,
        world.integration.live,
        made_from=trees.made_from(worktree),
        held_by=held_by,
        left=trees.left_by(worktree),
    )
    failpoint("wip.after-save")
    for ref, commit in saved.refs:
        engine.record(run.id, WorkSaved(job_id, ref, commit, why))
    return saved


async def give_back(engine: Engine, run: Run, job_id: JobId, why: str) -> None:
    """Return a job's folder to the pool after saving what is in it; kept, with a warning, if that fails."""
    key = (run.id, job_id)
    if run.records[job_id].worktree is None or key in engine.giving_back:
        return
    engine.giving_back.add(key)
    try:
        await _give_back(engine, run, job_id, why)
    finally:
        engine.giving_back.discard(key)


async def _give_back(engine: Engine, run: Run, job_id: JobId, why: str) -> None:
    had = run.records[job_id].worktree
    try:
        saved = await save_work(engine, run, job_id, why)
    except OrchardError as error:
        engine.warn(run.id, error.message, job_id)
        return
    if saved is not None and had is not None:
        await _hand_over(engine, run, job_id, saved)


async def _hand_over(engine: Engine, run: Run, job_id: JobId, saved: Saved) -> None:
    """From the job to the pool, as a whole: a cancellation in the middle would leave a folder that nobody has."""
    engine.record(run.id, WorktreeGone(job_id, saved.worktree.name))
    canceled: asyncio.CancelledError | None = None
    on_disk = not saved.refs
    while not on_disk:
        try:
            await engine.durable()
            on_disk = True
        except asyncio.CancelledError as error:
            canceled = error
    failpoint("worktree.before-release")
    try:
        await engine.pool(run).give(saved)
        failpoint("worktree.after-release")
    except OrchardError as error:
        engine.warn(run.id, error.message, job_id)
    if canceled is not None:
        raise canceled


async def release_unneeded(engine: Engine, run: Run, jobs: Iterable[JobId]) -> None:
    """Give back the folders of those of these jobs that succeeded: their results live in refs.

    Those of the others, and all of them if the plan says so, are kept for people to look into.
    """
    for job_id in jobs:
        record = run.records[job_id]
        if record.worktree is None:
            continue
        if run.plan.cleanup and record.state is JobState.SUCCEEDED:
            await give_back(engine, run, job_id, "left over after success")
        if record.worktree is not None:
            engine.pool(run).leave(Worktree(record.worktree.worktree, Path(record.worktree.path)))
