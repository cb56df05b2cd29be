"""The proxy of jobs beside a bare connection: how many bytes a second go through a tunnel, and what one more costs.

The endpoint and the proxy are programs of their own, so that neither shares its Python with who measures:
`python -m bench.proxy endpoint` and `python -m bench.proxy door PORT`.
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from orchard.bench.place import Bench
from orchard.bench.rounds import Bar, Figures, Measure
from orchard.process.proxy.allowed import Allowed
from orchard.process.proxy.doors import Door, Proxy
from orchard.process.stopwatch import Broken

PIECE = 256 * 1024
SPEED_BAR = 100
"""Megabytes a second: an agent's downloads must not feel it."""
CONNECTION_BAR = 5
"""Milliseconds."""


def proxy(bench: Bench) -> Measure:
    """Bytes and connections to an endpoint on this machine, straight and through a door."""
    amount = bench.size(512, 8) * 1024 * 1024
    connections = bench.size(300, 10)

    def straight() -> Figures:
        with _program("endpoint") as port:
            return {"bare-speed": _speed(port, None, amount), "bare-connection": _connection(port, None, connections)}

    def through() -> Figures:
        with _program("endpoint") as port, _program("door", str(port)) as door:
            return {"speed": _speed(port, door, amount), "connection": _connection(port, door, connections)}

    return Measure(
        (straight, through),
        (
            Bar("a tunnel through the proxy", "speed", least=SPEED_BAR, unit="MB/s", beside="bare-speed"),
            Bar(
                "a connection through the proxy", "connection", most=CONNECTION_BAR, unit="ms", beside="bare-connection"
            ),
        ),
    )


def _opened(port: int, door: int | None) -> socket.socket:
    if door is None:
        return socket.create_connection(("127.0.0.1", port))
    opened = socket.create_connection(("127.0.0.1", door))
    opened.sendall(b"CONNECT 127.0.0.1:%d HTTP/1.1\r\nHost: x\r\n\r\n" % port)
    said = opened.recv(100)
    if not said.startswith(b"HTTP/1.1 200"):
        raise Broken(f"the proxy said {said!r}")
    return opened


def _speed(port: int, door: int | None, amount: int) -> float:
    """Megabytes a second that come in."""
    room = memoryview(bytearray(PIECE))
    with _opened(port, door) as opened:
        begun = time.perf_counter()
        opened.sendall(b"%20d" % amount)
        left = amount
        while left > 0:
            left -= opened.recv_into(room)
        return amount / 1e6 / (time.perf_counter() - begun)


def _connection(port: int, door: int | None, number: int) -> float:
    """Milliseconds from nothing to the first byte of an answer: the median of several."""
    taken = []
    for _ in range(number):
        begun = time.perf_counter()
        with _opened(port, door) as opened:
            opened.sendall(b"%20d" % 1)
            opened.recv(1)
        taken.append(time.perf_counter() - begun)
    return sorted(taken)[len(taken) // 2] * 1000


@contextlib.contextmanager
def _program(*words: str) -> Iterator[int]:
    """One of the programs of this module, as long as it is needed: its port."""
    argv = [sys.executable, "-m", "bench.proxy", *words]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        if program.stdin is None or program.stdout is None:
            raise Broken("a program has no pipes")
        try:
            yield int(program.stdout.readline())
        finally:
            program.stdin.close()  # its sign to end


def _endpoint() -> None:
    """Sends as many bytes as it is asked for in twenty digits."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    piece = bytes(PIECE)

    def answer(opened: socket.socket) -> None:
        with contextlib.suppress(OSError), opened:
            left = int(opened.recv(20, socket.MSG_WAITALL) or 0)
            while left > 0:
                left -= opened.send(piece[: min(left, PIECE)] if left < PIECE else piece)

    def serve() -> None:
        while True:
            threading.Thread(target=answer, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    sys.stdin.read()
    os._exit(0)


async def _door(port: int) -> None:
    shared = Proxy()
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    door = Door(shared, listener, Allowed.of("listed", own=(f"127.0.0.1:{port}",)))
    door.open()
    print(door.port, flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await door.close()
    shared.close()


def main(words: Sequence[str]) -> None:
    if words[0] == "endpoint":
        _endpoint()
    else:
        asyncio.run(_door(int(words[1])))


if __name__ == "__main__":
    main(sys.argv[1:])
