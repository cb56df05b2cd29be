"""Talking with a program while it runs: lines in both directions, in bounded memory."""

import asyncio
import fcntl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, suppress

BLOCK = 256 * 1024
ROOM = 1024 * 1024
"""What a pipe holds where the system lets us say so. Some programs leave without waiting for a reader: what does not
fit is lost with them, and that is their last word."""
LONGEST_LINE = 32 * 1024 * 1024
"""Of a longer line nothing is kept: it is no message of any protocol."""


class TooMuch(Exception):
    """The program wrote more than it may."""


class Enough(Exception):
    """Raised in a conversation by who has heard enough: the program is ended, whatever it still does."""


class Pipes:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, source: asyncio.BaseTransport, most_bytes: int
    ) -> None:
        self.reader, self.writer = reader, writer
        self._source, self._left = source, most_bytes

    async def lines(self) -> AsyncIterator[bytes]:
        """Every line, without its end; one that is too long is left out. Ends with the output."""
        kept = bytearray()
        skipping = False
        while block := await self.read():
            *whole, rest = block.split(b"\n")
            for line in whole:
                if not skipping:
                    yield bytes(kept) + line
                kept.clear()
                skipping = False
            if not skipping:
                kept += rest
                if len(kept) > LONGEST_LINE:
                    kept.clear()
                    skipping = True
        if kept:
            yield bytes(kept)

    async def read(self) -> bytes:
        block = await self.reader.read(BLOCK)
        self._left -= len(block)
        if self._left < 0:
            raise TooMuch
        return block

    async def write(self, data: bytes) -> None:
        """Hand something to the program; one that does not listen any more loses it."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.writer.write(data)
            await self.writer.drain()

    def close_input(self) -> None:
        self.writer.close()

    def close(self) -> None:
        if not self.writer.is_closing():
            self.writer.transport.abort()
        self._source.close()


Converse = Callable[[Pipes], Awaitable[None]]
"""Talks with a program; when it returns, the program is asked to end by closing its input."""


async def open_pipes(process: subprocess.Popen[bytes], most_bytes: int) -> Pipes:
    assert process.stdin is not None
    assert process.stdout is not None
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):
            fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, ROOM)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=2 * BLOCK)
    with ExitStack() as undo:
        undo.callback(process.stdin.close)
        undo.callback(process.stdout.close)
        source, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), process.stdout)
        undo.callback(source.close)
        transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
        undo.pop_all()
    return Pipes(reader, asyncio.StreamWriter(transport, protocol, None, loop), source, most_bytes)


class Talk:
    def __init__(self, pipes: Pipes, converse: Converse) -> None:
        self._pipes, self._converse = pipes, converse
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> asyncio.Future[None]:
        self._task = asyncio.ensure_future(self._talk())
        return self._task

    async def heard_all(self) -> str:
        """Wait until everything that the program had written is read: `all`, or `too-much`; errors are raised."""
        if self._task is not None:
            try:
                await self._task
            except TooMuch:
                return "too-much"
            except Enough:
                return "all"
        return "all"

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # who wanted to know has heard of it
        self._pipes.close()

    async def _talk(self) -> None:
        try:
            await self._converse(self._pipes)
        finally:
            self._pipes.close_input()
