"""What an agent mended in the merged result becomes a part of it, like a leaf of its own.

The folder of the validation job stands at the snapshot. What differs there after healing is committed, and its tree is
brought into the plan's two lines on top of everything that is merged already: what is verified then is what lands.
"""

from orchard.engine.context import Context
from orchard.engine.merges.gather import base_ref, commit_time
from orchard.engine.outcome import Failed, Outcome, Passed
from orchard.engine.snapshot import MENDED, merge_leaf
from orchard.engine.turns.heal import healed_trailers
from orchard.git.merge.integration import compose_message
from orchard.git.refs import ANY, Update, keep_ref, update_refs
from orchard.git.worktree.commit import CommitInfo, Refused
from orchard.model.events.plans import WorkCommitted
from orchard.model.plan import VALIDATION
from orchard.process.failpoint import failpoint


async def take_in_mended(context: Context) -> Outcome:
    """Commit what healing changed, and bring it into the snapshot."""
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
    assert run.snapshot is not None
    context.base = context.commit = run.snapshot.tip
    await context.workspace.move_head(run.snapshot.tip)
    return Passed(outcome.note if isinstance(outcome, Passed) else "")


def _info(context: Context) -> CommitInfo:
    earlier = context.state.work_commit
    return CommitInfo(
        droppings=context.droppings,
        name=MENDED,
        ref=keep_ref(context.run.id, VALIDATION, context.number),
        author=context.world.identity,
        trailers=(("Orchard-Plan", context.run.id), ("Orchard-Job", VALIDATION), *healed_trailers(context)),
        replaces=earlier.commit if earlier is not None else None,
    )


def _on_top(context: Context, commit: str) -> str:
    """The same tree as a commit on the line of true merges, held until it is merged."""
    world, snapshot = context.world, context.run.snapshot
    assert snapshot is not None
    integration = world.integration
    tree = integration.objects.tree_of(commit)
    message = compose_message(MENDED, trailers={"Orchard-Plan": context.run.id, "Orchard-Job": VALIDATION})
    made = integration.merger.commit(
        tree, (snapshot.integration,), message, when=commit_time(world, commit), author=world.identity
    )
    ref = base_ref(context.run.id, VALIDATION, context.number)
    update_refs(world.repo.git, [Update(ref, made, ANY)], "orchard: mended")
    return made
