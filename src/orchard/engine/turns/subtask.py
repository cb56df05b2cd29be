"""One subtask, from its slot to its result: a worktree, turns of an agent there, a commit under a ref of ours.

    waiting ──► running ──► completed, failed
       ▲           └──────► idle, paused: no slot and no task, until a message, `resume` or `complete`
       └───────────────────────┘

It ends in exactly one of three ways, each the same event: completed, failed, or stopped with the work that it is a part
of. The only other end is the death of the engine, which the next engine finds in the journal; what was idle then stays
so. `pull` brings what it changed into the worktree of the agent that asked for it.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from orchard.agents.definitions.choice import Choice
from orchard.agents.prompts.subtask import SubtaskContext, subtask_instructions
from orchard.agents.protocol import Agent, Result, Settings
from orchard.core.records import Subtask, children_of, depth_of
from orchard.core.run import Run
from orchard.engine.context import Context
from orchard.engine.engine import Engine
from orchard.engine.outcome import Failed, Held
from orchard.engine.programs import redacted
from orchard.engine.turns.job_tokens import Scope
from orchard.engine.turns.news import record_end, tell_of, tell_of_interruption
from orchard.engine.turns.permissions import handed_on
from orchard.engine.turns.scope import Desk, desk_of, offered_name, scope_of
from orchard.engine.turns.talk import talk
from orchard.engine.turns.turn import Asked
from orchard.engine.turns.work import environment_for, intent_of, limits_for, plan_task
from orchard.engine.works import setup
from orchard.engine.workspace import workspace_of
from orchard.errors import OrchardError, SystemRefused
from orchard.files import replace_whole
from orchard.git.command import GitError
from orchard.git.history import files, show_path
from orchard.git.refs import subtask_ref
from orchard.git.worktree.commit import CommitInfo, Committed, Refused
from orchard.git.worktree.transfer import Transfer, is_busy, transfer
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
"""Characters of a result that are told at once; the whole is kept beside the log, and read in pages."""
RESULT_BYTES = 1024 * 1024
CUT = b"\n[... what is longer than 1 MiB is not kept ...]\n"
STOPPED = "It was stopped, because the work ended that it was a part of."
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
    size: int = 0


def begin(desk: Desk, order: Order) -> None:
    """Have a subtask worked on, from its slot on; one that was at rest goes on in its session."""
    desk.orders[order.id] = order
    _spawn(desk, order.id, _run(desk, order))


def finish(desk: Desk, id: str) -> None:
    """End a subtask that is at rest: somebody said that it is done."""
    _spawn(desk, id, _finish_at_rest(desk, id))


def stop(desk: Desk, id: str) -> None:
    """End a subtask that has no task: it never began, or is at rest."""
    context = _context(desk, id)
    _spawn(desk, id, _stop(context, context.state.subtasks[id]))


def _spawn(desk: Desk, id: str, work: Coroutine[Any, Any, None]) -> None:
    task = desk.children[id] = desk.context.engine.spawn(work)
    # A task that is canceled before its first step runs none of its own code, so this is not left to it.
    task.add_done_callback(partial(_rests, desk, id))


def _rests(desk: Desk, id: str, task: "asyncio.Task[None]") -> None:
    if desk.children.get(id) is task:
        del desk.children[id]
    desk.tell()
    engine = desk.context.engine
    if not engine.closing:
        tell_of(desk, id)
    engine.wake()


async def _run(desk: Desk, order: Order) -> None:
    context = _context(desk, order.id)
    subtask, engine = context.state.subtasks[order.id], context.engine
    rests, has_slot = False, False

    def started() -> None:
        nonlocal has_slot
        has_slot = True
        context.record(SubtaskStarted(context.job_id, context.number, order.id))

    try:
        # At most once: that it was asked for must outlive us before it begins.
        await engine.durable()
        await engine.subtask_slots.take(context.run, started)
        end = await _guarded(desk, order, context)
        rests = end is None
        if end is not None:
            desk.ending.add(order.id)
            await _finish(context, subtask, end)
    except asyncio.CancelledError:
        if engine.closing:
            raise
        await _stop(context, subtask)
    finally:
        if has_slot:
            engine.subtask_slots.free()
    if rests:
        context.workspace.leave()
        _watch_idle(desk, order, context, subtask)


def _watch_idle(desk: Desk, order: Order, context: Context, subtask: Subtask) -> None:
    """Have it told that a subtask is idle for long; one that is paused is not."""

    def still() -> bool:
        task = desk.children.get(order.id)
        return subtask.status == "idle" and (task is None or task.done())

    def fail(why: str) -> None:
        _spawn(desk, order.id, _finish_at_rest(desk, order.id, _End("failed", why, subtask.summary)))

    def watch() -> None:
        context.engine.activity.idle(context.run, scope_of(context), still, fail, lambda: begin(desk, order))

    asyncio.get_running_loop().call_soon(watch)  # when the task that brought it to rest is over


async def _finish_at_rest(desk: Desk, id: str, end: _End | None = None) -> None:
    context = _context(desk, id)
    subtask = context.state.subtasks[id]
    try:
        await context.workspace.prepare(context.base)
        await _finish(context, subtask, end or _completed(context, subtask, ""))
    except asyncio.CancelledError:
        if context.engine.closing:
            raise
        await _stop(context, subtask)


def _context(desk: Desk, id: str) -> Context:
    """A subtask as its work sees it. Its files are not the job's own: what is noted about its worktree goes with it."""
    parent = desk.context
    subtask = parent.state.subtasks[id]
    first = Phase.MERGE_FI if subtask.idle is None else Phase.WORK
    return Context(
        parent.engine, parent.run, parent.job_id, subtask.attempt, first, desk.hurry, base=subtask.base, subtask=id,
        phase=parent.phase,
    )  # fmt: skip


