"""The SDK's side of MCP: one server per connection or for all of HTTP, and a record of what it says first."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_one
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.message import SessionMessage
from mcp.shared.transport_context import TransportContext
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from msgspec import Struct, field
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Send
from starlette.types import Scope as HttpScope

from orchard.engine.turns.job_tokens import Scope
from orchard.process.background import beside
from orchard.surfaces.mcp import toolbox
from orchard.surfaces.mcp.relay.handshake_cache import (
    CAPABILITIES_KEY,
    DISCOVER,
    LISTS,
    OTHERS,
    VERSION_KEY,
    Greeting,
    write_greeting,
)
from orchard.surfaces.mcp.selection import Selection
from orchard.surfaces.mcp.server.frames import LINE_BYTES, Refused, error_line, parse
from orchard.surfaces.mcp.server.http import HOST_KEY
from orchard.surfaces.mcp.server.server import Host, make_server
from orchard.surfaces.mcp.server.subscriptions import Context, Listeners, Subscribers
from orchard.surfaces.served import Served

SESSIONS = 256
IDLE_SECONDS = 1800.0
"""Sessions of the older era: how many there may be, and how long one that nobody uses is kept."""


class Hosting:
    """Both eras of the protocol behind one address."""

    def __init__(self, served: Sequence[Served], hosts: Sequence[str], origins: Sequence[str]) -> None:
        self._served = served
        self._listeners, self._subscribers = Listeners(), Subscribers()
        self._manager = StreamableHTTPSessionManager(
            make_server(_host, self._listeners, self._subscribers),
            # The daemon's door has looked at these already; two locks are better where a browser can knock.
            security_settings=TransportSecuritySettings(
                enable_dns_rebinding_protection=True, allowed_hosts=list(hosts), allowed_origins=list(origins)
            ),
            max_request_body_size=LINE_BYTES,
            max_sessions=SESSIONS,
            session_idle_timeout=IDLE_SECONDS,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer for the time of the block."""
        async with beside(*(self._subscribers.tell(one) for one in self._served)), self._manager.run():
            yield

    def close(self) -> None:
        """End the streams that are open, in order."""
        self._listeners.close()

    async def __call__(self, scope: HttpScope, receive: Receive, send: Send) -> None:
        """Answer one request; what is no message is answered before the SDK sees it."""
        if scope["method"] != "POST":
            await self._manager.handle_request(scope, receive, send)
            return
        body = await _body(receive)
        if body is None:
            await Response("The request is too large.", status_code=413)(scope, receive, send)
            return
        said = parse(body)
        if isinstance(said, Refused):
            answer = Response(error_line(said.code, said.message, said.id), 400, media_type="application/json")
            await answer(scope, receive, send)
            return
        await self._manager.handle_request(scope, _again(body, receive), send)


def _host(ctx: Context) -> Host:
    assert isinstance(ctx.request, Request)
    served, selection = ctx.request.scope[HOST_KEY]
    return Host(served, selection)


async def _body(receive: Receive) -> bytes | None:
    """The whole of a request's body; None where it is too long."""
    parts = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(parts)
        parts += message.get("body", b"")
        if len(parts) > LINE_BYTES:
            return None
        if not message.get("more_body", False):
            return bytes(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """The same body once more, then whatever comes after it."""
    read = False

    async def from_here() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        return {"type": "http.request", "body": body, "more_body": False}

    return from_here


class Conversation:
    """One client: what it said goes in at `heard`, what it is told comes out at `said`."""

    def __init__(self, served: Served, selection: Selection, scope: Scope | None) -> None:
        self._served = served
        self._listeners, self._subscribers = Listeners(), Subscribers()
        host = Host(served, selection, scope)
        self._server = make_server(partial(_constant, host), self._listeners, self._subscribers)
        self.heard, self._to_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        self._from_server, self.said = anyio.create_memory_object_stream[SessionMessage](0)

    async def hear(self, said: Mapping[str, Any]) -> bool:
        """Give a message to the server; False where it is none after all."""
        try:
            message: JSONRPCMessage = jsonrpc_message_adapter.validate_python(said, by_name=False)
        except ValidationError:
            return False
        await self.heard.send(SessionMessage(message))
        return True

    async def tell(self) -> None:
        """Tell a client of the older era what it subscribed to, until canceled."""
        await self._subscribers.tell(self._served)

    async def run(self) -> None:
        """Answer until nothing more will be heard."""
        options = self._server.create_initialization_options()
        await self._server.run(self._to_server, self._from_server, options)


def _constant(host: Host, ctx: Context) -> Host:
    return host


def read_only_names(selection: Selection, scope: Scope | None) -> list[str]:
    """The tools that change nothing: a call of one of these can be made again when its answer did not arrive."""
    return [tool.name for tool in toolbox.tools(selection, scope) if tool.read_only]


_WHO = {"name": "orchard", "version": "0"}
_RECORDED: set[Selection] = set()


async def recorded(selection: Selection) -> None:
    """Write down what this process says first with this selection, once."""
    if selection in _RECORDED:
        return
    _RECORDED.add(selection)
    greeting = await greeting_of(selection)
    await asyncio.to_thread(write_greeting, selection, greeting)


async def greeting_of(selection: Selection) -> Greeting:
    """What the server says first, at every version."""
    # None of these questions is about a repository.
    host = Host(cast(Served, None), selection)
    server = make_server(lambda ctx: host, Listeners(), Subscribers())
    hello: dict[str, dict[str, Any]] = {}
    lists: dict[str, dict[str, dict[str, Any]]] = {}
    for version in HANDSHAKE_PROTOCOL_VERSIONS:
        hello[version] = await _asked(server, version, "initialize", _hello(version))
        lists[version] = {method: await _asked(server, version, method, {}) for method in LISTS}
        await asyncio.sleep(0)  # the engine that works on the same loop goes first
    hello[OTHERS] = hello[LATEST_HANDSHAKE_VERSION]
    for version in MODERN_PROTOCOL_VERSIONS:
        meta = {"_meta": {VERSION_KEY: version, CAPABILITIES_KEY: {}}}
        lists[version] = {method: await _asked(server, version, method, meta) for method in (DISCOVER, *LISTS)}
    return Greeting(hello, lists)


def _hello(version: str) -> dict[str, Any]:
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": _WHO}


async def _asked(server: Server[None], version: str, method: str, params: dict[str, Any]) -> dict[str, Any]:
    connection = Connection.from_envelope(version, _WHO, {})
    return await serve_one(server, _Alone(), method, params, connection=connection, lifespan_state=None)


class _Alone(Struct):
    """A request that came from nobody: there is nobody to talk back to."""

    transport: TransportContext = field(default_factory=lambda: TransportContext(kind="record", can_send_request=False))
    can_send_request: bool = False
    request_id: types.RequestId | None = 1
    message_metadata: None = None
    cancel_requested: anyio.Event = field(default_factory=anyio.Event)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        return

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        return
