"""Doors under pressure: floods, slow and huge heads, receivers that do not read, and the end of a job."""

import asyncio
import contextlib
import os
import resource
import socket
import tracemalloc
from collections.abc import Callable

import pytest

from orchard.process.proxy.doors import Door
from orchard.process.proxy.refusals import MOST_KINDS, Refusal, Refusals
from orchard.process.proxy.visits import Patience
from orchard.process.proxy.wires import HELD_BYTES
from tests.process.proxy.world import SOON, Site, World, head, server, status, world

pytestmark = pytest.mark.anyio


def is_closed(it: World) -> bool:
    """Whether the door has no connection any more."""
    return not it.door._visits


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not become so")


async def test_when_a_job_ends_all_of_its_connections_are_cut() -> None:
    ended = 0

    async def counts(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal ended
        try:
            await reader.read()
        finally:
            ended += 1

    async with server(counts) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        tunnels = [await it.connect() for _ in range(5)]
        for reader, writer in tunnels:
            writer.write(head(f"CONNECT 127.0.0.1:{port} HTTP/1.1", "Host: x"))
            await reader.readuntil(b"\r\n\r\n")
        waiting = await it.connect()
        half = await it.connect()
        half[1].write(b"GET http://127")
        asking = await it.connect()
        asking[1].write(head(f"GET http://127.0.0.1:{port}/ HTTP/1.1", "Host: x"))
        await asyncio.sleep(0.05)

        await it.door.close()

        for reader, writer in (*tunnels, waiting, half, asking):
            async with asyncio.timeout(SOON):
                with contextlib.suppress(ConnectionError):
                    assert await reader.read() == b""
            writer.close()
        await until(lambda: ended == 6)
        with pytest.raises(OSError):
            await it.connect()


async def test_connections_beyond_the_number_of_a_job_wait_and_take_nothing_from_other_jobs() -> None:
    site = Site()
    async with server(site) as port, world(own=[f"127.0.0.1:{port}"], of_a_job=20) as it:
        crowd = []
        for _ in range(400):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", it.door.port))
            crowd.append(one)
        await asyncio.sleep(0.2)
        assert len(it.door._visits) == 20
        for one in crowd:
            one.close()
        assert status(await it.get(f"http://127.0.0.1:{port}/")) == 200
        await until(lambda: is_closed(it))
        assert it.proxy._taken == 0


async def test_the_places_of_all_jobs_together_are_numbered_and_a_free_one_is_found_again() -> None:
    site = Site()
    async with server(site) as port, world(own=[f"127.0.0.1:{port}"], most=3) as it:
        crowd = [await it.connect() for _ in range(3)]
        other = Door(it.proxy, socket.create_server(("127.0.0.1", 0)), it.door._terms.allowed)
        other.open()
        await until(lambda: it.proxy._taken == 3)
        second = World(other, it.proxy, [])
        asked = asyncio.create_task(second.get(f"http://127.0.0.1:{port}/"))
        await asyncio.sleep(0.1)
        assert not asked.done()
        crowd[0][1].close()
        assert status(await asked) == 200
        await other.close()
        for _, writer in crowd:
            writer.close()


async def test_a_door_that_runs_out_of_descriptors_rests_and_goes_on() -> None:
    site = Site()
    async with server(site) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        assert status(await it.get(f"http://127.0.0.1:{port}/")) == 200
        await until(lambda: is_closed(it))
        await asyncio.sleep(0.2)  # the server's end of it is closed as well
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        client = socket.socket()
        client.setblocking(False)
        filler: list[int] = []
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (client.fileno() + 1, hard))
            with contextlib.suppress(OSError):
                while True:
                    filler.append(os.dup(0))
            client.connect_ex(("127.0.0.1", it.door.port))
            await asyncio.sleep(0.1)
            assert len(it.door._visits) == 0
        finally:
            for one in filler:
                os.close(one)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        await until(lambda: len(it.door._visits) == 1)
        client.close()


