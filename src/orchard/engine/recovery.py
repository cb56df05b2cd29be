"""What a new engine does first: make the journal, git and the process table agree again.

    replay → end survivors → what was under way is continued or reported as interrupted → save strays

Everything here can be done twice. A phase of ours (gathering, committing, merging, landing) is safe
to repeat, so the attempt goes on there. A program of the plan's is not: it is reported as
interrupted, and what it left is kept, unless the job says `retry_on_interrupt`.
"""

import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from orchard.core.records import Attempt, JobRecord
from orchard.core.replay import replay
from orchard.core.retry import begins_clean, may_have_run
from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.engine.context import state_left
from orchard.engine.engine import Engine
from orchard.engine.landing import settle, settle_undo, tell_settled
from orchard.engine.machine.vigil import last_pulse
from orchard.engine.merges.by_hand import end_conflicts
from orchard.engine.plans.refs import slug
from orchard.engine.turns.idle import WORKER, waiting_worker
from orchard.engine.turns.subtask import end_abandoned, settle_subtasks
from orchard.engine.turns.turn import remove_scratch
from orchard.engine.workspace import end_all, folders_of, release_unneeded, workspace_of
from orchard.errors import Next, OrchardError, plain_hint
from orchard.git.dependencies.kept import kept_worktrees, let_go, usable_root
from orchard.git.folders import remove_tree
from orchard.git.landing.recovery import Settled, settle_all
from orchard.git.leftovers import end_leftovers
from orchard.git.refs import wip_ref
from orchard.git.repository import Worktree
from orchard.git.scratch import SCRATCH, sweep
from orchard.git.worktree.save import ensure_saved
from orchard.git.worktree.worktrees import Worktrees
from orchard.model.events.plans import (
    HoldReleased,
    JobCanceled,
    JobContinued,
    JobFailed,
    JobHeld,
    JobRetried,
    SandboxAsked,
)
from orchard.model.phases import RUNS_PROGRAMS, Phase
from orchard.model.plan import STRAYS, VALIDATION, JobId, PlanId
from orchard.model.sandbox import stricter
from orchard.process.failpoint import failpoint
from orchard.store.reader import JournalReader

SCRATCH_SECONDS = 3600.0


async def recover(engine: Engine, reader: JournalReader) -> None:
    await engine.world.in_thread(end_leftovers, engine.world.repo.common_dir)
    await engine.world.in_thread(sweep, engine.world.repo.state / SCRATCH)
    found = await engine.world.in_thread(settle_all, engine.world.repo)
    for row in reader.plans():
        if not row.settled or row.summary.undoing:
            engine.found.add(row.id)
            await recover_plan(engine, reader, row.id, found)
    await _save_strays(engine, reader)
    await engine.durable()
    failpoint("recovery.done")


def keep_walls(engine: Engine) -> None:
    """A plan that goes on in a new engine has the wall that was asked for, or that of who started this engine, if that
    is stricter: nobody goes on without a wall because somebody else once wanted none."""
    for run in list(engine.runs.values()):
        wanted = stricter(run.sandbox, engine.world.config.sandbox.level) if run.sandbox is not None else None
        if wanted is not None and wanted != run.sandbox and not run.settled:
            engine.record(run.id, SandboxAsked(wanted))


async def recover_plan(engine: Engine, reader: JournalReader, plan: PlanId, found: Sequence[Settled] = ()) -> Run:
    """Load one plan and settle what was under way in it; `found` is what a crash had left in the user's checkouts."""
    if plan in engine.runs:
        return engine.runs[plan]
    with engine.runs.holding(plan):
        # Beside the engine's own work: a large plan takes seconds.
        run = await engine.world.in_thread(lambda: replay(reader.events(plan)))
        engine.runs.add(run, known=True)
        tell_settled(engine, run, found)
        await _settle_plan(engine, run)
    return run


async def _settle_plan(engine: Engine, run: Run) -> None:
    since = _last_at_work(engine, run)
    await settle(engine, run)
    for job_id, record in run.records.items():
        if record.open_subtasks and job_id not in run.active:
            await settle_subtasks(engine, run, job_id)
            await end_abandoned(engine, run, job_id)
    for job_id in run.active:
        failpoint("recovery.before-job")
        workspace = workspace_of(engine, run, job_id)
        await workspace.end_survivors()
        await workspace.enclosure.bring_in()
        await settle_subtasks(engine, run, job_id)
        failpoint("recovery.after-survivors")
        await _settle_job(engine, run, job_id, since)
        await engine.abandoned_ended()
        failpoint("recovery.after-job")
    if run.canceled is not None:
        for job_id in [job for job, record in run.records.items() if record.state is JobState.PENDING]:
            engine.record(run.id, JobCanceled(job_id, run.canceled.reason, found=True, since=since), listed=True)
    for hold in run.waiting_for:
        if hold.kind == WORKER and run.records[hold.job].has_news:
            engine.record(run.id, HoldReleased(hold.job))
        engine.idling.watch(run, hold.job)
        engine.activity.watch_idle(run, hold.job)
    await settle_undo(engine, run)
    if run.deleted:
        await end_all(engine, run, "the plan was deleted")
        await end_conflicts(engine, run, "the plan was deleted")
    await release_unneeded(engine, run, list(run.records))


