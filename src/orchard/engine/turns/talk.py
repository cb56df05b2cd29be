"""The turns of an agent that works on a job, one after the other, as long as somebody has something to say.

    a turn ends well ──► a message came meanwhile ──► the next turn, in the same session
                     └─► no message: plain work is done; `interactive` work is held until somebody says more
    a turn is interrupted: the same, but the work is never done by itself; what that turn was to tell and the agent has
                           not heard waits for the next turn

A held job is durable and has no slot (see `idling`). Messages are events, acknowledged before they are given to the
agent, and count as told only when the agent says that it has taken them in (`agents.agent.Heard`), or has done what it
was asked. A turn that was interrupted, failed or died before that is followed by one that tells the same again, and
says so: a person's word must not be lost, and an agent may hear it twice. The same holds for the task itself.
"""

from msgspec.structs import replace

from orchard.agents.prompts.work import message_instructions, with_messages
from orchard.agents.protocol import Result
from orchard.engine.context import Context
from orchard.engine.interruption import Interruptible
from orchard.engine.outcome import Held
from orchard.engine.turns.idle import WORKER, waiting_worker
from orchard.engine.turns.turn import Asked, run_turn
from orchard.model.events.plans import AgentEnded, MessagesDelivered, WorkerIdle
from orchard.model.phases import Phase


async def talk(context: Context, asked: Asked, *, interactive: bool) -> Result | Held:
    """Have the work done, turn after turn; the result is that of the last one."""
    state, last = context.state, context.state.last
    assert last is not None
    first = asked
    if last.idle is not None:
        if not state.has_news:
            return _idle(context, last.idle.why)
        asked = _next(context, first)
    elif state.queued:
        asked = _with_what_was_said(context, first)
    while True:
        result = await _turn(context, asked)
        if result is not None and not result.ok:
            return result
        if result is None and _newest(context) <= asked.messages:
            _know_without_session(context, asked)
            return _idle(context, "interrupted")
        if state.queued or (interactive and state.has_news):
            asked = _next(context, first)
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


def _know_without_session(context: Context, asked: Asked) -> None:
    """An agent without a session is told everything in every turn: nothing has to wait for it."""
    if asked.messages and context.state.queued and f"{asked.agent.name} {asked.purpose}" not in context.state.sessions:
        context.record(MessagesDelivered(context.job_id, context.number, asked.messages))


def _note_end(context: Context, asked: Asked) -> None:
    """A turn that was interrupted before its agent had begun has told of no end."""
    every = context.state.last.turns if context.state.last is not None else []
    turns = [turn for turn in every if turn.subtask is None]
    if turns and turns[-1].ended is None:
        ended = AgentEnded(context.job_id, context.number, Phase.WORK, asked.agent.name, asked.purpose, "stopped")
        context.record(ended)


def _next(context: Context, first: Asked) -> Asked:
    """`first` is how the attempt began: an agent that has not heard even that is told it now."""
    state, last = context.state, context.state.last
    turns = last.turns if last is not None else []
    if not any(turn.heard for turn in turns if turn.purpose == first.purpose and turn.subtask is None):
        return _with_what_was_said(context, first)
    session = state.sessions.get(f"{first.agent.name} {first.purpose}")
    whole = _whole(context, first)
    texts, again = _queued(context)
    told = message_instructions(texts, again=again) if texts else ""  # updates alone join it
    return replace(
        first, instructions=told if session else whole, session=session, whole=whole, messages=_newest(context)
    )


def _with_what_was_said(context: Context, first: Asked) -> Asked:
    """The first turn of an attempt, when there are messages that have not been told yet."""
    whole = _whole(context, first)
    texts, again = _queued(context)
    told = with_messages(first.instructions, texts, again=again) if first.session else whole
    return replace(first, instructions=told, whole=whole, messages=_newest(context))


def _queued(context: Context) -> tuple[list[str], bool]:
    """What the agent has still to be told, and whether an earlier turn was to tell some of it."""
    queued = context.state.queued
    return [message.text for message in queued], any(context.state.told_before(one.number) for one in queued)


def _newest(context: Context) -> int:
    return context.state.messages[-1].number if context.state.messages else 0


def _whole(context: Context, first: Asked) -> str:
    """Everything, for a session that knows nothing."""
    task = first.whole or first.instructions
    return with_messages(task, [message.text for message in context.state.messages])


def _idle(context: Context, why: str) -> Held:
    context.record(WorkerIdle(context.job_id, context.number, why))
    return Held(WORKER, waiting_worker(context.job_id, context.number, why).reason, Phase.WORK)
