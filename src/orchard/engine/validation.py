"""The validation job: checks the snapshot and lands it.

    merge-fi     the snapshot as it is
    prechecks    is the target still where the snapshot began? if not, all leaves are merged onto it again
    work         `verify`, in a worktree of the snapshot
    postchecks   the target once more; it moved: back to prechecks, a few times
    merge-ri     land

What lands is the very commit that `verify` passed on. If the target moves at any point before the
compare-and-swap, everything from the merge on is done again.

What an agent heals in the merged result becomes a part of it, like a leaf of its own. The worktree of the validation
job stands at the snapshot. What differs there after healing is committed, and its tree is brought into the plan's two
lines on top of everything that is merged already: what is verified then is what lands.
"""

from functools import partial

from orchard.core.run import Run
from orchard.engine.context import Context
from orchard.engine.landing import Moved, land, settle
from orchard.engine.merges.gather import base_ref, commit_time
from orchard.engine.outcome import Failed, Held, Outcome, Passed, Skipped
from orchard.engine.phases import note_changes, run_phase
from orchard.engine.snapshot import HEALED, merge_leaf, rebuild
from orchard.engine.turns.heal import edited_since, healed_trailers
from orchard.engine.turns.resolve import merge_with_resolver
from orchard.engine.works import run_works, setup
from orchard.errors import Next
from orchard.git.history import is_ancestor
from orchard.git.merge.integration import compose_message
from orchard.git.refs import ANY, Update, keep_ref, update_refs
from orchard.git.worktree.commit import CommitInfo, Refused
from orchard.model import limits
from orchard.model.events.plans import MOVED_SINCE, WorkCommitted
from orchard.model.phases import Phase, at_or_after
from orchard.model.plan import VALIDATION, PlanId
from orchard.process.failpoint import failpoint


async def take_in_healed(context: Context) -> Outcome:
    world, run = context.world, context.run
    committed = await context.workspace.collect(_info(context), context.base)
    if isinstance(committed, Refused):
        return Failed("refused", committed.message, hint=committed.hint, may_heal=committed.unfinished)
    context.healed = False
    if not committed.changed:
        return Passed()
    counts = {"commits": 1, **committed.counts}
    context.engine.record(run.id, WorkCommitted(VALIDATION, context.number, context.base, committed.commit, counts))
    leaf = await world.in_thread(_on_top, context, committed.commit)
    failpoint("mending.before-merge")
    outcome = await merge_leaf(context.engine, run, VALIDATION, leaf)
    if isinstance(outcome, Failed):
        return outcome
    context.base = context.commit = run.snapshot.tip
    await context.workspace.move_head(run.snapshot.tip)
    return Passed(outcome.note if isinstance(outcome, Passed) else "")


def _info(context: Context) -> CommitInfo:
    earlier = context.state.work_commit
    return CommitInfo(
        droppings=context.droppings,
        name=HEALED,
        ref=keep_ref(context.run.id, VALIDATION, context.number),
        author=context.world.identity,
        trailers=(("Orchard-Plan", context.run.id), ("Orchard-Job", VALIDATION), *healed_trailers(context)),
        replaces=earlier.commit if earlier is not None else None,
    )


def _on_top(context: Context, commit: str) -> str:
    """The same tree as a commit on the line of true merges, held until it is merged."""
    world, snapshot = context.world, context.run.snapshot
    integration = world.integration
    tree = integration.objects.tree_of(commit)
    message = compose_message(HEALED, trailers={"Orchard-Plan": context.run.id, "Orchard-Job": VALIDATION})
    made = integration.merger.commit(
        tree, (snapshot.integration,), message, when=commit_time(world, commit), author=world.identity
    )
    ref = base_ref(context.run.id, VALIDATION, context.number)
    update_refs(world.repo.git, [Update(ref, made, ANY)], "orchard: mended")
    return made


REWRITTEN = "rewritten"
"""The kind of hold in which a person is asked about a target whose history is another one now."""
LANDING = "landing"
"""The kind of hold in which a person is asked whether to land."""


async def run_validation(context: Context) -> Outcome:
    first = context.first_phase
    outcome: Outcome = await run_phase(context, Phase.MERGE_FI, _merge_fi)
    for _ in range(limits.RELANDINGS):
        if isinstance(outcome, Failed | Held):
            return outcome
        outcome = await _once(context, first)
        if not isinstance(outcome, Moved):
            return outcome
        first = Phase.PRECHECKS
    branch = context.run.pinned.target_branch
    return Failed(
        "conflict",
        f"Branch '{branch}' moved {limits.RELANDINGS} times while the plan was being validated.",
        hint=("Retry when it is quiet: ", Next("retry_plan", context.run.id)),
        resume_from=Phase.PRECHECKS,
    )


async def _once(context: Context, first: Phase) -> Outcome:
    """One way through; Moved if the target is no longer where the snapshot began."""
    if not at_or_after(first, Phase.POSTCHECKS):
        for phase, function in ((Phase.PRECHECKS, _prechecks), (Phase.SETUP, _setup), (Phase.WORK, _work)):
            outcome = await run_phase(context, phase, function)
            if isinstance(outcome, Failed | Held):
                return outcome
    outcome = await run_phase(context, Phase.POSTCHECKS, _postchecks)
    if isinstance(outcome, Failed | Held | Moved):
        return outcome
    return await run_phase(context, Phase.MERGE_RI, land)


async def _merge_fi(context: Context) -> Outcome:
    snapshot = context.run.snapshot
    context.base = context.commit = snapshot.tip
    return Passed()


