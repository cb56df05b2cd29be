"""Where a body ends. What is in it goes on as it comes, in chunks of our own where the length is not known before."""

import re

from orchard.process.proxy.heads import UNTIL_CLOSE, BadHead, Framing

_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[\t\x20-\x7e\x80-\xff]*)?")
LINE_BYTES = 4096
TRAILER_BYTES = 16 * 1024
LAST_CHUNK = b"0\r\n\r\n"


class Body:
    """A body as it comes in: `take` gives what is in it, and after its end the bytes that follow it are in `rest`."""

    def __init__(self, framing: Framing) -> None:
        self.done = framing == 0
        self.rest = b""
        self._left = -1 if framing is None or framing == UNTIL_CLOSE else framing
        self._chunks = _Chunks() if framing is None else None

    def take(self, data: bytes) -> bytes:
        """What of the data belongs to the body; raises BadHead where chunks are not what they must be."""
        if self.done:
            self.rest += data
            return b""
        if self._chunks is not None:
            found = self._chunks.take(data)
            self.done, self.rest = self._chunks.done, self._chunks.rest
            return found
        if self._left < 0:
            return data
        found = data[: self._left]
        self._left -= len(found)
        self.done, self.rest = self._left == 0, data[len(found) :]
        return found


class _Chunks:
    """The chunked coding: lines with lengths, the bytes after them, and trailers, which end here."""

    def __init__(self) -> None:
        self.done = False
        self.rest = b""
        self._held = b""
        self._left = 0
        """Bytes of this chunk to come."""
        self._after_chunk = False
        self._trailers = -1
        """Bytes of trailers so far; -1: the last chunk was not there yet."""

    def take(self, data: bytes) -> bytes:
        data, self._held = self._held + data, b""
        found: list[bytes] = []
        at = 0
        while at < len(data) and not self.done:
            if self._left:
                piece = data[at : at + self._left]
                found.append(piece)
                self._left -= len(piece)
                at += len(piece)
                self._after_chunk = not self._left
                continue
            end = data.find(b"\r\n", at)
            if end < 0 or end - at > LINE_BYTES:
                if len(data) - at > LINE_BYTES:
                    raise BadHead("The line of a chunk is too long.")
                self._held = data[at:]
                break
            self._line(data[at:end])
            at = end + 2
        if self.done:
            self.rest = data[at:]
        return b"".join(found)

    def _line(self, line: bytes) -> None:
        if self._after_chunk:
            if line:
                raise BadHead("A chunk is longer than it said.")
            self._after_chunk = False
        elif self._trailers >= 0:
            self._trailers += len(line) + 2
            self.done = not line
            if self._trailers > TRAILER_BYTES:
                raise BadHead("There are too many trailers.")
        else:
            length = _CHUNK_LINE.fullmatch(line)
            if length is None:
                raise BadHead("A chunk does not begin with its length.")
            self._left = int(length[1], 16)
            if not self._left:
                self._trailers = 0


def chunk(data: bytes) -> bytes:
    """One chunk with this in it. There is none for nothing: that would be the end."""
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
