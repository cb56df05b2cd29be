"""The door of one job: a listener that only this job reaches, and everything that came in through it.

Connections beyond a number are not refused but left waiting in the kernel, so that a job which opens thousands of them
costs the engine nothing. When the job ends, all of its connections are cut.
"""

import asyncio
import resource
import secrets
import socket
import ssl
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Self

from orchard.process.proxy.allowed import Allowed
from orchard.process.proxy.dialer import Dialer, Resolve
from orchard.process.proxy.refusals import Refusal, Refusals
from orchard.process.proxy.routes import PREFIX, Route
from orchard.process.proxy.visits import Patience, Terms, Visit
from orchard.process.proxy.wires import Wire

OF_A_JOB = 128
"""Connections that one job may have at a time; each can hold another one to the outside."""
AT_ONCE = 16
"""So many are accepted before the loop sees to other things."""
REST_SECONDS = 0.5
"""How long no more are accepted when descriptors have run out."""


class Proxy:
    """What the doors of all jobs share: who calls the outside, how endpoints prove themselves, a number of places."""

    def __init__(
        self,
        resolve: Resolve | None = None,
        tls: ssl.SSLContext | None = None,
        *,
        patience: Patience | None = None,
        most: int | None = None,
        of_a_job: int = OF_A_JOB,
    ) -> None:
        self.dialer = Dialer(resolve)
        self.patience = patience or Patience()
        self.of_a_job = of_a_job
        self._tls = tls
        self._most = most or max(64, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)
        self._taken = 0
        self._waiting: list[Door] = []

    @property
    def tls(self) -> ssl.SSLContext:
        """Made when it is first needed: reading all authorities takes a while."""
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    @cached_property
    def untrusting(self) -> ssl.SSLContext:
        """For doors without a route that needs one: it knows no authority, so nothing could prove itself to it."""
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def close(self) -> None:
        """Once all doors are closed."""
        self.dialer.close()

    def takes_place(self, door: "Door") -> bool:
        """Take one of the places of all jobs; where none is free, the door is told when one is."""
        if self._taken >= self._most:
            if door not in self._waiting:
                self._waiting.append(door)
            return False
        self._taken += 1
        return True

    def gives_place(self) -> None:
        self._taken -= 1
        waiting, self._waiting = self._waiting, []
        for door in waiting:
            door.look()


class Door:
    """Where one job gets out. It is open from `open` to `close`, and owns its listener."""

    def __init__(
        self,
        proxy: Proxy,
        listener: socket.socket,
        allowed: Allowed,
        routes: Sequence[Route] = (),
        *,
        refused: Callable[[Refusal], None] = lambda _: None,
        token: str | None = None,
        keeper: int | None = None,
    ) -> None:
        listener.setblocking(False)
        self.refusals = Refusals(refused)
        self.port: int = listener.getsockname()[1]
        self.token = token
        self._proxy = proxy
        self._listener = listener
        self._visits: dict[asyncio.Task[None], Wire | socket.socket] = {}
        """What each is about: the bare connection until the loop has it."""
        self._listening = False
        self._closed = False
        named = {route.name: route for route in routes}
        needs_tls = any(route.secure for route in routes)
        tls = proxy.tls if needs_tls else proxy.untrusting
        self._terms = Terms(
            allowed, named, proxy.dialer, tls, self.refusals, self.port, token, proxy.patience, keeper
        )  # fmt: skip

    @classmethod
    def with_token(
        cls,
        proxy: Proxy,
        allowed: Allowed,
        routes: Sequence[Route] = (),
        *,
        refused: Callable[[Refusal], None] = lambda _: None,
    ) -> Self:
        """A door on a port of this machine, which others reach too: it asks for a token that only this job is given."""
        listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        return cls(proxy, listener, allowed, routes, refused=refused, token=secrets.token_urlsafe(24))

    # ------------------------------------------------------------------------------ what the job is told

    @property
    def url(self) -> str:
        """The proxy, as variables of a job name it."""
        user = f"job:{self.token}@" if self.token is not None else ""
        return f"http://{user}127.0.0.1:{self.port}"

    def base_url(self, route: str) -> str:
        """Where a program of the job finds the endpoint of a route."""
        shown = f"{self.token}/" if self.token is not None else ""
        return f"http://127.0.0.1:{self.port}{PREFIX}{shown}{route}"

    def environment(self) -> dict[str, str]:
        """The variables by which programs find the proxy; the job's own loopback is reached without it."""
        names = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
        own = "127.0.0.1,localhost,::1"
        found = {**dict.fromkeys(names, self.url), "NO_PROXY": own}
        return {**found, **{name.lower(): value for name, value in found.items()}}

    # ------------------------------------------------------------------------------ coming and going

    def open(self) -> None:
        self.look()

    def look(self) -> None:
        """Accept again, if the door is open and there is a place."""
        full = len(self._visits) >= self._proxy.of_a_job
        if not (self._closed or self._listening or full):
            self._listening = True
            asyncio.get_running_loop().add_reader(self._listener.fileno(), self._accept)

    def _stop_looking(self) -> None:
        if self._listening:
            self._listening = False
            asyncio.get_running_loop().remove_reader(self._listener.fileno())

    def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(AT_ONCE):
            if len(self._visits) >= self._proxy.of_a_job or not self._proxy.takes_place(self):
                self._stop_looking()
                return
            try:
                connection, _ = self._listener.accept()
            except OSError as error:
                self._proxy.gives_place()
                if not isinstance(error, BlockingIOError | InterruptedError | ConnectionError):
                    self._stop_looking()
                    loop.call_later(REST_SECONDS, self.look)
                return
            connection.setblocking(False)
            visit = loop.create_task(self._visit(connection))
            self._visits[visit] = connection
            visit.add_done_callback(self._left)

    async def _visit(self, connection: socket.socket) -> None:
        wire = Wire()
        try:
            await asyncio.get_running_loop().connect_accepted_socket(lambda: wire, connection)
        except OSError:
            return
        task = asyncio.current_task()
        if task is not None and not wire.lost:
            wire.user = task
            self._visits[task] = wire
            await Visit(wire, self._terms).serve()

    def _left(self, visit: "asyncio.Task[None]") -> None:
        end = self._visits.pop(visit)
        if isinstance(end, Wire):
            end.user = None
            end.cut()
        else:
            end.close()  # also where the visit was cancelled before it began
        if not visit.cancelled() and (error := visit.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler({"message": "a visit ended in a bug", "exception": error})
        self._proxy.gives_place()
        self.look()

    async def close(self) -> None:
        """Cut every connection, and listen no more."""
        self._stop_looking()
        self._closed = True
        self._listener.close()
        visits = list(self._visits)
        for visit in visits:
            visit.cancel()
        if visits:
            await asyncio.wait(visits)
            await asyncio.sleep(0)  # the loop closes what was cut in its next round
