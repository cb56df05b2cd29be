"""Thousands of broken frames on every wire: no crash, no hang, no growth, and the next good question is answered."""

import http.client
import json
import os
import random
import socket
import time
from collections.abc import Callable, Iterator
from itertools import islice

import psutil
import pytest

from tests.acceptance.program import Desk
from tests.http.daemon import Daemon, served
from tests.mcp.hostile_frames import Frames
from tests.mcp.wires import HELLO, LEGACY, META, MODERN, Talk, talk

BLOCK = 25
"""Frames between two good questions."""
GROWTH = 48 * 1024 * 1024
FEW = [pytest.param(700, id="700"), pytest.param(10_000, id="10000", marks=pytest.mark.slow)]

PING = {"jsonrpc": "2.0", "method": "tools/call", "params": {"_meta": META, "name": "list_plans", "arguments": {}}}


def longest() -> float:
    """Seconds after which an answer is a hang: two, and more only where others keep the machine busy."""
    return max(2.0, 2.0 * os.getloadavg()[0] / (os.cpu_count() or 1))


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    desk = Desk(tmp_path_factory.mktemp("fuzzed"))
    try:
        with served(desk) as daemon:
            yield daemon
    finally:
        desk.close()


class Memory:
    """Whether a process grows, once it has warmed up."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._warm: int | None = None

    def look(self, share: float) -> None:
        used = self._process.memory_info().rss
        if share < 0.3:
            self._warm = used
        assert self._warm is None or used - self._warm < GROWTH, f"{self._process} grew by {used - self._warm} bytes"


def drive(frames: Frames, count: int, send: Callable[[bytes], None], check: Callable[[int], None]) -> None:
    """Send so many frames, with a good question after every few of them."""
    for number, frame in enumerate(islice(frames, count), 1):
        send(frame)
        if number % BLOCK == 0:
            check(number)


@pytest.mark.parametrize("count", FEW)
@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_broken_frames_on_stdio_do_no_harm(daemon: Daemon, era: str, count: int) -> None:
    with talk(daemon.desk) as host:
        if era == "legacy":
            host.send(id="hello", method="initialize", params=HELLO)
            host.result("hello")
            host.send(method="notifications/initialized")
        _answered(host, "first", era, 60.0)
        memories = [Memory(host.process.pid), Memory(daemon.said["pid"])]

        def check(number: int) -> None:
            _answered(host, f"good-{number}", era)
            for memory in memories:
                memory.look(number / count)

        drive(Frames(11 if era == "modern" else 12), count, host.write, check)
        assert host.close() == 0


def _answered(host: Talk, id: str, era: str, seconds: float | None = None) -> None:
    params = PING["params"] if era == "modern" else {"name": "list_plans", "arguments": {}}
    host.send(id=id, method="tools/call", params=params)
    answer = host.answer(id, seconds or longest())
    assert "result" in answer, answer
    host.seen.clear()


@pytest.mark.parametrize("count", FEW)
def test_broken_frames_at_the_engines_own_door_do_no_harm(daemon: Daemon, count: int) -> None:
    address = json.loads((daemon.desk.state / "daemon.json").read_text())
    memory = Memory(daemon.said["pid"])
    line = _Socket(address)

    def check(number: int) -> None:
        line.answered(f"good-{number}")
        memory.look(number / count)

    try:
        drive(Frames(13), count, line.send, check)
    finally:
        line.close()
    assert daemon.running is not None and daemon.running.process.poll() is None
    assert "Traceback" not in daemon.running.talk


class _Socket:
    """A channel without any relay in between."""

    def __init__(self, address: dict[str, str]) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(30.0)
        self._socket.connect(address["socket"])
        for message in ({"nonce": address["nonce"]}, {"op": "channel", "name": "mcp", "args": {}}):
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        self._read = b""
        assert json.loads(self._line()) == {"ok": {}}
        self.answered("first", 60.0)

    def send(self, data: bytes) -> None:
        self._socket.setblocking(False)
        deadline = time.monotonic() + 30
        while data:
            assert time.monotonic() < deadline, "nobody takes what is written"
            try:
                data = data[self._socket.send(data[:65536]) :]
            except BlockingIOError:
                time.sleep(0.001)
            try:
                self._read += self._socket.recv(1 << 16)
            except BlockingIOError:
                continue

    def answered(self, id: str, seconds: float | None = None) -> None:
        self._socket.settimeout(seconds or longest())
        self._socket.sendall(json.dumps({**PING, "id": id}).encode() + b"\n")
        deadline = time.monotonic() + (seconds or longest())
        while json.loads(self._line()).get("id") != id:
            assert time.monotonic() < deadline

    def _line(self) -> bytes:
        while b"\n" not in self._read:
            data = self._socket.recv(1 << 16)
            assert data, "the connection was closed"
            self._read += data
        line, _, self._read = self._read.partition(b"\n")
        return line

    def close(self) -> None:
        self._socket.close()


@pytest.mark.parametrize("count", FEW)
def test_broken_frames_over_http_do_no_harm(daemon: Daemon, count: int) -> None:
    chance = random.Random(14)
    memory = Memory(daemon.said["pid"])
    http_ = _Http(daemon)
    http_.post(json.dumps({**PING, "id": 0}).encode(), http_.good, 60.0)

    def send(frame: bytes) -> None:
        headers = {
            "Content-Type": chance.choice(["application/json"] * 8 + ["text/plain"]),
            "Accept": chance.choice(["application/json, text/event-stream"] * 8 + ["application/json", "*/*", ""]),
            "MCP-Protocol-Version": chance.choice([MODERN, MODERN, LEGACY, "2099-01-01", "x"]),
        }
        if chance.random() < 0.3:
            headers["Mcp-Session-Id"] = chance.choice(["x", "0" * 32, "a" * 4000])
        if chance.random() < 0.5:
            headers["Mcp-Method"] = chance.choice(["tools/call", "ping", ""])
        if b'"initialize"' in frame:
            return  # a good one makes a session, of which there may only be so many
        status = http_.post(frame.rstrip(b"\n"), headers, longest())
        assert status < 500, (status, frame[:300], headers)

    def check(number: int) -> None:
        assert http_.post(json.dumps({**PING, "id": number}).encode(), http_.good, longest()) == 200
        memory.look(number / count)

    try:
        drive(Frames(15), count, send, check)
    finally:
        http_.close()


class _Http:
    """One connection at a time, made again when the daemon has had enough of it."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._connection: http.client.HTTPConnection | None = None
        self.good = {
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": MODERN,
            "Mcp-Method": "tools/call",
            "Mcp-Name": "list_plans",
        }

    def post(self, body: bytes, headers: dict[str, str], seconds: float) -> int:
        began, status = time.monotonic(), 413
        for _ in range(2):
            fresh = self._connection is None
            connection = self._connection or http.client.HTTPConnection("127.0.0.1", self._daemon.port)
            self._connection = connection
            connection.timeout = seconds
            try:
                connection.request("POST", "/mcp", body, {**self._daemon.bearer, **headers})
                response = connection.getresponse()
                status = response.status
                if response.getheader("content-type", "").startswith("text/event-stream"):
                    self.close()
                else:
                    response.read()
                break
            except (http.client.HTTPException, ConnectionError):
                self.close()  # it may have been closed before, because of what was said on it
                assert not fresh or len(body) > 1 << 20, "the daemon hung up"
                if fresh:
                    break
        assert time.monotonic() - began < seconds
        return status

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
