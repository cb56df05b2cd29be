"""Events that no model should send: each is an answer, or an error that is tried again; never a crash."""

import copy
import random
from collections.abc import Iterator
from typing import Any

import pytest

from orchard.agents.acp.updates import VersionOne, used
from orchard.agents.builtin.model import ModelError
from orchard.agents.protocol import Telling, Used
from orchard.model.usage import MOST_TOKENS, Usage, believed
from tests.agents.builtin.canned import Canned, anthropic_stream, block, chunk, sse
from tests.agents.builtin.test_apis import PROVIDERS, asking, nothing, request

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
ODD: tuple[Any, ...] = (
    None,
    "",
    "many",
    -5,
    -99_887,
    1e300,
    float("inf"),
    10**40,
    True,
    1.5,
    [],
    {},
    [None],
    {"a": None},
    "\x00",
    [[[]]],
)


def whole(provider: str) -> list[Json]:
    """An answer as it should be, with every kind of event in it."""
    if provider == "anthropic":
        call = {"type": "tool_use", "id": "t1", "name": "echo", "input": {}}
        thought = {"type": "thinking", "thinking": "", "signature": ""}
        return anthropic_stream(
            *block(
                0, thought, {"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": "s"}
            ),
            *block(1, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello"}),
            *block(2, call, {"type": "input_json_delta", "partial_json": '{"text": "x"}'}),
            stop="tool_use",
        )
    function = {"name": "echo", "arguments": '{"text": "x"}'}
    details = {"cached_tokens": 7, "cache_write_tokens": 3}
    usage = {"prompt_tokens": 60, "completion_tokens": 9, "total_tokens": 69, "prompt_tokens_details": details}
    return [
        chunk({"role": "assistant", "content": "Hello"}),
        chunk({"reasoning_content": "hm"}),
        chunk({"tool_calls": [{"index": 0, "id": "t1", "type": "function", "function": function}]}),
        chunk({}, "tool_calls"),
        {**chunk({}), "choices": [], "usage": {**usage, "cost": 0.25}},
    ]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(inner, (*path, key))


def changed(events: list[Json], path: tuple[Any, ...], odd: Any) -> list[Json]:
    """The same with one value replaced, or left out."""
    made: Any = copy.deepcopy(events)
    at = made
    for key in path[:-1]:
        at = at[key]
    if odd is Ellipsis:
        del at[path[-1]]
    else:
        at[path[-1]] = odd
    return made  # type: ignore[no-any-return]


def mutants(provider: str, some: int) -> list[list[Json]]:
    events, chance = whole(provider), random.Random(7)
    every = [(path, odd) for path in places(events) for odd in (*ODD, ...)]
    return [changed(events, path, odd) for path, odd in chance.sample(every, min(some, len(every)))]


def is_sound(usage: Usage) -> bool:
    counts = (usage.input, usage.cached, usage.cache_writes, usage.output)
    return all(type(one) is int and 0 <= one <= MOST_TOKENS for one in counts) and usage == believed(usage)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_whatever_events_a_server_sends_they_are_an_answer_or_an_error_in_words(provider: str) -> None:
    streams = mutants(provider, 300)
    ends = {"reply": 0, "error": 0}
    with Canned(*(sse(*stream) for stream in streams)) as server:
        async with asking(provider, server.url) as model:
            for stream in streams:
                try:
                    reply = await model.reply(request(), nothing)
                except ModelError as error:
                    ends["error"] += 1
                    assert error.usage is None or is_sound(error.usage), stream
                    assert error.reason in ("network", "failed", "overloaded"), (error.reason, error.message, stream)
                else:
                    ends["reply"] += 1
                    assert is_sound(reply.usage), stream
    assert min(ends.values()) > 20, ends


@pytest.mark.parametrize(
    "odd",
    [
        {"type": "message_delta", "delta": None, "usage": {"output_tokens": 3}},
        {"type": "message_start", "message": None},
        {"type": "content_block_start", "index": 0, "content_block": None},
    ],
)
async def test_an_event_that_cannot_be_read_may_be_whole_the_next_time(odd: Json) -> None:
    events = [one if one["type"] != odd["type"] else odd for one in whole("anthropic")]
    with Canned(sse(*events)) as server:
        async with asking("anthropic", server.url) as model:
            with pytest.raises(ModelError) as caught:
                await model.reply(request(), nothing)

    assert caught.value.reason == "network"
    assert "cannot be read" in caught.value.message


async def test_tokens_below_zero_and_tokens_that_are_a_word_count_as_none() -> None:
    usage = {"output_tokens": -99_887, "input_tokens": "many", "cache_read_input_tokens": 1e300}
    with Canned(sse(*anthropic_stream(usage=usage))) as server:
        async with asking("anthropic", server.url) as model:
            reply = await model.reply(request(), nothing)

    assert (reply.usage.input, reply.usage.output, reply.usage.cached, reply.usage.cache_writes) == (0, 0, 0, 3)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_answer_that_is_cut_for_its_length_tells_what_it_took(
    provider: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchard.agents.builtin.clients.LONGEST_REPLY", 3)
    with Canned(sse(*whole(provider))) as server:
        async with asking(provider, server.url) as model:
            with pytest.raises(ModelError) as caught:
                await model.reply(request(), nothing)

    assert "longer than" in caught.value.message
    assert caught.value.usage is not None
    assert provider == "openai" or caught.value.usage.input == 50


async def test_whatever_an_acp_agent_says_it_used_is_a_number_that_can_be_true() -> None:
    counts = {"inputTokens": 10, "outputTokens": 2, "cachedReadTokens": 3, "totalTokens": 12, "thoughtTokens": 1}
    quota = {"model_usage": [{"model": "m", "token_count": counts}], "token_count": counts}
    answer = {"stopReason": "end_turn", "usage": counts, "_meta": {"quota": quota}}
    updates = [{"sessionUpdate": "usage_update", "cost": {"amount": 0.5, "currency": "USD"}, "_meta": {"a/model": "m"}}]
    for path in places([answer, *updates]):
        for odd in (*ODD, ...):
            told: list[Telling] = []
            first, *rest = changed([answer, *updates], path, odd)
            decoder = VersionOne(told.append, lambda: "m")
            for update in rest:
                if isinstance(update, dict):
                    decoder.update(update)
            if isinstance(first, dict):
                decoder.answered(first)
                assert all(is_sound(usage) for usage in used(first)), (path, odd)
            assert all(is_sound(one.usage) for one in told if isinstance(one, Used)), (path, odd)


def test_what_any_agent_says_it_used_is_believed_only_where_it_can_be_true() -> None:
    wild = Usage("m", -5, 10**40, 3, 4, requests=-1, cost=float("nan"), cost_source="agent", api_seconds=float("inf"))

    assert believed(wild) == Usage("m", 0, 0, 3, 4)
