"""Moving the target to the validated commit: at most once, whatever dies whenever.

    intent row → act (compare-and-swap of the branch, together with the checkout that has it) → read back → done row

After a crash the intent is compared with git, not with memory: the branch holds the commit, or it
does not. The commit was made before the intent, so doing it again is the same landing.
"""

import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec.structs import replace

from orchard.core.run import Run
from orchard.core.sides import SIDES, nothing_to_land
from orchard.engine.context import Context
from orchard.engine.engine import Engine
from orchard.engine.machine.sandbox import is_obeyed
from orchard.engine.outcome import Held, Outcome, Passed
from orchard.engine.plans.refs import slug
from orchard.engine.snapshot import landing_id
from orchard.errors import Hint, NeedsPerson, Next, OrchardError, UsageError, parts_of
from orchard.git.history import is_ancestor
from orchard.git.landing import landing as git_landing
from orchard.git.landing.checkout import BranchMoved
from orchard.git.landing.obstacles import REVERT, LandingRefused, some
from orchard.git.landing.recovery import Settled
from orchard.git.merge.integration import Conflicted, compose_message
from orchard.git.merge.memory import share_memory
from orchard.git.refs import Update, job_ref_part, list_refs, update_refs
from orchard.git.remote_branches import push
from orchard.git.repository import Repository
from orchard.model.events import plans as events
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION
from orchard.process.failpoint import failpoint
from orchard.text import escaped


class Moved(Passed, frozen=True):
    """The target is not where the snapshot began: merge and validate again."""


_OBEYED = 10
"""Changed files that other programs obey are named up to so many."""


async def land(context: Context) -> Outcome:
    run = context.run
    tip = context.commit = run.snapshot.tip
    if run.landed is not None:
        return await _after_landing(context)
    if tip == run.snapshot.start:
        context.engine.record(run.id, events.NothingToLand())
        return Passed(f"{_why_nothing(run)}: there is nothing to land")
    obeyed = await _tell_of_obeyed(context, tip)
    if context.plan.land == "never" and not run.proposes:
        return await _leave_on_branch(context, tip)
    if run.proposes:
        return await _propose(context, tip)
    if context.plan.land == "ask" and context.approved != "landing":
        reason = f"The result passed validation and waits for you to land it on '{run.pinned.target_branch}'.{obeyed}"
        return Held("landing", reason, Phase.MERGE_RI)
    return await _land(context, tip)


async def _propose(context: Context, tip: str) -> Outcome:
    """`land: pr`: nothing of the user's moves here; where that cannot be done now, the plan waits."""
    from orchard.engine import pull_requests as proposals  # few plans end so

    await _harden(context, tip)
    run = context.run
    made = await proposals.propose(context.engine, run, lambda: proposals.of_snapshot(run, tip))
    if isinstance(made, OrchardError):
        instead = (f" (to land it on '{run.pinned.target_branch}' here instead: ", Next("land_plan", run.id), ")")
        return Held(proposals.KIND, (f"{made.message} ", *parts_of(made.hint), *instead), Phase.MERGE_RI)
    return Passed(f"proposed by {made.url}")


async def _tell_of_obeyed(context: Context, tip: str) -> str:
    """Tell of changed files that other programs obey, such as workflows and settings of agents: apart from the rest."""
    run, objects = context.run, context.world.integration.objects

    def changed() -> list[str]:
        trees = objects.tree_of(run.snapshot.start), objects.tree_of(tip)
        return sorted(escaped(os.fsdecode(one.path)) for one in objects.diff_trees(*trees) if is_obeyed(one.path))

    paths = await context.world.in_thread(changed)
    if not paths:
        return ""
    more = f" and {len(paths) - _OBEYED} more" if len(paths) > _OBEYED else ""
    told = f"It changes files that other programs obey: {', '.join(paths[:_OBEYED])}{more}."
    context.engine.warn(run.id, told)
    return f" {told}"


def _why_nothing(run: Run) -> str:
    made = [record.work_commit for job, record in run.records.items() if job != VALIDATION]
    changed = any(one.summary.get(kind) for one in made if one for kind in ("added", "modified", "deleted"))
    return nothing_to_land(changed=changed, resolvers=[one.by for one in run.resolutions])


