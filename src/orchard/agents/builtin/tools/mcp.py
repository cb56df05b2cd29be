"""Tools of MCP servers, through the official client: servers are started, asked, and started again when they die.

Each server is kept beside a turn by a task of its own, from which its client is never lent away. A server is a program
of a stranger like any other: it is started in the task's environment, and whatever it starts ends with it. Whatever
goes wrong with one of them is told, and does not touch the others.
This module imports the client, which takes a second: it is itself imported only where a server is configured.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    Implementation,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    jsonrpc_message_adapter,
)
from mcp_types import Tool as ServersTool
from msgspec import Struct
from pydantic import ValidationError

import orchard
from orchard.agents.builtin.tool import Answer, Json, Tool, ToolContext, ToolError, head_and_tail, plain_text
from orchard.agents.builtin.tools.github import proxy_for, trust
from orchard.agents.builtin.tools.mcp_content import BadTool, answer, description, full_name, input_schema, tool_name
from orchard.agents.protocol import McpServer, Noted, Tell
from orchard.errors import OrchardError
from orchard.model.limits import Limits
from orchard.process.background import beside
from orchard.process.pipes import Pipes, TooMuch

RESTARTS = 2
MOST_TOOLS = 128
MOST_PAGES = 50
MOST_BYTES = 256 * 1024 * 1024
"""That a server may write in all; more is no conversation."""
MOST_IDLE_BYTES = 16 * 1024 * 1024
"""Of what it writes without having been asked: news of its progress, greetings, noise."""
MOST_REQUESTS = 1000
"""That it may make of us: it is answered that we offer nothing."""
LARGEST_REPLY = 32 * 1024 * 1024
"""Of a server that is asked over HTTP."""
GRACE = 2.0

_Streams = tuple[Any, Any]


class Patience(Struct, frozen=True):
    """Seconds."""

    start: float = 60.0
    """To start and list its tools; `npx` may have to fetch a server first."""
    call: float = 120.0


_EXPECTED = (
    OrchardError,
    MCPError,
    ValidationError,
    OSError,
    ValueError,
    RuntimeError,
    httpx2.HTTPError,
    httpx2.InvalidURL,
    anyio.ClosedResourceError,
    anyio.BrokenResourceError,
    anyio.EndOfStream,
)


class Server:
    def __init__(
        self, server: McpServer, context: ToolContext, log: Path, tell: Tell, patience: Patience | None = None
    ) -> None:
        self._server, self._context, self._log, self._tell = server, context, log, tell
        self._patience = patience or Patience()
        self._client: Client | None = None
        self._wake = asyncio.Event()
        """Set when the conversation is to end: the server is gone, or we leave."""
        self._leaving = False
        self._resting = False
        self._needed = asyncio.Event()
        self._settled = asyncio.Event()
        """Set while it is known whether there is a client."""
        self._why = ""
        self.listed: list[ServersTool] = []

    @property
    def name(self) -> str:
        return self._server.name

    async def keep(self) -> None:
        """Start it, and start it again when it dies, until we leave or it has died too often."""
        lives = 0
        try:
            while not self._leaving:
                connected = await self._live()
                if self._leaving:
                    return
                if not connected and lives == 0:
                    self._note(f"cannot be used: {self._why}")
                    return
                lives += 1
                if self._server.command is None:
                    await self._rest(connected)
                elif lives > RESTARTS:
                    self._note(f"died: {self._why} It is not started any more.")
                    return
                else:
                    self._note(f"died: {self._why} It is started again.")
        finally:
            self._client, self._resting = None, False
            self._settled.set()

    async def _rest(self, was_connected: bool) -> None:
        """A server of others that is gone: there is nothing to start, it is only asked again when it is needed."""
        if was_connected:
            self._note(f"was lost: {self._why} It is asked again when it is needed.")
        self._needed.clear()
        self._resting = True
        self._settled.set()
        await self._needed.wait()
        self._resting = False

    async def settled(self) -> None:
        await self._settled.wait()

    def leave(self) -> None:
        self._leaving = True
        self._wake.set()
        self._needed.set()

    async def call(self, tool: str, arguments: Json) -> Answer:
        """Use a tool. A call is made once at most: what a server did before it died, only the model can find out."""
        if self._resting:
            self._settled.clear()
            self._needed.set()
        await self._settled.wait()
        client = self._client
        if client is None:
            raise ToolError(f"The MCP server '{self.name}' is not running: {self._why}")
        try:
            async with asyncio.timeout(self._patience.call):
                result = await client.call_tool(tool, arguments)
        except TimeoutError as error:
            raise ToolError(f"The MCP server '{self.name}' did not answer within {self._patience.call:g} s.") from error
        except MCPError as error:
            said = plain_text(error.message)[:2000]
            if error.code != CONNECTION_CLOSED and said != "Session terminated":
                raise ToolError(f"The MCP server '{self.name}' answered with an error: {said}") from error
            self._lose(client)
            raise ToolError(
                f"The MCP server '{self.name}' was lost during the call, which it may have done."
            ) from error
        except _EXPECTED as error:
            raise ToolError(f"The MCP server '{self.name}' answered wrongly: {_words(error)}") from error
        return answer(result.content, result.structured_content, failed=bool(result.is_error))

    def _lose(self, client: Client) -> None:
        if self._client is client:
            self._client = None
            self._settled.clear()
            self._wake.set()

    def _note(self, what: str) -> None:
        self._tell(Noted("mcp", f"MCP server '{plain_text(self.name)}' {what}"))

    async def _live(self) -> bool:
        self._client, self._why = None, ""
        self._settled.clear()
        if not self._leaving:
            self._wake.clear()
        life = _Life()
        try:
            self._why = await (self._by_program(life) if self._server.command else self._by_address(life))
        finally:
            self._client = None
        return life.of_use

    async def _by_program(self, life: "_Life") -> str:
        assert self._server.command is not None
        argv = (self._server.command, *self._server.args)
        env = {**self._context.for_commands, **self._server.env}
        limits = Limits(log_bytes=MOST_BYTES, grace=GRACE)

        async def converse(pipes: Pipes) -> None:
            with life.heard():
                await self._talk(over_pipes(pipes, self._wake), life)

        ended = await self._context.run(argv, env, self._log, limits, converse)
        return " ".join(filter(None, (life.why, ended.message, self._complaint())))

    async def _by_address(self, life: "_Life") -> str:
        url = self._server.url or ""
        # The headers are for this address: the client follows no redirect to another one.
        headers = {"Accept-Encoding": "identity", **self._server.headers}
        timeout = httpx2.Timeout(30.0, read=self._patience.call)
        with life.heard():
            async with httpx2.AsyncClient(
                verify=await trust(self._context.env),
                proxy=proxy_for(url, self._context.env),
                event_hooks={"response": [_bound]},
                headers=headers,
                timeout=timeout,
                trust_env=False,
            ) as http:
                await self._talk(streamable_http_client(url, http_client=http), life)
        return life.why or "The connection was lost."

    async def _talk(self, transport: AbstractAsyncContextManager[_Streams], life: "_Life") -> None:
        us = Implementation(name="orchard", version=orchard.__version__)
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self._patience.start):
                client = await stack.enter_async_context(Client(transport, client_info=us, cache=None))
                listed = await _list_tools(client)
            if not life.of_use and not self.listed:
                self.listed = listed
            life.of_use = True
            self._client = client
            self._settled.set()
            await self._wake.wait()
            self._client = None
            self._settled.clear()

    def _complaint(self) -> str:
        said = plain_text(head_and_tail(self._log, 8000)).strip().splitlines()[-3:]
        return f"It said: {' / '.join(line.strip()[:300] for line in said)}" if said else ""


class _Life:
    """One life of a server: whether it was of use, and what went wrong in its conversation."""

    def __init__(self) -> None:
        self.of_use = False
        self.why = ""

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Keep what a server, or the way to it, can make the client raise; that it wrote too much is for others."""
        try:
            yield
        except TooMuch:
            raise
        except TimeoutError:
            self.why = "It did not list its tools in time."
        except _EXPECTED as error:
            self.why = _reason(error)
        except BaseExceptionGroup as group:
            strange = group.split(_EXPECTED)[1]
            if strange is not None:
                raise strange from None
            self.why = _reason(group)


