"""What an agent tells over the protocol, in our vocabulary: one decoder for each version of the protocol.

A decoder hears every update of a session and the answer to the prompt, and says when the turn is over. In version 1
that is the answer; in a later one it is an update, and the answer comes at once.

Agents tell the cost of the whole session, we that of the turn: what a session has cost so far is kept beside it.
"""

import json
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from orchard.agents.acp.failures import from_answer, warning_of
from orchard.agents.protocol import Called, Noted, Reason, Said, Tell, Used
from orchard.files import read_plain, replace_whole
from orchard.model.usage import Usage, counted, priced
from orchard.text import one_line

_NAME = "acp-cost.json"
_MOST_BYTES = 64 * 1024


def spent_before(private: Path, session: str) -> float:
    """What the session had cost when the last turn ended; 0.0 where nothing is known."""
    try:
        noted = json.loads(read_plain(private / _NAME, _MOST_BYTES))
    except (OSError, ValueError, RecursionError):
        return 0.0
    if not isinstance(noted, dict) or noted.get("session") != session:
        return 0.0
    return dollars({"cost": noted}) or 0.0


def note_spent(private: Path, session: str, amount: float) -> None:
    """Keep it for the next turn. Where that fails, the next turn is told to have cost too much, not too little."""
    text = json.dumps({"session": session, "amount": amount, "currency": "USD"})
    with suppress(OSError):
        replace_whole(private / _NAME, text.encode())


Json = Mapping[str, Any]

MOST_CALLS = 256
"""Tool calls that are remembered, to name one that fails."""
MOST_WARNINGS = 50
LAST_WORDS = 64 * 1024
"""Characters of what was said last that are kept."""
LONGEST_ABOUT = 200


class Finished(Struct, frozen=True):
    stop: str
    """The protocol's word for why."""
    failure: tuple[Reason, str] | None = None
    """What went wrong, where the agent says so in words for programs."""
    used: bool = False
    """Whether it told what the turn has used."""
    last: str = ""
    """The last piece of what was said."""


class Decoder(Protocol):
    """One version of the protocol, for one turn."""

    def update(self, update: Json) -> Finished | None: ...

    def answered(self, answer: Json) -> Finished | None:
        """Hear the answer to the prompt."""
        ...

    @property
    def text(self) -> str:
        """What the agent said last."""
        ...

    @property
    def spent(self) -> float:
        """Dollars that the whole session has cost by now."""
        ...


class VersionOne:
    """Version 1: the answer to the prompt ends the turn."""

    def __init__(self, tell: Tell, model: Callable[[], str], spent: float = 0.0) -> None:
        self._tell, self._model, self._spent = tell, model, spent
        self._calls: OrderedDict[str, _Call] = OrderedDict()
        self._held: str | None = None
        self._warnings = 0
        self._words = self._last = ""
        self._message: Any = None

    @property
    def text(self) -> str:
        """What the agent said since it last used a tool."""
        return self._words.strip()

    @property
    def spent(self) -> float:
        return self._spent

    def update(self, update: Json) -> Finished | None:
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
        return None

    def answered(self, answer: Json) -> Finished | None:
        """Tell what the turn used; it is over."""
        self._let_go()
        usages = list(used(answer))
        for usage in usages:
            self._tell(Used(replace(usage, model=usage.model or self._model())))
        stop = answer.get("stopReason")
        return Finished(stop if isinstance(stop, str) else "", from_answer(answer), bool(usages), self._last)

    def _said(self, update: Json) -> None:
        content = update.get("content")
        text = content.get("text") if isinstance(content, dict) else None
        if not isinstance(text, str) or not text:
            return
        if self._words and update.get("messageId") != self._message:
            self._end_words()
        self._message = update.get("messageId")
        self._words = (self._words + text)[-LAST_WORDS:]
        self._last = text[:LAST_WORDS]
        self._tell(Said(text))

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
            self._tell(Called(call.tool, call.about))

    def _cost(self, update: Json) -> None:
        """The cost is that of the whole session: what came on top is told."""
        amount = dollars(update)
        if amount is None:
            return
        # Less than was told: it counts anew.
        more = amount - self._spent if amount >= self._spent else amount
        self._spent = amount
        if more > 0:
            self._tell(Used(Usage(model=_model_of(update) or self._model(), cost=more, cost_source="agent")))


