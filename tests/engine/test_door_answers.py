"""Every request at the engine's door gets an answer of its own, in words, and waits for no other."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orchard.engine.server.address import Address, read_address
from orchard.engine.server.server import Connection, EngineGone, connect, listening
from orchard.engine.server.session import Session
from orchard.errors import EXIT_INTERNAL, Bug, OrchardError, UsageError
from orchard.model.events import plans
from orchard.model.plan import PlanId
from orchard.store.journal import Journal
from tests.engine.conftest import Orchard, until

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
FAILS = "name: fails\njobs: [{id: a, heal: false, work: 'exit 1'}]\n"
STUBBORN = "name: n\njobs: [{id: a, work: \"trap '' TERM; while true; do sleep 0.2; done\"}]\n"


@asynccontextmanager
async def door(orchard: Orchard, plan: str) -> AsyncIterator[tuple[Session, PlanId, Connection]]:
    """An engine with a plan, and a connection of another client to it."""
    app = orchard.app
    async with asyncio.timeout(60), app.session() as session:
        submitted = await session.request("create_plan", plan=app.parse_plan(None, plan.encode()))
        address = read_address(app.repo.state)
        assert address is not None
        asking = await connect(address)
        try:
            yield session, PlanId(submitted["plan"]), asking
        finally:
            asking.close()


SHELL = {"type": "shell", "command": "true"}
BAD: list[tuple[str, Json, str]] = [
    ("retry_plan", {"phase": "bogus"}, "There is no phase 'bogus'"),
    ("retry_plan", {"phase": "wrok"}, "did you mean 'work'"),
    ("retry_plan", {"phase": 7}, "takes for 'phase' a text"),
    ("retry_plan", {"work": {"nonsense": 1}}, "The work of the request cannot be read"),
    ("retry_plan", {"work": {"type": "magic"}}, "The work of the request cannot be read"),
    ("retry_plan", {"work": {**SHELL, "command": 5}}, "The work of the request cannot be read"),
    ("retry_plan", {"work": "true"}, "takes for 'work' an object"),
    ("retry_plan", {"postchecks": [7]}, "takes for 'postchecks' a list"),
    ("retry_plan", {"postchecks": [{}]}, "The work of the request cannot be read"),
    ("retry_plan", {"jobs": "a"}, "takes for 'jobs' a list"),
    ("retry_plan", {"fresh": "yes"}, "takes for 'fresh' true or false"),
    ("retry_plan", {"job": "a"}, "has no argument 'job'; did you mean 'jobs'?"),
    ("resume_plan", {"budget": {"pages": 3}}, "There is no budget of 'pages'"),
    ("resume_plan", {"budget": {"tokens": "many"}}, "The budget of tokens is a number above 0"),
    ("resume_plan", {"budget": {}}, "A budget needs at least one limit"),
    ("resume_plan", {"budget": {"tokens": None}}, "A budget needs at least one limit"),
    ("resume_plan", {"budget": {"cost": float("inf")}}, "The budget of cost is a number above 0"),
    ("resume_plan", {"budget": {"minutes": -1}}, "The budget of minutes is a number above 0"),
    ("reshape_plan", {"changes": {}}, "takes for 'changes' a list"),
    ("reshape_plan", {}, "needs the argument 'changes'"),
    ("cancel_jobs", {"jobs": [["a"]]}, "takes for 'jobs' a list"),
    ("send_message", {"job": "a", "message": None}, "takes for 'message' a text"),
    ("await_subtasks", {"job": "a", "attempt": "one"}, "takes for 'attempt' a whole number"),
    ("spawn_subtask", {"job": "a", "attempt": 1, "instructions": 3}, "takes for 'instructions' a text"),
]


@pytest.mark.parametrize(("verb", "args", "words"), BAD, ids=lambda value: str(value)[:40])
async def test_a_bad_request_is_refused_in_words_and_changes_nothing(
    orchard: Orchard, verb: str, args: Json, words: str
) -> None:
    async with door(orchard, FAILS) as (session, plan, asking):
        async for _ in session.follow(plan):
            pass
        before = orchard.app.reader.last_seq()
        with pytest.raises(UsageError) as told:
            await asking.request(verb, {"plan": plan, **args})
        assert await asking.request("ping", {}) == {"plans": []}

    assert words in told.value.message
    assert orchard.app.reader.last_seq() == before


@pytest.mark.parametrize(
    "plan", [{}, {"name": 3}, {"name": "n", "jobs": [{}]}, {"name": "n", "jobs": [{"id": "a", "work": {}}]}]
)
async def test_a_plan_that_cannot_be_read_is_refused_in_words(orchard: Orchard, plan: Json) -> None:
    async with door(orchard, FAILS) as (_, _, asking):
        with pytest.raises(UsageError) as told:
            await asking.request("create_plan", {"plan": plan})

    assert "The plan of the request cannot be read" in told.value.message


async def test_a_request_is_answered_beside_a_slow_one(orchard: Orchard) -> None:
    async with door(orchard, STUBBORN) as (_, plan, asking):
        await until(lambda: bool(orchard.events(plans.ProgramStarted, plan)))
        cancel = asyncio.ensure_future(asking.request("cancel_plan", {"plan": plan}))
        await until(lambda: bool(orchard.events(plans.PlanCanceled, plan)))
        began = time.monotonic()
        await asking.request("ping", {})
        took = time.monotonic() - began
        assert not cancel.done()
        await cancel

    assert took < 2, f"a ping took {took:.1f} s"


async def test_an_asker_that_gave_up_leaves_its_answer_to_nobody_else(orchard: Orchard) -> None:
    async with door(orchard, STUBBORN) as (_, plan, asking):
        await until(lambda: bool(orchard.events(plans.ProgramStarted, plan)))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await asking.request("cancel_plan", {"plan": plan})
        answers = [await asking.request("ping", {}) for _ in range(3)]
        await until(lambda: bool(orchard.events(plans.JobCanceled, plan)))

    assert [list(one) for one in answers] == [["plans"]] * 3


# --------------------------------------------------------------------------------- the door by itself


class Fault(Exception):
    """A mistake of ours."""


async def handle(verb: str, args: Any, sandbox: Any) -> Json:
    if verb == "slow":
        await asyncio.sleep(args["seconds"])
    if verb == "fault":
        raise {"key": KeyError("x"), "value": ValueError("y"), "type": TypeError("z"), "own": Fault("w")}[args["kind"]]
    if verb == "odd":
        return {"odd": object()}
    if verb == "disk":
        raise OSError(28, "No space left on device", "/x")
    return {"op": verb, **args}


@asynccontextmanager
async def open_door(folder: Path) -> AsyncIterator[Address]:
    with Journal.open(folder / "journal.db") as journal:
        async with asyncio.timeout(30), listening(folder, folder / "door.sock", handle, journal) as address:
            yield address


@pytest.mark.parametrize("kind", ["key", "value", "type", "own"])
async def test_a_mistake_of_ours_is_told_as_one_and_the_connection_stays(tmp_path: Path, kind: str) -> None:
    async with open_door(tmp_path) as address:
        asking = await connect(address)
        with pytest.raises(Bug) as told:
            await asking.request("fault", {"kind": kind})
        with pytest.raises(Bug):
            await asking.request("odd", {})
        with pytest.raises(OrchardError, match="No space left"):
            await asking.request("disk", {})
        again = await asking.request("hello", {"n": 1})
        asking.close()

    assert told.value.exit_code == EXIT_INTERNAL
    assert "mistake of ours" in told.value.message and not isinstance(told.value, EngineGone)
    assert again == {"op": "hello", "n": 1}


async def test_hundreds_of_requests_on_one_connection_get_each_their_own_answer(tmp_path: Path) -> None:
    async with open_door(tmp_path) as address:
        asking = await connect(address)
        seconds = [0.05 * (n % 5) for n in range(300)]
        began = time.monotonic()
        answers = await asyncio.gather(*(asking.request("slow", {"seconds": s, "n": n}) for n, s in enumerate(seconds)))
        took = time.monotonic() - began
        asking.close()

    assert [one["n"] for one in answers] == list(range(300))
    assert took < sum(seconds) / 4


async def test_requests_without_a_number_are_answered_in_their_order(tmp_path: Path) -> None:
    async with open_door(tmp_path) as address:
        reader, writer = await asyncio.open_unix_connection(address.socket)
        lines = [{"nonce": address.nonce}, *({"op": "slow", "args": {"seconds": s}} for s in (0.3, 0.0))]
        writer.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))
        answers = [json.loads(await reader.readline()) for _ in range(2)]
        writer.close()

    assert answers == [{"ok": {"op": "slow", "seconds": s}} for s in (0.3, 0.0)]


async def test_what_was_asked_before_the_door_closes_is_answered(tmp_path: Path) -> None:
    async with open_door(tmp_path) as address:
        asking = await connect(address)
        slow = [asyncio.ensure_future(asking.request("slow", {"seconds": s})) for s in (0.2, 0.6)]
        await asyncio.sleep(0.1)
    answers = await asyncio.gather(*slow)
    with pytest.raises(EngineGone):
        await asking.request("hello", {})
    asking.close()

    assert [one["seconds"] for one in answers] == [0.2, 0.6]


async def test_who_asked_an_engine_that_is_gone_is_told_so(tmp_path: Path) -> None:
    async with open_door(tmp_path) as address:
        asking = await connect(address)
        await asking.request("hello", {})
        waiting = asyncio.ensure_future(asking.request("slow", {"seconds": 60}))
        await asyncio.sleep(0.1)
        asking.close()
        with pytest.raises(EngineGone):
            await waiting


@pytest.mark.parametrize("line", [b"{", b"[" * 200_000 + b"\n", b'{"id": 1, "op": \n', b"\xff\n"], ids=range(4))
async def test_a_line_that_cannot_be_read_is_answered_before_the_end(orchard: Orchard, line: bytes) -> None:
    async with door(orchard, FAILS):
        address = read_address(orchard.app.repo.state)
        assert address is not None
        reader, writer = await asyncio.open_unix_connection(address.socket)
        writer.write(json.dumps({"nonce": address.nonce}).encode() + b"\n" + line.removesuffix(b"\n") + b"\n")
        answer = json.loads(await reader.readline())
        writer.close()

    assert answer["id"] is None and "one line of JSON" in answer["error"]["message"]
