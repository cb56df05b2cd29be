"""Which resources changed: the journal's growth, told to those who asked for it.

Both eras of the protocol are served from here. In the newer one a client opens a stream and names what it wants to
hear of; in the older one it subscribes to addresses, and hears of them on its connection for as long as that lasts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourcesListChanged, ResourceUpdated, ServerEvent
from mcp_types import (
    INTERNAL_ERROR,
    SubscriptionFilter,
    SubscriptionsListenRequestParams,
    SubscriptionsListenResult,
)

from orchard.app import App
from orchard.engine.turns.job_tokens import Scope
from orchard.model.events.plans import PlanDeleted, PlanSubmitted
from orchard.process.background import beside
from orchard.surfaces.mcp.resources import ROOT, allowed, job_uri, log_uri, parse_uri, plan_uri
from orchard.surfaces.served import Served

GATHER = 0.03
"""Seconds that news may wait for more of them."""
BLOCK = 1000
STREAMS = 64
ADDRESSES = 256
"""Streams that one server keeps open, and addresses that one connection may subscribe to."""

Publish = Callable[[ServerEvent], Awaitable[None]]
Context = ServerRequestContext[None, object]


async def tell(served: Served, publish: Publish) -> None:
    """Tell of everything that changes from now on, until canceled."""
    seen = served.newest
    while True:
        await served.newer(seen)
        await asyncio.sleep(GATHER)
        seen, changed = await served.read(_changed, served.app, seen)
        for event in changed:
            await publish(event)


def _changed(app: App, seen: int) -> tuple[int, list[ServerEvent]]:
    """How far the journal was read, and what changed up to there, each thing once."""
    found: dict[ServerEvent, None] = {}
    for recorded in app.reader.events(None, seen, BLOCK):
        seen = recorded.seq
        found[ResourceUpdated(ROOT)] = None
        found[ResourceUpdated(plan_uri(recorded.plan))] = None
        job = getattr(recorded.event, "job", None)
        if isinstance(job, str):
            found[ResourceUpdated(job_uri(recorded.plan, job))] = None
            found[ResourceUpdated(log_uri(recorded.plan, job))] = None
        if isinstance(recorded.event, PlanSubmitted | PlanDeleted):
            found[ResourcesListChanged()] = None
    return seen, list(found)


class Listeners:
    """The open streams of the newer era."""

    def __init__(self) -> None:
        self._open: set[ListenHandler] = set()

    async def listen(
        self, ctx: Context, params: SubscriptionsListenRequestParams, served: Served, scope: Scope | None
    ) -> SubscriptionsListenResult:
        """Serve one stream until its client leaves, or until `close`."""
        if len(self._open) >= STREAMS:
            raise MCPError(INTERNAL_ERROR, "Too many streams are open here.")
        bus = InMemorySubscriptionBus()
        handler = ListenHandler(bus, max_subscriptions=1)
        self._open.add(handler)
        try:
            async with beside(tell(served, bus.publish)):
                return await handler(ctx, params.model_copy(update={"notifications": _seen_by(scope, params)}))
        finally:
            self._open.discard(handler)

    def close(self) -> None:
        """End every stream in order: its client is told, and may open another one."""
        for handler in self._open:
            handler.close()


def _seen_by(scope: Scope | None, params: SubscriptionsListenRequestParams) -> SubscriptionFilter:
    """What was asked for, less what is not there, or not for whoever asks."""
    wanted = params.notifications
    uris = (wanted.resource_subscriptions or [])[:ADDRESSES]
    return SubscriptionFilter(
        resources_list_changed=wanted.resources_list_changed if scope is None else None,
        resource_subscriptions=[uri for uri in uris if is_known(uri, scope)],
    )


def is_known(uri: str, scope: Scope | None) -> bool:
    """Whether there can be something at this address for whoever asks."""
    address = parse_uri(uri)
    return address is not None and allowed(address, scope)


class Subscribers:
    """The subscriptions of the older era, by connection."""

    def __init__(self) -> None:
        self._wanted: dict[Served, dict[Connection, tuple[ServerSession, set[str]]]] = {}
        self._some = asyncio.Event()

    def subscribe(self, ctx: Context, served: Served, uri: str) -> None:
        """Tell this connection of an address from now on."""
        connection = _connection(ctx)
        known = self._wanted.setdefault(served, {})
        if connection not in known:
            known[connection] = (ctx.session, set())
            # The end of a connection is the end of what it asked for.
            connection.exit_stack.callback(self._forget, served, connection)
        uris = known[connection][1]
        if len(uris) >= ADDRESSES and uri not in uris:
            raise MCPError(INTERNAL_ERROR, "Too many subscriptions on one connection.")
        uris.add(uri)
        self._some.set()

    def unsubscribe(self, ctx: Context, served: Served, uri: str) -> None:
        """Tell it no more."""
        known = self._wanted.get(served, {}).get(_connection(ctx))
        if known is not None:
            known[1].discard(uri)

    def _forget(self, served: Served, connection: Connection) -> None:
        self._wanted.get(served, {}).pop(connection, None)

    async def tell(self, served: Served) -> None:
        """Tell everybody of this repository's changes, until canceled; nothing is read before somebody asks."""
        await self._some.wait()
        await tell(served, lambda event: self._publish(served, event))

    async def _publish(self, served: Served, event: ServerEvent) -> None:
        if not isinstance(event, ResourceUpdated):
            return
        for session, uris in list(self._wanted.get(served, {}).values()):
            if event.uri in uris:
                with suppress(MCPError):
                    await session.send_resource_updated(event.uri)


def _connection(ctx: Context) -> Connection:
    """The connection that a request came on; the SDK gives it to handlers only through the session."""
    return ctx.session._connection
