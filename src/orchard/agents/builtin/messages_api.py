"""The Messages API of Anthropic, through its SDK.

The stream is put together here and not by the SDK's helper: that reads the input of a tool anew with each part that
arrives, and gives up on input that is no JSON, which the model should hear about instead.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from msgspec.structs import replace

from orchard.agents.builtin.clients import Parts, open_client, read_input, received
from orchard.agents.builtin.model import Hear, Json, Message, ModelError, Reply, Request, Stop, merged, tidy
from orchard.model.usage import Usage, counted

SERVER = "https://api.anthropic.com"

_STOPS: Mapping[str, Stop] = {
    "end_turn": "end_turn",
    "stop_sequence": "stop_sequence",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "pause_turn": "pause_turn",
    "refusal": "refusal",
    "model_context_window_exceeded": "context",
}

_GROWING = {"input_json_delta": "partial_json", "text_delta": "text", "thinking_delta": "thinking"}
"""Parts of a block by their kind, and where in them its next characters are."""
_CACHED = {"type": "ephemeral"}
_LOOKED_BACK = 15
"""Blocks, with some to spare: the API looks back 20."""

_OURS = frozenset({"reasoning"})
"""Blocks that only the other adapter knows."""


@asynccontextmanager
async def open_messages_model(key: str, server: str | None) -> AsyncIterator["MessagesModel"]:
    async with open_client("anthropic", "AsyncAnthropic", key, server or SERVER) as (sdk, client):
        yield MessagesModel(sdk, client)


class MessagesModel:
    def __init__(self, sdk: Any, client: Any) -> None:
        self._sdk, self._client = sdk, client

    async def reply(self, request: Request, hear: Hear) -> Reply:
        create = partial(self._client.messages.create, **_arguments(request), stream=True)
        return await received(self._sdk, _Parts(request.model, hear), create)


def _arguments(request: Request) -> Json:
    arguments: Json = {
        "model": request.model,
        "max_tokens": request.max_tokens,
        "messages": _messages(request.messages),
        "cache_control": _CACHED,
    }
    if request.system:
        arguments["system"] = request.system
    if request.tools:
        arguments["tools"] = list(request.tools)
    if request.effort is not None:
        arguments["output_config"] = {"effort": request.effort}
    return arguments


def _messages(messages: Sequence[Message]) -> list[Json]:
    """The conversation as it is sent.

    The end of it is put into the cache by itself, and what is there from the call before is looked for a few blocks
    back. Where more blocks than that are new, the place is marked at which the call before ended.
    """
    known = [
        replace(one, blocks=tuple(each for each in one.blocks if each.get("type") not in _OURS)) for one in messages
    ]
    turns = merged([message for message in known if message.blocks])
    found: list[Json] = [{"role": message.role, "content": list(message.blocks)} for message in turns]
    new = sum(len(message["content"]) for message in found[-2:])
    if new > _LOOKED_BACK and len(found) > 2:
        *rest, last = found[-3]["content"]
        found[-3]["content"] = [*rest, {**last, "cache_control": _CACHED}]
    return found


class _Parts(Parts):
    def __init__(self, model: str, hear: Hear) -> None:
        super().__init__(model, hear)
        self._blocks: dict[int, Json] = {}
        self._inputs: dict[int, list[str]] = {}
        self._usage: Json = {}
        self._ended = False
        self._detail = ""

    def take(self, event: Any) -> None:
        kind = getattr(event, "type", "")
        if kind == "message_start":
            self.begun = True
            self._count(event.message.usage)
            self._name_model(event.message.model)
        elif kind == "content_block_start":
            self._blocks[_number(event.index)] = _fields(event.content_block)
            self._hear(str(self._blocks[event.index].get("text") or ""))
        elif kind == "content_block_delta":
            self._grow(_number(event.index), _fields(event.delta))
        elif kind == "content_block_stop" and self._blocks.get(event.index, {}).get("type") == "text":
            self._hear("\n")
        elif kind == "message_delta":
            self._count(event.usage)
            delta = _fields(event.delta)
            self._stop = str(delta.get("stop_reason") or "") or self._stop
            details = delta.get("stop_details")
            self._detail = str(details.get("explanation") or "") if isinstance(details, dict) else self._detail
        elif kind == "message_stop":
            self._ended = True

    def _grow(self, index: int, delta: Json) -> None:
        block = self._blocks.get(index)
        if block is None:
            return
        kind = delta.get("type")
        self._grow_by(sum(len(value) for value in delta.values() if isinstance(value, str)))
        if kind in _GROWING:
            # A list, joined at the end: adding to a string copies it with each part.
            self._inputs.setdefault(index, []).append(str(delta.get(_GROWING[kind]) or ""))
        elif kind == "signature_delta":
            block["signature"] = delta.get("signature")
        elif kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta.get("citation")]
        self._hear(str(delta.get("text") or "") if kind == "text_delta" else "")

    def _count(self, usage: Any) -> None:
        """Figures of later events are totals, not additions; what one does not name stays."""
        found = _fields(usage) if usage is not None else {}
        self._usage.update({name: value for name, value in found.items() if value is not None})

    def usage(self, seconds: float) -> Usage:
        return Usage(
            model=self._model,
            input=counted(self._usage.get("input_tokens")),
            cached=counted(self._usage.get("cache_read_input_tokens")),
            cache_writes=counted(self._usage.get("cache_creation_input_tokens")),
            output=counted(self._usage.get("output_tokens")),
            requests=1,
            api_seconds=seconds,
        )

    def reply(self, seconds: float, headers: Any) -> Reply:
        if not self._ended or self._stop is None:
            raise ModelError("network", "The model's answer broke off.")
        blocks = tidy(self._whole_block(index) for index in sorted(self._blocks))
        stop: Stop = _STOPS.get(self._stop, "other")
        if stop != "tool_use":
            # Thinking that was cut off has no signature, and is refused when it is sent again.
            blocks = tuple(block for block in blocks if block.get("type") != "thinking" or block.get("signature"))
        return self._whole(blocks, stop, self._detail, seconds, headers)

    def _whole_block(self, index: int) -> Json:
        block, parts = dict(self._blocks[index]), self._inputs.get(index)
        kind = block.get("type")
        if kind in ("text", "thinking"):
            block[kind] = str(block.get(kind) or "") + "".join(parts or ())
        elif kind in ("tool_use", "server_tool_use") and parts is not None:
            block["input"], wrong = read_input("".join(parts))
            if wrong and kind == "tool_use":
                block["malformed"] = wrong
        return block


def _fields(value: Any) -> Json:
    """What the SDK made of an object, as plain values and without a word about those that do not fit its types."""
    found = value if isinstance(value, dict) else value.to_dict(warnings=False)
    if not isinstance(found, dict):
        raise TypeError(f"an object was expected, not {type(found).__name__}")
    return found


def _number(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"a number was expected, not {type(value).__name__}")
    return value
