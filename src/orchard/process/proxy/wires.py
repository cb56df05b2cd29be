"""One end of a connection in the event loop: what came in is waited for, or goes straight on to another end."""

import asyncio
import socket
import struct
from contextlib import suppress
from typing import cast

HELD_BYTES = 256 * 1024
"""So much is held of what came in and was not asked for; then the sender waits."""


class Wire(asyncio.Protocol):
    """A connection that is read piece by piece and written with the sender waiting while the receiver is slow.

    `join` makes a tunnel of two: then no code of ours runs per piece but one write.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport = cast(asyncio.Transport, None)
        self.ended = False
        """The other side says nothing more."""
        self.lost = False
        self.user: asyncio.Task[None] | None = None
        """Who is cancelled when the connection is gone."""
        self._held: list[bytes] = []
        self._size = 0
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._full = False
        self._paused = False
        self._other: Wire | None = None
        self._closed: asyncio.Future[None] | None = None

    # ------------------------------------------------------------------------------ what the loop says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.set_write_buffer_limits(high=HELD_BYTES)
        bare = transport.get_extra_info("socket")
        if bare is not None and bare.family != socket.AF_UNIX:
            bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            bare.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        if self._other is not None:
            self._other.transport.write(data)
            return
        self._held.append(data)
        self._size += len(data)
        if self._size >= HELD_BYTES and not self._paused:
            self._paused = True
            self.transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> bool:
        self.ended = True
        _wake(self._reader)
        if self._other is not None:
            self._other.end()
            self._close_when_both_ended()
        # The other half stays open: who has asked and said so still wants the answer. TLS knows no halves.
        return self.transport.can_write_eof()

    def pause_writing(self) -> None:
        self._full = True
        if self._other is not None and not self._other.transport.is_closing():
            self._other.transport.pause_reading()

    def resume_writing(self) -> None:
        self._full = False
        _wake(self._writer)
        if self._other is not None and not self._other.transport.is_closing():
            self._other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended = self.lost = True
        _wake(self._reader)
        _wake(self._writer)
        _wake(self._closed)
        if self.user is not None:
            self.user.cancel()
        if self._other is not None:
            other, self._other = self._other, None
            other._other = None
            if exc is None:
                other.transport.close()
            else:
                other.transport.abort()

    # ------------------------------------------------------------------------------ what is asked of it

    async def read(self) -> bytes:
        """What came in, as soon as something did; empty: nothing will any more."""
        while not self._held and not self.ended:
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = b"".join(self._held)
        self._held.clear()
        self._size = 0
        if self._paused:
            self._paused = False
            if not self.lost:
                self.transport.resume_reading()
        return data

    @property
    def is_idle(self) -> bool:
        """Whether it is open, and nothing came that was not asked for."""
        return not (self.ended or self._held or self.transport.is_closing())

    def unread(self, data: bytes) -> None:
        """Give back what was read too far."""
        if data:
            self._held.insert(0, data)
            self._size += len(data)

    async def write(self, data: bytes) -> None:
        """Send, and wait while the other side is behind; raises ConnectionResetError when it is gone."""
        if self.lost or self.transport.is_closing():
            raise ConnectionResetError
        if data:
            self.transport.write(data)
        while self._full and not self.lost:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None

    def end(self) -> None:
        """Say that nothing more will be sent; what knows no halves is closed."""
        if self.transport.is_closing():
            return
        if self.transport.can_write_eof():
            with suppress(OSError):  # the other side may be gone, and has not said so yet
                self.transport.write_eof()
        else:
            self.transport.close()

    async def close(self, seconds: float = 5.0) -> None:
        """Send what is still to be sent, and end; cut where the other side does not take it in time."""
        if self.lost:
            return
        self._closed = asyncio.get_running_loop().create_future()
        self.transport.close()
        try:
            async with asyncio.timeout(seconds):
                await self._closed
        except TimeoutError:
            self.cut()

    def cut(self, *, broken: bool = False) -> None:
        """End at once, whatever is still to be sent; `broken`: so that the other side does not take it for the end."""
        if self.lost:
            return
        bare = self.transport.get_extra_info("socket")
        if broken and bare is not None and not self.transport.is_closing():
            bare.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    async def join(self, other: "Wire") -> None:
        """Pass everything on between the two, until both have ended or one is gone."""
        self._other, other._other = other, self
        done = self._closed = asyncio.get_running_loop().create_future()
        for one, its in ((self, other), (other, self)):
            if one._held:
                its.transport.write(b"".join(one._held))
                one._held.clear()
                one._size = 0
            if one._paused:
                one._paused = False
                one.transport.resume_reading()
            if its._full and not one.transport.is_closing():
                one.transport.pause_reading()
            if one.ended:
                its.end()
        if self.lost or other.lost:
            self._other = other._other = None
            self.cut()
            other.cut()
        self._close_when_both_ended()
        if not self.lost:
            await done

    def _close_when_both_ended(self) -> None:
        if self._other is not None and self.ended and self._other.ended:
            other = self._other
            self.transport.close()
            other.transport.close()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
