"""What an agent of the protocol may use is what it is answered when it asks."""

import asyncio
import json
from typing import Any

import pytest
from msgspec.structs import replace

from orchard.agents.acp.agent import AcpAgent
from orchard.agents.acp.permission import asked_about, permitted
from orchard.agents.protocol import McpServer, Permit, Result, Settings, Wanted
from orchard.core.views.plans import asked_words
from orchard.model.agent_rows import AgentRow
from orchard.model.events.plans import CallAsked
from orchard.model.limits import Limits
from orchard.model.permissions import Tools, made
from orchard.model.plan import JobId
from tests.agents.conftest import Desk, Ear
from tests.agents.test_acp import agent, task_at

pytestmark = pytest.mark.anyio

KINDS = ("read", "search", "think", "edit", "delete", "move", "execute", "fetch", "switch_mode", "other", None)
READ = {"read", "search"}
EDIT = READ | {"edit", "delete", "move"}
OURS = McpServer("orchard", "relay", offered=True)


async def asked(desk: Desk, ear: Ear, call: dict[str, Any], tools: Tools, person: Any = None) -> tuple[bool, Result]:
    """Whether a call is allowed, of an agent that asks about it."""
    given = json.dumps({"toolCallId": "1", "title": "Do it", **call})
    watch = replace(ear.watch, person=person)
    async with asyncio.timeout(60):
        result = await agent("outside", given).run(task_at(desk, settings=Settings(tools=tools)), watch)
    return json.loads(result.text)["optionId"] == "yes", result


@pytest.mark.parametrize(("tools", "kinds"), [("read-only", READ), ("edit", EDIT)])
async def test_each_kind_of_call_is_answered_by_what_may_be_used(
    desk: Desk, ear: Ear, tools: str, kinds: set[str]
) -> None:
    for kind in KINDS:
        call = {"kind": kind} if kind is not None else {}
        allowed, _ = await asked(desk, ear, call, made(tools))
        assert allowed == (kind in kinds), kind
    assert f"'tools: {tools}' holds for" in ear.notes("setting")[0]


@pytest.mark.parametrize(
    ("call", "allowed"),
    [
        ({"kind": "other", "_meta": {"claudeCode": {"toolName": "mcp__docs__find"}}}, True),
        ({"kind": "other", "_meta": {"claudeCode": {"toolName": "mcp__docs__write"}}}, False),
        ({"kind": "read", "_meta": {"claudeCode": {"toolName": "mcp__evil__x"}}}, False),
        ({"kind": "execute", "_meta": {"claudeCode": {"toolName": ["mcp__docs__find"]}}}, False),
        ({"kind": ["read"]}, False),
    ],
)
async def test_a_server_s_tool_is_known_by_its_name_where_that_is_told(
    desk: Desk, ear: Ear, call: dict[str, Any], allowed: bool
) -> None:
    found, _ = await asked(desk, ear, call, made(["read-only", "mcp__docs__find"]))
    assert found == allowed


async def test_without_limits_all_that_stays_inside_is_allowed(desk: Desk, ear: Ear) -> None:
    for kind in KINDS:
        allowed, _ = await asked(desk, ear, {"kind": kind} if kind else {}, made("all"))
        assert allowed


async def test_a_row_takes_away_too(desk: Desk, ear: Ear) -> None:
    given = json.dumps({"toolCallId": "1", "title": "Do it", "kind": "execute"})
    usual = agent("outside", given)
    limited = AcpAgent(usual.command, AgentRow(args=usual.row.args, tools="edit"))
    async with asyncio.timeout(60):
        result = await limited.run(task_at(desk), ear.watch)
    assert json.loads(result.text)["optionId"] == "no"
    assert "the tools of this work are: edit" in ear.notes("denied")[0]


# --------------------------------------------------------------------------------------------- asking


@pytest.mark.parametrize("answer", [True, False])
async def test_a_person_is_asked_and_the_agent_gets_that_answer(desk: Desk, ear: Ear, answer: bool) -> None:
    seen: list[Wanted] = []

    async def person(wanted: Wanted) -> Permit:
        seen.append(wanted)
        await asyncio.sleep(0.05)
        return Permit(answer, "not now")

    call = {"kind": "execute", "title": "make  clean", "rawInput": {"command": "make clean"}}
    allowed, _ = await asked(desk, ear, call, made("ask"), person)

    assert allowed is answer
    assert seen == [Wanted("execute", "make clean", '{"command": "make clean"}')]
    assert bool(ear.notes("denied")) is not answer


