"""Both APIs through their real SDKs, against servers on this machine."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Literal

import pytest

from orchard.agents.builtin import clients
from orchard.agents.builtin.chat_api import open_chat_model
from orchard.agents.builtin.messages_api import open_messages_model
from orchard.agents.builtin.model import Message, Model, ModelError, Pace, Request, TooLong, result_block, said
from orchard.agents.protocol import Reason
from orchard.model.plan import Effort
from tests.agents.builtin.canned import Canned, anthropic_stream, block, chunk, sse
from tests.agents.llm import Call, Fail, Hang, Say, ScriptedLlm, steps

pytestmark = pytest.mark.anyio

Provider = Literal["anthropic", "openai"]
PROVIDERS = ("anthropic", "openai")
TOOL = {"name": "echo", "description": "Says it again.", "input_schema": {"type": "object"}}


def opened(provider: str, url: str) -> AbstractAsyncContextManager[Model]:
    if provider == "anthropic":
        return open_messages_model("test-key", url)
    return open_chat_model("test-key", f"{url}/v1")


@asynccontextmanager
async def asking(provider: str, url: str) -> AsyncIterator[Model]:
    async with asyncio.timeout(120), opened(provider, url) as model:
        yield model


def request(*messages: Message, tools: bool = True, effort: Effort | None = None) -> Request:
    return Request("fake-model", "Be brief.", messages or (said("Hello"),), [TOOL] if tools else [], 1000, effort)


def nothing(text: str) -> None:
    return


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_text_is_heard_as_it_comes_and_usage_is_what_the_server_counted(provider: Provider) -> None:
    heard: list[str] = []
    with ScriptedLlm(steps(Say("Hello there, how are you?"))) as llm:
        async with asking(provider, llm.url) as model:
            reply = await model.reply(request(), heard.append)

        assert reply.message.text == "Hello there, how are you?" and reply.stop == "end_turn"
        assert "".join(heard).strip() == "Hello there, how are you?"
        used, counted = reply.usage, llm.usage()
        assert (used.input, used.cached, used.cache_writes, used.output, used.requests) == (
            counted.input,
            counted.cached,
            counted.cache_writes,
            counted.output,
            1,
        )
        assert used.model == "fake-model" and used.api_seconds > 0 and used.cost is None


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_parallel_calls_and_their_answers_go_there_and_back(provider: Provider) -> None:
    script = steps([Call("echo", {"text": "a"}), Call("echo", {"text": "ü"})], Say("Both done."))
    with ScriptedLlm(script) as llm:
        async with asking(provider, llm.url) as model:
            first = await model.reply(request(), nothing)
            answers = Message("user", tuple(result_block(call["id"], "fine") for call in first.message.calls))
            last = await model.reply(request(said("Hello"), first.message, answers, said("Go on.")), nothing)

        assert first.stop == "tool_use"
        assert [call["input"] for call in first.message.calls] == [{"text": "a"}, {"text": "ü"}]
        assert last.message.text == "Both done."
        assert llm.requests[1].results == ["fine", "fine"]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("bad", ['{"text": "a', "[1, 2]", "nonsense"])
async def test_input_that_is_no_json_object_is_told_and_can_be_sent_again(provider: Provider, bad: str) -> None:
    with ScriptedLlm(steps(Call("echo", bad), Say("I see."))) as llm:
        async with asking(provider, llm.url) as model:
            first = await model.reply(request(), nothing)
            (call,) = first.message.calls
            answer = Message("user", (result_block(call["id"], first.malformed[call["id"]], failed=True),))
            last = await model.reply(request(said("Hello"), first.message, answer), nothing)

        assert "JSON" in first.malformed[call["id"]] and call["input"] == {}
        assert last.message.text == "I see."


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_characters_that_are_half_of_a_pair_can_be_sent_again(provider: Provider) -> None:
    script = steps([Say("half \ud83d"), Call("echo", {"text": ["\udc00"]})], Say("I see."))
    with ScriptedLlm(script) as llm:
        async with asking(provider, llm.url) as model:
            first = await model.reply(request(said("mine \ud83d")), nothing)
            (call,) = first.message.calls
            answer = Message("user", (result_block(call["id"], "and \udfff"),))
            last = await model.reply(request(said("mine \ud83d"), first.message, answer), nothing)

        assert call["input"] == {"text": ["\ufffd"]}
        assert last.message.text == "I see." and llm.requests[-1].results == ["and \ufffd"]


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (401, "not-logged-in"),
        (403, "not-logged-in"),
        (404, "failed"),
        (400, "failed"),
        (429, "rate-limit"),
        (500, "overloaded"),
        (503, "overloaded"),
        (529, "overloaded"),
    ],
)
async def test_errors_are_told_apart_and_tried_once_here(provider: Provider, status: int, reason: Reason) -> None:
    with ScriptedLlm(steps(Fail(status, retry_after=7.0))) as llm:
        async with asking(provider, llm.url) as model:
            with pytest.raises(ModelError) as caught:
                await model.reply(request(), nothing)

        assert caught.value.reason == reason and caught.value.retry_after == 7
        assert str(status) in caught.value.message and f"scripted {status}" in caught.value.message
        assert len(llm.requests) == 1


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize(("status", "reason"), [(529, "overloaded"), (429, "rate-limit"), (500, "overloaded")])
async def test_an_error_in_the_middle_of_an_answer_is_one_of_its_kind(
    provider: Provider, status: int, reason: Reason
) -> None:
    with ScriptedLlm(steps(Fail(status, midstream=True))) as llm:
        async with asking(provider, llm.url) as model:
            with pytest.raises(ModelError) as caught:
                await model.reply(request(), nothing)

    assert caught.value.reason == reason


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_server_that_is_not_there_is_a_broken_network(provider: Provider) -> None:
    async with asking(provider, "http://127.0.0.1:9") as model:
        with pytest.raises(ModelError) as caught:
            await model.reply(request(), nothing)

    assert caught.value.reason == "network" and "connection" in caught.value.message.lower()


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_an_answer_that_breaks_off_is_no_answer(provider: Provider) -> None:
    begun = anthropic_stream(*block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "I will"}))[:3]
    body = sse(*begun) if provider == "anthropic" else sse(chunk({"role": "assistant", "content": "I will"}))
    with Canned(body) as server:
        async with asking(provider, server.url) as model:
            with pytest.raises(ModelError) as caught:
                await model.reply(request(), nothing)

    assert caught.value.reason == "network" and "broke off" in caught.value.message


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_stream_that_is_no_json_is_no_answer(provider: Provider) -> None:
    with Canned(b"event: message_start\ndata: {{{ what\n\n") as server:
        async with asking(provider, server.url) as model:
            with pytest.raises(ModelError) as caught:
                await model.reply(request(), nothing)

    assert caught.value.reason == "network"


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_server_that_never_stops_is_stopped(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchard.agents.builtin.clients.LONGEST_REPLY", 10_000)
    many = [{"type": "text_delta", "text": "x" * 1000}] * 50
    body = sse(*anthropic_stream(*block(0, {"type": "text", "text": ""}, *many)))
    if provider == "openai":
        body = sse(*[chunk({"content": "x" * 1000})] * 50)
    with Canned(body) as server:
        async with asking(provider, server.url) as model:
            with pytest.raises(ModelError, match="longer than"):
                await model.reply(request(), nothing)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_signs_of_life_of_a_model_that_thinks_are_heard(provider: Provider) -> None:
    """Neither SDK tells of pings and comments: they say that the model is there all the same."""
    body = sse(*anthropic_stream(*[{"type": "ping"}] * 5, *block(0, {"type": "text", "text": "So."})))
    if provider == "openai":
        body = b": thinking\n\n" * 5 + sse(chunk({"content": "So."}), chunk({}, "stop"), "[DONE]")
    heard: list[str] = []
    with Canned(body, pause=0.05) as server:
        async with asking(provider, server.url) as model:
            reply = await model.reply(request(), heard.append)

    assert reply.message.text == "So."
    assert heard[:5] == [""] * 5 and "".join(heard).strip() == "So."


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_cancellation_in_the_middle_of_an_answer_ends_the_connection_at_once(provider: Provider) -> None:
    with ScriptedLlm(steps(Hang())) as llm:
        async with asking(provider, llm.url) as model:
            call = asyncio.ensure_future(model.reply(request(), nothing))
            await asyncio.to_thread(llm.wait_hanging)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("effort", ["low", "xhigh"])
async def test_effort_and_limits_are_sent_and_no_sampling_is(provider: Provider, effort: Effort) -> None:
    with ScriptedLlm() as llm:
        async with asking(provider, llm.url) as model:
            await model.reply(request(effort=effort), nothing)
            await model.reply(request(tools=False), nothing)

        body, second = llm.requests[0].body, llm.requests[1].body
    assert not {"temperature", "top_p", "top_k"} & body.keys()
    assert body["stream"] is True and body["max_tokens"] == 1000 and "tools" not in second
    if provider == "anthropic":
        assert body["output_config"] == {"effort": effort} and "output_config" not in second
        assert body["cache_control"] == {"type": "ephemeral"}
        assert body["system"] == "Be brief." and body["tools"] == [TOOL]
    else:
        assert body["reasoning_effort"] == effort and "reasoning_effort" not in second
        assert body["stream_options"] == {"include_usage": True}
        assert body["messages"][0] == {"role": "system", "content": "Be brief."}


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("words", ["prompt is too long: 300000 tokens", "maximum context length is 8192 tokens"])
async def test_a_conversation_that_does_not_fit_is_told_apart(provider: Provider, words: str) -> None:
    with ScriptedLlm(steps(Fail(400, words))) as llm:
        async with asking(provider, llm.url) as model:
            with pytest.raises(TooLong):
                await model.reply(request(), nothing)


# ------------------------------------------------------------------------------------------ Messages API


async def test_thinking_is_sent_back_as_it_came_and_later_figures_replace_earlier_ones() -> None:
    thinking = block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "I should "},
        {"type": "thinking_delta", "thinking": "look."},
        {"type": "signature_delta", "signature": "c2ln"},
    )
    unknown = block(1, {"type": "future_block", "payload": {"a": [1, 2]}})
    use = {"type": "tool_use", "id": "t1", "name": "echo", "input": {}}
    call = block(
        2, use, {"type": "input_json_delta", "partial_json": ""}, {"type": "input_json_delta", "partial_json": "{}"}
    )
    usage = {"output_tokens": 40, "input_tokens": 50, "cache_read_input_tokens": 7}
    body = sse(*anthropic_stream(*thinking, *unknown, *call, stop="tool_use", usage=usage))
    with Canned(body) as server:
        async with asking("anthropic", server.url) as model:
            first = await model.reply(request(), nothing)
            answer = Message("user", (result_block("t1", "ok"),))
            await model.reply(request(said("Hello"), first.message, answer), nothing)

        echoed = server.requests[1]["messages"][1]["content"]
        assert server.headers[0]["authorization"] == "Bearer test-key"
    assert echoed[0] == {"type": "thinking", "thinking": "I should look.", "signature": "c2ln"}
    assert echoed[1] == {"type": "future_block", "payload": {"a": [1, 2]}}
    assert (first.usage.input, first.usage.cached, first.usage.cache_writes, first.usage.output) == (50, 7, 3, 40)
    assert first.usage.model == "claude-x"


@pytest.mark.parametrize(
    ("said_stop", "stop"),
    [
        ("end_turn", "end_turn"),
        ("stop_sequence", "stop_sequence"),
        ("max_tokens", "max_tokens"),
        ("pause_turn", "pause_turn"),
        ("refusal", "refusal"),
        ("model_context_window_exceeded", "context"),
        ("from_the_future", "other"),
    ],
)
async def test_every_stop_reason_is_known(said_stop: str, stop: str) -> None:
    text = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "So."})
    with Canned(sse(*anthropic_stream(*text, stop=said_stop))) as server:
        async with asking("anthropic", server.url) as model:
            reply = await model.reply(request(), nothing)

    assert reply.stop == stop
    assert reply.detail == ("from_the_future" if stop == "other" else "")


async def test_what_was_cut_off_in_the_middle_of_thinking_can_be_sent_again() -> None:
    half = block(0, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "thinking_delta", "thinking": "I"})
    with Canned(sse(*anthropic_stream(*half, stop="max_tokens"))) as server:
        async with asking("anthropic", server.url) as model:
            reply = await model.reply(request(), nothing)

    assert reply.message.blocks == ()


@pytest.mark.parametrize(("count", "marked"), [(3, False), (12, True)])
async def test_a_message_with_many_calls_does_not_lose_the_cache_of_the_call_before(count: int, marked: bool) -> None:
    many = steps([Call("echo", {"text": str(number)}) for number in range(count)], Say("Fine."))
    with ScriptedLlm(many) as llm:
        async with asking("anthropic", llm.url) as model:
            first = await model.reply(request(), nothing)
            answers = Message("user", tuple(result_block(call["id"], "ok") for call in first.message.calls))
            await model.reply(request(said("Hello"), first.message, answers), nothing)

        start, *rest = llm.requests[1].body["messages"]
    assert ("cache_control" in start["content"][-1]) is marked
    assert not any("cache_control" in one for message in rest for one in message["content"])


async def test_limits_in_headers_are_passed_on() -> None:
    text = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "So."})
    headers = {
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2020-01-01T00:00:00Z",
    }
    with Canned(sse(*anthropic_stream(*text)), headers=headers) as server:
        async with asking("anthropic", server.url) as model:
            reply = await model.reply(request(), nothing)

    assert reply.pace == Pace(0, 0.0)


# ------------------------------------------------------------------------------------------ Chat Completions


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"), ("odd", "other")],
)
async def test_every_finish_reason_is_known(finish: str, stop: str) -> None:
    with Canned(sse(chunk({"content": "So."}), chunk({}, finish), "[DONE]")) as server:
        async with asking("openai", server.url) as model:
            reply = await model.reply(request(), nothing)

    assert reply.stop == stop and reply.message.text == "So."


async def test_calls_of_sloppy_servers_are_understood() -> None:
    calls = [
        {"index": 0, "id": "", "type": "function", "function": {"name": "my.echo", "arguments": '{"te'}},
        {"index": 0, "function": {"arguments": 'xt": "a"}'}},
        {"index": 1, "id": "same", "type": "function", "function": {"name": "echo", "arguments": ""}},
        {"index": 2, "id": "same", "type": "function", "function": {"name": "echo", "arguments": "{}"}},
    ]
    parts = [chunk({"tool_calls": [call]}) for call in calls]
    usage = {"prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34, "cost": 0.25}
    body = sse(chunk({"reasoning_content": "hm"}), *parts, chunk({}, "stop", usage=usage), "[DONE]")
    with Canned(body) as server:
        async with asking("openai", server.url) as model:
            reply = await model.reply(request(), nothing)
            results = Message("user", tuple(result_block(call["id"], "ok") for call in reply.message.calls))
            await model.reply(request(said("Hello"), reply.message, results), nothing)

        sent = server.requests[1]["messages"][2]
    assert reply.stop == "tool_use"
    assert [(call["name"], call["input"]) for call in reply.message.calls] == [
        ("my_echo", {"text": "a"}),
        ("echo", {}),
        ("echo", {}),
    ]
    ids = [call["id"] for call in reply.message.calls]
    assert len(set(ids)) == 3 and all(ids)
    assert sent["reasoning_content"] == "hm" and [call["id"] for call in sent["tool_calls"]] == ids
    assert (reply.usage.input, reply.usage.cost, reply.usage.cost_source) == (30, 0.25, "agent")


async def test_a_conversation_begun_with_the_other_api_can_go_on_here() -> None:
    only_reasoning = Message("assistant", ({"type": "reasoning", "text": "hm"},))
    with ScriptedLlm() as llm:
        async with asking("anthropic", llm.url) as model:
            await model.reply(request(said("One."), only_reasoning, said("Two.")), nothing)

        (message,) = llm.requests[0].body["messages"]
    assert [each["text"] for each in message["content"]] == ["One.", "Two."]


async def test_a_server_that_wants_the_new_name_of_the_limit_gets_it() -> None:
    fail = Fail(400, "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.")
    with ScriptedLlm(lambda asked: fail if "max_tokens" in asked.body else Say("Fine.")) as llm:
        async with asking("openai", llm.url) as model:
            reply = await model.reply(request(), nothing)
            await model.reply(request(), nothing)

        assert reply.message.text == "Fine."
        assert [asked.body.get("max_completion_tokens") for asked in llm.requests] == [None, 1000, 1000]


async def test_money_that_is_used_up_is_not_waited_for() -> None:
    error = {"message": "You exceeded your quota.", "type": "insufficient_quota", "code": "insufficient_quota"}
    body = json.dumps({"error": error}).encode()
    with Canned(body, status=429, headers={"content-type": "application/json"}) as server:
        async with asking("openai", server.url) as model:
            with pytest.raises(ModelError) as caught:
                await model.reply(request(), nothing)

    assert caught.value.reason == "failed" and caught.value.final


# ------------------------------------------------------------------------------------------ connections


async def test_connections_are_shared_while_they_are_used_and_closed_by_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[object] = []
    make = clients._connections

    def counted(sdk: object) -> object:
        made.append(make(sdk))
        return made[-1]

    monkeypatch.setattr(clients, "_connections", counted)
    sdk = await clients.load("anthropic")

    async with (
        clients.open_connections(sdk, "http://127.0.0.1:1") as one,
        clients.open_connections(sdk, "http://127.0.0.1:1") as two,
        clients.open_connections(sdk, "http://127.0.0.1:2") as other,
    ):
        assert one is two and one is not other
    async with clients.open_connections(sdk, "http://127.0.0.1:1") as later:
        assert later is not one

    assert len(made) == 3 and all(client.is_closed for client in made)  # type: ignore[attr-defined]
