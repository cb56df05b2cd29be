"""HTTP on the wire: uvicorn, with the limits that it does not have by itself.

A client that is slow to send its request is cut off, so is one too many; and the server sleeps until something
happens, where uvicorn's own wakes ten times a second.
"""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakSet

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from orchard.engine.server.crowd import Few
from orchard.errors import OrchardError, SystemRefused, UsageError
from orchard.surfaces.http.daemon.door import CONNECTION, HEAD_BYTES, STRICT, App, Refusal
from orchard.surfaces.http.daemon.owners import owners_of
from orchard.surfaces.http.problems import document, json_bytes

REQUEST_SECONDS = 30.0
"""For the head and the body of a request to arrive."""
KEEP_ALIVE_SECONDS = 15
MOST_CONNECTIONS = 320
"""256 that follow events, and some that ask."""
GOODBYE_SECONDS = 1.0
"""For what is being answered when the server ends; then streams are cut."""
END_SECONDS = 5.0


FEW = 32
"""So many who have not shown the token are not looked at closer."""
OF_ANOTHER_USER = 64
"""Connections of one other user of this machine, without the token."""

SWEEP_SECONDS = 0.5
MOST_LOOKS = 20
"""So often it is asked whose a connection is: nobody on this machine has that of another machine."""

_NUMBERS = count()
_SWEPT: WeakSet[uvicorn.Config] = WeakSet()
"""Servers whose connections are about to be looked at."""


class Protocol(H11Protocol):
    """One connection, which has to say what it wants in time."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, {**app_state, CONNECTION: self._prove}, _loop)
        self.number = next(_NUMBERS)
        self.proven = False
        """Whether who is at the other end has shown the token."""
        self.owner: int | None = None
        """The user of this machine at the other end; None: not known (yet)."""
        self.looks = 0
        """How often it was asked for."""
        self._cutting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._is_one_too_many():
            transport.write(_last_words(Refusal(503, "Too many connections are open.", "Close some, or try later.")))
            transport.close()
            return
        self._cut_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cut_never()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._cutting is None:
            self._cut_later()
        super().data_received(data)
        if self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED):
            self._cut_never()  # the request has arrived as a whole; how long the answer takes is our business

    def _prove(self) -> None:
        self.proven = True

    def _is_one_too_many(self) -> bool:
        """Whether this connection has to go; where others have shown less and came before, the oldest of them goes."""
        strangers = self._strangers()
        if len(strangers) > FEW:
            self._sweep_later()
        if len(self.connections) <= MOST_CONNECTIONS:
            return False
        others = [one for one in strangers if one is not self]
        if others:
            min(others, key=lambda one: one.number).transport.abort()
        return not others

    def _strangers(self) -> "list[Protocol]":
        return [one for one in self.connections if isinstance(one, Protocol) and not one.proven]

    def _sweep_later(self) -> None:
        if self.config not in _SWEPT:
            _SWEPT.add(self.config)
            self.loop.call_later(SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """Cut what other users of this machine hold beyond their share; the kernel's table takes a while to read.

        That table is not read in one piece, so that a look may miss a few: who is not found is looked for again.
        """
        _SWEPT.discard(self.config)
        strangers = sorted(self._strangers(), key=lambda one: one.number)
        unknown = [one for one in strangers if one.owner is None and one.looks < MOST_LOOKS]
        owners = owners_of(one.client for one in unknown)
        for one in unknown:
            one.owner, one.looks = owners.get(one.client), one.looks + 1
        held: Counter[int] = Counter()
        for one in strangers:
            if one.owner is not None and one.owner != os.getuid():
                held[one.owner] += 1
                if held[one.owner] > OF_ANOTHER_USER:
                    one.transport.abort()
        if len(strangers) > FEW and any(one.owner is None and one.looks < MOST_LOOKS for one in unknown):
            self._sweep_later()

    def _cut_later(self) -> None:
        self._cutting = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _cut_never(self) -> None:
        if self._cutting is not None:
            self._cutting.cancel()
            self._cutting = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request at all, or one whose head is too long."""
        error = sys.exc_info()[1]
        status = error.error_status_hint if isinstance(error, h11.RemoteProtocolError) else 400
        said = f"The head of a request may have {HEAD_BYTES} bytes." if status == 431 else "This is no HTTP request."
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.write(_last_words(Refusal(status, said)))
        self.transport.close()


def _last_words(refusal: Refusal) -> bytes:
    said = document(refusal.status, refusal.detail, refusal.hint or None)
    body = json_bytes(said)
    headers = {
        b"content-type": b"application/problem+json", b"content-length": str(len(body)).encode(),
        b"connection": b"close", b"cache-control": b"no-store", **STRICT,
    }  # fmt: skip
    head = b"".join(name + b": " + value + b"\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {refusal.status} {said['title']}\r\n".encode() + head + b"\r\n" + body


class Server(uvicorn.Server):
    """The server, until `end` is called."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._end = asyncio.Event()
        self.listens = asyncio.Event()

    def end(self) -> None:
        self.should_exit = True
        self._end.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are heard by the daemon, which has more to end than this."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.listens.set()

    async def main_loop(self) -> None:
        await self._end.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close what is idle, wait a moment for what is being answered, then cut what would never end."""
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await self._answered(GOODBYE_SECONDS)
        for connection in list(self.server_state.connections):
            # Whoever sends events hears that its client has gone, and ends by itself.
            connection.transport.abort()
        await self._answered(END_SECONDS)
        for task in self.server_state.tasks:
            task.cancel()
        await self._answered(END_SECONDS)

    async def _answered(self, seconds: float) -> None:
        if self.server_state.tasks:
            await asyncio.wait(set(self.server_state.tasks), timeout=seconds)


def make_server(app: App, tls: tuple[Path, Path] | None) -> Server:
    """A server for one application; where it listens is said when it runs."""
    _log_little()
    config = uvicorn.Config(
        app,
        http=Protocol,
        ws="none",
        loop="none",
        interface="asgi3",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        h11_max_incomplete_event_size=HEAD_BYTES,
        ssl_certfile=tls[0] if tls else None,
        ssl_keyfile=tls[1] if tls else None,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        hint = "Both files are PEM, the key has no password, and belongs to the certificate."
        raise UsageError(f"The certificate and its key cannot be used: {error}.", hint) from error
    return Server(config)


def listen_at(host: str, port: int) -> socket.socket:
    """A socket that listens; the port may be 0, which means any that is free."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, number, _, place = found[0]
        listener = socket.socket(family, kind, number)
    except OSError as error:
        raise UsageError(
            f"There is no address '{host}' here: {error.strerror}.", "For example: --host 127.0.0.1"
        ) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(128)
    except PermissionError as error:
        listener.close()
        raise OrchardError(f"Port {port} may not be used by you.", "Choose one above 1023, or none.") from error
    except OSError as error:
        listener.close()
        if error.errno is not None and port:
            hint = "Choose another port, or none: then any that is free is used."
            raise OrchardError(f"Port {port} of {host} cannot be used: {error.strerror}.", hint) from error
        raise SystemRefused(error) from error
    return listener


def _log_little() -> None:
    """Errors of ours go to stderr; what clients do is not written down, and never an address with a code in it."""
    log = logging.getLogger("uvicorn.error")
    log.setLevel(logging.ERROR)
    if not log.handlers:
        handler = logging.StreamHandler()
        handler.addFilter(Few())
        log.addHandler(handler)
        log.propagate = False
