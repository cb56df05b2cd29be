"""The turns of an agent that works on a job, one after the other, as long as somebody has something to say.

    a turn ends well ──► a message came meanwhile ──► the next turn, in the same session
                     └─► no message: plain work is done; `interactive` work is held until somebody says more
    a turn is interrupted: the same, but the work is never done by itself

A held job is durable and has no slot (see `idling`). Messages are events, acknowledged before they are given to the
agent, and count as given only when the turn that carried them has ended: one that was cut off by a crash carries them
again, because a person's word must not be lost and an agent may hear it twice.
"""

from dataclasses import replace

from orchard.agents.agent import Result
from orchard.agents.talking import message_instructions, with_messages
from orchard.core.events import AgentEnded, MessagesDelivered, WorkerIdle
from orchard.core.phases import Phase
from orchard.engine.context import Context
from orchard.engine.idling import WORKER, waiting_worker
from orchard.engine.interruption import Interruptible
from orchard.engine.outcome import Held
from orchard.engine.turns import Asked, run_turn


async def talk(context: Context, asked: Asked, *, interactive: bool) -> Result | Held:
    """Have the work done, turn after turn; the result is that of the last one."""
    state, last = context.state, context.state.last
    assert last is not None
    task = asked.whole or asked.instructions
    if last.idle is not None:
        if not state.queued:
            return _idle(context, last.idle.why)
        asked = _next(context, asked, task)
    elif state.queued:
        asked = _with_what_was_said(context, asked, task)
    while True:
        carried = state.messages[-1].number if state.queued else 0
        result = await _turn(context, asked)
        if result is not None and not result.ok:
            return result
        if carried:
            context.engine.record(context.run.id, MessagesDelivered(context.job_id, context.number, carried))
        if state.queued:
            asked = _next(context, asked, task)
        elif result is None or interactive:
            return _idle(context, "interrupted" if result is None else "done")
        else:
            return result


async def _turn(context: Context, asked: Asked) -> Result | None:
    """One turn; None: somebody interrupted it."""
    live = context.engine.live[context.run.id, context.job_id]
    live.turn = Interruptible()
    try:
        result = await live.turn.run(run_turn(context, asked))
    finally:
        live.turn = None
    if result is None:
        _note_end(context, asked)
    return result


def _note_end(context: Context, asked: Asked) -> None:
    """A turn that was interrupted before its agent had begun has told of no end."""
    every = context.state.last.turns if context.state.last is not None else []
    turns = [turn for turn in every if turn.subtask is None]
    if turns and turns[-1].ended is None:
        ended = AgentEnded(context.job_id, context.number, Phase.WORK, asked.agent.name, asked.purpose, "stopped")
        context.engine.record(context.run.id, ended)


def _next(context: Context, asked: Asked, task: str) -> Asked:
    """The turn that gives the agent what was said to it, in the session where it was."""
    state = context.state
    session = state.sessions.get(f"{asked.agent.name} {asked.purpose}")
    whole = _whole(context, task)
    told = message_instructions([message.text for message in state.queued])
    return replace(asked, instructions=told if session else whole, session=session, whole=whole, number=1)


def _with_what_was_said(context: Context, asked: Asked, task: str) -> Asked:
    """The first turn of an attempt, when messages of the attempt before have not been given yet."""
    queued = [message.text for message in context.state.queued]
    whole = _whole(context, task)
    told = with_messages(asked.instructions, queued) if asked.session else whole
    return replace(asked, instructions=told, whole=whole)


def _whole(context: Context, task: str) -> str:
    """Everything, for a session that knows nothing."""
    return with_messages(task, [message.text for message in context.state.messages])


def _idle(context: Context, why: str) -> Held:
    context.engine.record(context.run.id, WorkerIdle(context.job_id, context.number, why))
    return Held(WORKER, waiting_worker(context.job_id, context.number, why).reason, Phase.WORK)
