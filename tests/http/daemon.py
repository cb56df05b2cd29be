"""A real daemon in a process of its own, and a client that can say anything at all to it."""

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from tests.acceptance.program import Desk, Running, until

SECONDS = 30.0


@dataclass(frozen=True)
class Answer:
    """What the daemon answered."""

    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """One kept connection, with exactly the headers that a test wants."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._connection = HTTPConnection("127.0.0.1", port, timeout=SECONDS)

    def __call__(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """Ask, and read the whole answer; a Host is given unless the headers have one."""
        given = {"Host": f"127.0.0.1:{self.port}", **(headers or {})}
        if body is not None:
            given["Content-Length"] = str(len(body))
        self._connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in given.items():
            self._connection.putheader(name, value)
        self._connection.endheaders(body)
        return _read(self._connection.getresponse())

    def close(self) -> None:
        self._connection.close()


def _read(response: HTTPResponse) -> Answer:
    return Answer(response.status, response.getheaders(), response.read())


@dataclass
class Daemon:
    """`orchard serve`, as it said about itself when it was ready."""

    desk: Desk
    said: dict[str, Any]
    running: Running | None = None

    @property
    def port(self) -> int:
        return int(urlsplit(self.said["address"]).port or 0)

    @property
    def token(self) -> str:
        return Path(self.said["token_file"]).read_text()

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self.said["pid"])

    def ask(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
    ) -> Answer:
        """Ask something on a connection of its own."""
        client = Client(self.port)
        try:
            return client(method, path, headers, body)
        finally:
            client.close()

    def raw(self) -> socket.socket:
        """A connection on which nothing has been said yet."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=SECONDS)

    def new_code(self) -> str:
        """The code of a new link."""
        link = self.desk("serve", "--json").json["url"]
        return str(urlsplit(link).fragment.removeprefix("code="))

    def exchange(self, code: str, **headers: str) -> Answer:
        """What the start page does with the code of its link."""
        return self.ask("POST", "/session", {"X-Orchard-Code": code, **headers})

    def session(self) -> str:
        """A session, as a browser gets it from a link."""
        answer = self.exchange(self.new_code())
        assert answer.status == 200, answer
        return str(answer.json["session"])


def serve(desk: Desk, *words: str | Path) -> Daemon:
    """Start a daemon in a terminal of its own and wait until it is ready."""
    running = desk.start("serve", "--json", *words)
    until(lambda: "\n" in running.out or running.process.poll() is not None, "the daemon says where it is")
    assert running.process.poll() is None, running.talk
    return Daemon(desk, json.loads(running.out.splitlines()[0]), running)


@contextmanager
def served(desk: Desk, *words: str | Path) -> Iterator[Daemon]:
    """The same for the time of a block."""
    daemon = serve(desk, *words)
    try:
        yield daemon
    finally:
        assert daemon.running is not None
        if daemon.running.process.poll() is None:
            daemon.running.process.terminate()
        daemon.running.process.wait(SECONDS)