async def _guarded(desk: Desk, order: Order, context: Context) -> _End | None:
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


async def _work(desk: Desk, order: Order, context: Context) -> _End | None:
    """None: it is not over, and waits to be told more."""
    subtask, phase = context.state.subtasks[order.id], context.phase
    await context.workspace.prepare(context.base)
    context.phase = Phase.SETUP
    ready = await setup(context)
    context.phase = phase
    if isinstance(ready, Failed | Held):
        return _End("failed", ready.message if isinstance(ready, Failed) else context.world.say(ready.reason))
    result = await talk(context, _asked(desk, order, context), interactive=subtask.interactive)
    if not isinstance(result, Held):
        return _ended(context, subtask, result)
    return _completed(context, subtask, "") if subtask.completed_by is not None else None


def _asked(desk: Desk, order: Order, context: Context) -> Asked:
    agent = order.agent
    work = desk.work or ShellWork(command="true")
    sources = _sources(desk, order)
    settings = replace(_settings(desk, order), tools=all_of(sources))
    may_spawn = depth_of(context.state.subtasks, order.id) < MOST_DEPTH and settings.tools.permits_own("spawn_subtask")
    told = SubtaskContext(
        task=order.task,
        folder=context.place.folder,
        plan=context.plan.name,
        job=context.job_id,
        subtask=order.id,
        role=order.chosen.role,
        parent_task=_parent_task(desk),
        plan_task=plan_task(context),
        interactive=context.state.subtasks[order.id].interactive,
        server=offered_name(context, agent, "subtask", settings),
        may_spawn=may_spawn,
        may_change=not settings.tools.only_reads,
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


def _parent_task(desk: Desk) -> str:
    """What the agent that handed it out was asked to do."""
    context = desk.context
    if context.subtask is not None:
        return context.state.subtasks[context.subtask].instructions
    return intent_of(context.job)


def _settings(desk: Desk, order: Order) -> Settings:
    """What the plan allows the parent holds for its helper; a model and an effort are those of one agent only."""
    same = desk.agent == order.agent.name
    model = order.chosen.model or (desk.settings.model if same else None)
    given = replace(desk.settings, model=model)
    return given if same else replace(given, tier=None, effort=None, max_turns=None)


def _ended(context: Context, subtask: Subtask, result: Result) -> _End:
    """What the end of its turn means for a subtask; what its agent said by `complete_subtask` is its result."""
    if result.reason == "denied" or (not result.ok and subtask.result is None):
        message = result.message or f"Its turn ended: {result.reason}."
        summary, size = keep_result(context, result.text)
        return _End("failed", redacted(message, context.world.hidden_in, context.run), summary, size)
    return _completed(context, subtask, result.text)


def _completed(context: Context, subtask: Subtask, text: str) -> _End:
    summary, size = subtask.result, subtask.size
    if summary is None:
        summary, size = keep_result(context, text or _last_words(context))
    if not subtask.succeeded:
        return _End("failed", "Its agent says that it could not do it.", summary, size)
    return _End("completed", _SAID_DONE.get(subtask.completed_by or "", ""), summary, size)


_SAID_DONE = {
    "parent": "The agent that asked for it said that it is done.",
    "person": "A person said that it is done.",
}


def _last_words(context: Context) -> str:
    turns = context.state.last.turns if context.state.last is not None else []
    return next((turn.text for turn in reversed(turns) if turn.subtask == context.subtask and turn.text), "")


def keep_result(context: Context, text: str) -> tuple[str, int]:
    """Keep a whole result beside the log, without secrets; returns what of it is told at once, and its bytes."""
    assert context.subtask is not None
    clean = redacted(text, context.world.hidden_in, context.run)
    data = clean.encode(errors="replace")
    if len(data) > RESULT_BYTES:
        data = data[:RESULT_BYTES].decode(errors="ignore").encode() + CUT
    if len(clean) > SUMMARY:
        logs = context.world.logs
        path = logs.result_path(context.run.id, context.job_id, context.number, context.subtask)
        logs.make(path)
        replace_whole(path, data)
    return shortened(clean, SUMMARY), len(data)


async def _finish(context: Context, subtask: Subtask, end: _End) -> None:
    engine, run, job_id = context.engine, context.run, context.job_id
    await end_subtasks(context)
    commit, counts, paths = None, dict[str, int](), tuple[str, ...]()
    try:
        committed = await _collect(context, subtask) if context.workspace.is_open else None
        if committed is not None and committed.changed:
            commit, counts = committed.commit, committed.counts
            changed = await context.world.in_thread(files, context.world.repo, context.base, commit)
            paths = tuple(one.shown for one in changed[:LISTED_PATHS])
    except OrchardError as error:
        message = f"{end.message} What it left cannot be taken over: {error.message}".strip()
        end = _End("failed", message, end.summary, end.size)
    about = (job_id, context.number, subtask.id)
    record_end(engine, run, SubtaskEnded(*about, end.status, end.message, end.summary, commit, counts, paths, end.size))
    await context.workspace.end(f"left over after {subtask.id}")


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


# ------------------------------------------------------------------------------------ ending early


async def end_subtasks(context: Context) -> None:
    """End what an agent handed out, because its work is over: what runs is ended, and what was done is saved.

    Returns when all of it is over, however often we are canceled meanwhile. An engine that closes leaves what is at
    rest as it is: the next one has it.
    """
    engine = context.engine
    known = engine.desks.pop(scope_of(context), None)
    desk = known if isinstance(known, Desk) else Desk(context)
    open_ = _open(context)
    canceled: asyncio.CancelledError | None = None
    for task in desk.children.values():
        task.cancel()
    while desk.children or (_open(context) and not engine.closing):
        for one in _open(context) if not engine.closing else ():
            if one.id not in desk.children:
                stop(desk, one.id)
        try:
            await asyncio.wait(tuple(desk.children.values()))
            await asyncio.sleep(0)  # what follows the end of a task comes in the next step
        except asyncio.CancelledError as error:
            canceled = error
    if open_:
        many = f"{len(open_)} subtasks were" if len(open_) > 1 else "a subtask was"
        context.notes.append(f"{many} not over when the work ended; stopped, and what was done is saved")
    if canceled is not None:
        raise canceled


def _open(context: Context) -> list[Subtask]:
    return [one for one in children_of(context.state.subtasks, context.number, context.subtask) if not one.over]


async def end_abandoned(engine: Engine, run: Run, job_id: JobId) -> None:
    """End the subtasks of attempts that are over: of a held job that was canceled, or whose time was over."""
    for number in sorted({one.attempt for one in run.records[job_id].abandoned}):
        await end_subtasks(Context(engine, run, job_id, number, Phase.WORK, asyncio.Event(), phase=Phase.WORK))


async def _stop(context: Context, subtask: Subtask) -> None:
    await end_subtasks(context)
    if subtask.over:
        await context.workspace.end(f"stopped: {subtask.id}")
        return
    end = _End("stopped", STOPPED, subtask.result or "", subtask.size)
    if subtask.completed_by in _SAID_DONE:
        end = _completed(context, subtask, "")
        if await _is_finished(context, subtask, end):
            return
    await _end_early(context.engine, context.run, context.job_id, subtask, end, " Its folder is kept.")


async def _is_finished(context: Context, subtask: Subtask, end: _End) -> bool:
    """End one that was called done while it had no turn, as any other: what it changed before is its result."""
    try:
        if subtask.worktree is not None and not context.workspace.is_open:
            await context.workspace.prepare(context.base)
        await _finish(context, subtask, end)
    except OrchardError:
        return subtask.over  # its folder cannot be had: what can be saved is saved
    return True


async def settle_subtasks(engine: Engine, run: Run, job_id: JobId) -> None:
    """After a crash: end what subtasks left running, save what they did, and say that they were interrupted.

    Those that were at rest are left as they are; if the attempt is over that they belong to, they end with it.
    """
    for subtask in run.records[job_id].subtasks.values():
        workspace = workspace_of(engine, run, job_id, subtask.id)
        if subtask.over:
            await workspace.end("left over after a subtask")
        elif not subtask.at_rest:
            await workspace.end_survivors()
            await _end_early(engine, run, job_id, subtask, _End("interrupted", "The engine was stopped while it ran."))
            tell_of_interruption(engine, run, job_id, subtask)
        elif subtask.status == "idle":
            _watch_again(engine, run, job_id, subtask)


def _watch_again(engine: Engine, run: Run, job_id: JobId, subtask: Subtask) -> None:
    """The same as `_watch_idle` after another engine: nothing is at work on it before somebody says something."""
    context = Context(
        engine, run, job_id, subtask.attempt, Phase.WORK, asyncio.Event(), base=run.records[job_id].base or "",
        phase=Phase.WORK, subtask=subtask.parent,
    )  # fmt: skip
    scope = Scope(run.id, job_id, subtask.attempt, subtask.id)

    def still() -> bool:
        return subtask.status == "idle" and engine.interruptible(scope) is None

    def fail(why: str) -> None:
        desk = desk_of(context)
        _spawn(desk, subtask.id, _finish_at_rest(desk, subtask.id, _End("failed", why, subtask.summary)))

    engine.activity.idle(run, scope, still, fail)


async def _end_early(engine: Engine, run: Run, job_id: JobId, subtask: Subtask, end: _End, then: str = "") -> None:
    """Save what a subtask did so far, record how it ended, and give the worktree back; kept, if it cannot be saved."""
    workspace, why = workspace_of(engine, run, job_id, subtask.id), f"{end.status}: {subtask.id}"
    saved = await workspace.try_to_save(why, then)
    commit = saved.commit if saved is not None else None
    about = (job_id, subtask.attempt, subtask.id)
    record_end(engine, run, SubtaskEnded(*about, end.status, end.message, end.summary, commit, size=end.size))
    if saved is not None:
        await workspace.end(why, saved)


# ------------------------------------------------------------------------------ taking it over


async def pull(context: Context, subtask: Subtask) -> Json:
    """Merge a subtask's commit into the worktree of whoever asked for it; a conflict is told, and changes nothing."""
    assert subtask.commit is not None
    world, workspace = context.world, context.workspace
    ours = await workspace.picture(context.base, f"before the changes of {subtask.id} were pulled")
    commits = (subtask.base, ours, subtask.commit)
    step = partial(world.in_thread, transfer, world.integration.live, workspace.folder, *commits)
    found = await world.again_if_vanished(step)
    answer: Json = {"id": subtask.id, "status": "merged", "files": [], "conflicts": []}
    if conflicts := conflicts_of(found):
        return {**answer, "status": "conflict", "conflicts": conflicts}
    failpoint("subtask.before-pull")
    try:
        await workspace.write_changes(ours, found.merge.tree)
    except GitError as error:
        if not is_busy(error):
            raise
        return {**answer, "status": "busy"}
    failpoint("subtask.after-pull")
    paths = [show_path(change.path) for change in found.changes]
    pulled = SubtaskPulled(context.job_id, context.number, subtask.id, subtask.commit, tuple(paths[:LISTED_PATHS]))
    context.record(pulled)
    return {**answer, "files": paths[:LISTED_PATHS]}


def conflicts_of(found: Transfer) -> list[Json]:
    """Where two sides do not go together, or something is in the way, as whoever pulls is told."""
    told = [{"path": show_path(one.path), "kind": str(one.kind)} for one in found.merge.conflicts]
    told += [{"path": show_path(path), "kind": kind} for path, kind in found.in_the_way]
    return told[:LISTED_PATHS]
