"""One subtask, from its slot to its result: a worktree, one turn of an agent there, a commit under a ref of ours.

It ends in exactly one of three ways, each the same event: completed, failed, or stopped with its parent. The only
other end is the death of the engine, which the next engine finds in the journal. `pull` brings what it changed into the
worktree of the agent that asked for it.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from orchard.agents.choice import Choice
from orchard.agents.prompts.subtask import SubtaskContext, subtask_instructions
from orchard.agents.protocol import Agent, Result, Settings
from orchard.core.records import Subtask, depth_of
from orchard.core.run import Run
from orchard.engine.context import Context
from orchard.engine.engine import Engine
from orchard.engine.outcome import Failed, Held
from orchard.engine.phases import setup
from orchard.engine.programs import redacted
from orchard.engine.turns.permissions import handed_on
from orchard.engine.turns.scope import Desk, offered_name
from orchard.engine.turns.turn import Asked, run_turn
from orchard.engine.turns.work import environment_for, limits_for
from orchard.engine.workspace import workspace_of
from orchard.engine.world import World
from orchard.errors import OrchardError, SystemRefused
from orchard.git.command import GitError
from orchard.git.history import files, show_path
from orchard.git.merge.conflicts import Merge
from orchard.git.objects.reader import Change
from orchard.git.refs import subtask_ref
from orchard.git.worktree.commit import CommitInfo, Committed, Refused
from orchard.git.worktree.transfer import changed_paths, in_the_way, is_busy, merge_onto
from orchard.model.events.plans import Json, SubtaskEnded, SubtaskPulled, SubtaskStarted
from orchard.model.permissions import ALL, Source, Tools, all_of
from orchard.model.phases import Phase
from orchard.model.plan import JobId, ShellWork
from orchard.process.failpoint import failpoint
from orchard.store.journal import JournalFailed
from orchard.text import shortened

MOST_DEPTH = 2
"""Subtasks of subtasks, and no deeper."""
SUMMARY = 4000
"""Characters of a result that are kept."""
LISTED_PATHS = 100


class Order(Struct, frozen=True):
    id: str
    chosen: Choice
    """The agent, and the definition by which it works."""
    task: str
    permits: Tools = ALL
    """What whoever asks for it lets it use, of what it may use itself."""

    @property
    def agent(self) -> Agent:
        return self.chosen.agent


class _End(Struct, frozen=True):
    status: str
    message: str = ""
    summary: str = ""


async def run_subtask(desk: Desk, order: Order) -> None:
    parent = desk.context
    engine, run, job_id = parent.engine, parent.run, parent.job_id
    subtask = run.records[job_id].subtasks[order.id]
    # Its files are not the job's own: what is noted about its worktree goes with it.
    context = Context(
        engine, run, job_id, parent.number, Phase.MERGE_FI, parent.hurry, base=subtask.base, subtask=order.id
    )
    try:
        await _to_its_end(desk, order, context, subtask)
    finally:
        desk.children.pop(order.id, None)
        desk.tell()
        if subtask.started is not None:
            engine.subtask_slots.free()


async def _to_its_end(desk: Desk, order: Order, context: Context, subtask: Subtask) -> None:
    try:
        end = await _guarded(desk, order, context)
        await _finish(context, subtask, order, end)
    except asyncio.CancelledError:
        if context.engine.closing:
            raise
        await _stop(context, subtask)


async def _guarded(desk: Desk, order: Order, context: Context) -> _End:
    """The work, with every error turned into a failed subtask; only a journal that cannot record is let through."""
    try:
        return await _work(desk, order, context)
    except JournalFailed:
        raise
    except OrchardError as error:
        return _End("failed", f"{error.message} {context.world.say(error.hint or '')}".strip())
    except OSError as error:
        return _End("failed", SystemRefused(error).message)
    except Exception as error:  # as in an attempt: a bug becomes a failed subtask, and the engine goes on
        return _End("failed", f"{type(error).__name__}: {error}")


async def _work(desk: Desk, order: Order, context: Context) -> _End:
    engine, run, job_id = context.engine, context.run, context.job_id
    # At most once: that it was asked for must outlive us before it begins.
    await engine.durable()
    started = SubtaskStarted(job_id, context.number, order.id)
    await engine.subtask_slots.take(run, lambda: context.record(started))
    await context.workspace.prepare(context.base)
    context.phase = Phase.SETUP
    ready = await setup(context)
    context.phase = desk.context.phase
    if isinstance(ready, Failed | Held):
        return _End("failed", ready.message if isinstance(ready, Failed) else context.world.say(ready.reason))
    result = await run_turn(context, _asked(desk, order, context))
    return _ended(context, order, result)


def _asked(desk: Desk, order: Order, context: Context) -> Asked:
    agent = order.agent
    work = desk.work or ShellWork(command="true")
    sources = _sources(desk, order)
    settings = replace(_settings(desk, order), tools=all_of(sources))
    may_spawn = depth_of(context.state.subtasks, order.id) < MOST_DEPTH
    told = SubtaskContext(
        task=order.task,
        folder=context.place.folder,
        plan=context.plan.name,
        job=context.job_id,
        subtask=order.id,
        role=order.chosen.role,
        server=offered_name(context, agent, "subtask", settings),
        may_spawn=may_spawn,
        allowed_folders=settings.allowed_folders,
        allowed_urls=settings.allowed_urls,
        permitted=settings.tools.words if settings.tools != ALL else "",
    )
    env = environment_for(context, agent, work)
    env.pop("ORCHARD_EVIDENCE", None)  # of the job's own work; a subtask proves nothing
    return Asked(
        agent=agent,
        purpose="subtask",
        instructions=subtask_instructions(told),
        folder=context.place.folder,
        env=env,
        limits=limits_for(context, work),
        settings=settings,
        sources=sources,
        work=desk.work,
        definition=order.chosen.name,
    )


def _sources(desk: Desk, order: Order) -> tuple[Source, ...]:
    """Who says what it may use. It never has more than its parent, whatever a definition or a request says."""
    return handed_on(desk.context.world.config, order.chosen, desk.settings.tools, order.permits)


def _settings(desk: Desk, order: Order) -> Settings:
    """What the plan allows the parent holds for its helper; a model and an effort are those of one agent only."""
    same = desk.agent == order.agent.name
    model = order.chosen.model or (desk.settings.model if same else None)
    given = replace(desk.settings, model=model)
    return given if same else replace(given, tier=None, effort=None, max_turns=None)


def _ended(context: Context, order: Order, result: Result) -> _End:
    """What the end of its turn means for a subtask; what its agent said by `complete_subtask` is its result."""
    subtask = context.state.subtasks[order.id]
    said = subtask.result if subtask.result is not None else shortened(result.text, SUMMARY)
    summary = redacted(said, context.world.hidden_in, context.run)
    if result.reason == "denied" or (not result.ok and subtask.result is None):
        message = result.message or f"Its turn ended: {result.reason}."
        return _End("failed", redacted(message, context.world.hidden_in, context.run), summary)
    if not subtask.succeeded:
        return _End("failed", "Its agent says that it could not do it.", summary)
    return _End("completed", "", summary)


async def _finish(context: Context, subtask: Subtask, order: Order, end: _End) -> None:
    engine, run, job_id = context.engine, context.run, context.job_id
    commit, counts, paths = None, dict[str, int](), tuple[str, ...]()
    try:
        committed = await _collect(context, subtask) if context.workspace.is_open else None
        if committed is not None and committed.changed:
            commit, counts = committed.commit, committed.counts
            changed = await context.world.in_thread(files, context.world.repo, context.base, commit)
            paths = tuple(one.shown for one in changed[:LISTED_PATHS])
    except OrchardError as error:
        message = f"{end.message} What it left cannot be taken over: {error.message}".strip()
        end = _End("failed", message, end.summary)
    ended = SubtaskEnded(job_id, context.number, order.id, end.status, end.message, end.summary, commit, counts, paths)
    engine.record(run.id, ended)
    await context.workspace.end(f"left over after {order.id}")


async def _collect(context: Context, subtask: Subtask) -> Committed:
    info = CommitInfo(
        name=subtask.name or subtask.id,
        ref=subtask_ref(context.run.id, context.job_id, context.number, subtask.id),
        author=context.world.identity,
        droppings=context.droppings,
        trailers=(
            ("Orchard-Plan", context.run.id),
            ("Orchard-Job", context.job_id),
            ("Orchard-Attempt", str(context.number)),
            ("Orchard-Subtask", subtask.id),
        ),
    )
    result = await context.workspace.collect(info, context.base, stays=False)
    if isinstance(result, Refused):
        raise OrchardError(result.message, result.hint)
    return result


async def _stop(context: Context, subtask: Subtask) -> None:
    message = "It was stopped, because the turn of the agent that asked for it ended."
    if subtask.over:
        await context.workspace.end(f"stopped: {subtask.id}")
    else:
        end = _End("stopped", message, subtask.result or "")
        await _end_early(context.engine, context.run, context.job_id, subtask, end, " Its folder is kept.")


async def settle_subtasks(engine: Engine, run: Run, job_id: JobId) -> None:
    """After a crash: end what subtasks left running, save what they did, and say that they were interrupted."""
    for subtask in run.records[job_id].subtasks.values():
        workspace = workspace_of(engine, run, job_id, subtask.id)
        if subtask.over:
            await workspace.end("left over after a subtask")
        else:
            await workspace.end_survivors()
            await _end_early(engine, run, job_id, subtask, _End("interrupted", "The engine was stopped while it ran."))


async def _end_early(engine: Engine, run: Run, job_id: JobId, subtask: Subtask, end: _End, then: str = "") -> None:
    """Save what a subtask did so far, record how it ended, and give the worktree back; kept, if it cannot be saved."""
    workspace, why = workspace_of(engine, run, job_id, subtask.id), f"{end.status}: {subtask.id}"
    saved = await workspace.try_to_save(why, then)
    commit = saved.commit if saved is not None else None
    ended = SubtaskEnded(job_id, subtask.attempt, subtask.id, end.status, end.message, end.summary, commit)
    engine.record(run.id, ended)
    if saved is not None:
        await workspace.end(why, saved)


# ------------------------------------------------------------------------------ taking it over


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
    context.record(pulled)
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
