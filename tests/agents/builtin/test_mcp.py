"""Tools of MCP servers: real servers over both transports, and one that hangs, floods, dies and lies."""

import asyncio
import gzip
import json
import re
import socket
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from orchard.agents.builtin.tool import LONGEST_ANSWER, Answer, ToolContext, ToolError
from orchard.agents.builtin.tools import mcp
from orchard.agents.builtin.tools.mcp import Patience, Server
from orchard.agents.builtin.tools.mcp_content import BadTool, input_schema, tool_name
from orchard.agents.protocol import McpServer, Noted, Telling
from orchard.process.background import beside
from orchard.process.families.family import members
from orchard.process.families.identity import Identity, identify, is_alive
from tests.agents.builtin.kit import Box, make_context, open_box
from tests.agents.programs import program

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent


def small(*words: str, name: str = "small", env: Mapping[str, str] | None = None) -> McpServer:
    args = ("-I", str(HERE / "small_server.py"), *words)
    return McpServer(name, command=sys.executable, args=args, env=env or {})


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Box]:
    async with open_box(tmp_path, [small()]) as opened:
        yield opened


@asynccontextmanager
async def kept(
    folder: Path, server: McpServer, patience: Patience
) -> AsyncIterator[tuple[Server, ToolContext, list[str]]]:
    """One server, with little patience."""
    told: list[str] = []

    def tell(each: Telling) -> None:
        assert isinstance(each, Noted)
        told.append(each.message)

    context = make_context(folder)
    one = Server(server, context, folder / "server.log", tell, patience)
    async with beside(one.keep(), leave=one.leave, patience=10):
        await one.settled()
        yield one, context, told


async def refusal(server: Server, tool: str) -> str:
    """What a call that fails tells the model."""
    with pytest.raises(ToolError) as caught:
        await asyncio.wait_for(server.call(tool, {}), 60)
    return str(caught.value)


async def test_a_server_is_started_its_tools_are_listed_and_called(box: Box) -> None:
    answer = await box.use("mcp__small__echo", text="hello")
    failed = await box.use("mcp__small__fail")
    picture = await box.use("mcp__small__picture")

    echo = next(tool for tool in box.tools if tool.name == "mcp__small__echo")
    assert echo.description == "Will echo."
    assert echo.schema["required"] == ["text"]
    assert answer.text.startswith("hello from ")
    assert (failed.text, failed.failed) == ("this did not work", True)
    assert picture.text == "[image: image/png, 3 bytes]"
    assert box.notes == []


async def test_a_server_runs_in_the_environment_of_the_task_and_carries_its_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CANARY_SECRET", "of the host")
    started: list[Identity] = []

    async def on_start(identity: Identity) -> None:
        started.append(identity)

    server = small(env={"OF_THE_SERVER": "yes"})
    async with open_box(tmp_path, [server], token="turn-9", on_start=on_start, env={"OF_THE_TASK": "yes"}) as box:
        answer = await box.use("mcp__small__environment")
        alive = members("turn-9")

    env = json.loads(answer.text)
    assert env["OF_THE_TASK"] == env["OF_THE_SERVER"] == "yes"
    assert "CANARY_SECRET" not in env
    assert set(env) <= {"PATH", "HOME", "LANG", "LC_CTYPE", "OF_THE_TASK", "OF_THE_SERVER", "ORCHARD_TOKEN"}
    assert env["ORCHARD_TOKEN"].startswith("turn-9~")
    assert alive == started
    assert members("turn-9") == []


async def test_a_command_beside_it_does_not_end_a_server(box: Box) -> None:
    before = await box.use("mcp__small__echo", text="x")
    await box.use("bash", command="sleep 300 & true")
    after = await box.use("mcp__small__echo", text="x")

    assert after.text == before.text


