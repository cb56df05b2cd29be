"""The daemon: the engines of some repositories, and HTTP in front of them, until somebody ends it.

    listen → be the engine of every repository, or join it → say where → wait → let jobs end, or stop them → go

What it is told to do by signals is in `stopping`, who may come in is in `door`, and each repository is kept open by
its own `Kept`. One daemon serves a repository at a time: it holds a lock beside the repository's journal.
"""

import asyncio
import os
import shutil
import sys
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from importlib import import_module
from pathlib import Path

import filelock
from msgspec import Struct
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from orchard import __version__
from orchard.app import App
from orchard.config.user_dirs import make_runtime_dir
from orchard.process.background import beside
from orchard.process.families.identity import identify
from orchard.surfaces.http.daemon import door as doors
from orchard.surfaces.http.daemon.address import HttpAddress, remove_http_address, write_http_address
from orchard.surfaces.http.daemon.repos import Repos
from orchard.surfaces.http.daemon.repository_host import Kept
from orchard.surfaces.http.daemon.shutdown import Haste, OnStop, Stopping
from orchard.surfaces.http.daemon.tokens import Tokens, make_folder
from orchard.surfaces.http.daemon.wire import Server, listen_at, make_server
from orchard.surfaces.http.dashboard import Page, pages
from orchard.surfaces.http.drafts import clear_after_killed
from orchard.surfaces.http.metrics import MISSING, MISSING_HINT, metrics_text
from orchard.surfaces.http.problems import problem

LOCK_FILE = "http.lock"
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
LEAVING_SECONDS = 15.0
PATIENCE = 5.0
"""Seconds for engines to begin; who takes longer, because it recovers or waits for another one, is not waited for."""


class Options(Struct, frozen=True):
    host: str = "127.0.0.1"
    port: int = 0
    names: tuple[str, ...] = ()
    """Under which other names it may be asked for."""
    tls: tuple[Path, Path] | None = None
    on_stop: OnStop = "finish"
    until_idle: float | None = None
    """Seconds without work, connection or request after which it ends by itself."""


