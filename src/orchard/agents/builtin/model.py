"""What the built-in agent says to a model and hears from it: one shape, whoever serves the model.

Messages are made of content blocks as the Messages API has them: `text`, `tool_use`, `tool_result`, and whatever else
a model sends, such as `thinking`, which is given back to it as it came. Adapters turn them into what their API wants.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Protocol
from uuid import uuid4

from msgspec import Struct, field

from orchard.agents.protocol import Reason
from orchard.model.plan import Effort
from orchard.model.usage import Usage

Json = dict[str, Any]
Role = Literal["user", "assistant"]

Stop = Literal["end_turn", "stop_sequence", "tool_use", "max_tokens", "pause_turn", "refusal", "context", "other"]
"""Why a model stopped. `context`: its window is full. Tools are run after `tool_use` only: in a message that ended
for another reason a call may be half of what was meant."""

LONGEST_REPLY = 8 * 1024 * 1024
"""Characters that are heard in one reply: no honest model writes more, and a server that never stops ends here."""

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_HALF_PAIRS = re.compile("[\ud800-\udfff]")


class Message(Struct, frozen=True, rename={"blocks": "content"}, omit_defaults=True):
    role: Role
    blocks: tuple[Json, ...]
    summary: bool = False
    """It stands for messages that were left out."""

    @property
    def calls(self) -> tuple[Json, ...]:
        return tuple(block for block in self.blocks if block.get("type") == "tool_use")

    @property
    def answers(self) -> tuple[str, ...]:
        return tuple(block["tool_use_id"] for block in self.blocks if block.get("type") == "tool_result")

    @property
    def text(self) -> str:
        return "\n\n".join(block["text"] for block in self.blocks if block.get("type") == "text").strip()


def text_block(text: str) -> Json:
    """A block of text that every API takes: no broken characters."""
    return {"type": "text", "text": _HALF_PAIRS.sub("\ufffd", text)}


def said(text: str) -> Message:
    return Message("user", (text_block(text),))


def result_block(call: str, text: str, *, failed: bool = False) -> Json:
    block: Json = {"type": "tool_result", "tool_use_id": call, "content": _HALF_PAIRS.sub("\ufffd", text) or "(empty)"}
    return {**block, "is_error": True} if failed else block


class Request(Struct, frozen=True):
    model: str
    system: str
    messages: Sequence[Message]
    tools: Sequence[Json] = ()
    """Each with `name`, `description` and `input_schema`; always in the same order, for the sake of caches."""
    max_tokens: int = 8192
    effort: Effort | None = None


class Pace(Struct, frozen=True):
    left: int
    """Requests that may still be made before `reset`."""
    reset: float
    """Seconds until there are more."""


class Reply(Struct, frozen=True):
    message: Message
    stop: Stop
    usage: Usage
    malformed: Mapping[str, str] = field(default_factory=dict)
    """Calls whose input is no JSON object, by id, with what is wrong; the block itself holds an empty input."""
    detail: str = ""
    pace: Pace | None = None


class ModelError(Exception):
    def __init__(
        self,
        reason: Reason,
        message: str,
        *,
        retry_after: float | None = None,
        pace: Pace | None = None,
        final: bool = False,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message)
        self.reason, self.message, self.retry_after, self.pace = reason, message, retry_after, pace
        self.final = final
        """The owner says that trying again is of no use."""
        self.usage = usage
        """What it took all the same: a reply that broke off was paid for up to there."""


class TooLong(ModelError):
    def __init__(self, message: str) -> None:
        super().__init__("failed", message)


Hear = Callable[[str], None]
"""Is given text as it is written; an empty one says only that something is going on."""


class Model(Protocol):
    async def reply(self, request: Request, hear: Hear) -> Reply:
        """Ask once, without trying again; ModelError if there is no answer."""
        ...


def tidy(blocks: Iterable[Json]) -> tuple[Json, ...]:
    """Blocks that were received, fit to be sent again: no broken characters, no empty text, names and ids as APIs
    want them."""
    found: list[Json] = []
    ids: set[str] = set()
    for block in blocks:
        block = whole(block)
        if block.get("type") == "text" and not str(block.get("text") or "").strip():
            continue
        if block.get("type") == "tool_use":
            call = str(block.get("id") or "")
            if not call or call in ids:
                call = f"call_{uuid4().hex}"
            ids.add(call)
            name = _NOT_IN_NAMES.sub("_", str(block.get("name") or ""))[:64] or "unnamed"
            block = {**block, "id": call, "name": name}
        found.append(block)
    return tuple(found)


def whole(value: Any) -> Any:
    """A value of JSON without halves of surrogate pairs: they can be written in JSON, and in no UTF-8."""
    if isinstance(value, str):
        return value if value.isascii() else _HALF_PAIRS.sub("\ufffd", value)
    if isinstance(value, dict):
        return {whole(key): whole(one) for key, one in value.items()}
    return [whole(one) for one in value] if isinstance(value, list) else value


def merged(messages: Sequence[Message]) -> list[Message]:
    """The same conversation with neighbours of one role as one message: some servers insist on turns. Answers to calls
    come first in a message, as they must."""
    found: list[Message] = []
    for message in messages:
        if found and found[-1].role == message.role:
            blocks = (*found[-1].blocks, *message.blocks)
            results = tuple(block for block in blocks if block.get("type") == "tool_result")
            rest = tuple(block for block in blocks if block.get("type") != "tool_result")
            found[-1] = Message(message.role, (*results, *rest))
        else:
            found.append(message)
    return found
