"""Answers that go on: as many as there is room for, none of them longer than its client listens.

A stream holds nothing back for a slow client. What is written waits in the socket's buffer; while that is full nothing
more is read for this client, and one that takes nothing for half a minute is cut off. It comes back with the number
of the last event that it got.
"""

from collections.abc import AsyncIterator, Callable
from http import HTTPStatus

import anyio
from sse_starlette.event import ServerSentEvent
from sse_starlette.sse import EventSourceResponse, SendTimeoutError
from starlette.types import Receive, Scope, Send

from orchard.surfaces.http import problems

CLIENTS = 256
STALLED_SECONDS = 30.0
PING_SECONDS = 15.0


class Streams:
    def __init__(self, most: int = CLIENTS, stalled: float = STALLED_SECONDS, ping: float = PING_SECONDS) -> None:
        self.most, self.stalled, self.ping = most, stalled, ping
        self.clients = 0
        """How many listen."""

    def stream(self, frames: AsyncIterator[bytes], leave: Callable[[], None] = lambda: None) -> "Stream":
        """These frames as an answer; `leave` is called when it has ended, even if none of them was asked for."""
        return Stream(self, frames, leave)


class Stream(EventSourceResponse):
    """One of these answers. Who comes when all places are taken is told to try again."""

    def __init__(self, streams: Streams, frames: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        super().__init__(
            frames, ping=streams.ping, send_timeout=streams.stalled, sep="\n", ping_message_factory=_heartbeat
        )
        self._streams, self._leave = streams, leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send frames until there are no more, or the client is gone or stalled."""
        try:
            await self._serve(scope, receive, send)
        finally:
            self._leave()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        streams = self._streams
        if streams.clients >= streams.most:
            wait = {"Retry-After": str(problems.WAIT_SECONDS)}
            message = f"{streams.most} clients listen already."
            refusal = problems.problem(HTTPStatus.SERVICE_UNAVAILABLE, message, "Try again later.", headers=wait)
            await refusal(scope, receive, send)
            return
        streams.clients += 1
        try:
            await super().__call__(scope, receive, send)
        except SendTimeoutError:
            return  # it took nothing for too long; the server drops the connection
        finally:
            streams.clients -= 1

    async def _listen_for_exit_signal_with_grace(self) -> None:
        """Whoever serves drops all connections when it ends, so nobody has to look for that twice a second."""
        await anyio.sleep_forever()


def frame(data: str, event: str, id: str) -> bytes:
    return ServerSentEvent(data, event=event, id=id, sep="\n").encode()


def first_frame(id: str | None) -> bytes:
    """Opens a stream: says from where on the client has seen everything, and how soon to come back."""
    return ServerSentEvent(id=id, retry=1000, sep="\n").encode()


def _heartbeat() -> ServerSentEvent:
    return ServerSentEvent(comment="still here", sep="\n")
