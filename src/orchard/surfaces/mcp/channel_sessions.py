"""The SDK's side of a channel: one server for one connection, and what can be told of it beforehand."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCMessage, jsonrpc_message_adapter
from pydantic import ValidationError

from orchard.engine.turns.job_tokens import Scope
from orchard.surfaces.mcp import toolbox
from orchard.surfaces.mcp.handshake_recorder import recorded as recorded
from orchard.surfaces.mcp.selection import Selection
from orchard.surfaces.mcp.server import Host, make_server
from orchard.surfaces.mcp.subscriptions import Context, Listeners, Subscribers
from orchard.surfaces.served import Served


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
