"""The turns of an agent that works on a job or a subtask, one after the other, while somebody has something to say.

    a turn ends well ──► a message came meanwhile ──► the next turn, in the same session
                     └─► no message: plain work is done; `interactive` work is held until somebody says more
    a turn is interrupted: the same, but the work is never done by itself; what that turn was to tell and the agent has
                           not heard waits for the next turn
    a turn is paused: whatever is said waits until somebody resumes the agent

A held job is durable and has no slot (see `idling`), and so is a subtask that is idle. Messages are events,
acknowledged before they are given to the agent, and count as told only when the agent says that it has taken them in
(`agents.agent.Heard`), or has done what it was asked. A turn that was interrupted, failed or died before that is
followed by one that tells the same again, and says so: a person's word must not be lost, and an agent may hear it
twice. The same holds for the task itself.
"""

from msgspec.structs import replace

from orchard.agents.prompts.work import go_on_instructions, message_instructions, said_by, with_messages
from orchard.agents.protocol import Result
from orchard.core.records import JobRecord, Subtask, Turn
from orchard.engine.context import Context
from orchard.engine.interruption import Interruptible
from orchard.engine.outcome import Held
from orchard.engine.turns.idle import WORKER, waiting_worker
from orchard.engine.turns.news import tell_unseen
from orchard.engine.turns.scope import desk_of
from orchard.engine.turns.turn import Asked, run_turn
from orchard.model.events.plans import AgentEnded, MessagesDelivered, MessageSent, SubtaskIdle, WorkerIdle
from orchard.model.phases import Phase


async def talk(context: Context, asked: Asked, *, interactive: bool) -> Result | Held:
    """Have the work done, turn after turn; the result is that of the last one."""
    party, first = _Party(context), asked
    if party.is_called_done:
        return Result("done")
    if (idle := party.idle) is not None:
        if not party.has_news and idle != "paused":
            return party.rest(idle)
        asked = _next(party, first)
    elif party.state.queued:
        asked = _with_what_was_said(party, first)
    while True:
        result, why = await _turn(party, asked)
        if party.is_called_done:
            return Result("done")
        if result is not None and not result.ok:
            return result
        if result is None and party.is_complete and (why == "paused" or party.newest <= asked.messages):
            return Result("done")  # its agent has told its result: nothing is left to go on with
        if why == "paused":
            return party.rest(why)
        if result is None and party.newest <= asked.messages:
            _know_without_session(party, asked)
            return party.rest(why)
        if party.state.queued or (interactive and party.has_news):
            tell_unseen(desk_of(context))
            asked = _next(party, first)
        elif result is None or (interactive and not party.is_complete):
            return party.rest(why if result is None else "done")
        else:
            return result


class _Party:
    """Whom one talks with: the agent of a job's work, or that of a subtask."""

    def __init__(self, context: Context) -> None:
        self.context = context
        record = context.state
        self.state: JobRecord | Subtask = record if context.subtask is None else record.subtasks[context.subtask]

    @property
    def idle(self) -> str | None:
        """Why no turn is under way since an earlier one ended; None: nobody waited."""
        if isinstance(self.state, Subtask):
            return self.state.idle
        last = self.state.last
        return last.idle.why if last is not None and last.idle is not None else None

    @property
    def has_news(self) -> bool:
        if isinstance(self.state, JobRecord):
            return self.state.has_news
        waking = any(one.wakes for one in self.context.state.updates_for(self.context.subtask))
        return waking or bool(self.state.queued)

    @property
    def is_complete(self) -> bool:
        """Whether a subtask has told its result, or somebody said that it is done."""
        return isinstance(self.state, Subtask) and self.state.completed_by is not None

    @property
    def is_called_done(self) -> bool:
        """Whether a person or a parent said that the work is done: then it is, however its agent's turn ended.

        Work that was done in another folder is not here: where the job starts over, its agent does as well.
        """
        if isinstance(self.state, Subtask):
            return self.state.completed_by in ("parent", "person")
        last = self.state.last
        return last is not None and last.completed is not None and not self.context.starts_over

    @property
    def newest(self) -> int:
        return self.state.messages[-1].number if self.state.messages else 0

    @property
    def turns(self) -> list[Turn]:
        last = self.context.state.last
        return [turn for turn in last.turns if turn.subtask == self.context.subtask] if last is not None else []

    def session(self, asked: Asked) -> str | None:
        if isinstance(self.state, Subtask):
            return self.state.session
        return self.state.sessions.get(f"{asked.agent.name} {asked.purpose}")

    def was_told(self, number: int) -> bool:
        return self.context.state.told_before(number, self.context.subtask)

    def set_turn(self, turn: Interruptible | None) -> None:
        context = self.context
        if context.subtask is None:
            context.engine.live[context.run.id, context.job_id].turn = turn
        else:
            desk_of(context).turn = turn

    def rest(self, why: str) -> Held:
        """It waits to be told more: a job is held, and a subtask gives its slot back."""
        context = self.context
        tell_unseen(desk_of(context))
        if context.subtask is None:
            context.record(WorkerIdle(context.job_id, context.number, why))
        else:
            context.record(SubtaskIdle(context.job_id, context.number, context.subtask, why))
        return Held(WORKER, waiting_worker(context.job_id, context.number, why).reason, Phase.WORK)


