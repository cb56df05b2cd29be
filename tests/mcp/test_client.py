"""The official client over both wires and in both eras: everything that the server offers, seen from outside."""

import asyncio
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp import MCPDeprecationWarning, MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated

from orchard import __version__
from orchard.agents.prompts.plan import planning_guide
from tests.acceptance.program import Desk
from tests.http.daemon import Daemon, served
from tests.mcp.wires import ERAS, Wire, client_of, ended, over_http, text_of, value

pytestmark = pytest.mark.anyio

SHELL = {"name": "demo", "jobs": [{"id": "a", "work": "echo hello from a; echo a > a.txt"}]}
FAILING = {"name": "fails", "jobs": [{"id": "x", "group": "g/h", "work": "echo broken pipe dream; exit 3"}]}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One daemon for all of these; each test makes plans of its own."""
    desk = Desk(tmp_path_factory.mktemp("desk"))
    try:
        with served(desk) as daemon:
            yield daemon
    finally:
        desk.close()


@pytest.fixture(params=["stdio", "http"])
def wire(request: pytest.FixtureRequest) -> Wire:
    """Over which wire the client talks."""
    found: Wire = request.param
    return found


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    """How the client begins."""
    return str(request.param)


async def test_the_server_says_who_it_is_and_lists_its_tools(daemon: Daemon, wire: Wire, era: str) -> None:
    async with client_of(daemon, wire, era) as client:
        assert client.protocol_version == ("2026-07-28" if era == "auto" else "2025-11-25")
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("orchard", __version__)
        assert "create_plan" in (client.instructions or "")
        tools = (await client.list_tools()).tools
        again = (await client.list_tools(cache_mode="bypass")).tools

    assert len(tools) == 17
    assert [tool.name for tool in tools] == sorted(tool.name for tool in tools) == [tool.name for tool in again]
    hints = {tool.name: tool.annotations for tool in tools}
    assert hints["get_plan"] is not None and hints["get_plan"].read_only_hint is True
    assert hints["cancel_plan"] is not None and hints["cancel_plan"].destructive_hint is True
    assert all(tool.output_schema and tool.input_schema["type"] == "object" for tool in tools)
    assert sum(len(tool.model_dump_json(by_alias=True, exclude_none=True)) for tool in tools) < 20_000


async def test_a_tool_is_called_and_tells_how_far_it_is(daemon: Daemon, wire: Wire, era: str) -> None:
    told: list[tuple[float, str | None]] = []

    async def progress(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    jobs = [{"id": "a", "work": "sleep 0.5; echo a > a"}, {"id": "b", "needs": ["a"], "work": "sleep 0.5; echo b > b"}]
    async with client_of(daemon, wire, era) as client:
        plan = (await value(client, "create_plan", name="steps", jobs=jobs))["plan"]
        result = await client.call_tool(
            "wait_plan", {"plan": plan, "until": "end", "timeout_s": 45}, progress_callback=progress
        )
        assert result.structured_content is not None
        assert result.structured_content["status"] == "succeeded"

    assert plan in text_of(result)
    assert told == sorted(told, key=lambda one: one[0])
    assert any("jobs" in (message or "") for _, message in told)


async def test_what_a_caller_does_wrong_is_told_to_the_model(daemon: Daemon, wire: Wire, era: str) -> None:
    async with client_of(daemon, wire, era) as client:
        wrong = await client.call_tool("get_plan", {"plan": "nowhere"})
        unknown = await client.call_tool("make_coffee", {})
        hidden = await client.call_tool("undo_plan", {"plan": "nowhere"})

    assert wrong.is_error and "nowhere" in text_of(wrong)
    assert unknown.is_error and "make_coffee" in text_of(unknown)
    assert hidden.is_error and "plans" in text_of(hidden)


async def test_a_resource_that_is_not_there_is_named_in_the_error(daemon: Daemon, wire: Wire, era: str) -> None:
    uri = "orchard://plans/nowhere"
    async with client_of(daemon, wire, era) as client:
        with pytest.raises(MCPError) as caught:
            await client.read_resource(uri)

    assert caught.value.error.data == {"uri": uri}


async def test_resources_are_listed_and_read(daemon: Daemon, wire: Wire, era: str) -> None:
    async with client_of(daemon, wire, era) as client:
        plan = (await value(client, "create_plan", **FAILING))["plan"]
        assert await ended(client, plan) == "failed"
        listed = [one.uri for one in (await client.list_resources()).resources]
        templates = [one.uri_template for one in (await client.list_resource_templates()).resource_templates]

        async def read(uri: str) -> str:
            found = (await client.read_resource(uri, cache_mode="bypass")).contents[0]
            assert isinstance(found, types.TextResourceContents)
            return found.text

        guide, every, one = [await read(f"orchard://{end}") for end in ("help/planning", "plans", f"plans/{plan}")]
        job, log = [await read(f"orchard://plans/{plan}/jobs/g%2Fh%2Fx{end}") for end in ("", "/log")]
        with pytest.raises(MCPError, match="no plan"):
            await read("orchard://plans/nowhere")
        with pytest.raises(MCPError, match="no resource"):
            await read("file:///etc/passwd")

    assert listed[:2] == ["orchard://plans", "orchard://help/planning"] and f"orchard://plans/{plan}" in listed
    assert templates == [
        "orchard://plans/{plan}",
        "orchard://plans/{plan}/jobs/{job}",
        "orchard://plans/{plan}/jobs/{job}/log",
    ]
    assert plan in every and '"status": "failed"' in one and '"failed_phase": "work"' in job
    assert "broken pipe dream" in log
    assert guide == planning_guide()


async def test_a_client_of_the_newer_era_listens_to_changes(daemon: Daemon, wire: Wire) -> None:
    async with client_of(daemon, wire, "auto") as client:
        plan = (await value(client, "create_plan", **SHELL, start_paused=True))["plan"]
        wanted = [f"orchard://plans/{plan}", f"orchard://plans/{plan}/jobs/a"]
        async with client.listen(resource_subscriptions=wanted, resources_list_changed=True) as stream:
            assert stream.honored.resource_subscriptions == wanted
            await value(client, "resume_plan", plan=plan)
            seen: set[object] = set()
            async with asyncio.timeout(30):
                async for event in stream:
                    seen.add(event)
                    if {ResourceUpdated(uri) for uri in wanted} <= seen:
                        break
            assert ResourcesListChanged() not in seen
            await value(client, "create_plan", **SHELL)
            async with asyncio.timeout(30):
                async for event in stream:
                    if event == ResourcesListChanged():
                        break


async def test_a_client_of_the_older_era_subscribes_to_changes(daemon: Daemon, wire: Wire) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    async def heard(message: object) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            told.put_nowait(message.params.uri)

    async with client_of(daemon, wire, "legacy", message_handler=heard) as client:
        plan = (await value(client, "create_plan", **SHELL, start_paused=True))["plan"]
        uri = f"orchard://plans/{plan}"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            await client.subscribe_resource(uri)
            with pytest.raises(MCPError, match="no resource"):
                await client.subscribe_resource("orchard://elsewhere")
        await value(client, "resume_plan", plan=plan)
        assert await asyncio.wait_for(told.get(), 30) == uri
        assert await ended(client, plan) == "succeeded"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", MCPDeprecationWarning)
            await client.unsubscribe_resource(uri)
        await asyncio.sleep(0.2)  # what was under way
        while not told.empty():
            told.get_nowait()
        await value(client, "create_plan", **SHELL)
        await value(client, "list_plans")
        assert told.empty()


async def test_prompts_are_listed_and_filled_in(daemon: Daemon, wire: Wire, era: str) -> None:
    async with client_of(daemon, wire, era) as client:
        plan = (await value(client, "create_plan", **FAILING))["plan"]
        assert await ended(client, plan) == "failed"
        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        said = await client.get_prompt("plan_this", {"goal": "Write {docs}", "target": "next"})
        fix = await client.get_prompt("fix_this_failure", {"plan": plan})
        for name, given in (("plan_this", {}), ("nothing", {}), ("plan_this", {"goal": "x", "goat": "y"})):
            with pytest.raises(MCPError):
                await client.get_prompt(name, given)

    assert names == ["fix_this_failure", "plan_this"]
    assert "Write {docs}" in prompt_text(said) and "'next'" in prompt_text(said)
    assert "g/h/x" in prompt_text(fix) and "broken pipe dream" in prompt_text(fix)


def prompt_text(found: types.GetPromptResult) -> str:
    content = found.messages[0].content
    assert isinstance(content, types.TextContent)
    return content.text


async def test_plans_and_jobs_are_completed(daemon: Daemon, wire: Wire, era: str) -> None:
    template = types.ResourceTemplateReference(uri="orchard://plans/{plan}/jobs/{job}")
    async with client_of(daemon, wire, era) as client:
        plan = (await value(client, "create_plan", **FAILING, start_paused=True))["plan"]
        plans = (await client.complete(template, {"name": "plan", "value": plan[:6]})).completion
        jobs = (await client.complete(template, {"name": "job", "value": "x"}, {"plan": plan})).completion
        none = (await client.complete(template, {"name": "job", "value": "x"}, {"plan": "nowhere"})).completion

    assert plan in plans.values and jobs.values == ["g/h/x"] and none.values == []


@pytest.mark.parametrize("said", ["accept", "decline", None])
async def test_a_person_is_asked_before_something_lands(daemon: Daemon, wire: Wire, era: str, said: str | None) -> None:
    asked: list[str] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        assert isinstance(params, types.ElicitRequestFormParams)
        wanted = params.requested_schema["properties"]
        content = dict.fromkeys(wanted, True) if said == "accept" else None
        assert said is not None
        return types.ElicitResult(action=said, content=content)  # type: ignore[arg-type]

    options = {"elicitation_callback": answer} if said is not None else {}
    async with client_of(daemon, wire, era, "core", "plans", **options) as client:
        plan = (await value(client, "create_plan", **SHELL, land="ask"))["plan"]
        assert await ended(client, plan) == "waiting"
        result = await client.call_tool("land_plan", {"plan": plan})
        if said == "decline":
            after = (await value(client, "get_plan", plan=plan))["plan"]["status"]
        else:
            after = await ended(client, plan)

    assert len(asked) == (0 if said is None else 1)
    assert after == ("waiting" if said == "decline" else "succeeded"), text_of(result)


async def test_a_call_that_its_client_gives_up_does_no_harm_to_the_plan(daemon: Daemon, wire: Wire, era: str) -> None:
    slow = {"name": "slow", "jobs": [{"id": "s", "work": "sleep 2; echo s > s.txt"}]}
    async with client_of(daemon, wire, era) as client:
        plan = (await value(client, "create_plan", **slow))["plan"]
        with pytest.raises(MCPError):
            await client.call_tool("wait_plan", {"plan": plan, "until": "end"}, read_timeout_seconds=0.3)
        assert await ended(client, plan) == "succeeded"


async def test_over_http_the_address_says_which_tools(daemon: Daemon) -> None:
    async with over_http(daemon, "auto", "?toolsets=core,jobs&read_only=1") as client:
        names = {tool.name for tool in (await client.list_tools()).tools}
        refused = await client.call_tool("cancel_plan", {"plan": "x"})

    assert "get_job_diff" in names and "create_plan" not in names
    assert refused.is_error and "read-only" in text_of(refused)


@pytest.mark.parametrize(
    ("query", "headers", "status"),
    [
        ("?repo=nowhere", {}, 404),
        ("?toolsets=cor", {}, 400),
        ("?read_only=perhaps", {}, 400),
        ("?colour=red", {}, 400),
        ("", {"X-MCP-Toolsets": "nothing"}, 400),
        ("", {"X-MCP-Readonly": "perhaps"}, 400),
    ],
)
def test_over_http_a_wrong_address_is_refused(daemon: Daemon, query: str, headers: dict[str, str], status: int) -> None:
    given = {**daemon.bearer, "Content-Type": "application/json", **headers}
    answer = daemon.ask("POST", f"/mcp{query}", given, b"{}")

    assert answer.status == status
    assert answer.json["error"]["message"]


def test_over_http_nothing_is_said_without_a_token(daemon: Daemon) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
    answer = daemon.ask("POST", "/mcp", {"Content-Type": "application/json"}, body)

    assert answer.status == 401


async def test_a_whole_plan_is_made_mended_and_landed(tmp_path: Path, daemon: Daemon, era: str) -> None:
    """What a chat does: scaffold, watch, see it fail, read why, retry with other work, land."""
    async with client_of(daemon, "stdio", era, "core", "plans") as client:
        plan = (await value(client, "scaffold_plan", name=f"whole {era}", land="ask", target=f"whole-{era}"))["plan"]
        await value(client, "add_job", plan=plan, id="first", work=f"echo 1 > first-{era}.txt")
        await value(client, "add_job", plan=plan, id="second", needs=["first"], work="echo no such word >&2; exit 7")
        assert (await value(client, "get_plan", plan=plan))["plan"]["status"] == "scaffolding"
        await value(client, "finalize_plan", plan=plan)
        assert await ended(client, plan) == "failed"
        failure = await value(client, "get_job_failure", plan=plan, job="second")
        assert "no such word" in str(failure) and failure["phase"] == "work"
        await value(client, "retry_job", plan=plan, job="second", work=f"echo 2 > second-{era}.txt")
        assert await ended(client, plan) == "waiting"
        await value(client, "land_plan", plan=plan)
        assert await ended(client, plan) == "succeeded"

    files = daemon.desk.repo.files(f"whole-{era}")
    assert {f"first-{era}.txt", f"second-{era}.txt"} <= files.keys()