async def _land(context: Context, new: str) -> Outcome:
    engine, run = context.engine, context.run
    branch, old = context.world.repo.meant_branch(run.pinned.target_branch), context.target_tip
    await _harden(context, new)
    intent = events.LandingIntended(landing_id(run), branch, old, new)
    failpoint("landing.before-intent")
    engine.record(run.id, intent)
    await engine.durable()
    failpoint("landing.before-move")
    message = f"orchard: land {run.id}"
    result, canceled = await _to_its_end(engine, branch, old, new, message)
    failpoint("landing.after-move")
    if isinstance(result, LandingRefused):
        engine.record(run.id, events.LandingVoided(intent.landing, result.reason))
        if canceled is not None:
            raise canceled
        if result.kind == "moved":
            return Moved(result.reason)
        why = (f"{result.reason.rstrip('.')}. ", *parts_of(result.hint))
        return Held("landing", why, Phase.MERGE_RI)
    checkout = str(result.checkout) if result.checkout else None
    engine.record(run.id, events.Landed(intent.landing, branch, old, new, checkout))
    await engine.durable()
    _tell_rest(engine, run, result)
    if any(one.by not in SIDES for one in run.resolutions):
        await engine.world.in_thread(share_memory, engine.world.repo, run.id)
    failpoint("landing.after-done")
    return await _after_landing(context)


async def _harden(context: Context, tip: str) -> None:
    """What was merged could have been merged again; what a branch holds has to be on disk."""
    snapshot, world = context.run.snapshot, context.world
    await world.in_thread(world.integration.harden, snapshot.start, tip)


async def _to_its_end(
    engine: Engine, branch: str, old: str | None, new: str, message: str
) -> tuple[BranchMoved | LandingRefused, asyncio.CancelledError | None]:
    """Move the branch, and say how that ended also to whoever is canceled meanwhile: a landing that happened counts."""
    done: list[BranchMoved | LandingRefused] = []

    def move() -> None:
        done.append(git_landing.land(engine.world.repo, branch, old, new, message))

    try:
        await engine.world.in_thread(move)
    except asyncio.CancelledError as canceled:
        task = asyncio.current_task()
        if not done or task is None:
            raise
        task.uncancel()
        return done[0], canceled
    return done[0], None


async def _after_landing(context: Context) -> Outcome:
    run = context.run
    assert run.landed is not None
    if run.undone is not None:
        return Passed("it had landed, and was taken back")
    if run.pushed is None:
        await _push(context.engine, run)
    return Passed(f"landed on {run.landed.branch}")


async def _push(engine: Engine, run: Run) -> None:
    """Hand the branch on, if the plan or else the configuration says so; a failure is told while the landing stands."""
    wanted = run.plan.push if run.plan.push is not None else engine.world.config.push
    if wanted and run.landed is not None:
        ok, message = await engine.world.in_thread(push, engine.world.repo, run.landed.branch)
        engine.record(run.id, events.Pushed(run.landed.branch, ok, message[-2000:]))


def _tell_rest(engine: Engine, run: Run, result: BranchMoved) -> None:
    _tell_kept(engine, run, result.kept)
    if result.unfinished:
        said = f"The checkout could not follow when the branch moved. {result.unfinished}."
        engine.record(
            run.id, events.Warned(f"{said} The next engine of this repository makes it whole.", until_moved=True)
        )


def _tell_kept(engine: Engine, run: Run, kept: Path | None) -> None:
    if kept is not None:
        said = "A program wrote to files of your checkout while they were replaced."
        engine.warn(run.id, f"{said} What it wrote is in {kept}.")


def tell_settled(engine: Engine, run: Run, found: Sequence[Settled]) -> None:
    """Say what was left alone when an interrupted landing or undo of this plan was finished or taken back."""
    intent = run.landing or run.undo
    for one in found:
        if intent is None or one.intent is None or {intent.old, intent.new} != {one.intent.old, one.intent.new}:
            continue
        if one.astray:
            engine.record(run.id, events.Warned(engine.world.say(one.astray), until_moved=True))
        if one.theirs:
            said = f"was interrupted, and these files were edited since: they are left as they are: {some(one.theirs)}"
            engine.record(run.id, events.Warned(f"A landing or an undo in {one.intent.top} {said}", until_moved=True))
        _tell_kept(engine, run, one.kept)


async def settle(engine: Engine, run: Run) -> None:
    """Find out from git what became of a landing that was intended before the engine died."""
    intent = run.landing
    if intent is None:
        return
    where = await engine.world.in_thread(
        git_landing.where_is, engine.world.repo, intent.branch, intent.landing, intent.old, intent.new
    )
    if where in ("landed", "landed-elsewhere"):
        engine.record(run.id, events.Landed(intent.landing, intent.branch, intent.old, intent.new, found=True))
        await engine.durable()
    else:
        engine.record(run.id, events.LandingVoided(intent.landing, f"found {where} after an interruption"))


async def _leave_on_branch(context: Context, tip: str) -> Outcome:
    """`land: never`: a new branch holds the result."""
    await _harden(context, tip)
    branch = await context.world.in_thread(_new_branch, context, tip)
    failpoint("landing.after-branch")
    context.record(events.NothingToLand(branch, tip))
    return Passed(f"the result is on branch {branch}")


