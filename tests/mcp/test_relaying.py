"""What a relay decides, without any process: who hears what when servers come and go."""

import json
from typing import Any

from orchard.surfaces.mcp.relay.handshake_cache import Greeting
from orchard.surfaces.mcp.relay.state import OPEN, SENDINGS, Desk
from orchard.surfaces.mcp.server.frames import Refused
from tests.mcp.wires import HELLO, LEGACY, META, MODERN

GREETING = Greeting(
    hello={LEGACY: {"protocolVersion": LEGACY, "who": "record"}, "": {"protocolVersion": LEGACY, "who": "others"}},
    lists={
        LEGACY: {"tools/list": {"tools": ["old"]}},
        MODERN: {"tools/list": {"tools": ["new"]}, "server/discover": {"supportedVersions": [MODERN]}},
    },
)


def line(**message: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def taken(buffer: bytearray) -> list[dict[str, Any]]:
    found = [json.loads(one) for one in bytes(buffer).splitlines()]
    buffer.clear()
    return found


def call(id: int, name: str, /, **arguments: Any) -> bytes:
    return line(id=id, method="tools/call", params={"_meta": META, "name": name, "arguments": arguments})


def test_without_a_server_the_record_answers_what_every_client_asks_first() -> None:
    desk = Desk(GREETING)
    desk.hear(line(id=1, method="initialize", params=HELLO))
    desk.hear(line(method="notifications/initialized"))
    desk.hear(line(id=2, method="tools/list"))

    assert taken(desk.out) == [
        {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": LEGACY, "who": "record"}},
        {"jsonrpc": "2.0", "id": 2, "result": {"tools": ["old"]}},
    ]
    assert not desk.wants_server


def test_the_record_knows_the_newer_era_by_the_request_itself() -> None:
    desk = Desk(GREETING)
    desk.hear(line(id=1, method="server/discover", params={"_meta": META}))
    desk.hear(line(id=2, method="tools/list", params={"_meta": META}))

    assert [one["result"] for one in taken(desk.out)] == [{"supportedVersions": [MODERN]}, {"tools": ["new"]}]


def test_what_is_not_in_the_record_waits_for_a_server() -> None:
    half = {key: META[key] for key in META if "Capabilities" not in key}
    for params in (
        {"_meta": META, "cursor": "2"},
        {"_meta": half},
        {"_meta": {**META, "io.modelcontextprotocol/protocolVersion": "2099-01-01"}},
        {},
    ):
        desk = Desk(GREETING)
        desk.hear(line(id=1, method="tools/list", params=params))
        assert not desk.out and desk.wants_server
    for hello in ({}, {**HELLO, "clientInfo": {}}, {**HELLO, "protocolVersion": 5}, {**HELLO, "capabilities": None}):
        desk = Desk(GREETING)
        desk.hear(line(id=1, method="initialize", params=hello))
        assert not desk.out and desk.wants_server


def test_a_server_is_told_the_handshake_that_the_record_made_and_its_answer_is_kept() -> None:
    desk = Desk(GREETING)
    desk.hear(line(id=1, method="initialize", params=HELLO))
    desk.hear(line(method="notifications/initialized"))
    desk.hear(line(id=2, method="resources/list"))
    desk.out.clear()
    desk.connect(())

    first, second, third = taken(desk.to_server)
    assert (first["method"], first["params"]) == ("initialize", HELLO)
    assert second["method"] == "notifications/initialized" and third["id"] == 2
    desk.take(line(id=first["id"], result={"protocolVersion": LEGACY}))
    assert not desk.out
    desk.take(line(id=2, result={"resources": []}))
    assert [one["id"] for one in taken(desk.out)] == [2]


def test_when_a_server_dies_only_what_is_safe_is_asked_again() -> None:
    desk = Desk(None)
    desk.connect({"get_plan"})
    desk.hear(line(id=1, method="resources/read", params={"_meta": META, "uri": "orchard://plans"}))
    desk.hear(call(2, "get_plan", plan="x"))
    desk.hear(call(3, "cancel_plan", plan="x"))
    desk.hear(call(4, "create_plan", name="x", idempotency_key="k"))
    desk.hear(call(5, "create_plan", name="x"))
    desk.hear(call(6, "create_plan", name="x", idempotency_key=""))
    desk.to_server.clear()
    desk.disconnect()

    errors = {one["id"]: one["error"] for one in taken(desk.out)}
    assert errors.keys() == {3, 5, 6}
    assert "went away" in errors[3]["message"] and "list_plans" in errors[3]["message"]
    desk.connect({"get_plan"})
    assert [one["id"] for one in taken(desk.to_server)] == [1, 2, 4]


def test_what_no_server_was_given_yet_is_asked_whatever_it_is() -> None:
    desk = Desk(None)
    desk.hear(call(1, "cancel_plan", plan="x"))
    desk.connect(())
    assert [one["id"] for one in taken(desk.to_server)] == [1]


def test_a_request_that_kills_every_server_is_given_up() -> None:
    desk = Desk(None)
    desk.hear(call(1, "get_plan", plan="x"))
    for _ in range(SENDINGS):
        assert not desk.out
        desk.connect({"get_plan"})
        desk.disconnect()

    assert [one["id"] for one in taken(desk.out)] == [1]
    assert not desk.wants_server


def test_where_no_server_can_be_had_everybody_hears_why() -> None:
    desk = Desk(None)
    desk.hear(line(id=1, method="initialize", params=HELLO))
    desk.hear(call(2, "get_plan"))
    desk.give_up("You have not agreed. orchard trust")

    assert [(one["id"], one["error"]["message"]) for one in taken(desk.out)] == [
        (1, "You have not agreed. orchard trust"),
        (2, "You have not agreed. orchard trust"),
    ]
    assert not desk.wants_server


def test_what_the_client_takes_back_is_not_asked() -> None:
    desk = Desk(None)
    desk.hear(call(1, "cancel_plan", plan="x"))
    desk.hear(line(method="notifications/cancelled", params={"requestId": 1}))
    desk.connect(())
    assert not desk.to_server
    desk.hear(call(2, "get_plan"))
    desk.hear(line(method="notifications/cancelled", params={"requestId": 2}))
    assert [one.get("id") for one in taken(desk.to_server)] == [2, None]
    desk.disconnect()
    assert not desk.out


def test_an_answer_to_a_server_that_died_goes_to_nobody() -> None:
    desk = Desk(None)
    desk.connect(())
    desk.take(line(id=1, method="elicitation/create", params={}))
    assert [one["id"] for one in taken(desk.out)] == [1]
    desk.disconnect()
    assert [one["method"] for one in taken(desk.out)] == ["notifications/cancelled"]
    desk.connect(())
    desk.hear(line(id=1, result={"action": "accept"}))
    assert not desk.to_server
    desk.take(line(id=1, method="elicitation/create", params={}))
    desk.hear(line(id=1, result={"action": "accept"}))
    assert [one["id"] for one in taken(desk.to_server)] == [1]


def test_subscriptions_outlive_their_server_and_what_was_missed_is_told() -> None:
    desk = Desk(GREETING)
    desk.hear(line(id=1, method="initialize", params=HELLO))
    desk.connect(())
    desk.hear(line(id=2, method="resources/subscribe", params={"uri": "orchard://plans"}))
    desk.hear(line(id=3, method="resources/subscribe", params={"uri": "orchard://plans/a"}))
    desk.take(line(id=2, result={}))
    desk.take(line(id=3, result={}))
    desk.hear(line(id=4, method="resources/unsubscribe", params={"uri": "orchard://plans/a"}))
    desk.take(line(id=4, result={}))
    desk.disconnect()
    desk.out.clear()
    desk.to_server.clear()
    assert desk.listens
    desk.connect(())

    assert [one["params"]["uri"] for one in taken(desk.to_server) if one["method"] == "resources/subscribe"] == [
        "orchard://plans"
    ]
    assert [one["params"]["uri"] for one in taken(desk.out)] == ["orchard://plans"]


def test_a_stream_outlives_its_server_and_is_opened_once_for_the_client() -> None:
    desk = Desk(None)
    wanted = {"resourceSubscriptions": ["orchard://plans"]}
    desk.hear(line(id=7, method="subscriptions/listen", params={"_meta": META, "notifications": wanted}))
    assert desk.wants_server and desk.listens
    key = "io.modelcontextprotocol/subscriptionId"
    told = line(method="notifications/subscriptions/acknowledged", params={"_meta": {key: 7}})
    desk.connect(())
    desk.take(told)
    assert len(taken(desk.out)) == 1
    desk.disconnect()
    desk.to_server.clear()
    desk.give_up("There is none.")
    assert not desk.out and not desk.wants_server and desk.listens
    desk.connect(())
    assert [one["id"] for one in taken(desk.to_server)] == [7]
    desk.take(told)

    assert taken(desk.out) == [
        {
            "jsonrpc": "2.0",
            "method": "notifications/resources/updated",
            "params": {"uri": "orchard://plans", "_meta": {key: 7}},
        }
    ]


def test_nothing_is_kept_without_bound() -> None:
    desk = Desk(None)
    for number in range(OPEN + 10):
        desk.hear(call(number, "get_plan"))
    assert len(desk.open) == OPEN and len(taken(desk.out)) == 10

    desk = Desk(None)
    for number in range(8):
        desk.hear(call(number, "get_plan", plan="x" * 3_000_000))
    assert sum(len(one.line) for one in desk.open.values()) <= 16 * 1024 * 1024
    assert [one["error"]["code"] for one in taken(desk.out)] == [-32000] * 3


def test_what_cannot_be_read_is_answered_and_no_server_is_needed_for_it() -> None:
    desk = Desk(None)
    desk.hear(b"{")
    desk.hear(Refused(-32600, "too long"))
    desk.hear(b"")

    assert [one["error"]["code"] for one in taken(desk.out)] == [-32700, -32600]
    assert not desk.wants_server
