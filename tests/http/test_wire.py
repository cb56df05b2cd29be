"""Clients that are slow, too many or stalled; a server that ends. Real sockets, with shorter times."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from orchard.errors import OrchardError, UsageError
from orchard.process.background import beside
from orchard.surfaces.http.daemon import wire
from orchard.surfaces.http.daemon.door import Message, Receive, Scope, Send

pytestmark = pytest.mark.anyio

LONGEST = 20.0
Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]
OPEN: list[asyncio.StreamWriter] = []
"""What the test has opened and not closed yet."""


class Behind:
    """What is behind the server: an application that says hello, or streams until its client is gone."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.gone = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/stream":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"first", "more_body": True})
            while (await receive())["type"] != "http.disconnect":
                pass
            self.gone.set()
            return
        message: Message = {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                self.gone.set()
                return
            self.begun.set()
        headers = [(b"content-length", b"5")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def serving(behind: Behind) -> AsyncIterator[tuple[wire.Server, int]]:
    listener = wire.listen_at("127.0.0.1", 0)
    server = wire.make_server(behind, None)
    async with (
        asyncio.timeout(LONGEST),
        beside(server.serve([listener]), leave=server.end, patience=LONGEST),
    ):
        await server.listens.wait()
        try:
            yield server, listener.getsockname()[1]
        finally:
            while OPEN:
                writer = OPEN.pop()
                writer.close()
                with suppress(ConnectionError):
                    await writer.wait_closed()


async def call(port: int, *parts: bytes) -> Line:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    OPEN.append(writer)
    for part in parts:
        writer.write(part)
    await writer.drain()
    return reader, writer


async def rest(line: Line) -> bytes:
    """All that still comes until the other side hangs up."""
    try:
        return await line[0].read()
    except ConnectionResetError:
        return b""


HELLO = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "said",
    [
        b"", b"\r\n", b"GET / HT", b"GET / HTTP/1.1\r\nHost: x\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n12345\r\n",
        HELLO + b"GET / HT",
    ],
)  # fmt: skip
async def test_who_does_not_finish_a_request_is_cut_off(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "REQUEST_SECONDS", 0.2)
    monkeypatch.setattr(wire, "KEEP_ALIVE_SECONDS", 1)
    async with serving(Behind()) as (server, port):
        line = await call(port, said)

        heard = await rest(line)

        assert heard == b"" or heard.startswith(b"HTTP/1.1 400 ") or (HELLO in said and heard.endswith(b"hello"))
        assert not server.server_state.connections


async def test_who_sends_a_byte_now_and_then_is_cut_off_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "REQUEST_SECONDS", 0.3)
    async with serving(Behind()) as (_, port):
        reader, writer = await call(port, b"GET / HTTP/1.1\r\n")

        async def drip() -> None:
            while True:
                writer.write(b"X: y\r\n")
                await asyncio.sleep(0.02)

        async with beside(drip()):
            try:
                heard = await reader.read()
            except ConnectionResetError:
                heard = b""

        assert heard == b""


async def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "REQUEST_SECONDS", 0.1)
    behind = Behind()
    async with serving(behind) as (_, port):
        reader, writer = await call(port, b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        await reader.readuntil(b"first")

        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await behind.gone.wait()

        writer.close()
        await behind.gone.wait()


async def test_a_connection_is_used_again_and_its_clock_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "REQUEST_SECONDS", 0.3)
    async with serving(Behind()) as (_, port):
        reader, writer = await call(port)
        for _ in range(4):
            writer.write(HELLO)
            await reader.readuntil(b"hello")
            await asyncio.sleep(0.15)  # the time that a clock which is never stopped would need

        writer.write(HELLO)

        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")


async def test_one_connection_too_many_is_told_so_where_all_others_have_shown_the_token(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wire, "MOST_CONNECTIONS", 3)
    async with serving(Behind()) as (server, port):
        first = []
        for _ in range(3):
            first.append(await call(port, HELLO))
            await first[-1][0].readuntil(b"hello")
        for one in server.server_state.connections:
            assert isinstance(one, wire.Protocol)
            one.proven = True

        refused = await rest(await call(port))
        first.pop()[1].close()
        async with asyncio.timeout(LONGEST):
            while len(server.server_state.connections) > 2:  # noqa: ASYNC110 (the server tells nobody)
                await asyncio.sleep(0.01)
        reader, _ = await call(port, HELLO)

        assert refused.startswith(b"HTTP/1.1 503 ") and b"problem+json" in refused
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 ")


async def test_the_end_lets_answers_finish_and_cuts_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "GOODBYE_SECONDS", 0.2)
    behind = Behind()
    async with serving(behind) as (server, port):
        stream = await call(port, b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
        await stream[0].readuntil(b"first")
        idle = await call(port, HELLO)
        await idle[0].readuntil(b"hello")
        behind.begun.clear()
        late = await call(port, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n1")
        await behind.begun.wait()

        server.end()
        late[1].write(b"2")

        assert (await rest(late)).endswith(b"hello")
        assert await rest(idle) == b""
        await rest(stream)
        await behind.gone.wait()
    with pytest.raises(ConnectionRefusedError):
        await call(port)


def test_a_port_that_is_taken_is_an_error_for_people() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OrchardError, match="cannot be used"):
        wire.listen_at("127.0.0.1", taken.getsockname()[1])


def test_an_address_that_is_not_there_is_bad_usage() -> None:
    with pytest.raises(UsageError, match="no address"):
        wire.listen_at("no-such-host.invalid", 0)