async def test_a_question_is_taken_back_at_once_when_the_turn_is_called_off(desk: Desk, ear: Ear) -> None:
    asking, taken_back = asyncio.Event(), asyncio.Event()

    async def person(wanted: Wanted) -> Permit:
        asking.set()
        try:
            await asyncio.Event().wait()
        finally:
            taken_back.set()
        return Permit(True)

    given = json.dumps({"toolCallId": "1", "title": "Do it", "kind": "execute"})
    task = task_at(desk, settings=Settings(tools=made("ask")), limits=Limits(grace=60.0))
    running = asyncio.ensure_future(agent("outside", given).run(task, replace(ear.watch, person=person)))
    async with asyncio.timeout(30):
        await asking.wait()
        running.cancel()
        await taken_back.wait()
        with pytest.raises(asyncio.CancelledError):
            await running

    told = [json.loads(line) for line in (desk.scratch / "record").read_text().splitlines()]
    assert [one["result"] for one in told if one.get("id") == "q1"] == [{"outcome": {"outcome": "cancelled"}}]


@pytest.mark.parametrize(
    ("call", "wanted", "words"),
    [
        ({"kind": "execute", "title": "make clean"}, Wanted("execute", "make clean"), "execute: make clean"),
        ({"kind": "other", "title": "Send mail", "rawInput": {}}, Wanted("other: Send mail", "Send mail"), None),
        ({"kind": "execute", "title": ""}, Wanted("execute"), None),
        ({"title": "", "content": []}, Wanted("other"), None),
        ({"kind": "edit", "title": "", "locations": [{"path": "a"}]}, Wanted("edit", "", '[{"path": "a"}]'), None),
    ],
)
async def test_of_a_call_without_input_title_and_kind_are_shown_and_nothing_that_is_empty(
    desk: Desk, ear: Ear, call: dict[str, Any], wanted: Wanted, words: str | None
) -> None:
    seen: list[Wanted] = []

    async def person(wanted: Wanted) -> Permit:
        seen.append(wanted)
        return Permit(True)

    await asked(desk, ear, call, made("ask"), person)

    assert seen == [wanted]
    told = CallAsked(JobId("a"), 1, 1, "one", wanted.tool, wanted.about, wanted.input)
    expected = words or (f"{wanted.tool}: {wanted.input}" if wanted.input else wanted.tool)
    assert asked_words(told) == f"Agent 'one' asks whether it may use {expected}"


NAMED = {"_meta": {"claudeCode": {"toolName": "mcp__docs__write"}}}


@pytest.mark.parametrize(
    ("call", "tool"),
    [
        ({"kind": "other", "title": "Send mail"}, "other: Send mail"),
        ({"kind": "think", "title": "Send mail"}, "other: Send mail"),
        ({"kind": "made up", "title": "Send mail"}, "other: Send mail"),
        ({"kind": "other", "title": "Send mail", **NAMED}, "mcp__docs__write"),
        ({"kind": "other", "title": "execute"}, "other: execute"),
        ({"kind": "execute", "title": "ls"}, "execute"),
    ],
)
async def test_what_is_allowed_for_good_is_a_tool_and_not_all_that_is_other(
    desk: Desk, ear: Ear, call: dict[str, Any], tool: str
) -> None:
    seen: list[str] = []

    async def person(wanted: Wanted) -> Permit:
        seen.append(wanted.tool)
        return Permit(True)

    await asked(desk, ear, call, made("ask"), person)
    assert seen == [tool]


@pytest.mark.parametrize(
    ("name", "own"),
    [("orchard__get_plan", True), ("orchard__evil__get_plan", False), ("orchard___get_plan", False)],
)
def test_a_server_whose_name_begins_like_ours_is_not_ours(name: str, own: bool) -> None:
    call = {"kind": "other", "_meta": {"x": {"toolName": f"mcp__{name}"}}}
    assert permitted(call, made("read-only"), ["orchard"]) is own
    assert asked_about(call, made("ask"), ["orchard"]) is not own


async def test_nobody_is_asked_about_reading_or_about_what_is_refused_anyway(desk: Desk, ear: Ear) -> None:
    async def nobody(wanted: Wanted) -> Permit:
        raise AssertionError(wanted)

    assert (await asked(desk, ear, {"kind": "read"}, made("ask"), nobody))[0]
    assert not (await asked(desk, ear, {"kind": "execute"}, made(["edit", "ask"]), nobody))[0]
    outside = {"kind": "edit", "locations": [{"path": "/etc/passwd"}]}
    assert not (await asked(desk, ear, outside, made("ask"), nobody))[0]


async def test_where_nobody_can_be_asked_the_answer_is_no(desk: Desk, ear: Ear) -> None:
    assert not (await asked(desk, ear, {"kind": "execute"}, made("ask")))[0]
    assert "has no way to ask one" in ear.notes("denied")[0]
