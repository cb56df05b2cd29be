"""What can be done about a subtask from outside, by the agent that asked for it or by a person.

    send        a message: its next turn, at once where it is idle
    interrupt   end its turn; it is idle then, or goes on with what was sent to it
    pause       the same, and whatever is sent waits until it is resumed
    resume      go on in its session
    complete    it is done, whatever its agent thinks: what it changed is committed

`prepare` looks for what has to be there, `decide` says what happens and refuses what cannot be, and `perform` does it.
"""

import asyncio
from functools import partial
from typing import Annotated, Literal

from msgspec.structs import replace

from orchard.agents.definitions.choice import choose_again
from orchard.core.records import Subtask
from orchard.core.run import Run
from orchard.engine.context import Context
from orchard.engine.engine import Engine
from orchard.engine.turns.job_tokens import Scope
from orchard.engine.turns.scope import Desk, desk_of
from orchard.engine.turns.subtask import Order, begin, finish, stop
from orchard.engine.turns.work import chosen_for, settings_of, with_definition
from orchard.errors import Next, UsageError
from orchard.model.events.plans import Event, Json, MessageSent, SubtaskCompleted, SubtaskIdle, SubtaskReleased
from orchard.model.permissions import ALL, Tools, all_of, narrowed
from orchard.model.phases import Phase
from orchard.model.plan import AgentWork, JobId
from orchard.operations.commands.subtasks import OfTurn, count, desk_of_turn, own_subtask, service, told_of
from orchard.operations.operation import Operation, says

Action = Literal["send", "interrupt", "pause", "resume", "complete"]
GOES_ON: tuple[Action, ...] = ("send", "resume")
By = Literal["parent", "person"]
QUEUED_MESSAGES = 100
MESSAGE_BYTES = 64 * 1024


async def prepare(engine: Engine, run: Run, job_id: JobId, one: Subtask, *, again: bool = False) -> Order | None:
    """What one that is at rest needs to go on: its agent has to be there, and whatever describes it.

    Only what lets it go on (`GOES_ON`) asks for this: nobody has to be there to pause it, or to call it done.
    `again`: it was prepared and decided, and waits for its slot.
    """
    if not one.at_rest and not (again and one.status == "waiting"):
        return None
    desk = await _desk(engine, run, job_id, one)
    known = desk.orders.get(one.id)
    if isinstance(known, Order):
        return known
    world = engine.world
    described = partial(world.described_in, desk.context.place.folder)
    chosen = await world.in_thread(choose_again, world.agents, one.agent, one.definition, described)
    return Order(one.id, chosen, one.instructions, _last_tools(run, job_id, one.id))


def _last_tools(run: Run, job_id: JobId, subtask: str | None) -> Tools:
    """What an agent might use in its last turn; it never gets more because an engine forgot."""
    last = run.records[job_id].last
    turns = [turn for turn in last.turns if turn.subtask == subtask] if last is not None else []
    if turns:
        return all_of(turns[-1].tools)
    return run.records[job_id].subtasks[subtask].tools if subtask is not None else ALL


def decide(engine: Engine, run: Run, job_id: JobId, one: Subtask, action: Action, message: str, by: By) -> list[Event]:
    about = (job_id, one.attempt, one.id)
    if one.over:
        raise UsageError(f"Subtask '{one.id}' is over: {one.status}.", hint=Next("get_job", run.id, job_id))
    turn = engine.interruptible(Scope(run.id, job_id, one.attempt, one.id))
    match action:
        case "send":
            desk = engine.desks.get(Scope(run.id, job_id, one.attempt, one.parent))
            is_ending = isinstance(desk, Desk) and one.id in desk.ending
            if is_ending or one.completed_by in ("parent", "person"):
                raise UsageError(f"Its agent would not hear it: subtask '{one.id}' has had its last turn.")
            return _said(job_id, one, message, by)
        case "resume":
            if one.status != "paused":
                raise UsageError(f"Subtask '{one.id}' is not paused; it is {one.status}.")
            return [SubtaskReleased(*about)]
        case "complete":
            return [SubtaskCompleted(*about, message, by=by, size=len(message.encode(errors="replace")))]
        case "pause" if one.status == "idle":
            return [SubtaskIdle(*about, "paused")]
        case _ if turn is None:
            raise UsageError(f"Subtask '{one.id}' has no turn that could be ended; it is {one.status}.")
    return []


def _said(job_id: JobId, one: Subtask, message: str, by: By) -> list[Event]:
    if len(one.queued) >= QUEUED_MESSAGES:
        raise UsageError(f"{QUEUED_MESSAGES} messages for subtask '{one.id}' wait already.")
    sent = MessageSent(job_id, len(one.messages) + 1, message, one.id, by)
    return [sent, SubtaskReleased(job_id, one.attempt, one.id)] if one.status == "idle" else [sent]