def _new_branch(context: Context, tip: str) -> str:
    repo = context.world.repo
    wanted = f"orchard/{slug(context.plan.name)}"
    for ref, commit in list_refs(repo.git, "refs/heads").items():
        # No other plan has this very commit: we made the branch before we were killed.
        if commit == tip and ref.startswith(f"refs/heads/{wanted}"):
            return ref.removeprefix("refs/heads/")
    branch = repo.free_branch_name(wanted)
    update_refs(repo.git, [Update(f"refs/heads/{branch}", tip, None)], f"orchard: result of {context.run.id}")
    return branch


# ------------------------------------------------------------------------------- undo and again


async def undo(engine: Engine, run: Run) -> tuple[events.LandingUndone, bool]:
    """Take a landing back by compare-and-swap; False: that had been done before."""
    landed = run.landed
    await settle_undo(engine, run)
    if run.undone is not None:
        return run.undone, False  # asked for twice, or found done after a crash: either way it is as it should be
    if landed is None:
        raise UsageError(f"Plan '{run.id}' has not landed, so there is nothing to undo.")
    failpoint("undo.before-intent")
    engine.record(run.id, events.UndoIntended(landed.landing, landed.branch, landed.old, landed.new))
    await engine.durable()
    failpoint("undo.before-move")
    repo = engine.world.repo
    result = await engine.world.in_thread(git_landing.undo, repo, landed.branch, landed.old, landed.new)
    failpoint("undo.after-move")
    if isinstance(result, LandingRefused):
        engine.record(run.id, events.UndoVoided(landed.landing, result.reason))
        await engine.durable()
        raise await engine.world.in_thread(_not_undone, repo, run, landed, result)
    undone = events.LandingUndone(landed.landing, landed.branch, landed.old)
    engine.record(run.id, undone)
    await engine.durable()
    _tell_rest(engine, run, result)
    failpoint("undo.after-done")
    return undone, True


async def revert(engine: Engine, run: Run) -> tuple[events.LandingUndone, bool]:
    """Take a landing back by a commit on top of the branch, wherever that went on to; False: nothing of it was left."""
    landed, world = run.landed, engine.world
    await settle_undo(engine, run)
    if run.undone is not None:
        return run.undone, False
    if landed is None:
        raise UsageError(f"Plan '{run.id}' has not landed, so there is nothing to undo.")
    tip = await world.in_thread(_holding, engine, landed)
    new = await world.again_if_vanished(lambda: world.in_thread(_reverting, engine, run, landed, tip))
    undone = events.LandingUndone(landed.landing, landed.branch, new, revert=True)
    if new == tip:
        engine.record(run.id, undone)
        await engine.durable()
        return undone, False
    failpoint("undo.before-intent")
    engine.record(run.id, events.UndoIntended(landed.landing, landed.branch, tip, new, revert=True))
    await engine.durable()
    failpoint("undo.before-move")
    result = await world.in_thread(git_landing.revert, world.repo, landed.branch, tip, new)
    failpoint("undo.after-move")
    if isinstance(result, LandingRefused):
        engine.record(run.id, events.UndoVoided(landed.landing, result.reason))
        await engine.durable()
        raise NeedsPerson(f"The landing was not undone. {result.reason}", hint=result.hint)
    engine.record(run.id, undone)
    await engine.durable()
    _tell_rest(engine, run, result)
    failpoint("undo.after-done")
    return undone, True


def _holding(engine: Engine, landed: events.Landed) -> str:
    """Where the branch of a landing is now; a branch that does not hold the landing is refused."""
    repo = engine.world.repo
    tip = repo.branch_tip(repo.meant_branch(landed.branch))
    if tip is not None and is_ancestor(repo, landed.new, tip):
        return tip
    where = "does not exist any more" if tip is None else f"is at {tip:.12}, which does not build on {landed.new:.12}"
    raise NeedsPerson(
        f"The landing was not undone. Branch '{landed.branch}' {where}, so the landed commits are not on it.",
        hint=f"Look at 'git log {landed.branch}' for what is left of them." if tip else None,
    )


