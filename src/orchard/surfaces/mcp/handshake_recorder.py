"""Writing the greeting down: the server itself is asked what every client asks first, at every version it speaks."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.lowlevel import Server
from mcp.server.runner import serve_one
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.transport_context import TransportContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from msgspec import Struct, field

from orchard.surfaces.mcp.handshake_cache import (
    CAPABILITIES_KEY,
    DISCOVER,
    LISTS,
    OTHERS,
    VERSION_KEY,
    Greeting,
    write_greeting,
)
from orchard.surfaces.mcp.selection import Selection
from orchard.surfaces.mcp.server import Host, make_server
from orchard.surfaces.mcp.subscriptions import Listeners, Subscribers
from orchard.surfaces.served import Served

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
