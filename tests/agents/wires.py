"""The four ways in which programs talk with a model over HTTP, for the scripted LLM: requests read into one form,
answers written in each."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal
from uuid import uuid4

from orchard.model.usage import Usage

Json = dict[str, Any]
WireName = Literal["anthropic", "chat", "responses", "gemini"]
Event = tuple[str | None, Json | str]
"""One server-sent event: its name where the format names them, and its data."""


@dataclass(frozen=True)
class Entry:
    """One thing in a conversation: a text of somebody, or the result of a tool."""

    role: Literal["system", "user", "assistant", "call", "result"]
    text: str


@dataclass(frozen=True)
class ToolCall:
    """A tool that the model wants to be used; `arguments` is JSON, or what a broken model takes for it."""

    name: str
    arguments: str
    namespace: str | None = None
    id: str = field(default_factory=lambda: uuid4().hex[:12])


@dataclass(frozen=True)
class Answer:
    """What the model says in one go."""

    model: str
    text: str
    calls: tuple[ToolCall, ...]
    usage: Usage
    stop: str | None = None
    """The format's own word for why it stopped; None: the usual one."""


@dataclass(frozen=True)
class Wire:
    """One format."""

    name: WireName
    history: Callable[[Json], list[Entry]]
    tools: Callable[[Json], list[str]]
    body: Callable[[Answer], Json]
    events: Callable[[Answer], list[Event]]
    failure: Callable[[int, str], Json]
    """The body of an error."""
    broken: Callable[[int, str], Event]
    """An error after the stream has begun."""


def wire_of(path: str) -> Wire | None:
    """The format that is spoken at a path."""
    if path.endswith("/messages"):
        return ANTHROPIC
    if path.endswith("/chat/completions"):
        return CHAT
    if path.endswith("/responses"):
        return RESPONSES
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return GEMINI
    return None