def _last_at_work(engine: Engine, run: Run) -> float:
    """When an engine was last known to work on a plan: it lived for a while after it last recorded something."""
    pulse = last_pulse(engine.world.repo.state) if run.is_active else 0.0
    return min(max(run.alive_at, pulse), max(run.alive_at, engine.world.clock()))


async def _settle_job(engine: Engine, run: Run, job_id: JobId, since: float) -> None:
    record = run.records[job_id]
    attempt = record.last
    if run.canceled is not None:
        await workspace_of(engine, run, job_id).try_to_save("interrupted")
        at, left = attempt.phase if attempt else None, await state_left(engine, run, job_id)
        engine.record(run.id, JobCanceled(job_id, run.canceled.reason, at, found=True, since=since, left=left))
        return
    if record.state is JobState.SCHEDULED or attempt is None:
        begin = record.resume_from or Phase.MERGE_FI
        engine.record(run.id, JobContinued(job_id, record.number, begin, since))
        return
    phase = attempt.where
    if attempt.completed is not None and phase is Phase.WORK:
        engine.record(run.id, JobContinued(job_id, attempt.number, Phase.COMMIT, since))
        return
    if attempt.idle is not None and phase is Phase.WORK and attempt.entered:
        # Its agent had ended its turn, and no other has begun: nothing was cut off.
        engine.record(run.id, waiting_worker(job_id, attempt.number, attempt.idle.why, since))
        return
    asks_again = job_id == VALIDATION and phase is Phase.PRECHECKS  # it looks at the target, and runs nothing
    if phase in RUNS_PROGRAMS and not asks_again and attempt.entered and attempt.phases[-1].outcome == "held":
        engine.record(run.id, _hold(run, job_id, attempt, since))
        return
    if not may_have_run(job_id, attempt) and not _would_run_again(job_id, record, attempt):
        engine.record(run.id, JobContinued(job_id, attempt.number, phase, since))
        return
    await workspace_of(engine, run, job_id).try_to_save("interrupted")
    message = "interrupted, because the engine was stopped while it ran."
    kept = record.worktree is not None and Path(record.worktree.path).is_dir()
    retry = Next("retry_job", run.id, job_id)
    hint = (f"Its folder is {'kept' if kept else 'gone'}. Run it again: ", retry)
    told, advice = engine.world.say(hint), plain_hint(hint)
    left = await state_left(engine, run, job_id)
    failed = JobFailed(
        job_id, attempt.number, phase, "interrupted", message, told, left=left, since=since, advice=advice
    )
    again = [_again(run, job_id, phase)]
    # As a whole: a crash between the two would leave a failure that nobody looks at again.
    engine.record_together(run.id, failed, *(again if run.job(job_id).retry_on_interrupt else ()))


def _again(run: Run, job_id: JobId, phase: Phase) -> JobRetried:
    """The retry that the plan asks for: it begins as one does that a person asks for."""
    again = JobRetried(job_id, why="interrupted, and the plan says to run it again")
    return replace(again, fresh=begins_clean(run, replace(again, first_phase=phase)))


def _hold(run: Run, job_id: JobId, attempt: Attempt, since: float) -> JobHeld:
    """What the last engine was about to record when it died."""
    if attempt.where is Phase.POSTCHECKS and run.job(job_id).approve:
        reason = f"Job '{job_id}' waits for you to approve its changes."
        return JobHeld(job_id, attempt.number, "approval", reason, Phase.MERGE_RI, True, since)
    return JobHeld(job_id, attempt.number, "budget", "A budget is used up.", attempt.where, True, since)


def _would_run_again(job_id: JobId, record: JobRecord, attempt: Attempt) -> bool:
    """Whether the attempt could go on only by running its programs once more: the worktree they worked in is gone."""
    if job_id == VALIDATION or attempt.program is None or attempt.where is Phase.MERGE_RI:
        return False
    return record.worktree is not None and not Path(record.worktree.path).is_dir()