async def _prechecks(context: Context) -> Outcome:
    """See that the snapshot stands on the target as it is now."""
    run = context.run
    tip = await context.world.in_thread(context.world.repo.branch_tip, run.pinned.target_branch)
    note = ""
    if tip is None and not stands_on(run, tip):
        return Failed(
            "error",
            f"The target branch '{run.pinned.target_branch}' does not exist any more.",
            hint=f"Make it again (git branch {run.pinned.target_branch} {run.snapshot.start:.12}), then retry.",
        )
    if tip is not None and not stands_on(run, tip):
        rewritten = await _is_rewritten(context, tip)
        if rewritten and context.approved != REWRITTEN:
            return await context.world.in_thread(_ask_about, context, tip)
        # The answer was to land on the target as it is now; if it is another one again, that is asked about anew.
        context.approved = LANDING if rewritten else context.approved
        built = await merge_with_resolver(context, lambda: rebuild(context.engine, run, tip, rewritten=rewritten))
        if not isinstance(built, Passed):
            return built
        note = f"the target moved to {tip:.12}: everything was merged onto it again"
        context.notes += [built.note] if built.note else []
    missing = await _bring_in_missing(context)
    if missing is not None:
        return missing
    context.base = context.commit = run.snapshot.tip
    return Passed(note)


async def _is_rewritten(context: Context, tip: str) -> bool:
    """Whether the target no longer holds the commit that the plan's result was merged onto: amended, or reset.

    What the result could not be merged onto is not missed, if the target still holds what the plan began with.
    """
    run, repo = context.run, context.world.repo
    start = run.snapshot.start
    if not run.snapshot.merged.keys() >= set(run.plan.leaves) and run.snapshot.rewritten is None:
        start = run.pinned.target_commit or run.pinned.base_commit
    return not await context.world.in_thread(is_ancestor, repo, start, tip)


def _ask_about(context: Context, tip: str) -> Held:
    run = context.run
    branch, start = run.pinned.target_branch, run.snapshot.start
    undone = _undone_plan(context, start)
    what = f"was amended or reset while the plan ran: it is at {tip:.12} and"
    if undone is not None:
        what = f"is at {tip:.12} since the landing of plan '{undone}' was undone, and"
    reason = (
        f"Branch '{branch}' {what} no longer holds {start:.12}, from which the plan's result was built. To land the "
        "jobs' changes on it as it is now, without what was taken off: "
    )
    return Held(REWRITTEN, (reason, Next("land_plan", run.id)), Phase.PRECHECKS)


def _undone_plan(context: Context, commit: str) -> PlanId | None:
    """The plan whose landing had put this commit on the target, and was undone."""
    reader = context.engine.chain.reader
    rows = reader.mentioning(commit) if reader is not None else []
    landings = [row for row in rows if row.summary.result is not None and row.summary.result.commit == commit]
    return next((row.id for row in reversed(landings) if row.summary.undone), None)


async def _bring_in_missing(context: Context) -> Failed | Held | None:
    """Merge leaves that the snapshot does not have: an engine was killed while it began the snapshot again."""
    run = context.run
    for job_id in run.plan.leaves:
        if job_id in run.snapshot.merged:
            continue
        commit = run.records[job_id].passed_on
        assert commit is not None, f"'{job_id}' has no result to validate"
        outcome = await merge_with_resolver(context, partial(merge_leaf, context.engine, run, job_id, commit))
        if isinstance(outcome, Failed | Held):
            return outcome
        context.notes += [outcome.note] if outcome.note else []
    return None


def stands_on(run: Run, tip: str | None) -> bool:
    """Whether the snapshot can land on a target that is at `tip` (None: that does not exist)."""
    if tip is not None:
        return tip == run.snapshot.start
    return run.pinned.target_commit is None and run.snapshot.start == run.pinned.base_commit


async def _setup(context: Context) -> Outcome:
    if context.job.work is None:
        return Skipped()
    if await _was_edited(context):
        context.healed = True
        return Passed("what was edited in its worktree becomes a part of the merged result")
    # Whatever lies there is not what would land; it is saved.
    await context.workspace.end(
        MOVED_SINCE if await _has_moved_since(context) else "before the merged result is checked again"
    )
    await context.workspace.prepare(context.base, fresh=context.fresh)
    return await setup(context)


async def _has_moved_since(context: Context) -> bool:
    """Whether the worktree was made of a merged result that the target has left behind."""
    held, start = context.workspace.held, context.run.snapshot.start
    if held is None or held.base == context.base:
        return False
    return not await context.world.in_thread(is_ancestor, context.world.repo, start, held.base)


async def _was_edited(context: Context) -> bool:
    """Whether somebody has mended the merged result by hand, as it is now, since `verify` failed on it."""
    held = context.workspace.held
    if held is None or held.base != context.base or context.fresh or not held.worktree.path.is_dir():
        return False
    await context.workspace.prepare(context.base)
    return await edited_since(context, Phase.WORK)


async def _work(context: Context) -> Outcome:
    if context.job.work is None:
        return Skipped()
    if context.healed:
        healed = await take_in_healed(context)
        if not isinstance(healed, Passed):
            return healed
        context.notes += [healed.note] if healed.note else []
    failpoint("validation.before-verify")
    failed = await run_works(context, [context.job.work])
    failpoint("validation.after-verify")
    if failed is not None:
        return failed
    await note_changes(context)
    return Passed()


async def _postchecks(context: Context) -> Outcome:
    """See that nothing has happened to the target meanwhile, but a landing of ours that was interrupted."""
    run = context.run
    failpoint("validation.before-settle")
    await settle(context.engine, run)
    if run.landed is not None:
        return Passed("it had landed before the interruption")
    tip = await context.world.in_thread(context.world.repo.branch_tip, run.pinned.target_branch)
    context.target_tip = tip
    if not stands_on(run, tip):
        await context.workspace.end("the target moved during validation")
        return Moved("the target moved during validation")
    return Passed()