async def perform(engine: Engine, run: Run, job_id: JobId, one: Subtask, action: Action, order: Order | None) -> Json:
    """Do what was decided and recorded; answers when it is done, or when the subtask goes on."""
    turn = engine.interruptible(Scope(run.id, job_id, one.attempt, one.id))
    if action in GOES_ON:
        desk = await _desk(engine, run, job_id, one)
        if one.status == "waiting" and order is not None and one.id not in desk.children:
            begin(desk, order)
    elif action == "pause" and turn is not None:
        await turn.interrupt("paused")  # a program may take its time to end
        await _end_of_complete(engine, run, job_id, one)
    elif action == "interrupt" and turn is not None:
        await turn.interrupt()
        if not one.queued:
            await _end_of_complete(engine, run, job_id, one)
    elif action == "complete":
        await _complete(await _desk(engine, run, job_id, one, to_work=False), one)
    return {"subtask": one.id, "subtask_status": one.status}


async def _end_of_complete(engine: Engine, run: Run, job_id: JobId, one: Subtask) -> None:
    """Wait for the end of a subtask whose agent had told its result when its turn was ended: it does not rest."""
    desk = engine.desks.get(Scope(run.id, job_id, one.attempt, one.parent))
    task = desk.children.get(one.id) if isinstance(desk, Desk) else None
    if one.completed_by is not None and task is not None:
        await asyncio.wait([task])


async def _complete(desk: Desk, one: Subtask) -> None:
    context = desk.context
    turn = context.engine.interruptible(Scope(context.run.id, context.job_id, one.attempt, one.id))
    if one.at_rest and one.id not in desk.children:
        finish(desk, one.id)
    task = desk.children.get(one.id)
    if turn is not None:
        await turn.interrupt()
    elif task is not None and one.status == "waiting":
        task.cancel()
    if task is not None:
        await asyncio.wait([task])
    if one.status == "waiting" and one.id not in desk.children:
        stop(desk, one.id)  # it was ended before its first step
        await asyncio.wait([desk.children[one.id]])


async def _desk(engine: Engine, run: Run, job_id: JobId, one: Subtask, *, to_work: bool = True) -> Desk:
    """Where the agent sits that asked for a subtask; after another engine, as far as the journal knows.

    `to_work`: with what that agent hands on, so it has to be there.
    """
    known = engine.desks.get(Scope(run.id, job_id, one.attempt, one.parent))
    if isinstance(known, Desk) and (known.agent or not to_work):
        return known
    context = Context(
        engine, run, job_id, one.attempt, Phase.WORK, asyncio.Event(), base=run.records[job_id].base or "",
        phase=Phase.WORK, subtask=one.parent,
    )  # fmt: skip
    held, work = context.workspace.held, context.job.work
    if held is not None and known is None:
        await context.workspace.prepare(held.base)
    desk = Desk(context, work=work)
    if isinstance(work, AgentWork) and to_work:
        chosen = await chosen_for(context, work.agent, has_model=work.model is not None or work.tier is not None)
        settings = with_definition(await settings_of(context, chosen.agent, work), chosen)
        desk.agent = chosen.agent.name
        desk.settings = replace(settings, tools=narrowed(settings.tools, _last_tools(run, job_id, one.parent)))
    found = desk_of(context)  # another request may have been faster
    if not found.agent:
        found.agent, found.settings, found.work = desk.agent, desk.settings, desk.work
    return found


# --------------------------------------------------------------------------- by the agent that asked for it


class SteerSubtask(OfTurn, frozen=True, kw_only=True):
    id: Annotated[str, says("As spawn_subtask gave it.", min_length=1, max_length=400)]
    action: Annotated[Action, says("`interrupt`, `pause`: its turn ends. `complete`: it is done.")]
    message: Annotated[str, says("To `send`: its next turn.", max_length=MESSAGE_BYTES)] = ""


async def _steer_subtask(engine: Engine, args: SteerSubtask) -> Json:
    """Do something about a subtask of one's own; answers with how it stands then."""
    desk = desk_of_turn(engine, args)
    one, run, job_id = own_subtask(desk, args.id), desk.context.run, desk.context.job_id
    if (args.action == "send") != bool(args.message.strip()):
        raise UsageError("'send' needs a 'message', and nothing else has one.")
    if len(args.message.encode(errors="replace")) > MESSAGE_BYTES:
        raise UsageError(f"A message holds at most {MESSAGE_BYTES // 1024} KiB.")
    count(desk)
    order, goes_on = None, args.action in GOES_ON
    if goes_on:
        order = await prepare(engine, run, job_id, one)
    if goes_on and one.at_rest and order is None:
        order = await prepare(engine, run, job_id, one)  # it fell idle meanwhile
    events = decide(engine, run, job_id, one, args.action, args.message, "parent")
    if events:
        engine.record_together(run.id, *events)
    await perform(engine, run, job_id, one, args.action, order)
    return told_of(desk, one.id)


OPERATIONS: tuple[Operation, ...] = (
    service(
        "steer_subtask",
        "Steer a subtask",
        "Say something to a subtask of yours, interrupt, pause, resume or complete it.",
        SteerSubtask,
        _steer_subtask,
        "await_subtasks",
        id="subtask-k3x9p",
        action="send",
        message="Use the other library.",
    ),
)