async def _save_strays(engine: Engine, reader: JournalReader) -> None:
    """Folders below the worktree root that no plan knows: their content is saved, then they go."""
    world = engine.world
    settings = {world.config.worktree_root, *(run.plan.worktree_root for run in engine.runs.values())}
    waiting = await world.in_thread(_still_waiting, engine)
    for root in await world.in_thread(_roots, engine, settings):
        trees = Worktrees(world.repo, root)
        found, unknown = await world.in_thread(_unheld, engine, reader, trees, waiting)
        for worktree in found:
            failpoint("recovery.before-stray")
            try:
                await world.in_thread(_take_away, trees, worktree)
            except OrchardError as error:
                engine.notes.append(f"No plan knows the folder {worktree.path}, and it stays: {error.message}")
        for path in unknown:
            engine.notes.append(await world.in_thread(_take_away_unknown, trees, path))
        await world.in_thread(trees.empty_trash)
        await world.in_thread(trees.drop_empty_root)
    await world.in_thread(_remove_old_scratch, world.repo.state / "tmp")
    await world.in_thread(remove_scratch, world.repo.state)


def _remove_old_scratch(folder: Path) -> None:
    """Private indexes and the like, left by a process that was killed; who is still at work is younger."""
    oldest = time.time() - SCRATCH_SECONDS
    for place in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError):
            if place.lstat().st_mtime >= oldest:
                continue
            if place.is_dir() and not place.is_symlink():
                remove_tree(place)
            else:
                place.unlink()


def _roots(engine: Engine, settings: set[str | None]) -> set[Path]:
    """Where worktrees of ours may be; a root that cannot be used now holds none, and `submit` says why."""
    found = set()
    for setting in settings:
        try:
            found |= {engine.world.repo.worktree_root(setting)} if setting else set()
        except OrchardError as error:
            engine.notes.append(error.message)
    return found


def _still_waiting(engine: Engine) -> frozenset[str]:
    """The worktrees that an earlier engine has kept for this one; those that are not to be used go."""
    repo, config = engine.world.repo, engine.world.config
    found = set[str]()
    waiting = kept_worktrees(repo)
    usable = usable_root(repo, config.worktree_root) if waiting else None
    if usable is None:
        return frozenset()
    root, room = usable, config.worktree.keep_size or 0
    for kept in waiting:
        room -= kept.size
        if len(found) < config.worktree.pool and room >= 0 and not kept.is_old and kept.worktree.path.parent == root:
            found.add(kept.name)
            continue
        try:
            let_go(repo, kept, root)
        except (OrchardError, OSError) as error:
            engine.notes.append(f"The worktree {kept.path} is not used again, and stays: {error}")
    return frozenset(found)


def _unheld(
    engine: Engine, reader: JournalReader, trees: Worktrees, waiting: frozenset[str]
) -> tuple[list[Worktree], list[Path]]:
    """Worktrees of ours that no plan holds, and folders that not even git knows."""
    if not trees.root.is_dir():
        return [], []
    held = _held(engine.runs.values()) | waiting
    ours = [one for one in trees.repo.checkouts() if one.ours and one.path.parent == trees.root]
    strays = trees.strays(held)
    candidates = [Worktree(one.path.name, one.path) for one in ours if one.path.name not in held]
    candidates += [Worktree(one.name, one.path) for one in strays if one.kind == "entry"]
    if candidates:
        # Plans that are over may hold worktrees too: of failed jobs, for people to look into. Their labels say whose
        # they are; all other plans, which may be thousands, are asked only about a worktree that is not theirs.
        named = {one.label.partition(" ")[0] for one in ours if one.path.name not in held}
        over = sorted((row.id for row in reader.plans() if row.id not in engine.runs), key=named.__contains__)
        while over and any(one.name not in held for one in candidates):
            held |= _held([replay(reader.events(over.pop()))])
    unheld = [one for one in dict.fromkeys(candidates) if one.name not in held]
    return unheld, [one.path for one in strays if one.kind == "folder"]


def _held(runs: Iterable[Run]) -> set[str]:
    return {worktree.name for run in runs for worktree in folders_of(run)}


def _take_away(trees: Worktrees, worktree: Worktree) -> None:
    """Save a worktree that no plan knows, and remove it; nobody can say what it began from."""
    ref = wip_ref(STRAYS, worktree.name, 1)
    saved = ensure_saved(trees.repo, worktree, ref, "orchard: found without a plan", base="")
    trees.remove(worktree, saved)


def _take_away_unknown(trees: Worktrees, path: Path) -> str:
    """Save and remove a folder that neither git nor a plan knows; returns what a person is told about it."""
    known = f"Neither git nor a plan knows {path}"
    if path.is_symlink() or not path.is_dir():
        return f"{known}; it is not a folder and was left alone."
    folder = Worktree(path.name, path)
    ref = wip_ref(STRAYS, slug(path.name), 1)
    try:
        _, base = trees.repo.resolve("HEAD")
        saved = ensure_saved(trees.repo, folder, ref, f"orchard: found in {path.name}", base)
        if saved.ignored or saved.special:
            return f"{known}; it holds files that git ignores, which cannot be saved, and was left alone."
        trees.remove_unknown(folder, saved)
    except OrchardError as error:
        return f"{known}; it was left alone: {error.message}"
    return f"{known}; its content was saved as {saved.ref or 'nothing new'}, and it was removed."
