"""How long objects of strangers are once git unpacks them, told before git does.

A few megabytes can be gigabytes once they are unpacked: zeros compress well, and a delta may copy its base many times.
Git unpacks all of it to check it, outside of every limit of the job. Every object says at its start how long it is, and
git unpacks no more than that, so the sum of what they say is a bound.
"""

import mmap
import re
import zlib
from pathlib import Path

from orchard.errors import OrchardError

_HEADER = re.compile(rb"[a-z]{1,16} (\d{1,18})\0")
_START = 4096
"""Bytes of a loose object in which its header is found; git writes it into the first hundred or so."""
_NAME = 32
_BLOCK = 64 * 1024
_OFFSET, _REFERENCE = 6, 7
"""The kinds of deltas in a pack: from a base at another place in it, and from one by its name."""


MOST_OBJECTS = 2_000_000
DELTAS = 4
"""So many times as much may be made by deltas: honest packs hold many versions of the same files."""
_LONGEST = 10
"""Bytes of a number in a pack."""


class Room:
    """What may still be unpacked. `oid_size`: the bytes of an object's name."""

    def __init__(self, most: int, oid_size: int) -> None:
        self._most, self._oid_size = most, oid_size
        self._left, self._made, self._objects = most, DELTAS * most, MOST_OBJECTS

    def take(self, file: Path, *, packed: bool) -> None:
        """Count what is in a file; OrchardError where it is too much, or does not say how much it is."""
        if not packed:
            with file.open("rb") as opened:
                self._left = self._without(self._left, _declared(opened.read(_START)))
        elif file.stat().st_size:
            with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
                self._count_pack(data)

    def _without(self, left: int, length: int | None) -> int:
        self._objects -= 1
        if self._objects < 0:
            raise OrchardError(f"It is more than {MOST_OBJECTS:,} objects.")
        if length is None:
            raise OrchardError("An object does not say how long it is.")
        if length > left:
            raise OrchardError(f"It is more than {self._most >> 30} GiB once git unpacks it.")
        return left - length

    def _count_pack(self, data: mmap.mmap) -> None:
        """Every entry has to be unpacked to find where the next one begins, but no further than it says it goes."""
        at = 12
        for _ in range(int.from_bytes(data[8:12], "big")):
            kind, length, at = _entry(data, at)
            at += self._oid_size if kind == _REFERENCE else 0
            self._left = self._without(self._left, length)
            start, at = _unpacked(data, at, length)
            if kind in (_OFFSET, _REFERENCE):
                self._made = self._without(self._made, _result(start))


def _unpacked(data: mmap.mmap, at: int, length: int) -> tuple[bytes, int]:
    """The first bytes of an entry, and where the next one begins."""
    stream, start, seen = zlib.decompressobj(), b"", 0
    taken = data[at : at + min(_BLOCK, length + 64)]
    while taken and not stream.eof:
        at += len(taken)
        try:
            part = stream.decompress(taken, _BLOCK)
            while True:
                seen += len(part)
                start += part[: _NAME - len(start)]
                if seen > length:
                    raise OrchardError("An object is longer than it says.")
                if not stream.unconsumed_tail or stream.eof:
                    break
                part = stream.decompress(stream.unconsumed_tail, _BLOCK)
        except zlib.error as error:
            raise OrchardError("A pack is damaged.") from error
        taken = data[at : at + _BLOCK]
    if not stream.eof:
        raise OrchardError("A pack is damaged.")
    return start, at - len(stream.unused_data)


def _declared(start: bytes) -> int | None:
    """The length that the beginning of a loose object names."""
    try:
        found = _HEADER.match(zlib.decompressobj().decompress(start, _NAME))
    except zlib.error:
        return None
    return int(found[1]) if found is not None else None


def _entry(data: mmap.mmap, at: int) -> tuple[int, int, int]:
    """The kind of an entry of a pack, its length, and where its content begins."""
    try:
        first = data[at]
        kind, length, shift = first >> 4 & 7, first & 15, 4
        while data[at] & 128 and shift < 7 * _LONGEST:
            at += 1
            length |= (data[at] & 127) << shift
            shift += 7
        at += 1
        if kind == _OFFSET:
            at = next(place for place in range(at, at + _LONGEST) if not data[place] & 128) + 1
    except (IndexError, StopIteration) as error:
        raise OrchardError("A pack is damaged.") from error
    return kind, length, at


def _result(start: bytes) -> int | None:
    """How long what a delta makes is: the second number in it, after the length of its base."""
    numbers: list[int] = []
    value = shift = 0
    for byte in start:
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            numbers.append(value)
            value = shift = 0
            if len(numbers) == 2:
                return numbers[1]
    return None
