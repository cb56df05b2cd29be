"""What agents say over the protocol is understood, each in its own words: failures, usage, tool calls."""

from typing import Any

import pytest
from msgspec.structs import replace

from orchard.agents.acp.failures import from_answer, from_words, warning_of
from orchard.agents.acp.lines import sound
from orchard.agents.acp.updates import MOST_CALLS, MOST_WARNINGS, VersionOne, used
from orchard.agents.facts.programs import traits_of
from orchard.agents.protocol import Called, Noted, Telling, Used
from orchard.model.usage import Usage


def beside(**failure: Any) -> dict[str, Any]:
    return {"stopReason": "end_turn", "_meta": {"jetbrains": {"air": {"version": 1, "sessionFailure": failure}}}}


@pytest.mark.parametrize(
    ("category", "title", "actions", "reason"),
    [
        ("limit", "exceeded retry limit, last status: 429 Too Many Requests", ["retry"], "rate-limit"),
        ("limit", "Please slow down.", ["retry"], "rate-limit"),
        ("limit", "The context is full.", ["new_session"], "failed"),
        ("service", "We have much to do.", ["retry"], "overloaded"),
        ("access", "Sign in to continue.", ["login"], "not-logged-in"),
        ("connection", "The line is dead.", ["retry"], "network"),
        ("request", "Not like this.", [], "failed"),
        ("something new", "What is it?", "no list", "failed"),
    ],
)
def test_a_failure_beside_the_answer_has_its_reason(category: str, title: str, actions: Any, reason: str) -> None:
    found = from_answer(beside(category=category, severity="error", title=title, actions=actions))

    assert found == (reason, title)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"_meta": None},
        {"_meta": {"jetbrains": []}},
        {"_meta": {"jetbrains": {"air": {"sessionFailure": "bad"}}}},
        beside(severity="warning", title="Only a warning."),
    ],
)
def test_no_failure_is_found_where_none_is_told(answer: dict[str, Any]) -> None:
    assert from_answer(answer) is None


def test_a_warning_is_a_retry_unless_it_is_about_something_else() -> None:
    assert warning_of(beside(severity="warning", category="service", title="Again")) == ("retry", "Again")
    assert warning_of(beside(severity="warning", category="unknown", title="By the way")) == ("warning", "By the way")
    assert warning_of(beside(severity="error", title="Over")) is None


def test_only_the_agent_whose_words_are_known_is_judged_by_them() -> None:
    error = "Error: 429 too many requests"

    assert from_words("Copilot", error, used=False, denied=False) == ("rate-limit", "429 too many requests")
    assert from_words("Copilot", error, used=True, denied=False) is None
    assert from_words("Other", error, used=False, denied=False) is None
    assert from_words("Copilot", "All done.", used=False, denied=True) is None


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({}, []),
        ({"usage": {"totalTokens": 0, "inputTokens": 0, "outputTokens": 0}}, []),
        # Cached tokens beside the others, and within them: the sum tells.
        (
            {"usage": {"totalTokens": 65, "inputTokens": 10, "outputTokens": 5, "cachedReadTokens": 50}},
            [Usage(input=10, cached=50, output=5)],
        ),
        (
            {"usage": {"totalTokens": 65, "inputTokens": 60, "outputTokens": 5, "cachedReadTokens": 50}},
            [Usage(input=10, cached=50, output=5)],
        ),
        # Thoughts likewise.
        (
            {"usage": {"totalTokens": 18, "inputTokens": 10, "outputTokens": 5, "thoughtTokens": 3}},
            [Usage(input=10, output=8)],
        ),
        (
            {"usage": {"totalTokens": 15, "inputTokens": 10, "outputTokens": 5, "thoughtTokens": 3}},
            [Usage(input=10, output=5)],
        ),
        # By model, where that is told; in either spelling.
        (
            {
                "usage": {"totalTokens": 3, "inputTokens": 1, "outputTokens": 2},
                "_meta": {
                    "quota": {
                        "model_usage": [
                            {"model": "a", "token_count": {"input_tokens": 1, "output_tokens": 2}},
                            {"model": "b", "token_count": {"inputTokens": 3, "cachedInputTokens": 4}},
                            {"model": "idle", "token_count": {}},
                        ]
                    }
                },
            },
            [Usage(model="a", input=1, output=2), Usage(model="b", input=3, cached=4)],
        ),
        ({"_meta": {"quota": {"token_count": {"input_tokens": 7}, "model_usage": []}}}, [Usage(input=7)]),
        ({"usage": {"inputTokens": -5, "outputTokens": True, "cachedReadTokens": 1 << 60}}, []),
    ],
)
def test_each_token_is_counted_once(answer: dict[str, Any], expected: list[Usage]) -> None:
    assert list(used(answer)) == expected


