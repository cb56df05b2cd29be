"""Both ends of the wire: the official client over stdio and HTTP, and a host that can say anything at all."""

import asyncio
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import psutil
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult

from orchard.model.events.plans import Json
from tests.acceptance.program import Desk
from tests.http.daemon import Daemon

SECONDS = 60.0
MODERN = "2026-07-28"
LEGACY = "2025-11-25"
ERAS = ("auto", "legacy")
Wire = Literal["stdio", "http"]

META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
}
HELLO = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def server(desk: Desk, *words: str, **env: str) -> StdioServerParameters:
    """`orchard mcp` as a host starts it."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "orchard", "mcp", *words],
        cwd=desk.repo.path,
        env={**desk.env, **env},
    )


@asynccontextmanager
async def over_stdio(desk: Desk, mode: str, *words: str, **options: Any) -> AsyncIterator[Client]:
    """The official client, talking to `orchard mcp`."""
    async with asyncio.timeout(SECONDS):
        async with Client(server(desk, *words), mode=mode, **options) as client:
            yield client


@asynccontextmanager
async def over_http(daemon: Daemon, mode: str, query: str = "", **options: Any) -> AsyncIterator[Client]:
    """The official client, talking to the daemon's `/mcp`."""
    async with (
        asyncio.timeout(SECONDS),
        httpx2.AsyncClient(headers=daemon.bearer, timeout=SECONDS) as http,
        Client(
            streamable_http_client(f"http://127.0.0.1:{daemon.port}/mcp{query}", http_client=http),
            mode=mode,
            **options,
        ) as client,
    ):
        yield client


@asynccontextmanager
async def client_of(daemon: Daemon, wire: Wire, mode: str, *toolsets: str, **options: Any) -> AsyncIterator[Client]:
    """The official client over either wire."""
    names = ",".join(toolsets)
    if wire == "stdio":
        async with over_stdio(daemon.desk, mode, *(["--toolsets", names] if names else []), **options) as client:
            yield client
    else:
        async with over_http(daemon, mode, f"?toolsets={names}" if names else "", **options) as client:
            yield client


async def value(client: Client, name: str, /, **arguments: Any) -> Json:
    """What a tool gives when it does what it is asked for."""
    result = await client.call_tool(name, arguments)
    assert not result.is_error, text_of(result)
    assert result.structured_content is not None
    found: Json = result.structured_content
    return found


async def ended(client: Client, plan: str) -> str:
    """How a plan ends, waited for by a tool."""
    seen = await value(client, "wait_plan", plan=plan, until="end", timeout_s=45)
    return str(seen["status"])


def text_of(result: CallToolResult) -> str:
    """What a model reads of an answer."""
    return "".join(getattr(part, "text", "") for part in result.content)


class Talk:
    """`orchard mcp` with a host that writes bytes and reads lines."""

    def __init__(self, desk: Desk, *words: str, argv: list[str] | None = None, **env: str) -> None:
        command = argv or ["-m", "orchard", "mcp"]
        self._errors = (desk.folder / f"relay-{time.monotonic_ns()}.err").open("w+b")
        self.process = subprocess.Popen(
            [sys.executable, *command, *words],
            cwd=desk.repo.path,
            env={**desk.env, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        self._read = b""
        self.seen: list[Json] = []
        """Everything that was read while something else was waited for."""

    @property
    def errors(self) -> str:
        """What it wrote into the host's log."""
        return Path(self._errors.name).read_text(errors="replace")

    def write(self, data: bytes, seconds: float = SECONDS) -> None:
        """Write bytes, reading meanwhile, so that neither side waits for the other."""
        assert self.process.stdin is not None
        to = self.process.stdin.fileno()
        os.set_blocking(to, False)
        deadline = time.monotonic() + seconds
        while data:
            assert time.monotonic() < deadline, "nobody takes what is written"
            self._fill(0.0)
            try:
                data = data[os.write(to, data[:65536]) :]
            except BlockingIOError:
                self._fill(0.01)

    def send(self, **message: Any) -> None:
        """Send a message."""
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def ask(self, id: int | str, method: str, params: Mapping[str, Any] | None = None) -> None:
        """Send a request of the newer era."""
        self.send(id=id, method=method, params={"_meta": META, **(params or {})})

    def call(self, id: int | str, tool: str, **arguments: Any) -> None:
        """Call a tool in the newer era."""
        self.ask(id, "tools/call", {"name": tool, "arguments": arguments})

    def _fill(self, seconds: float) -> bool:
        assert self.process.stdout is not None
        out = self.process.stdout.fileno()
        if not select.select([out], [], [], seconds)[0]:
            return False
        data = os.read(out, 1 << 16)
        self._read += data
        return bool(data)

    def line(self, seconds: float = SECONDS) -> Json:
        """The next message."""
        deadline = time.monotonic() + seconds
        while b"\n" not in self._read:
            left = deadline - time.monotonic()
            assert left > 0, f"nothing was answered in {seconds:g} s: {self.errors}"
            if not self._fill(left) and self.process.poll() is not None:
                raise AssertionError(f"it ended with {self.process.returncode}: {self.errors}")
        line, _, self._read = self._read.partition(b"\n")
        found = json.loads(line)
        assert isinstance(found, dict), found
        return found

    def answer(self, id: int | str | None, seconds: float = SECONDS) -> Json:
        """The answer to a request; whatever comes before it is kept in `seen`."""
        for number, known in enumerate(self.seen):
            if "method" not in known and known.get("id") == id:
                return self.seen.pop(number)
        while True:
            found = self.line(seconds)
            if "method" not in found and found.get("id") == id:
                return found
            self.seen.append(found)

    def result(self, id: int | str, seconds: float = SECONDS) -> Json:
        """The result of a request that went well."""
        answer = self.answer(id, seconds)
        assert "result" in answer, answer
        found: Json = answer["result"]
        return found

    def tool(self, id: int | str, name: str, /, **arguments: Any) -> Json:
        """Call a tool and wait for what it gives."""
        self.call(id, name, **arguments)
        result = self.result(id)
        assert not result.get("isError"), result
        found: Json = result["structuredContent"]
        return found

    def kill(self) -> None:
        """End it without a word."""
        self.process.kill()
        self.process.wait(SECONDS)

    def close(self) -> int:
        """Close its stdin, as a host does that has no more questions; its exit code is the answer."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait(10)
        self.process.stdout.close()
        self._errors.close()
        return code

    @property
    def memory(self) -> int:
        """How much memory it has, in bytes."""
        return int(psutil.Process(self.process.pid).memory_info().rss)


@contextmanager
def talk(desk: Desk, *words: str, argv: list[str] | None = None, **env: str) -> Iterator[Talk]:
    """A host at `orchard mcp` for the time of a block."""
    host = Talk(desk, *words, argv=argv, **env)
    try:
        yield host
    finally:
        if host.process.poll() is None:
            host.kill()
        for stream in (host.process.stdin, host.process.stdout):
            assert stream is not None
            stream.close()
        host._errors.close()


def daemon_pid(desk: Desk) -> int | None:
    """The process of the engine that says it is there."""
    try:
        found = json.loads((desk.state / "daemon.json").read_text())
    except (OSError, ValueError):
        return None
    return int(found["pid"])
