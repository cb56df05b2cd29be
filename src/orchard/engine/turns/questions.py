"""Calls that a person is asked about: recorded, answered by whoever sees them first, or refused when time is over.

The agent's turn waits meanwhile. Its slot is lent, the time does not count for its health, and nothing polls. A
question lives as long as its turn, or until the agent takes it back: an engine that dies takes both with it, and the
turn that goes on then asks again.
"""

import asyncio

from msgspec import Struct

from orchard.agents.protocol import Permit, Wanted
from orchard.engine.context import Context
from orchard.engine.programs import redacted
from orchard.engine.turns.scope import scope_of
from orchard.model.events.plans import CallAnswered, CallAsked
from orchard.text import laid_open, one_line

ABOUT, INPUT = 300, 32_000
"""Characters of a call that a person is shown. All of its input is shown: a longer one is refused unasked."""
MOST_ASKED = 200
"""Questions of one turn; whoever asks more often is refused without one."""


class Person(Struct):
    """Whoever answers for the agent of one turn."""

    context: Context
    agent: str
    asked: int = 0

    async def ask(self, wanted: Wanted) -> Permit:
        context, last = self.context, self.context.state.last
        if last is not None and (context.subtask, wanted.tool) in last.always:
            return Permit(True)
        self.asked += 1
        if self.asked > MOST_ASKED:
            return Permit(False, f"you have asked a person {MOST_ASKED} times in this turn, and that is enough")
        question = self._question(wanted)
        if len(question.input) > INPUT:
            return Permit(False, f"it is too long for a person to read: make it shorter than {INPUT:,} characters")
        key = (context.run.id, context.job_id, question.number)
        answer: asyncio.Future[CallAnswered] = asyncio.get_running_loop().create_future()
        context.engine.questions[key] = answer
        context.record(question)
        try:
            # The question is on disk before a person sees it: a crash forgets none.
            await context.engine.durable()
            return await self._answer(question, answer)
        except asyncio.CancelledError:
            if not answer.done() and not context.engine.closing:
                self._record_end(question, "withdrawn")
            raise
        finally:
            del context.engine.questions[key]

    async def _answer(self, question: CallAsked, answer: "asyncio.Future[CallAnswered]") -> Permit:
        context, seconds = self.context, self.context.world.config.limits.ask
        with context.engine.desks[scope_of(context)].waiting():
            await asyncio.wait({answer}, timeout=seconds)
        if answer.done():
            said = answer.result()
            # What is allowed is done outside of us: that it was allowed has to outlive us first.
            await context.engine.durable()
            reason = f": {said.why}" if said.why else "."
            return Permit(said.allowed, "" if said.allowed else f"a person said no{reason}")
        self._record_end(question, "timeout")
        return Permit(False, f"no one answered within {seconds:g} s; do without it, or say at the end what is missing")

    def _record_end(self, question: CallAsked, why: str) -> None:
        """That no person decided about a call, and it is not made."""
        where = (question.job, question.attempt, question.number)
        self.context.record(CallAnswered(*where, allowed=False, by=why, subtask=question.subtask))

    def _question(self, wanted: Wanted) -> CallAsked:
        context, seconds = self.context, self.context.world.config.limits.ask
        # Laid open first: what hides secrets would take what stands within a sequence for a part of one.
        tool, about, given = (
            redacted(laid_open(text), context.world.hidden_in, context.run)
            for text in (wanted.tool, wanted.about, wanted.input)
        )
        return CallAsked(
            context.job_id,
            context.number,
            context.state.asked + 1,
            self.agent,
            one_line(tool, 100),
            one_line(about, ABOUT),
            given,
            context.subtask,
            None if seconds is None else context.world.clock() + seconds,
        )
