"""Lines of JSON-RPC: what is a message, and what its sender hears where it is none."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchard.surfaces.mcp.server.frames import DEPTH, Lines, Refused, encode, error_line, parse

GOOD: list[dict[str, Any]] = [
    {"jsonrpc": "2.0", "id": 1, "method": "ping"},
    {"jsonrpc": "2.0", "id": "a", "method": "tools/call", "params": {"name": "x"}},
    {"jsonrpc": "2.0", "id": -5, "method": "ping", "params": None},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 1, "result": {}},
    {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}},
    {"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"text": "\u00e4 \U0001f333 \ud83c"[:-1]}},
]

BAD: list[tuple[bytes, int, object]] = [
    (b"{", -32700, None),
    (b"nonsense", -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping"', -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"\xff"}', -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":"\\ud800"}}', -32700, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":' + b"1" * 5000 + b"}}", -32700, None),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b'{"x":' * 200 + b"1" + b"}" * 200 + b"}", -32700, 1),
    (b"[" * 100_000, -32700, None),
    (b"[]", -32600, None),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32600, None),
    (b"17", -32600, None),
    (b"null", -32600, None),
    (b"{}", -32600, None),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600, 1),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":[],"method":"ping"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":99999999999999999999,"method":"ping"}', -32600, None),
    (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}', -32602, 1),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}', -32602, 1),
    (b'{"jsonrpc":"2.0","id":1}', -32600, None),
    (b'{"jsonrpc":"2.0","id":1,"result":5}', -32600, None),
]


@pytest.mark.parametrize("message", GOOD, ids=str)
def test_a_message_is_taken_as_it_is(message: dict[str, Any]) -> None:
    assert parse(json.dumps(message).encode()) == message
    assert parse(json.dumps(message, ensure_ascii=False).encode()) == message


@pytest.mark.parametrize(("line", "code", "id"), BAD, ids=lambda one: repr(one)[:60])
def test_what_is_no_message_is_refused_with_a_reason(line: bytes, code: int, id: object) -> None:
    found = parse(line)

    assert isinstance(found, Refused)
    assert (found.code, found.id) == (code, id)
    assert found.message


@pytest.mark.parametrize("line", [b"", b"  ", b"\r"])
def test_an_empty_line_means_nothing(line: bytes) -> None:
    assert parse(line) is None


def test_a_message_may_be_nested_as_deep_as_a_plan_needs_it() -> None:
    depth = DEPTH - 3
    line = b'{"jsonrpc":"2.0","id":1,"method":"x","params":' + b'{"x":' * depth + b"{}" + b"}" * depth + b"}"

    assert isinstance(parse(line), dict)


@given(st.binary(max_size=300), st.lists(st.integers(1, 20), max_size=40))
def test_a_stream_is_cut_into_the_same_lines_however_it_comes(data: bytes, steps: list[int]) -> None:
    lines, found, at = Lines(most=30), [], 0
    for step in [*steps, len(data)]:
        found += list(lines.feed(data[at : at + step]))
        at += step

    whole = data.split(b"\n")
    kept = [line for line in found if isinstance(line, bytes)]
    assert kept == [line for line in whole[:-1] if len(line) <= 30]
    assert len(found) - len(kept) == sum(len(line) > 30 for line in whole)


def test_of_a_line_that_is_too_long_nothing_is_kept_and_the_next_one_is_read() -> None:
    lines = Lines(most=1000)
    refused = [one for _ in range(100) for one in lines.feed(b"x" * 500)]

    assert len(refused) == 1 and isinstance(refused[0], Refused)
    assert len(lines._begun) == 0
    assert list(lines.feed(b"\nnext\n")) == [b"next"]


def test_half_characters_do_not_get_onto_the_wire() -> None:
    assert json.loads(encode({"path": "a\udcffb"}))["path"] == "a?b"
    assert json.loads(error_line(-1, "no \ud800", 3)) == {
        "jsonrpc": "2.0",
        "id": 3,
        "error": {"code": -1, "message": "no ?"},
    }


@pytest.mark.parametrize(("said", "answered"), [("7", 7), ('"a"', "a"), (r'"\ud800"', None)])
def test_half_a_character_is_refused_under_the_id_of_its_message_where_that_can_be_read(
    said: str, answered: object
) -> None:
    line = rf'{{"jsonrpc": "2.0", "id": {said}, "method": "ping", "params": {{"x": "\udc00"}}}}'

    refused = parse(line.encode())

    assert isinstance(refused, Refused) and refused.id == answered
