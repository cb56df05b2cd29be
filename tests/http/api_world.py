"""The API over real HTTP, behind the real door, with a real engine: all of it in a thread beside the test."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
from starlette.applications import Starlette

from orchard.app import App, open_app
from orchard.config.user_dirs import make_runtime_dir, user_dirs
from orchard.process.background import beside
from orchard.surfaces.http.api import routes
from orchard.surfaces.http.daemon.door import Door, Traffic
from orchard.surfaces.http.daemon.repos import Repos
from orchard.surfaces.http.daemon.tokens import Tokens, make_folder
from orchard.surfaces.http.daemon.wire import listen_at, make_server
from orchard.surfaces.http.streams import Streams
from orchard.surfaces.next_steps import in_commands
from orchard.surfaces.served import Served
from tests.http.api_held import held, operation_of

SECONDS = 30.0
Json = dict[str, Any]


@dataclass
class World:
    """What a test needs of a daemon, without the daemon's process."""

    apps: list[App]
    url: str = ""
    token: str = ""
    loop: asyncio.AbstractEventLoop | None = None
    served: list[Served] = field(default_factory=list)
    streams: Streams = field(default_factory=Streams)
    client: httpx2.Client = field(default_factory=httpx2.Client)
    asked: set[str] = field(default_factory=set)
    """The operations that did what they were asked for."""

    def ask(self, method: str, path: str, body: Any = None, **options: Any) -> httpx2.Response:
        """One request; a body that is not bytes is sent as JSON."""
        headers = {"Authorization": f"Bearer {self.token}", **options.pop("headers", {})}
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
            options["content"] = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer = self.client.request(method, f"{self.url}{path}", headers=headers, **options)
        operation = held(answer)
        self.asked |= {operation.name} if operation is not None else set()
        return answer

    def get(self, path: str, code: int = 200, **params: Any) -> Any:
        """What a question is answered with."""
        return self._told(self.ask("GET", path, params=params or None), code)

    def post(self, path: str, body: Any = None, code: int = 200, **params: Any) -> Any:
        """What became of a request."""
        return self._told(self.ask("POST", path, body, params=params or None), code)

    def _told(self, answer: httpx2.Response, status: int) -> Any:
        assert answer.status_code == status, (answer.status_code, answer.text[:2000])
        kind = answer.headers["content-type"]
        return answer.json() if "json" in kind else answer.text

    def submit(self, jobs: list[Json], status: int = 201, **fields: Any) -> str:
        """A new plan, by its id."""
        made = self.post("/plans", {"name": "Small plan", "jobs": jobs, **fields}, status)
        return str(made["plan"])

    def until(self, plan: str, *statuses: str) -> Json:
        """The plan's document once it shows one of these."""
        found: Json = {}

        def reached() -> bool:
            nonlocal found
            found = self.get(f"/plans/{plan}")
            return found["plan"]["status"] in statuses

        wait_for(reached)
        return found

    def stream(self, path: str, **params: Any) -> Iterator[Json]:
        """The events of a stream, each as its id, its name and its data, until it ends."""
        headers = {"Authorization": f"Bearer {self.token}", **params.pop("headers", {})}
        with self.client.stream("GET", f"{self.url}{path}", params=params, headers=headers) as answer:
            assert answer.status_code == 200, answer.read()
            operation = operation_of(answer)
            self.asked |= {operation.name} if operation is not None else set()
            yield from events_in(answer.iter_lines())


def events_in(lines: Iterator[str]) -> Iterator[Json]:
    """Lines of a stream as events; comments and frames without data are no events."""
    found: Json = {}
    for line in lines:
        if not line:
            if "data" in found:
                yield {**found, "data": json.loads(found["data"])}
            found = {}
        elif not line.startswith(":"):
            name, _, value = line.partition(": ")
            found[name] = value


def wait_for(condition: Callable[[], bool], longest: float = SECONDS) -> None:
    """Wait for something that happens in the other thread, or in a program."""
    deadline = time.monotonic() + longest
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def job_path(plan: str, job: str) -> str:
    """Where a job is: the `/` in its id is part of one name."""
    return f"/plans/{plan}/jobs/{quote(job, safe='')}"


@contextmanager
def world(*folders: Path, work: bool = True, streams: Streams | None = None) -> Iterator[World]:
    """Serve repositories for the time of the block."""
    made = World([open_app(folder, in_commands) for folder in folders], streams=streams or Streams())
    ready, leave = threading.Event(), threading.Event()
    failed: list[BaseException] = []

    def live() -> None:
        try:
            asyncio.run(_live(made, ready, leave, work))
        except BaseException as error:  # told to the test below
            failed.append(error)
        finally:
            ready.set()

    thread = threading.Thread(target=live, name="world")
    thread.start()
    try:
        assert ready.wait(SECONDS)
        if not failed:
            made.client.timeout = SECONDS
            yield made
    finally:
        made.client.close()
        leave.set()
        thread.join(SECONDS)
    if failed:
        raise failed[0]
    assert not thread.is_alive()


async def _live(made: World, ready: threading.Event, leave: threading.Event, work: bool) -> None:
    async with AsyncExitStack() as stack:
        for app in made.apps:
            session = await stack.enter_async_context(app.session(work=work))
            served = Served(app, session)
            stack.callback(served.close)
            await stack.enter_async_context(served.following())
            made.served.append(served)
        listener = stack.enter_context(listen_at("127.0.0.1", 0))
        port = int(listener.getsockname()[1])
        tokens = Tokens(make_folder(make_runtime_dir(user_dirs().runtime), port))
        application = Starlette(routes=routes(Repos(made.served), made.streams))
        door = Door(application, tokens, {"127.0.0.1"}, Traffic(), "http", port)
        server = make_server(door, None)
        await stack.enter_async_context(beside(server.serve([listener]), leave=server.end, patience=SECONDS))
        await server.listens.wait()
        made.url, made.token = f"http://127.0.0.1:{port}/api/v1", tokens.file.read_text()
        made.loop = asyncio.get_running_loop()
        ready.set()
        await asyncio.to_thread(leave.wait)
        if not work:
            return
        for served in made.served:
            assert served.session is not None
            await served.session.interrupt()