class Daemon:
    def __init__(self, apps: Sequence[App], options: Options) -> None:
        self._options = options
        self.stopping = Stopping(options.on_stop)
        self.kept = [Kept(app, self.stopping) for app in apps]
        self.repos = Repos(self.kept)
        self._mcp = LateMcp(self.repos)
        self._began = time.monotonic()

    async def run(self, ready: Callable[[HttpAddress], None]) -> None:
        """Serve until the end; `ready` is told where, once everything can be asked for."""
        with self.stopping.signals(), listen_at(self._options.host, self._options.port) as listener:
            port = int(listener.getsockname()[1])
            async with AsyncExitStack() as stack:
                tokens = stack.enter_context(_secrets(self.kept[0].app, port))
                await stack.enter_async_context(
                    beside(self._mcp.live(), leave=self._mcp.leave, patience=LEAVING_SECONDS)
                )
                traffic = doors.Traffic()
                shown = pages()
                application = self._application(traffic, shown)
                door = doors.Door(application, tokens, self._hosts(), traffic, self._scheme, port, shown.keys())
                server = make_server(door, self._options.tls)
                for kept in self.kept:
                    stack.callback(kept.close)
                serving = beside(server.serve([listener]), leave=server.end, patience=LEAVING_SECONDS)
                await stack.enter_async_context(serving)
                await server.listens.wait()
                keeping = (kept.keep() for kept in self.kept)
                async with beside(*keeping), beside(self._end_when_idle(traffic, server)):
                    await self._settled()
                    with self._found(self._address(port, tokens)) as address:
                        ready(address)
                        async with beside(clear_after_killed()):
                            for kept in self.kept:
                                await kept.ended.wait()

    async def _settled(self) -> None:
        """Wait until every repository has its engine; not for long, because reading needs none."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE):
                for kept in self.kept:
                    await kept.settled.wait()

    # ------------------------------------------------------------------------------- what is served

    def _application(self, traffic: doors.Traffic, shown: Mapping[str, Page]) -> Starlette:
        from orchard.surfaces.http.api import routes  # many models: only who serves pays for them

        async def metrics(request: Request) -> Response:
            found = await metrics_text(self.repos, traffic, self._began)
            return problem(501, MISSING, MISSING_HINT) if found is None else Response(found[0], media_type=found[1])

        every_page = (Route(path, _shown(page), methods=["GET"]) for path, page in shown.items())
        own = [Route("/healthz", _healthz, methods=["GET"]), Route("/metrics", metrics, methods=["GET"])]
        every: list[BaseRoute] = [*own, *every_page, *routes(self.repos), Route("/mcp", self._mcp)]
        # What a client or a route does wrong is told in one form; a bug is told without its cause, and logged.
        return Starlette(routes=every, exception_handlers={HTTPException: _no_such, Exception: _bug})

    # ---------------------------------------------------------------------------------- where it is

    @property
    def _scheme(self) -> str:
        return "https" if self._options.tls else "http"

    def _hosts(self) -> set[str]:
        """The names by which it may be asked for: of this machine only, and those that were given."""
        given = self._options.host
        own = () if given in ("0.0.0.0", "::") else (f"[{given}]" if ":" in given else given,)
        return {name.lower() for name in (*LOOPBACK, *own, *self._options.names)}

    def _address(self, port: int, tokens: Tokens) -> HttpAddress:
        me = identify(os.getpid())
        assert me is not None
        host = self._options.host
        shown = self._options.names[0] if self._options.names else f"[{host}]" if ":" in host else host
        folders = [str(kept.folder) for kept in self.kept]
        url = f"{self._scheme}://{shown}:{port}/"
        return HttpAddress(me.pid, me.started, me.boot, url, str(tokens.file), folders, __version__)

    @contextmanager
    def _found(self, address: HttpAddress) -> Iterator[HttpAddress]:
        """Be found for the time of the block, also while we are only waiting for the end."""
        places = [address.folder, *(kept.app.repo.state for kept in self.kept)]

        def write(now: HttpAddress) -> None:
            for place in places:
                write_http_address(place, now)

        def tell() -> None:
            with suppress(OSError):
                write(replace(address, stopping=True))

        write(replace(address, stopping=self.stopping.haste > Haste.NONE))
        self.stopping.listen(tell)
        try:
            yield address
        finally:
            for place in places:
                remove_http_address(place, address)

    # -------------------------------------------------------------------------------------- the end

    async def _end_when_idle(self, traffic: doors.Traffic, server: Server) -> None:
        """End after a time without work, connection and request; nobody looks more often than that time is long."""
        longest = self._options.until_idle
        if longest is None:
            return
        last, seen = time.monotonic(), -1
        while not self.stopping.haste:
            rested = [await kept.idle() for kept in self.kept]
            newest = sum(kept.newest for kept in self.kept)
            talking = bool(server.server_state.connections) or any(kept.channels for kept in self.kept)
            if not all(rested) or talking or newest != seen:
                last = time.monotonic()
            seen = newest
            last = max(last, traffic.last, *(kept.spoke for kept in self.kept))
            left = last + longest - time.monotonic()
            if left <= 0:
                self.stopping.at_least(Haste.FINISH)
            else:
                await asyncio.sleep(left)


class LateMcp:
    """MCP over HTTP, imported when somebody asks for it: its SDK takes a second and much memory."""

    def __init__(self, repos: Repos) -> None:
        self._repos = repos
        self._app: doors.App | None = None
        self._wanted, self._ready, self._leaving = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def live(self) -> None:
        """Be there from the first request to the end: what the SDK opens, it wants closed by the same task."""
        await self._wanted.wait()
        if self._leaving.is_set():
            return
        try:
            module = await asyncio.to_thread(import_module, "orchard.surfaces.mcp.server.http")
            app = module.McpApp(self._repos)
            async with app.running():
                self._app = app
                self._ready.set()
                await self._leaving.wait()
        except Exception:  # whoever asks is told; everything else goes on
            traceback.print_exc(file=sys.stderr)
        finally:
            self._app = None
            self._ready.set()

    def leave(self) -> None:
        self._leaving.set()
        self._wanted.set()

    async def __call__(self, scope: doors.Scope, receive: doors.Receive, send: doors.Send) -> None:
        self._wanted.set()
        await self._ready.wait()
        if self._app is None:
            raise HTTPException(503, "MCP is not spoken here now.")
        await self._app(scope, receive, send)


def claim(app: App) -> filelock.BaseFileLock | None:
    """The right to serve a repository, held until it is released; None where another daemon has it."""
    app.repo.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = filelock.FileLock(app.repo.state / LOCK_FILE, mode=0o600, thread_local=False)
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        return None
    return lock


@contextmanager
def _secrets(app: App, port: int) -> Iterator[Tokens]:
    """The token and codes of this start, which end with it."""
    folder = make_folder(make_runtime_dir(app.dirs.runtime), port)
    try:
        yield Tokens(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def _healthz(request: Request) -> Response:
    """Whether anybody is there: all that is told to those who have no token."""
    return JSONResponse({"status": "ok"})


def _shown(page: Page) -> Callable[[Request], Awaitable[Response]]:
    headers = {"content-type": page.kind, "cache-control": page.caching}

    async def show(request: Request) -> Response:
        return Response(page.content, headers=headers)

    return show


async def _no_such(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return problem(error.status_code, error.detail, headers=error.headers)


async def _bug(request: Request, error: Exception) -> Response:
    return problem(500, "This is a bug in Orchard; see the daemon's log.", "orchard doctor")