async def _turn(party: _Party, asked: Asked) -> tuple[Result | None, str]:
    """One turn, and if it was ended by somebody, None and why."""
    turn = Interruptible()
    party.set_turn(turn)
    try:
        result = await turn.run(run_turn(party.context, asked))
    finally:
        party.set_turn(None)
    if result is None:
        _note_end(party, asked)
    return result, turn.why


def _know_without_session(party: _Party, asked: Asked) -> None:
    """An agent without a session is told everything in every turn: nothing has to wait for it."""
    if asked.messages and party.state.queued and party.session(asked) is None:
        context = party.context
        context.record(MessagesDelivered(context.job_id, context.number, asked.messages, context.subtask))


def _note_end(party: _Party, asked: Asked) -> None:
    """A turn that was interrupted before its agent had begun has told of no end."""
    context, turns = party.context, party.turns
    if turns and turns[-1].ended is None:
        about = (context.job_id, context.number, context.phase, asked.agent.name, asked.purpose)
        context.record(AgentEnded(*about, "stopped", subtask=context.subtask))


def _next(party: _Party, first: Asked) -> Asked:
    """`first` is how the attempt began: an agent that has not heard even that is told it now."""
    if not any(turn.heard for turn in party.turns if turn.purpose == first.purpose):
        return _with_what_was_said(party, first)
    session = party.session(first)
    whole = _whole(party, first)
    texts, again = _queued(party)
    told = message_instructions(texts, again=again) if texts else ""  # updates alone join it
    if not texts and party.idle == "paused":
        told = go_on_instructions("it was paused")
    return replace(first, instructions=told if session else whole, session=session, whole=whole, messages=party.newest)


def _with_what_was_said(party: _Party, first: Asked) -> Asked:
    """The first turn of an attempt, when there are messages that have not been told yet."""
    whole = _whole(party, first)
    texts, again = _queued(party)
    signed = isinstance(party.state, Subtask)
    told = with_messages(first.instructions, texts, again=again, signed=signed) if first.session else whole
    return replace(first, instructions=told, whole=whole, messages=party.newest)


def _queued(party: _Party) -> tuple[list[str], bool]:
    """What the agent has still to be told, and whether an earlier turn was to tell some of it."""
    queued = party.state.queued
    return _texts(party, queued), any(party.was_told(one.number) for one in queued)


def _whole(party: _Party, first: Asked) -> str:
    """Everything, for a session that knows nothing."""
    task = first.whole or first.instructions
    return with_messages(task, _texts(party, party.state.messages), signed=isinstance(party.state, Subtask))


def _texts(party: _Party, messages: list[MessageSent]) -> list[str]:
    """To a job's own agent only people speak."""
    signed = isinstance(party.state, Subtask)
    return [said_by(one.by, one.text) if signed else one.text for one in messages]
