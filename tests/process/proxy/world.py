"""Servers, doors and clients for tests of the proxy: real sockets on this machine, names that a dict knows."""

import asyncio
import functools
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from orchard.process.proxy.allowed import Allowed, Reach
from orchard.process.proxy.doors import Door, Proxy
from orchard.process.proxy.refusals import Refusal
from orchard.process.proxy.routes import Route
from orchard.process.proxy.visits import Patience

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SOON = 10.0


class Names:
    """A resolver that knows a few names and keeps what it was asked; a name can answer differently each time."""

    def __init__(self, **known: str | Sequence[str]) -> None:
        self.known = {
            name.replace("_", "."): [found] if isinstance(found, str) else list(found) for name, found in known.items()
        }
        self.turns: dict[str, list[list[str]]] = {}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if self.turns.get(host):
            return self.turns[host].pop(0)
        if host not in self.known:
            raise OSError(-2, "Name or service not known")
        return self.known[host]


class World:
    """One door with what was refused at it."""

    def __init__(self, door: Door, proxy: Proxy, refused: list[Refusal]) -> None:
        self.door = door
        self.proxy = proxy
        self.refused = refused

    @property
    def reasons(self) -> list[tuple[str, str]]:
        return [(one.host, one.reason) for one in self.refused]

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.door.port)

    async def say(self, data: bytes, *, end: bool = True) -> bytes:
        """All that is answered to some bytes until the door closes; with `end`, we say that we are done."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            if end:
                writer.write_eof()
            async with asyncio.timeout(SOON):
                return await reader.read()
        finally:
            writer.close()

    async def get(self, url: str, *fields: str) -> bytes:
        host = url.split("/")[2]
        return await self.say(head(f"GET {url} HTTP/1.1", f"Host: {host}", "Connection: close", *fields))

    async def connect_to(self, authority: str, *fields: str) -> bytes:
        """What is answered to CONNECT; the connection is closed."""
        return await self.say(head(f"CONNECT {authority} HTTP/1.1", f"Host: {authority}", *fields))


@asynccontextmanager
async def world(
    names: Names | None = None,
    *,
    reach: Reach = "listed",
    listed: Sequence[str] = (),
    own: Sequence[str] = (),
    routes: Sequence[Route] = (),
    tls: ssl.SSLContext | None = None,
    token: bool = False,
    patience: Patience | None = None,
    of_a_job: int = 128,
    most: int | None = None,
) -> AsyncIterator[World]:
    proxy = Proxy(names or Names(), tls, patience=patience, of_a_job=of_a_job, most=most)
    allowed = Allowed.of(reach, tuple(listed), tuple(own))
    refused: list[Refusal] = []
    if token:
        door = Door.with_token(proxy, allowed, routes, refused=refused.append)
    else:
        listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        door = Door(proxy, listener, allowed, routes, refused=refused.append)
    door.open()
    try:
        yield World(door, proxy, refused)
    finally:
        await door.close()
        proxy.close()


@asynccontextmanager
async def server(
    talk: Talk, tls: ssl.SSLContext | None = None, *, place: tuple[str, int] = ("127.0.0.1", 0)
) -> AsyncIterator[int]:
    """A server for each connection of which `talk` speaks; its port."""

    talks: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.add(task)
        try:
            await talk(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            talks.discard(task)
            writer.close()

    serving = await asyncio.start_server(one, *place, ssl=tls)
    try:
        yield serving.sockets[0].getsockname()[1]
    finally:
        serving.close()
        for task in talks:
            task.cancel()
        await asyncio.sleep(0)


class Site:
    """A server that keeps the requests it gets, head and body, and answers each with the same bytes."""

    def __init__(self, answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi") -> None:
        self.answer = answer
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            got = await reader.readuntil(b"\r\n\r\n")
            self.heads.append(got)
            self.bodies.append(await body_of(got, reader))
            writer.write(self.answer)
            await writer.drain()

    def field(self, name: str) -> list[str]:
        """The values of a field in the last request."""
        rows = (line.partition(b":") for line in self.heads[-1].split(b"\r\n")[1:])
        return [value.strip().decode() for one, _, value in rows if one.decode().lower() == name]


async def body_of(got: bytes, reader: asyncio.StreamReader) -> bytes:
    lower = got.lower()
    if b"transfer-encoding: chunked" in lower:
        body = b""
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
        return body
    if b"content-length:" in lower:
        return await reader.readexactly(int(lower.split(b"content-length:")[1].split(b"\r\n")[0]))
    return b""


def head(*lines: str) -> bytes:
    return "\r\n".join((*lines, "", "")).encode("latin-1")


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


@functools.cache
def certificate(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A context for a server called `api.example` (and 127.0.0.1), and one for clients that trust it alone."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", "key.pem", "-out", "cert.pem", "-subj", "/CN=api.example",
         "-addext", "subjectAltName=DNS:api.example,IP:127.0.0.1"],
        cwd=folder, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return serving, ssl.create_default_context(cafile=str(folder / "cert.pem"))
