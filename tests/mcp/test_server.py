"""The server by itself: what it does with whatever a tool does, and what it promises to engines behind it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import Client, MCPError

from orchard.app import App, open_app
from orchard.engine.server.session import Session
from orchard.engine.turns.job_tokens import Scope
from orchard.model.events.plans import Json
from orchard.model.plan import PlanId
from orchard.surfaces.mcp import toolbox
from orchard.surfaces.mcp.resources import job_uri, log_uri, parse_uri, plan_uri
from orchard.surfaces.mcp.selection import Selection
from orchard.surfaces.mcp.server import subscriptions as news
from orchard.surfaces.mcp.server.server import Host, make_server
from orchard.surfaces.mcp.server.subscriptions import Listeners, Subscribers
from orchard.surfaces.mcp.tool import Answer, Call
from orchard.surfaces.next_steps import in_commands
from orchard.surfaces.served import Served
from orchard.testing import Repo
from tests.mcp.wires import ERAS, text_of

pytestmark = pytest.mark.anyio

Calling = Callable[[Call, Json], Awaitable[Answer]]


@pytest.fixture
def app(tmp_path: Path) -> App:
    """A repository in which nothing has happened."""
    return open_app(Repo.make(tmp_path / "repo").path, in_commands)


@asynccontextmanager
async def talking(
    app: App, calling: Calling | None, monkeypatch: pytest.MonkeyPatch, mode: str, **options: Any
) -> AsyncIterator[Client]:
    """A client in this process; every tool does what `calling` does."""
    if calling is not None:

        async def call(call: Call, selection: Selection, name: str, arguments: Json) -> Answer:
            return await calling(call, arguments)

        monkeypatch.setattr(toolbox, "call", call)
    served = Served(app)
    host = Host(served, Selection())
    try:
        async with (
            asyncio.timeout(30),
            Client(make_server(lambda ctx: host, Listeners(), Subscribers()), mode=mode, **options) as client,
        ):
            yield client
    finally:
        served.close()


@pytest.mark.parametrize("mode", ERAS)
async def test_a_mistake_of_ours_is_told_without_its_inside(
    app: App, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    async def broken(call: Call, arguments: Json) -> Answer:
        raise RuntimeError("secret-sauce")

    async with talking(app, broken, monkeypatch, mode) as client:
        result = await client.call_tool("get_plan", {})

    assert result.is_error and "secret-sauce" not in text_of(result)


@pytest.mark.parametrize("mode", ERAS)
async def test_odd_file_names_get_over_the_wire(app: App, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    async def odd(call: Call, arguments: Json) -> Answer:
        return Answer("file a\udcff", is_error=True)

    async with talking(app, odd, monkeypatch, mode) as client:
        result = await client.call_tool("get_plan", {})

    assert text_of(result) == "file a?"


@pytest.mark.parametrize("mode", ERAS)
async def test_progress_always_grows(app: App, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    async def back_and_forth(call: Call, arguments: Json) -> Answer:
        assert call.progress is not None
        for done in (1.0, 1.0, 0.5, 3.0):
            await call.progress(done, 4.0, "on")
        return Answer("done", is_error=True)

    told: list[float] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    async with talking(app, back_and_forth, monkeypatch, mode) as client:
        await client.call_tool("get_plan", {}, progress_callback=progress)

    assert told == sorted(set(told)) and len(told) == 4


@pytest.mark.parametrize("mode", ERAS)
async def test_a_tool_may_ask_more_than_once(app: App, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    asked: list[str] = []

    async def asking(call: Call, arguments: Json) -> Answer:
        assert call.elicit is not None
        schema = {"type": "object", "properties": {"word": {"type": "string"}}}
        first, second, third = [await call.elicit(f"{one}?", schema) for one in ("first", "second", "third")]
        return Answer(f"{first} {second} {third}", is_error=True)

    async def answer(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        if params.message == "second?":
            return types.ElicitResult(action="decline")
        return types.ElicitResult(action="accept", content={"word": params.message})

    async with talking(app, asking, monkeypatch, mode, elicitation_callback=answer) as client:
        result = await client.call_tool("get_plan", {})

    assert asked == ["first?", "second?", "third?"]
    assert text_of(result) == "{'word': 'first?'} None {'word': 'third?'}"


async def test_an_answer_counts_for_its_own_question_only(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    async def asking(call: Call, arguments: Json) -> Answer:
        assert call.elicit is not None
        said = await call.elicit(f"Land {arguments['plan']}?", {"type": "object", "properties": {}})
        return Answer(str(said), is_error=True)

    async def answer(context: object, params: types.ElicitRequestParams) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={})

    async with talking(app, asking, monkeypatch, "auto", elicitation_callback=answer) as client:
        first = await client.session.call_tool("get_plan", {"plan": "a"}, allow_input_required=True)
        assert isinstance(first, types.InputRequiredResult) and first.input_requests is not None
        given: Any = {key: types.ElicitResult(action="accept", content={}) for key in first.input_requests}
        again = await client.session.call_tool(
            "get_plan", {"plan": "b"}, input_responses=given, allow_input_required=True
        )
        assert isinstance(again, types.InputRequiredResult)
        for state in ("", "{", "[]", '{"a": 1}', '{"a": {"action": "fly"}}', "x" * 100_000):
            odd = await client.session.call_tool(
                "get_plan", {"plan": "b"}, request_state=state, allow_input_required=True
            )
            assert isinstance(odd, types.InputRequiredResult)


@pytest.mark.parametrize("mode", ERAS)
async def test_where_nobody_can_be_asked_a_tool_knows_that(
    app: App, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    async def asking(call: Call, arguments: Json) -> Answer:
        return Answer(str(call.elicit), is_error=True)

    async with talking(app, asking, monkeypatch, mode) as client:
        assert text_of(await client.call_tool("get_plan", {})) == "None"


class _SlowLink:
    """An engine that takes its time."""

    def __init__(self) -> None:
        self.began, self.go, self.done = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def request(self, verb: str, args: Mapping[str, Any], sandbox: object = None) -> Json:
        self.began.set()
        await self.go.wait()
        self.done.set()
        return {}

    async def grown(self, seen: int) -> None: ...

    async def interrupt(self) -> str:
        return ""

    async def wait_idle(self) -> None: ...


@pytest.mark.parametrize("mode", ERAS)
async def test_what_was_asked_of_the_engine_is_done_though_the_call_was_given_up(
    app: App, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    link = _SlowLink()

    async def canceling(call: Call, arguments: Json) -> Answer:
        call.served.session = Session(link, app.reader, owns_engine=True)
        return Answer(str(await call.served.ask("cancel_plan", plan="x")), is_error=True)

    async with talking(app, canceling, monkeypatch, mode) as client:
        with pytest.raises(MCPError):
            await client.call_tool("cancel_plan", {}, read_timeout_seconds=0.2)
        assert link.began.is_set() and not link.done.is_set()
        link.go.set()
        await asyncio.wait_for(link.done.wait(), 5)


@pytest.mark.parametrize("job", ["a", "g/h/x", "log", "g/log", "__snapshot-validation__"])
def test_every_job_has_an_address_that_means_it(job: str) -> None:
    assert parse_uri(plan_uri("p-1")) is not None
    for uri, kind in ((job_uri("p-1", job), "job"), (log_uri("p-1", job), "log")):
        found = parse_uri(uri)
        assert found is not None
        assert (found.kind, found.plan, found.job) == (kind, "p-1", job)


@pytest.mark.parametrize(
    "uri",
    ["", "orchard://", "orchard://plan", "orchard://plans/", "orchard://plans//jobs/a", "orchard://plans/p/jobs",
     "orchard://plans/p/jobs/", "orchard://plans/p/log", "orchard://plans/p?x=1", "orchard://plans#x", "http://plans"],
)  # fmt: skip
def test_what_is_no_address_means_nothing(uri: str) -> None:
    assert parse_uri(uri) is None


def test_an_agent_can_only_watch_its_own_plan() -> None:
    own = Scope(PlanId("own"), "a", 1)  # type: ignore[arg-type]

    assert news.is_known("orchard://plans/own/jobs/a", own) and news.is_known("orchard://plans", None)
    assert not any(news.is_known(uri, own) for uri in ("orchard://plans", "orchard://plans/other", "x://y"))
