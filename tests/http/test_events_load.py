"""Many who listen to one daemon, some of them stalled, while it records a hundred events each second."""

import asyncio
import json
import random
import re
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.acceptance.program import Desk, desks
from tests.http.daemon import Daemon, served

CLIENTS, STALLED = 200, 20
PER_SECOND = 100
WRITERS = 4
LONGEST = 120.0
FRAME = re.compile(rb"id: (\d+)\nevent: ")


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    for one in desks(tmp_path):
        yield one
        one("stop", "--now", "--all")


@dataclass
class Listener:
    """A client that holds every number against the one before it, and goes on where it was when it comes back."""

    daemon: Daemon
    token: str
    chance: random.Random
    seen: int
    stalled: bool = False
    breaks: int = 0
    came: int = 0
    wrong: list[str] = field(default_factory=list)

    async def listen(self, until: asyncio.Future[int]) -> None:
        """Listen, and break off now and then, until everything was heard."""
        while not (until.done() and self.seen >= until.result()):
            reader, writer = await self._open()
            try:
                await self._hear(reader, until)
            finally:
                writer.close()
            self.breaks += 1

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        connection = socket.socket()
        if self.stalled:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", self.daemon.port))
        reader, writer = await asyncio.open_connection(sock=connection, limit=1 << 16)
        head = (
            f"GET /api/v1/events HTTP/1.1\r\nHost: 127.0.0.1:{self.daemon.port}\r\n"
            f"Authorization: Bearer {self.token}\r\nLast-Event-ID: {self.seen}\r\n\r\n"
        )
        writer.write(head.encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        return reader, writer

    async def _hear(self, reader: asyncio.StreamReader, until: asyncio.Future[int]) -> None:
        """Whole frames only: one that was cut comes again."""
        if self.stalled and not until.done():
            await asyncio.wait([until])  # it takes nothing until all is over
        leave = self.came + self.chance.randint(200, 2000)
        rest = b""
        while self.stalled or self.came < leave or until.done():
            try:
                async with asyncio.timeout(0.5 if until.done() else 5.0):
                    size = int(await reader.readline() or b"0", 16)
                    data = await reader.readexactly(size + 2)
            except (TimeoutError, asyncio.IncompleteReadError, ConnectionError):
                return
            rest += data[:-2]
            whole, end, rest = rest.rpartition(b"\n\n")
            self._note([int(number) for number in FRAME.findall(whole + end)])
            if until.done() and self.seen >= until.result():
                return

    def _note(self, numbers: list[int]) -> None:
        for number in numbers:
            if number != self.seen + 1 and len(self.wrong) < 5:
                self.wrong.append(f"{number} after {self.seen}")
            self.seen = number
            self.came += 1


class Writer:
    """Somebody who changes a plan over and over: each change is an event."""

    def __init__(self, daemon: Daemon, token: str) -> None:
        self._daemon, self._token = daemon, token

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._daemon.port)
        try:
            return await self.on(reader, writer, method, path, body)
        finally:
            writer.close()

    async def on(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str, path: str, body: Any
    ) -> Any:
        data = json.dumps(body).encode() if body is not None else b""
        head = (
            f"{method} /api/v1{path} HTTP/1.1\r\nHost: 127.0.0.1:{self._daemon.port}\r\n"
            f"Authorization: Bearer {self._token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\n\r\n"
        )
        writer.write(head.encode() + data)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", answer.lower())
        assert length is not None and answer.startswith((b"HTTP/1.1 200", b"HTTP/1.1 201")), answer
        return json.loads(await reader.readexactly(int(length[1])))

    async def change(self, plan: str, seconds: float, each: float) -> int:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._daemon.port)
        made, begun = 0, time.monotonic()
        while time.monotonic() < begun + seconds:
            await self.on(reader, writer, "PATCH", f"/plans/{plan}", {"max_parallel": made % 7})
            made += 1
            await asyncio.sleep(max(0.0, begun + made * each - time.monotonic()))
        writer.close()
        return made


async def crowd(daemon: Daemon, seconds: float) -> tuple[list[Listener], int]:
    """Let everybody listen while events are recorded for so long, and until all have heard them."""
    token = daemon.token
    talk = Writer(daemon, token)
    body = {"name": "Changed", "jobs": [{"id": "a", "work": "true"}], "start_paused": True}
    plan = (await talk.ask("POST", "/plans", body))["plan"]
    begun = (await talk.ask("GET", "/repos"))["repos"][0]["newest"]
    chance = random.Random(5)
    listeners = [
        Listener(daemon, token, random.Random(chance.random()), begun, stalled=number < STALLED)
        for number in range(CLIENTS)
    ]
    over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    async with asyncio.timeout(seconds + LONGEST), asyncio.TaskGroup() as tasks:
        for one in listeners:
            tasks.create_task(one.listen(over))
        writers = [tasks.create_task(talk.change(plan, seconds, WRITERS / PER_SECOND)) for _ in range(WRITERS)]
        made = sum([await one for one in writers])
        over.set_result((await talk.ask("GET", "/repos"))["repos"][0]["newest"])
    return listeners, made


def heard_all(desk: Desk, seconds: float) -> tuple[list[Listener], int]:
    with served(desk) as daemon:
        before = daemon.process.memory_info().rss
        listeners, made = asyncio.run(crowd(daemon, seconds))

        assert not [one.wrong for one in listeners if one.wrong]
        assert {one.seen for one in listeners} == {listeners[0].seen}
        assert all(one.came >= made for one in listeners)
        grown = daemon.process.memory_info().rss - before
        assert grown < 150 * 1024 * 1024, grown
        plan = desk.plan("name: Unharmed\njobs: [{id: a, work: 'echo a > a.txt'}]")
        assert desk("run", plan).code == 0
        return listeners, made


@pytest.mark.slow
def test_two_hundred_clients_hear_every_event_once_for_some_seconds(desk: Desk) -> None:
    listeners, made = heard_all(desk, 4.0)

    assert made > 50
    assert sum(one.breaks for one in listeners) >= CLIENTS


@pytest.mark.slow
def test_two_hundred_clients_hear_every_event_once_for_a_minute(desk: Desk) -> None:
    listeners, made = heard_all(desk, 60.0)

    assert made > 3000
    assert sum(one.breaks for one in listeners) > CLIENTS