async def test_whatever_a_server_started_ends_with_the_toolbox(tmp_path: Path) -> None:
    async with open_box(tmp_path, [small()]) as box:
        pid = int((await box.use("mcp__small__spawn")).text)
        child = identify(pid)
        assert child is not None
        assert is_alive(child)

    assert not is_alive(child)
    assert members(box.context.launcher.token) == []


async def test_a_cancellation_ends_every_server(tmp_path: Path) -> None:
    opened = asyncio.Event()

    async def work() -> None:
        async with open_box(tmp_path, [small(), small(name="second")], token="turn-c") as box:
            opened.set()
            await box.use("mcp__small__hang")

    running = asyncio.ensure_future(work())
    await asyncio.wait_for(opened.wait(), 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 60)

    assert members("turn-c") == []


async def test_one_broken_server_does_not_stop_the_others(tmp_path: Path) -> None:
    servers = [
        small("broken", name="broken"),
        McpServer("missing", command="no-such-program-anywhere"),
        McpServer("refused", url="http://127.0.0.1:1/mcp"),
        McpServer("nonsense", url="not an address"),
        McpServer("silent", command="true"),
        small("greeting"),
    ]

    async with open_box(tmp_path, servers) as box:
        answer = await box.use("mcp__small__echo", text="hello")
        assert {name.split("__")[1] for name in box.names if name.startswith("mcp__")} == {"small"}

    assert not answer.failed
    assert len(box.notes) == 5
    for name in ("broken", "missing", "refused", "nonsense", "silent"):
        assert any(f"MCP server '{name}' cannot be used: " in note for note in box.notes)
    assert any("I need a setting that is missing" in note for note in box.notes)
    assert any("There is no program 'no-such-program-anywhere'" in note for note in box.notes)


async def test_a_server_that_says_nothing_is_given_up(tmp_path: Path) -> None:
    async with kept(tmp_path, small("deaf"), Patience(start=1.5)) as (server, context, told):
        said = await refusal(server, "echo")

        assert members(context.launcher.token) == []
    assert len(told) == 1
    assert told[0].startswith("MCP server 'small' cannot be used: It did not list its tools in time.")
    assert "is not running" in said


async def test_a_call_that_hangs_is_answered_in_time_and_other_calls_go_on(tmp_path: Path) -> None:
    async with kept(tmp_path, small(), Patience(call=1.0)) as (server, _, told):
        began = time.monotonic()
        said = await refusal(server, "hang")

        assert "did not answer within 1 s" in said
        assert time.monotonic() - began < 30
        assert told == []


async def test_a_server_that_dies_is_started_again_twice_and_the_call_is_not_repeated(tmp_path: Path) -> None:
    async with kept(tmp_path, small(), Patience()) as (server, context, told):
        first = await server.call("echo", {"text": "x"})
        lost = await refusal(server, "die")
        second = await server.call("echo", {"text": "x"})
        await refusal(server, "die")
        await server.call("echo", {"text": "x"})
        await refusal(server, "die")
        over = await refusal(server, "echo")

        assert members(context.launcher.token) == []
    assert "was lost during the call, which it may have done" in lost
    assert first.text != second.text
    assert [note.rpartition(" It is ")[2] for note in told] == [
        "started again.",
        "started again.",
        "not started any more.",
    ]
    assert all("I am dying" in note for note in told)
    assert "is not running" in over


async def test_a_large_answer_is_cut_and_a_wrong_one_told(box: Box) -> None:
    large = await box.use("mcp__small__large")
    wrong = await box.use("mcp__small__wrong")
    after = await box.use("mcp__small__echo", text="still here")

    assert large.text.startswith("begin")
    assert large.text.endswith("end")
    assert len(large.text) <= LONGEST_ANSWER
    assert wrong.failed
    assert "answered wrongly" in wrong.text
    assert "still here" in after.text