class _Call(Struct):
    """What is known of a tool call by now."""

    kind: str = "tool"
    name: str = ""
    title: str = ""
    command: str = ""
    place: str = ""

    def learn(self, update: Json) -> None:
        if isinstance(kind := update.get("kind"), str) and kind:
            self.kind = one_line(kind, 40)
        if isinstance(name := update.get("name"), str) and name:
            self.name = one_line(name, 40)
        if isinstance(title := update.get("title"), str) and title:
            self.title = _line(title)
        given = update.get("rawInput")
        command = given.get("command") if isinstance(given, dict) else None
        if isinstance(command, list):
            command = " ".join(str(word) for word in command[:LONGEST_ABOUT])
        if isinstance(command, str) and command:
            self.command = _line(command)
        places = update.get("locations")
        first = places[0] if isinstance(places, list) and places else None
        if isinstance(first, dict) and isinstance(path := first.get("path"), str):
            self.place = _line(path)

    @property
    def tool(self) -> str:
        return self.name or self.kind

    @property
    def clear(self) -> bool:
        return bool(self.command or self.place)

    @property
    def about(self) -> str:
        """In a line: the command, or the title with the first file it names if that is not in it."""
        if self.command:
            return self.command
        if self.place.rpartition("/")[2] in self.title:
            return self.title
        return one_line(f"{self.title} {self.place}".strip(), LONGEST_ABOUT)


def _line(text: str) -> str:
    return one_line(" ".join(text[: 4 * LONGEST_ABOUT].split()), LONGEST_ABOUT)


def _id(update: Json) -> str:
    return str(update.get("toolCallId"))[:LONGEST_ABOUT]


def _model_of(update: Json) -> str:
    """The model that an update is about, where the agent says so beside the protocol: `<agent>/model`."""
    meta = update.get("_meta")
    named = (
        (value for key, value in meta.items() if key.rpartition("/")[2] == "model") if isinstance(meta, dict) else ()
    )
    return next((one_line(value, 80) for value in named if isinstance(value, str)), "")


def dollars(update: Json) -> float | None:
    """What the session has cost by an update; None: it does not say."""
    cost = update.get("cost")
    return priced(cost.get("amount")) if isinstance(cost, dict) and cost.get("currency") == "USD" else None


# ----------------------------------------------------------------------------- usage

_OPENHANDS = "openhands.dev/metrics"


def used(answer: Json) -> Iterator[Usage]:
    """What a turn used, by the answer to its prompt: for each model where that is told, else in one."""
    meta = answer.get("_meta")
    counts = _metrics(meta)
    if counts is not None:
        yield from [counts] if counts.tokens else []
        return
    quota = meta.get("quota") if isinstance(meta, dict) else None
    rows = quota.get("model_usage") if isinstance(quota, dict) else None
    found = [usage for row in rows if (usage := _row(row)) is not None] if isinstance(rows, list) else []
    if not found:
        counts = answer.get("usage") or (quota.get("token_count") if isinstance(quota, dict) else None)
        found = [_usage(counts)] if isinstance(counts, dict) else []
    yield from (usage for usage in found if usage.tokens)


def _metrics(meta: Any) -> Usage | None:
    """What OpenHands tells beside the protocol, once more wrapped by the package that it uses; None: nothing."""
    for place in (meta, meta.get("field_meta") if isinstance(meta, dict) else None):
        told = place.get(_OPENHANDS) if isinstance(place, dict) else None
        if not isinstance(told, dict):
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


def _row(row: Any) -> Usage | None:
    if not isinstance(row, dict) or not isinstance(row.get("token_count"), dict):
        return None
    model = row.get("model")
    return replace(_usage(row["token_count"]), model=one_line(model, 80) if isinstance(model, str) else "")


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