def quiet_client() -> None:
    """Keep what the client logs about strange servers off the screen: what matters is raised, and told by us."""
    for name in ("mcp", "client"):
        logger = logging.getLogger(name)
        if not any(isinstance(handler, logging.NullHandler) for handler in logger.handlers):
            logger.addHandler(logging.NullHandler())


def server_tools(servers: list[Server], tell: Tell) -> list[Tool]:
    """The tools of all servers that have started, with names that no two of them share."""
    made: dict[str, Tool] = {}
    for server in servers:
        for each in sorted(server.listed, key=lambda tool: tool.name):
            try:
                name = tool_name(server.name, each.name, made)
                made[name] = _made(server, each, name)
            except BadTool as error:
                about = f"Tool '{plain_text(each.name)[:100]}' of MCP server '{plain_text(server.name)}' is left out"
                tell(Noted("mcp", f"{about}: {error}."))
    return list(made.values())


def _made(server: Server, tool: ServersTool, name: str) -> Tool:
    async def run(_: ToolContext, arguments: Json) -> Answer:
        return await server.call(tool.name, arguments)

    reads = tool.annotations is not None and tool.annotations.read_only_hint is True
    schema = input_schema(tool.input_schema)
    return Tool(name, description(server.name, tool.description), schema, run, reads, full_name(server.name, tool.name))


