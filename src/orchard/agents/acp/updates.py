"""What an agent tells over the protocol, in our vocabulary: every update of a session, and the answer to the prompt.

Agents tell the cost of the whole session, we that of the turn: what a session has cost so far is kept beside it.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from orchard.agents.acp.failures import from_answer, warning_of
from orchard.agents.backends.stream import part, text
from orchard.agents.protocol import Called, Noted, Reason, Said, Tell, Used, digest
from orchard.files import read_below, write_below
from orchard.model.usage import Usage, counted, priced
from orchard.text import one_line

_NAME = "acp-cost.json"
_MOST_BYTES = 64 * 1024


def spent_before(private: Path, session: str) -> float:
    """What the session had cost when the last turn ended; 0.0 where nothing is known."""
    try:
        noted = json.loads(read_below(private, _NAME, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return 0.0
    if not isinstance(noted, dict) or noted.get("session") != session:
        return 0.0
    return dollars({"cost": noted}) or 0.0


def note_spent(private: Path, session: str, amount: float) -> None:
    """Keep it for the next turn. Where that fails, the next turn is told to have cost too much, not too little."""
    noted = json.dumps({"session": session, "amount": amount, "currency": "USD"})
    with suppress(OSError):
        write_below(private, _NAME, noted.encode())


Json = Mapping[str, Any]

MOST_CALLS = 256
"""Tool calls that are remembered, to name one that fails."""
MOST_WARNINGS = 50
LAST_WORDS = 64 * 1024
LONGEST_ABOUT = 200


class Finished(Struct, frozen=True):
    stop: str
    failure: tuple[Reason, str] | None = None
    """What went wrong, where the agent says so in words for programs."""
    used: bool = False
    last: str = ""


class VersionOne:
    """Version 1 of the protocol, for one turn: the answer to the prompt ends it."""

    def __init__(self, tell: Tell, model: Callable[[], str], spent: float = 0.0) -> None:
        self._tell, self._model = tell, model
        self.spent = spent
        """Dollars that the whole session has cost by now."""
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        self._held: str | None = None
        self._warnings = 0
        self._words = self._last = ""
        self._message: Any = None

    @property
    def text(self) -> str:
        return self._words.strip()

    def update(self, update: Json) -> None:
        """Tell what an update means; kinds that are not known are from a newer agent."""
        if self._held is not None and _id(update) != self._held:
            self._let_go()
        match update.get("sessionUpdate"):
            case "agent_message_chunk":
                self._said(update)
            case "tool_call" | "tool_call_update":
                self._called(update)
            case "usage_update":
                self._cost(update)
            case "session_info_update" if self._warnings < MOST_WARNINGS and (warning := warning_of(update)):
                self._warnings += 1
                self._tell(Noted(*warning))

    def answered(self, answer: Json) -> Finished:
        self._let_go()
        usages = list(used(answer))
        for usage in usages:
            self._tell(Used(replace(usage, model=usage.model or self._model())))
        return Finished(text(answer.get("stopReason")), from_answer(answer), bool(usages), self._last)

    def _said(self, update: Json) -> None:
        said = text(part(update, "content").get("text"))
        if not said:
            return
        if self._words and update.get("messageId") != self._message:
            self._end_words()
        self._message = update.get("messageId")
        self._words = (self._words + said)[-LAST_WORDS:]
        self._last = said[:LAST_WORDS]
        self._tell(Said(said))

    def _end_words(self) -> None:
        if self._words and not self._words.endswith("\n"):
            self._tell(Said("\n"))
        self._words = ""

    def _called(self, update: Json) -> None:
        """A call is told once, and once more if it fails. One that comes without its input is held until that is
        there, or until something else happens."""
        key = _id(update)
        new = key not in self._calls
        call = self._calls.setdefault(key, _Call())
        call.learn(update)
        while len(self._calls) > MOST_CALLS:
            self._calls.popitem(last=False)
        if new:
            self._end_words()
            self._held = key
        if self._held == key and (call.clear or update.get("status") in ("in_progress", "completed", "failed")):
            self._let_go()
        if update.get("status") == "failed":
            self._tell(Called(call.tool, call.about, failed=True))

    def _let_go(self) -> None:
        call = self._calls.get(self._held) if self._held is not None else None
        self._held = None
        if call is not None:
            self._tell(Called(call.tool, call.about, input=call.input))

    def _cost(self, update: Json) -> None:
        """The cost is that of the whole session: what came on top is told."""
        amount = dollars(update)
        if amount is None:
            return
        # Less than was told: it counts anew.
        more = amount - self.spent if amount >= self.spent else amount
        self.spent = amount
        if more > 0:
            self._tell(Used(Usage(model=_model_of(update) or self._model(), cost=more, cost_source="agent")))


class _Call(Struct):
    kind: str = "tool"
    name: str = ""
    title: str = ""
    command: str = ""
    place: str = ""
    input: str = ""

    def learn(self, update: Json) -> None:
        # An empty input is what a call has whose input is still to come.
        self.input = digest(update.get("rawInput") or None) or self.input
        self.kind = one_line(text(update.get("kind")), 40) or self.kind
        self.name = one_line(text(update.get("name")), 40) or self.name
        self.title = _line(text(update.get("title"))) or self.title
        command = part(update, "rawInput").get("command")
        if isinstance(command, list):
            command = " ".join(str(word) for word in command[:LONGEST_ABOUT])
        self.command = _line(text(command)) or self.command
        places = update.get("locations")
        if isinstance(places, list) and places:
            self.place = _line(text(part(places[0]).get("path"))) or self.place

    @property
    def tool(self) -> str:
        return self.name or self.kind

    @property
    def clear(self) -> bool:
        return bool(self.command or self.place)

    @property
    def about(self) -> str:
        if self.command:
            return self.command
        if self.place.rpartition("/")[2] in self.title:
            return self.title
        return one_line(f"{self.title} {self.place}".strip(), LONGEST_ABOUT)


def _line(said: str) -> str:
    return one_line(" ".join(said[: 4 * LONGEST_ABOUT].split()), LONGEST_ABOUT)


def _id(update: Json) -> str:
    return str(update.get("toolCallId"))[:LONGEST_ABOUT]


def _model_of(update: Json) -> str:
    """The model that an update is about, where the agent says so beside the protocol: `<agent>/model`."""
    named = (value for key, value in part(update, "_meta").items() if key.rpartition("/")[2] == "model")
    return next((one_line(value, 80) for value in named if isinstance(value, str)), "")


def dollars(update: Json) -> float | None:
    """What the session has cost by an update; None: it does not say."""
    cost = part(update, "cost")
    return priced(cost.get("amount")) if cost.get("currency") == "USD" else None


# ----------------------------------------------------------------------------- usage

_OPENHANDS = "openhands.dev/metrics"


def used(answer: Json) -> Iterator[Usage]:
    """What a turn used, by the answer to its prompt: for each model where that is told, else in one."""
    metrics = _metrics(part(answer, "_meta"))
    found = [metrics] if metrics is not None else []
    if metrics is None:
        quota = part(answer, "_meta", "quota")
        rows = quota.get("model_usage")
        for row in rows if isinstance(rows, list) else ():
            if counts := part(row, "token_count"):
                found.append(replace(_usage(counts), model=one_line(text(row.get("model")), 80)))
        if not found:
            found = [_usage(part(answer.get("usage") or quota.get("token_count")))]
    yield from (usage for usage in found if usage.tokens)


def _metrics(meta: Json) -> Usage | None:
    """What OpenHands tells beside the protocol, once more wrapped by the package that it uses; None: nothing."""
    for told in (part(meta, _OPENHANDS), part(meta, "field_meta", _OPENHANDS)):
        if not told:
            continue
        cached, written = _count(told, "cache_read_tokens"), _count(told, "cache_write_tokens")
        sent = _count(told, "input_tokens", "prompt_tokens")
        cost = priced(told.get("cost", told.get("accumulated_cost")))
        return Usage(
            input=max(0, sent - cached - written),
            cached=cached,
            cache_writes=written,
            output=_count(told, "output_tokens", "completion_tokens"),
            cost=cost,
            cost_source="agent" if cost is not None else "",
        )
    return None


def _usage(counts: Json) -> Usage:
    """Figures in which each token is counted once, from an agent that may count some twice.

    Whether `input` includes what was cached, and `output` what was thought, differs between agents: it is what makes
    the sum right that they tell as well.
    """
    sent = _count(counts, "inputTokens", "input_tokens")
    got = _count(counts, "outputTokens", "output_tokens")
    cached = _count(counts, "cachedReadTokens", "cachedInputTokens", "cached_read_tokens")
    written = _count(counts, "cachedWriteTokens", "cacheWriteInputTokens", "cached_write_tokens")
    thought = _count(counts, "thoughtTokens", "reasoningOutputTokens", "thought_tokens")
    total = _count(counts, "totalTokens", "total_tokens")
    if cached + written and total in (sent + got, sent + got + thought) and cached + written <= sent:
        sent -= cached + written
    if thought and total == sent + cached + written + got + thought:
        got += thought
    return Usage(input=sent, cached=cached, cache_writes=written, output=got)


def _count(counts: Json, *names: str) -> int:
    values = (counts.get(name) for name in names)
    return next((found for value in values if (found := counted(value))), 0)