async def test_slow_and_huge_heads_end_with_an_answer() -> None:
    async with world(patience=Patience(head=0.3, idle=0.6, farewell=0.1)) as it:
        assert status(await it.say(b"GET http://a.example/ HTTP/1.1\r\nX: ", end=False)) == 408
        assert await it.say(b"", end=False) == b""
        reader, writer = await it.connect()

        async def drip() -> None:
            for letter in b"GET http://a.example/ HTTP/1.1":
                writer.write(bytes([letter]))
                await asyncio.sleep(0.05)

        dripping = asyncio.create_task(drip())
        async with asyncio.timeout(SOON):
            assert status(await reader.read()) == 408
        dripping.cancel()
        writer.close()
        for huge in (
            b"GET /" + b"a" * 70_000,
            b"GET http://a.example/ HTTP/1.1\r\n" + b"X: y\r\n" * 300 + b"\r\n",
            b"GET http://a.example/ HTTP/1.1\r\nX: " + b"a" * 66_000 + b"\r\n\r\n",
        ):
            assert status(await it.say(huge, end=False)) == 431
        assert it.refused == []


async def test_a_receiver_that_does_not_read_makes_the_sender_wait() -> None:
    """In both directions of a tunnel, and with a body of plain HTTP."""
    sent = 0

    async def pours(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        if (await reader.read(10)).startswith(b"GET"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            sent += 65536
            await writer.drain()

    async with server(pours) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        for first in (
            head(f"CONNECT 127.0.0.1:{port} HTTP/1.1", "Host: x") + b"pour",
            head(f"GET http://127.0.0.1:{port}/ HTTP/1.1", "Host: x"),
        ):
            sent = 0
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", it.door.port))
            await loop.sock_sendall(client, first)
            tracemalloc.start()
            before, much = -1, 0
            while before != sent:
                before = sent
                await asyncio.sleep(0.2)
            _, much = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert sent > 0
            assert much < 16 * HELD_BYTES
            client.close()
            await until(lambda: is_closed(it))


async def test_a_job_that_sends_to_an_endpoint_which_does_not_read_waits() -> None:
    async def deaf(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(60)

    async with server(deaf) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        for first in (
            head(f"CONNECT 127.0.0.1:{port} HTTP/1.1", "Host: x"),
            head(f"POST http://127.0.0.1:{port}/ HTTP/1.1", "Host: x", "Content-Length: 999999999"),
            head(f"POST http://127.0.0.1:{port}/ HTTP/1.1", "Host: x", "Transfer-Encoding: chunked") + b"fffffff\r\n",
        ):
            _, writer = await it.connect()
            writer.write(first)
            writer.transport.set_write_buffer_limits(high=1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.5):
                    for _ in range(2000):  # 128 MB
                        writer.write(b"x" * 65536)
                        await writer.drain()
            writer.transport.abort()


async def test_a_flood_of_refusals_is_told_a_few_times_and_counted() -> None:
    told: list[Refusal] = []
    all_of_them = Refusals(told.append)
    for number in range(1000):
        all_of_them.add(Refusal("evil.example", 443, "not-listed"))
        all_of_them.add(Refusal(f"h{number}.example", 443, "not-listed"))

    assert [one.count for one in told if one.host == "evil.example"] == [1, 10, 100, 1000]
    assert len(told) == 4 + (MOST_KINDS - 1) + 3
    kept = all_of_them.all()
    assert len(kept) == MOST_KINDS + 1
    assert (kept[0].host, kept[0].count) == ("evil.example", 1000)
    assert kept[-1] == Refusal("*", 0, "too-many", count=1000 - (MOST_KINDS - 1))


async def test_what_a_job_is_told_leads_to_its_door() -> None:
    async with world() as it:
        env = it.door.environment()
        assert env["HTTP_PROXY"] == env["https_proxy"] == env["ALL_PROXY"] == f"http://127.0.0.1:{it.door.port}"
        assert "127.0.0.1" in env["NO_PROXY"].split(",")
    async with world(token=True) as it:
        assert it.door.environment()["HTTPS_PROXY"] == f"http://job:{it.door.token}@127.0.0.1:{it.door.port}"
        assert it.door.base_url("x") == f"http://127.0.0.1:{it.door.port}/_key/{it.door.token}/x"
