"""The SDK's side of MCP over HTTP: one server for all repositories, since every request says which one it means."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from orchard.process.background import beside
from orchard.surfaces.mcp.frames import LINE_BYTES, Refused, error_line, parse
from orchard.surfaces.mcp.http import HOST_KEY
from orchard.surfaces.mcp.server import Host, make_server
from orchard.surfaces.mcp.subscriptions import Context, Listeners, Subscribers
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

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