def told(*updates: dict[str, Any]) -> list[Telling]:
    found: list[Telling] = []
    decoder = VersionOne(found.append, lambda: "m")
    for update in updates:
        decoder.update(update)
    decoder.answered({"stopReason": "end_turn"})
    return [replace(one, input="") if isinstance(one, Called) else one for one in found]


def test_a_call_is_told_when_its_input_is_known_or_something_else_happens() -> None:
    begun = {"sessionUpdate": "tool_call", "toolCallId": "1", "title": "Terminal", "kind": "execute", "rawInput": {}}
    known_by_now = {"sessionUpdate": "tool_call_update", "toolCallId": "1", "rawInput": {"command": ["ls", "-l"]}}
    other = {"sessionUpdate": "tool_call", "toolCallId": "2", "title": "Look", "locations": [{"path": "a/b"}]}

    assert told(begun, known_by_now, other) == [Called("execute", "ls -l"), Called("tool", "Look a/b")]
    assert told(begun, other, known_by_now) == [Called("execute", "Terminal"), Called("tool", "Look a/b")]
    assert told(begun) == [Called("execute", "Terminal")]


def test_nothing_that_is_remembered_grows_without_end() -> None:
    found: list[Telling] = []
    decoder = VersionOne(found.append, lambda: "m")
    warning = {"sessionUpdate": "session_info_update", **beside(severity="warning", title="Again")}

    for number in range(3 * MOST_CALLS):
        decoder.update({"sessionUpdate": "tool_call", "toolCallId": f"{number}" * 1000, "title": "x" * 10_000})
        decoder.update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "y" * 1000}})
        decoder.update(warning)

    assert len(decoder._calls) == MOST_CALLS
    assert max(map(len, decoder._calls)) <= 200
    assert len([one for one in found if isinstance(one, Noted)]) == MOST_WARNINGS


def test_a_cost_names_the_model_that_the_agent_names_and_other_money_is_not_counted() -> None:
    dear = {"sessionUpdate": "usage_update", "cost": {"amount": 2, "currency": "USD"}, "_meta": {"x/model": "big"}}
    other = {"sessionUpdate": "usage_update", "cost": {"amount": 9, "currency": "EUR"}}
    absurd = {"sessionUpdate": "usage_update", "cost": {"amount": 1e300, "currency": "USD"}}

    assert told(dear, other, absurd) == [Used(Usage(model="big", cost=2.0, cost_source="agent"))]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"id": 1, "result": {"a": 1}, "x": 2}', {"id": 1, "result": {"a": 1}}),
        (b'{"id": 1}', {"id": 1, "result": None}),
        (b'{"id": 1, "error": "no"}', {"id": 1, "error": {"code": 0, "message": "no", "data": None}}),
        (b'{"id": 1, "error": {"code": "x"}}', {"id": 1, "error": {"code": 0, "message": "", "data": None}}),
        (b'{"method": "a"}', {"method": "a"}),
        (b'{"id": true, "result": 1}', None),
        (b'{"id": "1", "result": 1}', None),
        (b"\xff\xfe", None),
    ],
)
def test_only_sound_messages_pass(line: bytes, message: dict[str, Any] | None) -> None:
    assert sound(line) == message


@pytest.mark.parametrize(
    ("argv", "home"),
    [
        (["/opt/bin/codex-acp"], "CODEX_HOME"),
        (["npx", "@agentclientprotocol/claude-agent-acp@0.99.0"], "CLAUDE_CONFIG_DIR"),
        (["copilot", "--acp"], "COPILOT_HOME"),
    ],
)
def test_an_agent_is_known_by_its_program_however_it_is_started(argv: list[str], home: str) -> None:
    assert traits_of(argv).home == home
    assert traits_of(["some-agent"]).home == "HOME"


@pytest.mark.parametrize("wrap", [lambda told: told, lambda told: {"field_meta": told}])
def test_what_openhands_tells_beside_the_protocol_is_read(wrap: Any) -> None:
    told = {
        "input_tokens": 1000,
        "output_tokens": 50,
        "cache_read_tokens": 300,
        "cache_write_tokens": 100,
        "cost": 0.25,
    }
    (usage,) = used({"stopReason": "end_turn", "_meta": wrap({"openhands.dev/metrics": told})})

    assert (usage.input, usage.cached, usage.cache_writes, usage.output, usage.cost) == (600, 300, 100, 50, 0.25)
