"""The loop of the built-in agent: ask the model, run the tools it calls, answer, until it has nothing more to ask for.

A conversation only ever grows at its end, and is kept after each step, so that a turn which is cut off can go on.
What is sent is bounded: see `memory`.
"""

from collections.abc import Awaitable, Callable, Sequence

from msgspec.structs import replace

from orchard.agents.builtin.calls import Calls
from orchard.agents.builtin.memory import Bounds, compacted, fitted, lightened, middle, transcript
from orchard.agents.builtin.model import Hear, Message, ModelError, Reply, Request, TooLong, result_block, said
from orchard.agents.builtin.prompts import CALL_CUT_OFF, CUT_OFF, NOT_RUN, SUMMARY_REQUEST, SUMMARY_SYSTEM
from orchard.agents.protocol import Noted, Result, Said, Tell, Watch

Ask = Callable[[Request, Hear], Awaitable[Reply]]
Keep = Callable[[Sequence[Message]], Awaitable[None]]

MOST_CUTS = 3
"""Messages in a row that may reach the limit of their length."""
SUMMARY_TOKENS = 4096
LONGEST_TASK = 24_000
_PART = 400


class Loop:
    """One turn. `ask` makes one call of the model, with everything that it takes; `keep` saves the conversation."""

    def __init__(
        self, ask: Ask, request: Request, calls: Calls, bounds: Bounds, watch: Watch, keep: Keep, turns: int = 50
    ) -> None:
        self._ask, self._calls, self._bounds, self._watch, self._keep = ask, calls, bounds, watch, keep
        self._request = replace(request, tools=calls.offered)
        self._turns = turns
        self._messages: list[Message] = list(request.messages)
        self._text = ""
        self._cuts = 0
        self._squeezed = False

    async def run(self) -> Result:
        for _ in range(self._turns):
            await self._shorten()
            if (why := self._watch.stop()) is not None:
                return Result("budget", why, self._text)
            try:
                ended = await self._step()
            except TooLong as error:
                ended = await self._squeeze(error.message)
            except ModelError as error:
                return Result(error.reason, error.message, self._text, retry_after=error.retry_after)
            if ended is not None:
                return ended
        often = "once" if self._turns == 1 else f"{self._turns} times"
        return Result("max-turns", f"The agent called the model {often} without coming to an end.", self._text)

    async def _step(self) -> Result | None:
        voice = Voice(self._watch.tell, self._watch.alive)
        try:
            reply = await self._ask(replace(self._request, messages=tuple(self._messages)), voice.hear)
        finally:
            voice.end()
        self._text = reply.message.text or self._text
        self._cuts = self._cuts + 1 if reply.stop == "max_tokens" else 0
        if reply.stop == "context":
            return await self._squeeze("The conversation does not fit into the model's window.")
        self._squeezed = False
        if reply.stop == "tool_use" and reply.message.calls:
            await self._add(reply.message)
            # Kept with the calls still open: whoever goes on after a crash is told that they may have been run.
            await self._add(await self._calls.run(reply))
            self._watch.alive()
            return None
        return await self._without_tools(reply)

    async def _without_tools(self, reply: Reply) -> Result | None:
        if reply.stop == "refusal":
            return Result("refused", f"The model refuses to go on: {reply.detail or 'it gives no reason'}", self._text)
        if reply.message.blocks:
            note = CALL_CUT_OFF if reply.stop == "max_tokens" else NOT_RUN
            answers = tuple(result_block(call["id"], note, failed=True) for call in reply.message.calls)
            await self._add(reply.message, *([Message("user", answers)] if answers else []))
        if reply.stop == "max_tokens":
            if self._cuts >= MOST_CUTS:
                most = self._request.max_tokens
                return Result(
                    "failed", f"The model's messages were cut off {MOST_CUTS} times, at {most} tokens.", self._text
                )
            if not reply.message.calls:
                await self._add(said(CUT_OFF))
            return None
        if reply.stop == "pause_turn":
            return None
        if reply.stop == "other":
            return Result(
                "failed", f"The model stopped for a reason that is not known here: {reply.detail}.", self._text
            )
        return Result("done", "", self._text)

    async def _add(self, *messages: Message) -> None:
        self._messages += messages
        await self._keep(self._messages)

    # ------------------------------------------------------------------------------------ keeping it short

    async def _shorten(self) -> None:
        bounds = self._bounds
        threshold = min(bounds.threshold, bounds.most)
        most = bounds.most
        if bounds.compact and len(self._messages) > threshold:
            # Where the summary fails it is not asked for again with the next message: what is old goes without one.
            most = most if await self._compact(min(bounds.keep_recent, threshold * 2 // 3)) else threshold
        short = fitted(self._messages, most)
        if len(short) < len(self._messages):
            left = len(self._messages) - len(short)
            self._watch.tell(Noted("compacted", f"{left} older messages were left out of the conversation."))
            self._messages = short
            await self._keep(self._messages)

    async def _squeeze(self, why: str) -> Result | None:
        """The conversation is too large for the model: make it as short as it gets, once, and try again."""
        before = self._messages
        if not self._squeezed:
            self._squeezed = True
            await self._compact(2)
            self._messages = lightened(fitted(self._messages, 0))
        if self._messages == before:
            return Result("failed", why, self._text)
        await self._keep(self._messages)
        return None

    async def _compact(self, keep_recent: int) -> bool:
        """Put a summary in the place of what is old; False where that fails, and nothing has changed."""
        end = middle(self._messages, keep_recent)
        if not end or self._watch.stop() is not None:
            return True
        old = self._messages[:end]
        asked = SUMMARY_REQUEST.format(task=self._messages[0].text[:LONGEST_TASK], transcript=transcript(old[1:]))
        request = Request(
            self._request.model,
            SUMMARY_SYSTEM,
            (said(asked),),
            max_tokens=min(SUMMARY_TOKENS, self._request.max_tokens),
        )
        try:
            reply = await self._ask(request, lambda _: None)
        except ModelError as error:
            self._watch.tell(Noted("compacted", f"Older messages could not be summarised: {error.message}"))
            return False
        if reply.stop not in ("end_turn", "stop_sequence") or not reply.message.text:
            self._watch.tell(Noted("compacted", f"Older messages could not be summarised: it ended as '{reply.stop}'."))
            return False
        self._messages = compacted(self._messages, end, reply.message.text)
        self._watch.tell(Noted("compacted", f"A summary now stands for {end - 1} older messages."))
        await self._keep(self._messages)
        return True


class Voice:
    """What the model says, told in lines and not in syllables."""

    def __init__(self, tell: Tell, alive: Callable[[], None]) -> None:
        self._tell, self._alive = tell, alive
        self._parts: list[str] = []
        self._size = 0
        self._fresh = True

    def hear(self, text: str) -> None:
        """Take in a part; a newline after a line that has ended says nothing."""
        self._alive()
        if not text or (text == "\n" and self._fresh):
            return
        self._parts.append(text)
        self._size += len(text)
        self._fresh = text.endswith("\n")
        if "\n" in text or self._size > _PART:
            self._flush()

    def end(self) -> None:
        if not self._fresh:
            self.hear("\n")
        self._flush()

    def _flush(self) -> None:
        if self._parts:
            self._tell(Said("".join(self._parts)))
        self._parts, self._size = [], 0
