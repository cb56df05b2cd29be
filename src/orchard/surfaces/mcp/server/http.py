"""MCP over HTTP: the same server as at the engine's door, for whatever repository a request names.

    POST /mcp?repo=ID&toolsets=core,jobs&tools=get_job_diff&exclude_tools=cancel_plan&read_only=1

The headers `X-MCP-Toolsets` and `X-MCP-Readonly` say the same as the query. Who may come in at all is decided before
this, at the daemon's door. The SDK is imported when the first request comes: a daemon that nobody speaks MCP to never
pays for it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from starlette.datastructures import Headers, QueryParams
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from orchard.errors import NotFound, OrchardError, UsageError
from orchard.process.background import beside
from orchard.surfaces.http.daemon.repos import Repos
from orchard.surfaces.mcp.selection import Selection
from orchard.surfaces.mcp.server.frames import INTERNAL_ERROR, INVALID_PARAMS, error_line
from orchard.surfaces.next_steps import told

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
HOST_KEY = "orchard.mcp"
"""Where a request says what it is about."""

QUERY = ("repo", "toolsets", "tools", "exclude_tools", "read_only")
YES, NO = ("1", "true", "yes", "on"), ("", "0", "false", "no", "off")


class McpApp:
    """An ASGI app that speaks MCP for the repositories of a daemon, while it is `running`."""

    def __init__(self, repos: Repos, hosts: Sequence[str] = LOOPBACK) -> None:
        self._repos = repos
        self._hosts = [pattern for host in hosts for pattern in (host, f"{host}:*")]
        self._origins = [f"{scheme}://{pattern}" for scheme in ("http", "https") for pattern in self._hosts]
        self._wanted, self._ready, self._over = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._app: ASGIApp | None = None
        self._close: Callable[[], None] | None = None
        self._running = False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer for the time of the block."""
        self._running = True
        try:
            async with beside(self._serve(), leave=self.close, patience=5.0):
                yield
        finally:
            self._running = False

    def close(self) -> None:
        """End the streams that are open, in order; whoever comes now is told that it is over."""
        self._running = False
        self._over.set()
        self._wanted.set()
        if self._close is not None:
            self._close()

    async def _serve(self) -> None:
        """Have the SDK's part ready from the first request to the end."""
        try:
            await self._wanted.wait()
            if self._over.is_set():
                return
            hosting: Any = await asyncio.to_thread(import_module, "orchard.surfaces.mcp.server.sessions")
            manager = hosting.Hosting(self._repos.all(), self._hosts, self._origins)
            async with manager.running():
                self._app, self._close = manager, manager.close
                self._ready.set()
                await self._over.wait()
        finally:
            self._app = None
            self._ready.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            served, selection = self._meant(scope)
        except OrchardError as error:
            status = 404 if isinstance(error, NotFound) else 400
            await _refuse(status, INVALID_PARAMS, told(error))(scope, receive, send)
            return
        if self._running:
            self._wanted.set()
            await self._ready.wait()
        if self._app is None:
            await _refuse(503, INTERNAL_ERROR, "The daemon is stopping.")(scope, receive, send)
            return
        scope[HOST_KEY] = (served, selection)
        await self._app(scope, receive, send)

    def _meant(self, scope: Scope) -> tuple[Any, Selection]:
        """The repository and the tools that a request is about."""
        query, headers = QueryParams(scope["query_string"]), Headers(scope=scope)
        for name in query:
            if name not in QUERY:
                raise UsageError(f"'{name[:100]}' means nothing here.", f"What there is: {', '.join(QUERY)}")
        toolsets = [*query.getlist("toolsets"), *headers.getlist("x-mcp-toolsets")]
        read_only = {_is_yes(word) for word in (*query.getlist("read_only"), *headers.getlist("x-mcp-readonly"))}
        selection = Selection.from_names(
            toolsets,
            query.getlist("tools"),
            query.getlist("exclude_tools"),
            True in read_only,
        )
        return self._repos.find(query.get("repo")), selection


def _is_yes(word: str) -> bool:
    if word.strip().lower() not in (*YES, *NO):
        raise UsageError(f"'{word[:100]}' is neither yes nor no.", "Give 1 or 0.")
    return word.strip().lower() in YES


def _refuse(status: int, code: int, message: str) -> Response:
    return Response(error_line(code, message), status_code=status, media_type="application/json")