def _text(content: object) -> str:
    """The text in whatever holds text."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(_text, content)))
    if isinstance(content, dict):
        return _text(content.get("text") or content.get("content") or content.get("output") or "")
    return ""


def _halves(text: str) -> Iterator[str]:
    """In two parts, as a stream has it."""
    middle = len(text) // 2
    yield from filter(None, (text[:middle], text[middle:]))


_KINDS = {400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
          429: "rate_limit_error", 529: "overloaded_error"}  # fmt: skip

# ------------------------------------------------------------------------------------------ Anthropic Messages


def _anthropic_history(body: Json) -> list[Entry]:
    found = [Entry("system", _text(body.get("system")))] if body.get("system") else []
    for message in body.get("messages", []):
        content = message["content"]
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content:
            if block["type"] == "tool_result":
                found.append(Entry("result", _text(block.get("content"))))
            elif block["type"] == "tool_use":
                found.append(Entry("call", block["name"]))
            else:
                found.append(Entry(message["role"], _text(block)))
    return found


def _anthropic_body(answer: Answer) -> Json:
    blocks: list[Json] = [{"type": "text", "text": answer.text}] if answer.text or not answer.calls else []
    for call in answer.calls:
        blocks.append({"type": "tool_use", "id": f"toolu_{call.id}", "name": call.name, "input": _arguments(call)})
    usage = answer.usage
    return {
        "id": f"msg_{uuid4().hex[:12]}", "type": "message", "role": "assistant", "model": answer.model,
        "content": blocks, "stop_reason": answer.stop or ("tool_use" if answer.calls else "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": usage.input, "output_tokens": usage.output,
                  "cache_read_input_tokens": usage.cached, "cache_creation_input_tokens": usage.cache_writes},
    }  # fmt: skip


def _arguments(call: ToolCall) -> Any:
    try:
        return json.loads(call.arguments)
    except ValueError:
        return {}


def _anthropic_events(answer: Answer) -> list[Event]:
    whole = _anthropic_body(answer)
    start = {**whole, "content": [], "stop_reason": None, "usage": {**whole["usage"], "output_tokens": 1}}
    events: list[Json] = [{"type": "message_start", "message": start}]
    raw = iter(answer.calls)
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            empty: Json = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": part} for part in _halves(block["text"])]
        else:
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": part} for part in _halves(next(raw).arguments)]
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    # As the real one does: what is told at the end is the whole of it so far, not what has come since.
    events.append({"type": "message_delta", "delta": delta, "usage": whole["usage"]})
    events.append({"type": "message_stop"})
    return [(event["type"], event) for event in events]


def _anthropic_failure(status: int, message: str) -> Json:
    return {"type": "error", "error": {"type": _KINDS.get(status, "api_error"), "message": message}}


ANTHROPIC = Wire(
    "anthropic",
    _anthropic_history,
    lambda body: [tool["name"] for tool in body.get("tools") or []],
    _anthropic_body,
    _anthropic_events,
    _anthropic_failure,
    lambda status, message: ("error", _anthropic_failure(status, message)),
)

# ------------------------------------------------------------------------------------------ OpenAI Chat Completions


def _chat_history(body: Json) -> list[Entry]:
    found = []
    for message in body.get("messages", []):
        role = message["role"]
        if role == "tool":
            found.append(Entry("result", _text(message.get("content"))))
            continue
        found.append(Entry("system" if role in ("system", "developer") else role, _text(message.get("content"))))
        found += [Entry("call", call["function"]["name"]) for call in message.get("tool_calls") or []]
    return found


def _chat_tools(body: Json) -> list[str]:
    return [tool["function"]["name"] for tool in body.get("tools") or [] if "function" in tool]


def _chat_usage(usage: Usage) -> Json:
    prompt = usage.input + usage.cached
    return {
        "prompt_tokens": prompt, "completion_tokens": usage.output, "total_tokens": prompt + usage.output,
        "prompt_tokens_details": {"cached_tokens": usage.cached}, "completion_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip


def _chat_parts(answer: Answer) -> tuple[Json, list[Json], str]:
    calls = [
        {"id": f"call_{call.id}", "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in answer.calls
    ]
    base = {"id": f"chatcmpl-{uuid4().hex[:12]}", "created": 1_700_000_000, "model": answer.model}
    return base, calls, answer.stop or ("tool_calls" if calls else "stop")


def _chat_body(answer: Answer) -> Json:
    base, calls, stop = _chat_parts(answer)
    message: Json = {"role": "assistant", "content": answer.text or None, **({"tool_calls": calls} if calls else {})}
    choice = {"index": 0, "message": message, "finish_reason": stop}
    return {**base, "object": "chat.completion", "choices": [choice], "usage": _chat_usage(answer.usage)}


def _chat_events(answer: Answer) -> list[Event]:
    base, calls, stop = _chat_parts(answer)

    def chunk(delta: Json, finish: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return None, {**base, "object": "chat.completion.chunk", "choices": [choice]}

    events = [chunk({"role": "assistant", "content": ""})]
    events += [chunk({"content": part}) for part in _halves(answer.text)]
    for index, call in enumerate(calls):
        events.append(chunk({"tool_calls": [{**call, "index": index}]}))
    events.append(chunk({}, stop))
    usage = {**base, "object": "chat.completion.chunk", "choices": [], "usage": _chat_usage(answer.usage)}
    return [*events, (None, usage), (None, "[DONE]")]


def _openai_failure(status: int, message: str) -> Json:
    kind = _KINDS.get(status, "server_error")
    return {"error": {"message": message, "type": kind, "code": kind, "param": None}}


CHAT = Wire(
    "chat",
    _chat_history,
    _chat_tools,
    _chat_body,
    _chat_events,
    _openai_failure,
    lambda status, message: (None, _openai_failure(status, message)),
)

# ------------------------------------------------------------------------------------------ OpenAI Responses


def _responses_history(body: Json) -> list[Entry]:
    given = body.get("input") or []
    found = [Entry("system", body["instructions"])] if body.get("instructions") else []
    if isinstance(given, str):
        return [*found, Entry("user", given)]
    for item in given:
        kind = item.get("type", "message")
        if kind.endswith("_output"):
            found.append(Entry("result", _text(item.get("output"))))
        elif kind.endswith("_call"):
            found.append(Entry("call", item.get("name") or kind))
        elif kind == "message":
            role = item["role"]
            found.append(Entry(role if role in ("user", "assistant") else "system", _text(item.get("content"))))
    return found


def _responses_tools(body: Json) -> list[str]:
    """Tools of a namespace are told as `namespace/tool`."""
    found = []
    for tool in body.get("tools") or []:
        name = tool.get("name") or tool.get("type")
        found.append(name)
        found += [f"{name}/{inner['name']}" for inner in tool.get("tools") or [] if "name" in inner]
    return found


def _responses_body(answer: Answer) -> Json:
    usage = answer.usage
    prompt = usage.input + usage.cached
    items: list[Json] = []
    if answer.text or not answer.calls:
        content = [{"type": "output_text", "text": answer.text, "annotations": []}]
        items.append({"type": "message", "id": f"msg_{uuid4().hex[:8]}", "role": "assistant", "status": "completed",
                      "content": content})  # fmt: skip
    for call in answer.calls:
        items.append({"type": "function_call", "id": f"fc_{call.id}", "call_id": f"call_{call.id}",
                      "name": call.name, "arguments": call.arguments, "status": "completed",
                      **({"namespace": call.namespace} if call.namespace else {})})  # fmt: skip
    return {
        "id": f"resp_{uuid4().hex[:12]}", "object": "response", "created_at": 1_700_000_000,
        "status": answer.stop or "completed", "model": answer.model, "output": items, "error": None,
        "incomplete_details": None, "parallel_tool_calls": True, "tools": [], "tool_choice": "auto", "metadata": {},
        "usage": {"input_tokens": prompt, "input_tokens_details": {"cached_tokens": usage.cached},
                  "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": 0},
                  "total_tokens": prompt + usage.output},
    }  # fmt: skip


def _responses_events(answer: Answer) -> list[Event]:
    whole = _responses_body(answer)
    events: list[Json] = [
        {"type": "response.created", "response": {**whole, "status": "in_progress", "output": [], "usage": None}}
    ]
    for index, item in enumerate(whole["output"]):
        at = {"item_id": item["id"], "output_index": index}
        hollow: Json = {"arguments": ""} if item["type"] == "function_call" else {"content": []}
        begun = {**item, "status": "in_progress", **hollow}
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        if item["type"] == "function_call":
            kind, arguments = "response.function_call_arguments", item["arguments"]
            events += [{"type": f"{kind}.delta", **at, "delta": part} for part in _halves(arguments)]
            events.append({"type": f"{kind}.done", **at, "arguments": arguments})
        else:
            at["content_index"] = 0
            part = {"type": "output_text", "text": "", "annotations": []}
            events.append({"type": "response.content_part.added", **at, "part": part})
            events += [{"type": "response.output_text.delta", **at, "delta": half} for half in _halves(answer.text)]
            events.append({"type": "response.output_text.done", **at, "text": answer.text})
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{whole['status']}", "response": whole})
    return [(event["type"], {**event, "sequence_number": number}) for number, event in enumerate(events)]


def _responses_broken(status: int, message: str) -> Event:
    error = {"code": _KINDS.get(status, "server_error"), "message": message}
    response = {"id": "resp_broken", "object": "response", "status": "failed", "output": [], "error": error}
    return "response.failed", {"type": "response.failed", "sequence_number": 1, "response": response}


RESPONSES = Wire(
    "responses",
    _responses_history,
    _responses_tools,
    _responses_body,
    _responses_events,
    _openai_failure,
    _responses_broken,
)

# ------------------------------------------------------------------------------------------ Gemini


def _gemini_history(body: Json) -> list[Entry]:
    found = []
    if body.get("systemInstruction"):
        found.append(Entry("system", _text(body["systemInstruction"].get("parts"))))
    for content in body.get("contents", []):
        for part in content.get("parts", []):
            if "functionResponse" in part:
                found.append(Entry("result", json.dumps(part["functionResponse"].get("response"))))
            elif "functionCall" in part:
                found.append(Entry("call", part["functionCall"]["name"]))
            else:
                found.append(Entry("assistant" if content.get("role") == "model" else "user", _text(part)))
    return found


def _gemini_tools(body: Json) -> list[str]:
    return [one["name"] for tool in body.get("tools") or [] for one in tool.get("functionDeclarations") or []]


def _gemini_body(answer: Answer) -> Json:
    parts: list[Json] = [{"text": answer.text}] if answer.text or not answer.calls else []
    parts += [{"functionCall": {"name": call.name, "args": _arguments(call)}} for call in answer.calls]
    usage = answer.usage
    prompt = usage.input + usage.cached
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": answer.stop or "STOP", "index": 0}
    return {
        "candidates": [candidate], "modelVersion": answer.model, "responseId": uuid4().hex[:10],
        "usageMetadata": {"promptTokenCount": prompt, "candidatesTokenCount": usage.output,
                          "totalTokenCount": prompt + usage.output, "cachedContentTokenCount": usage.cached},
    }  # fmt: skip


def _gemini_failure(status: int, message: str) -> Json:
    kind = {401: "UNAUTHENTICATED", 429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE"}.get(status, "INTERNAL")
    return {"error": {"code": status, "message": message, "status": kind}}


GEMINI = Wire(
    "gemini",
    _gemini_history,
    _gemini_tools,
    _gemini_body,
    lambda answer: [(None, _gemini_body(answer))],
    _gemini_failure,
    lambda status, message: (None, _gemini_failure(status, message)),
)