def _reverting(engine: Engine, run: Run, landed: events.Landed, tip: str) -> str:
    """The commit that takes the landing back on top of `tip`; conflicts with what came since are refused."""
    before, after = landed.old or run.snapshot.start, landed.new
    title = f'Revert "{run.plan.name}"'
    body = f"This takes back what plan {run.id} landed: {before:.12}..{after:.12}."
    message = compose_message(title, body, {"Orchard-Undo": landed.landing})
    integration, sign = engine.world.integration, engine.world.signs
    made = integration.take_back(tip, before, after, message, when=int(time.time()), sign=sign)
    if not isinstance(made, Conflicted):
        integration.harden(tip, made)
        return made
    listed = some([one.path for one in made.conflicts])
    by_hand = f"git revert --no-edit {before:.12}..{after:.12}"
    if run.plan.merge == "merge":  # `git revert` asks for a parent of each merge
        by_hand = f"git diff --binary {after:.12} {before:.12} | git apply --3way"
    raise NeedsPerson(
        f"The landing was not undone. Files that it changed were changed again since, and taking it back "
        f"conflicts with that: {listed}.",
        hint=f"To settle that by hand, with '{landed.branch}' checked out: {by_hand}",
    )


async def settle_undo(engine: Engine, run: Run) -> None:
    """An undo that was interrupted: git says whether it happened, also where the branch has moved on since."""
    intent = run.undo
    if intent is None or run.undone is not None:
        return
    repo, goal = engine.world.repo, intent.new if intent.revert else intent.old
    if intent.revert:
        where = await engine.world.in_thread(
            git_landing.where_is, repo, intent.branch, intent.landing, intent.old, intent.new
        )
        done = where == "landed"
    else:
        done = await engine.world.in_thread(git_landing.was_undone, repo, intent.branch, intent.old, intent.new)
    if done:
        engine.record(run.id, events.LandingUndone(intent.landing, intent.branch, goal, revert=intent.revert))
    else:
        engine.record(run.id, events.UndoVoided(intent.landing, "found not done after an interruption"))
    await engine.durable()


async def land_again(engine: Engine, run: Run) -> events.Landed:
    """Land a result whose landing was undone; only where the target is still where the undo left it."""
    before = run.landed
    if before is not None and before.found and run.undone is None:
        return before  # we were killed while it landed, and have just found out that it did
    if before is not None and run.undone is None:
        raise UsageError(f"Plan '{run.id}' has landed on '{before.branch}' already.", hint=Next("get_plan", run.id))
    if before is None:
        raise UsageError(f"Plan '{run.id}' has nothing to land.", hint=Next("get_plan", run.id))
    if run.undone is not None and run.undone.revert:
        refuse_reverted(run.id, run.undone)
    intent = events.LandingIntended(before.landing, before.branch, before.old, before.new)
    engine.record(run.id, intent)
    await engine.durable()
    repo, message = engine.world.repo, f"orchard: land {run.id} again"
    result = await engine.world.in_thread(git_landing.land, repo, before.branch, before.old, before.new, message)
    if isinstance(result, LandingRefused):
        engine.record(run.id, events.LandingVoided(intent.landing, result.reason))
        raise NeedsPerson(f"The result was not landed. {result.reason}", hint=_instead_of_landing(run, result))
    landed = events.Landed(intent.landing, before.branch, before.old, before.new, str(result.checkout or "") or None)
    engine.record(run.id, landed)
    await engine.durable()
    _tell_rest(engine, run, result)
    await _push(engine, run)
    await engine.durable()
    return landed


def refuse_reverted(plan: str, undone: events.LandingUndone) -> None:
    """What a branch holds with its reversal cannot land again: git takes it for merged."""
    said = f"The landing of plan '{plan}' was undone by commit {undone.commit:.12} on top of '{undone.branch}'"
    raise UsageError(
        f"{said}, so it cannot land again as it is.",
        hint=f"To bring it back, with '{undone.branch}' checked out: git revert --no-edit {undone.commit:.12}",
    )


def _instead_of_landing(run: Run, refused: LandingRefused) -> Hint:
    """What to do where the branch has gone on since the undo: git merges the result as well."""
    if refused.kind != "moved":
        return refused.hint
    return f"To bring the result there by a merge of your own: git merge refs/orchard/snapshot/{job_ref_part(run.id)}"


def refuse_moved(repo: Repository, run: Run) -> None:
    """Refuse to take a landing back whose branch has gone on: seen beforehand, so that no person is asked in vain."""
    landed = run.landed
    if landed is not None and run.undone is None and run.moving is None:
        refused = git_landing.moved_since(repo, landed.branch, landed.new)
        if refused is not None:
            raise _not_undone(repo, run, landed, refused)


def _not_undone(repo: Repository, run: Run, landed: events.Landed, refused: LandingRefused) -> NeedsPerson:
    """Why a landing stands, and what to do: where the branch has gone on, a commit on top can still take it back."""
    tip = repo.branch_tip(repo.meant_branch(landed.branch)) if refused.kind == "moved" else None
    hint = refused.hint
    if tip is not None and is_ancestor(repo, landed.new, tip):
        hint = ("To take it back by a new commit on top: ", replace(REVERT, plan=run.id))
    return NeedsPerson(f"The landing was not undone. {refused.reason}", hint=hint)
