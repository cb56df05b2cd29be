"""Chat Completions, as OpenAI and the many servers that copy it speak it, through the SDK of OpenAI."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from orchard.agents.builtin.clients import Parts, open_client, read_input, received
from orchard.agents.builtin.model import Hear, Json, Message, ModelError, Reply, Request, Stop, merged, text_block, tidy
from orchard.model.usage import Usage, counted, priced

SERVER = "https://api.openai.com/v1"

_STOPS: Mapping[str, Stop] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "refusal",
}

_MOST_CALLS = 256


@asynccontextmanager
async def open_chat_model(key: str, server: str | None) -> AsyncIterator["ChatModel"]:
    async with open_client("openai", "AsyncOpenAI", key, server or SERVER) as (sdk, client):
        yield ChatModel(sdk, client, of_openai=server is None)


class ChatModel:
    def __init__(self, sdk: Any, client: Any, *, of_openai: bool) -> None:
        self._sdk, self._client = sdk, client
        # OpenAI's own models refuse the old name of this limit, and many other servers know no other.
        self._limit = "max_completion_tokens" if of_openai else "max_tokens"

    async def reply(self, request: Request, hear: Hear) -> Reply:
        try:
            return await self._reply(request, hear)
        except ModelError as error:
            if self._limit == "max_tokens" and "max_completion_tokens" in error.message:
                self._limit = "max_completion_tokens"
                return await self._reply(request, hear)
            raise

    async def _reply(self, request: Request, hear: Hear) -> Reply:
        arguments = {**_arguments(request), self._limit: request.max_tokens}
        create = partial(self._client.chat.completions.create, **arguments)
        return await received(self._sdk, _Parts(request.model, hear), create)


def _arguments(request: Request) -> Json:
    arguments: Json = {
        "model": request.model,
        "messages": _messages(request.system, request.messages),
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.tools:
        arguments["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool["name"],
                    "description": tool["description"],
                    "parameters": tool["input_schema"],
                },
            }
            for tool in request.tools
        ]
    if request.effort is not None:
        arguments["reasoning_effort"] = request.effort
    return arguments


def _messages(system: str, messages: Sequence[Message]) -> list[Json]:
    """The conversation in the words of this API: answers to calls are messages of their own."""
    found: list[Json] = [{"role": "system", "content": system}] if system else []
    for message in merged(messages):
        if message.role == "assistant":
            found.append(_assistant(message))
            continue
        for block in message.blocks:
            if block.get("type") == "tool_result":
                text = str(block["content"])
                content = f"Error: {text}" if block.get("is_error") else text
                found.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": content})
        if message.text:
            found.append({"role": "user", "content": message.text})
    return found


def _assistant(message: Message) -> Json:
    made: Json = {"role": "assistant", "content": message.text or None}
    calls = [
        {
            "id": call["id"],
            "type": "function",
            "function": {"name": call["name"], "arguments": json.dumps(call.get("input") or {}, ensure_ascii=False)},
        }
        for call in message.calls
    ]
    if calls:
        made["tool_calls"] = calls
    elif made["content"] is None:
        made["content"] = ""
    # Servers that show their reasoning want it back with the calls that it led to.
    reasoning = "".join(block["text"] for block in message.blocks if block.get("type") == "reasoning")
    if reasoning and calls:
        made["reasoning_content"] = reasoning
    return made


class _Parts(Parts):
    def __init__(self, model: str, hear: Hear) -> None:
        super().__init__(model, hear)
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._refusal: list[str] = []
        self._calls: dict[int, Json] = {}
        self._usage: Any = None

    def take(self, event: Any) -> None:
        self.begun = True
        self._name_model(getattr(event, "model", None))
        self._usage = getattr(event, "usage", None) or self._usage
        for choice in (getattr(event, "choices", None) or [])[:1]:
            if choice.delta is not None:
                self._grow(choice.delta)
            self._stop = str(choice.finish_reason or "") or self._stop

    def _grow(self, delta: Any) -> None:
        text = delta.content or ""
        reasoning = getattr(delta, "reasoning_content", None) or ""
        refusal = getattr(delta, "refusal", None) or ""
        for part, parts in ((text, self._text), (reasoning, self._reasoning), (refusal, self._refusal)):
            if isinstance(part, str) and part:
                parts.append(part)
                self._grow_by(len(part))
        for call in delta.tool_calls or ():
            self._call(call)
        self._hear(text if isinstance(text, str) else "")

    def _call(self, call: Any) -> None:
        index = call.index if isinstance(call.index, int) else len(self._calls)
        if index not in self._calls and len(self._calls) >= _MOST_CALLS:
            raise ModelError("failed", f"The model asked for more than {_MOST_CALLS} tools at once.")
        made = self._calls.setdefault(index, {"id": "", "name": "", "arguments": []})
        made["id"] = made["id"] or call.id or ""
        function = call.function
        if function is not None:
            # Some servers send the name once, some with every part.
            made["name"] = made["name"] or function.name or ""
            made["arguments"].append(function.arguments or "")
            self._grow_by(len(function.arguments or ""))

    def usage(self, seconds: float) -> Usage:
        figures = _figures(self._usage)
        details = _figures(figures.get("prompt_tokens_details"))
        cached, written = counted(details.get("cached_tokens")), counted(details.get("cache_write_tokens"))
        cost = priced(figures.get("cost"))
        return Usage(
            model=self._model,
            input=max(0, counted(figures.get("prompt_tokens")) - cached - written),
            cached=cached,
            cache_writes=written,
            output=counted(figures.get("completion_tokens")),
            requests=1,
            cost=cost,
            cost_source="agent" if cost is not None else "",
            api_seconds=seconds,
        )

    def reply(self, seconds: float, headers: Any) -> Reply:
        if self._stop is None:
            raise ModelError("network", "The model's answer broke off.")
        if self._text:
            self._hear("\n")
        stop: Stop = _STOPS.get(self._stop, "other")
        if self._calls and stop == "end_turn":
            stop = "tool_use"  # some servers call every end a stop
        if self._refusal and not self._calls:
            stop = "refusal"
        return self._whole(tidy(self._blocks()), stop, "".join(self._refusal), seconds, headers)

    def _blocks(self) -> list[Json]:
        found: list[Json] = []
        if self._reasoning:
            found.append({"type": "reasoning", "text": "".join(self._reasoning)})
        if self._text:
            found.append(text_block("".join(self._text)))
        for _, call in sorted(self._calls.items()):
            block: Json = {"type": "tool_use", "id": call["id"], "name": call["name"]}
            block["input"], wrong = read_input("".join(call["arguments"]))
            found.append({**block, "malformed": wrong} if wrong else block)
        return found


def _figures(value: Any) -> Json:
    """What a server counted, as plain values; nothing where it is of no shape that we know."""
    found = value.to_dict(warnings=False) if hasattr(value, "to_dict") else value
    return found if isinstance(found, dict) else {}