async def _list_tools(client: Client) -> list[ServersTool]:
    found: list[ServersTool] = []
    cursor: str | None = None
    for _ in range(MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None or len(found) >= MOST_TOOLS:
            break
    return found[:MOST_TOOLS]


@asynccontextmanager
async def over_pipes(pipes: Pipes, gone: asyncio.Event) -> AsyncIterator[_Streams]:
    """The two streams that the client wants, between it and the pipes of a program; `gone` is set at its end."""
    heard, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, said = anyio.create_memory_object_stream[SessionMessage](0)

    async def hear() -> None:
        idle = requests = 0
        try:
            async for line in pipes.lines():
                message = _message(line)
                requests += isinstance(message, JSONRPCRequest)
                if message is None or isinstance(message, JSONRPCNotification):
                    # The client would look at each of them closely, and nobody wants to know.
                    idle += len(line) + 1
                    await asyncio.sleep(0)
                else:
                    await heard.send(SessionMessage(message))
                if idle > MOST_IDLE_BYTES or requests > MOST_REQUESTS:
                    raise TooMuch
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # nobody listens any more
        finally:
            heard.close()
            gone.set()

    async def speak() -> None:
        async for message in said:
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            await pipes.write(line.encode() + b"\n")

    try:
        async with beside(hear(), speak()):
            yield incoming, outgoing
    finally:
        for stream in (heard, incoming, outgoing, said):
            stream.close()


def _message(line: bytes) -> JSONRPCMessage | None:
    """A line as a message; servers also print greetings, which are none."""
    try:
        return jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValueError:
        return None


async def _bound(response: httpx2.Response) -> None:
    """See that an answer ends when it is too large, whatever the server sends."""
    if response.headers.get("content-encoding", "identity") != "identity":
        # We asked for none: a small answer that unpacks into a large one is not unpacked.
        why = "it sends compressed answers, which were not asked for"
        raise httpx2.DecodingError(why, request=response.request)
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _BoundedStream(response.stream)


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = LARGEST_REPLY
        async for block in self._inner:
            left -= len(block)
            if left < 0:
                raise httpx2.ReadError(f"the answer is larger than {LARGEST_REPLY:,} bytes")
            yield block

    async def aclose(self) -> None:
        await self._inner.aclose()


def _reason(error: BaseException) -> str:
    """Why a conversation ended, in a sentence; empty if only because the other side did."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return "" if isinstance(error, MCPError) and error.code == CONNECTION_CLOSED else f"{_words(error)}."


def _words(error: BaseException) -> str:
    return plain_text(str(error)).replace("\n", " ")[:500].rstrip(".") or type(error).__name__