@pytest.mark.parametrize(("tool", "limit"), [("answers", "MOST_BYTES"), ("flood", "MOST_IDLE_BYTES")])
async def test_a_server_that_floods_is_stopped(
    tool: str, limit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, limit, 4 * 1024 * 1024)
    monkeypatch.setattr(mcp, "RESTARTS", 0)

    async with kept(tmp_path, small(), Patience(call=50)) as (server, context, told):
        said = await refusal(server, tool)
        over = await refusal(server, "echo")

        assert members(context.launcher.token) == []
    assert "was lost" in said
    assert "is not running" in over
    assert "its log grew past" in told[0]
    assert ("4,194,304 bytes" in told[0]) is (limit == "MOST_BYTES")


async def test_names_are_clean_short_and_no_two_are_the_same(tmp_path: Path) -> None:
    async with open_box(
        tmp_path, [small("strange", name="a very strange name!"), small(name="a_very strange name?")]
    ) as box:
        names = [name for name in box.names if name.startswith("mcp__")]
        answers = [await box.use(name, text="x") for name in names if "echo" in name]

    assert len(names) == len(set(names)) == 11 + 3 + 1 + 11
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in names)
    assert len({answer.text for answer in answers}) == 2
    assert sorted(note.rpartition(" is left out: ")[2][:30] for note in box.notes) == [
        "its schema is not valid: 12 is",
        "its schema refers to another d",
    ]


def test_a_schema_keeps_what_a_model_needs_and_loses_what_is_dangerous() -> None:
    given = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {
            "pattern": {"type": "string", "pattern": "(a+)+$", "description": "A glob."},
            "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        },
        "$defs": {"row": {"type": "object", "patternProperties": {"x": {}}, "properties": {"n": {"pattern": "x"}}}},
        "required": ["pattern"],
        "anyOf": [{"required": ["rows"]}],
    }

    assert input_schema(given) == {
        "type": "object",
        "properties": {
            "pattern": {"type": "string", "description": "A glob."},
            "rows": {"type": "array", "items": {"$ref": "#/$defs/row"}},
        },
        "$defs": {"row": {"type": "object", "properties": {"n": {}}}},
        "required": ["pattern"],
    }


@pytest.mark.parametrize(
    "given",
    [
        {"type": "string"},
        {"properties": {"x": {"allOf": [{"$ref": "file:///etc/passwd"}]}}},
        {"properties": {"x": {"items": [{"$dynamicRef": "http://127.0.0.1/"}]}}},
        {"properties": {"x": {"description": "x" * 100_000}}},
        {"required": "x"},
    ],
)
def test_a_schema_that_cannot_be_used_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(BadTool):
        input_schema(given)


def test_a_long_name_keeps_its_beginning() -> None:
    one = tool_name("server", "x" * 100 + "a", ())
    other = tool_name("server", "x" * 100 + "b", ())

    assert one != other
    assert one.startswith("mcp__server__xxx")
    assert len(one) == len(other) == 64
    assert tool_name("server", "tool", {"mcp__server__tool"}) != "mcp__server__tool"


# ------------------------------------------------------------------------ the official package, and npm


async def test_a_server_of_the_official_package_speaks_over_its_standard_input(tmp_path: Path) -> None:
    server = McpServer("sdk", command=sys.executable, args=(str(HERE / "sdk_server.py"), "stdio"))

    async with open_box(tmp_path, [server]) as box:
        answer = await box.use("mcp__sdk__add", a=2, b=3)
        wrong = await box.use("mcp__sdk__add", a="two", b=3)

    assert (answer.text, answer.failed) == ("5", False)
    assert wrong.failed
    assert box.notes == []


