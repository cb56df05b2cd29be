"""The event stream that Claude Code prints, and Qwen Code after its example: messages of a conversation, then a result.

    system/init   the session, the servers it has        user     results of tools
    assistant     texts, tool calls, tokens              result   how the turn ended

A message of the model may come in several events, one for each of its parts, all with the id and the tokens of the
whole. Its tokens are told when it is first seen, and what that lacked (the end of its output) with the result.
"""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from orchard.agents.backends.stream import LONGEST_TEXT, StreamReader, amount, count, part, sentence, text
from orchard.agents.cli import Json, reason_of
from orchard.agents.protocol import Noted, Result, Said, Task, Tell, Used
from orchard.model.usage import Usage, add, less, total
from orchard.process.program import Ended

MOST_SEEN = 1000
_NOT_A_MODEL = "<synthetic>"
"""Whom the program names as the author of what it says itself."""


class Ledger:
    """What was used in a turn, told as it becomes known and never twice."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._told: dict[str, Usage] = {}
        self._seen: dict[str, None] = {}

    def message(self, id: str, usage: Usage) -> None:
        """One message of a model; those of its helpers come in between."""
        if id in self._seen or usage.model == _NOT_A_MODEL or not usage.tokens:
            return
        self._seen[id] = None
        if len(self._seen) > MOST_SEEN:
            del self._seen[next(iter(self._seen))]
        self._add(replace(usage, requests=1))

    def whole(self, usage: Usage) -> None:
        """All that was used of a model in this turn: what was not told yet is."""
        told = self._told.get(usage.model, Usage(usage.model))
        rest = replace(less(usage, told), requests=0)
        if rest.as_json().keys() - {"model"}:
            self._add(rest)

    @property
    def told(self) -> Usage:
        return total(self._told.values())

    @property
    def model(self) -> str:
        return next(reversed(self._told), "")

    def _add(self, usage: Usage) -> None:
        self._told[usage.model] = add(self._told.pop(usage.model, Usage(usage.model)), usage)
        self._tell(Used(usage))


class MessageReader(StreamReader):
    """Hears one turn. What programs do differently is in the methods that a backend replaces."""

    def __init__(self, task: Task, tell: Tell) -> None:
        super().__init__(task, tell)
        self.ledger = Ledger(tell)
        self._final: Json | None = None

    def feed(self, message: Json) -> None:
        kind = message.get("type")
        if kind == "system":
            self._hear_system(message)
        elif kind == "assistant":
            self._hear_assistant(part(message, "message"))
        elif kind == "user":
            self._hear_results(_rows(part(message, "message").get("content")))
        elif kind == "result":
            self._final = message
            self.tell_whole_usage(message)

    def result(self, ended: Ended, stray: str) -> Result:
        final = self._final
        if final is None:
            return self._unfinished(ended, stray)
        words = text(final.get("result"))[:LONGEST_TEXT]
        denied = [text(row.get("tool_name")) or "a tool" for row in _rows(final.get("permission_denials"))]
        for tool in denied[:20]:
            self._tell(Noted("denied", f"{self.name} was not allowed to use {sentence(tool)}."))
        if final.get("is_error") or final.get("subtype") != "success":
            return self._failed(final)
        if final.get("stop_reason") == "refusal":
            return Result("refused", sentence(words) or "The model refused.", words, self.session)
        if ended.exit_code:
            return Result("failed", f"{self.name} said it was done, and ended as if not. {ended.message}", words,
                          self.session)  # fmt: skip
        if denied and not self._calls.worked:
            return Result("denied", f"{self.name} was not allowed to use {', '.join(denied[:5])}.", words, self.session)
        return Result("done", "", words, self.session)

    # ------------------------------------------------------------------------- what programs do differently

    def message_usage(self, message: Json) -> Usage:
        usage = part(message, "usage")
        return Usage(
            model=text(message.get("model")),
            input=count(usage.get("input_tokens")),
            cached=count(usage.get("cache_read_input_tokens")),
            cache_writes=count(usage.get("cache_creation_input_tokens")),
            output=count(usage.get("output_tokens")),
        )

    def tell_whole_usage(self, final: Json) -> None:
        """Tell what was used in the whole turn, by its result."""

    # ------------------------------------------------------------------------- events

    def _hear_system(self, message: Json) -> None:
        if message.get("subtype") == "init":
            self._name_session(text(message.get("session_id")))
            for server in _rows(message.get("mcp_servers")):
                if server.get("status") in ("failed", "needs-auth"):
                    name = sentence(text(server.get("name")))
                    self._tell(Noted("mcp", f"The MCP server '{name}' cannot be used by {self.name}."))
        elif message.get("subtype") == "api_retry":
            why = sentence(text(message.get("error")) or str(message.get("error_status") or "an error"))
            self._tell(Noted("retry", f"{self.name} calls its model again: {why}."))

    def _hear_assistant(self, message: Json) -> None:
        for block in _rows(message.get("content")):
            if block.get("type") == "text" and text(block.get("text")):
                self._tell(Said(block["text"] + "\n"))
            elif block.get("type") == "tool_use":
                self._calls.begin(text(block.get("id")), text(block.get("name")), block.get("input"))
        self.ledger.message(text(message.get("id")), self.message_usage(message))

    def _hear_results(self, blocks: Iterable[Json]) -> None:
        for block in blocks:
            if block.get("type") == "tool_result":
                why = sentence(_text_of(block.get("content")))
                self._calls.end(text(block.get("tool_use_id")), failed=bool(block.get("is_error")), why=why)

    # ------------------------------------------------------------------------- ends

    def _failed(self, final: Json) -> Result:
        errors = final.get("errors")
        listed = [one for one in errors if isinstance(one, str)] if isinstance(errors, list) else []
        words = text(final.get("result")) or " ".join(listed) or text(part(final, "error").get("message"))
        subtype = final.get("subtype")
        message = sentence(words) or f"{self.name} ended with '{sentence(text(subtype))}'."
        if subtype == "error_max_turns":
            return Result("max-turns", message, session=self.session)
        if subtype == "error_max_budget_usd":
            return Result("budget", message, session=self.session)
        if self._task.session is not None and any(lost in words for lost in self.lost_words):
            return Result("session-lost", message)
        status = final.get("api_error_status")
        reason = reason_of(words, status if isinstance(status, int) else None)
        return Result(reason, message, session=self.session)


def _rows(value: Any) -> list[Json]:
    return [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(text(row.get("text")) for row in _rows(content))


def api_seconds(final: Json) -> float:
    return amount(final.get("duration_api_ms")) / 1000