@asynccontextmanager
async def http_server(port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    argv = (sys.executable, str(HERE / "sdk_server.py"), "http", str(port))
    null = asyncio.subprocess.DEVNULL
    process = await asyncio.create_subprocess_exec(*argv, stdout=null, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    try:
        async with asyncio.timeout(60):
            while b"running on" not in await process.stderr.readline():
                pass
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


async def test_a_server_is_used_over_http_and_reached_again_after_it_was_gone(tmp_path: Path) -> None:
    port = free_port()
    server = McpServer("web", url=f"http://127.0.0.1:{port}/mcp", headers={"X-Key": "secret"})

    env = {"HTTP_PROXY": "http://127.0.0.1:1", "NO_PROXY": "127.0.0.1"}
    async with http_server(port) as process, open_box(tmp_path, [server], env=env) as box:
        first = await box.use("mcp__web__add", a=2, b=3)
        process.kill()
        await process.wait()
        gone = await box.use("mcp__web__add", a=2, b=3)
        still_gone = await box.use("mcp__web__add", a=2, b=3)
        async with http_server(port):
            answers: list[Answer] = [await box.use("mcp__web__add", a=2, b=3)]

    assert first.text == "5"
    assert "was lost" in gone.text
    assert "is not running" in still_gone.text
    assert answers[0].text == "5"


@contextmanager
def bad_web_server(body: bytes, headers: Mapping[str, str]) -> Iterator[tuple[str, list[int]]]:
    """Answers everything with the same, over and over, until nobody listens; and how much of it was taken."""
    taken: list[int] = []

    class Bad(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            sent = 0
            with suppress(OSError):
                while sent < 400 * 1024 * 1024:
                    self.wfile.write(body)
                    sent += len(body)
            taken.append(sent)

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Bad)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/mcp", taken
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("headers", [{}, {"Content-Encoding": "gzip"}], ids=["plain", "packed"])
async def test_an_answer_over_http_that_never_ends_is_not_read_to_its_end(
    headers: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mcp, "LARGEST_REPLY", 1024 * 1024)
    body = gzip.compress(b" " * 10_000_000) if headers else b" " * 65536

    with bad_web_server(body, headers) as (url, taken):
        async with open_box(tmp_path, [McpServer("web", url=url)]) as box:
            assert not any(name.startswith("mcp__") for name in box.names)

    assert len(box.notes) == 1
    assert ("compressed answers" in box.notes[0]) is bool(headers)
    assert taken
    assert max(taken) < 100 * 1024 * 1024


async def test_the_server_everything_from_npm_serves_tools(tmp_path: Path) -> None:
    found = program("server-everything")

    async with open_box(
        tmp_path, [McpServer("everything", command=str(found.path))], env={"PATH": found.search_path}
    ) as box:
        answer = await box.use("mcp__everything__echo", message="hello")
        picture = await box.use("mcp__everything__get-tiny-image")

    assert "hello" in answer.text
    assert "[image: image/png" in picture.text


async def test_the_server_filesystem_from_npm_serves_tools(tmp_path: Path) -> None:
    found = program("server-filesystem")
    (tmp_path / "a.txt").write_text("content\n")
    server = McpServer("files", command=str(found.path), args=(str(tmp_path),))

    async with open_box(tmp_path, [server], env={"PATH": found.search_path}) as box:
        answer = await box.use("mcp__files__read_text_file", path=str(tmp_path / "a.txt"))
        outside = await box.use("mcp__files__read_text_file", path="/etc/passwd")

    assert answer.text.strip() == "content"
    assert outside.failed


async def test_the_server_memory_from_npm_serves_tools(tmp_path: Path) -> None:
    found = program("server-memory")
    memory = {"MEMORY_FILE_PATH": str(tmp_path / "memory.json")}

    async with open_box(
        tmp_path, [McpServer("memory", command=str(found.path), env=memory)], env={"PATH": found.search_path}
    ) as box:
        entity = {"name": "Orchard", "entityType": "program", "observations": ["runs agents"]}
        made = await box.use("mcp__memory__create_entities", entities=[entity])
        graph = await box.use("mcp__memory__read_graph")

    assert not made.failed
    assert "runs agents" in graph.text
    assert (tmp_path / "memory.json").exists()
