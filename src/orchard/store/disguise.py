"""Known values that are there, but not in one piece: with control sequences inside, or as bytes in hexadecimal.

    Shown       a text as a screen would show it, and where each part of it stands in the original
    hex_spans   where bytes are written in hexadecimal: `706c`, `70 6c`, `70:6c`, `\\x70\\x6c`, `%70%6c`, `0x70, 0x6c`,
                and the dumps of xxd, hexdump and `od -tx1`, also over several lines

Both take a time that grows with the text and not with its square.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator

from orchard.store.values import Span, Values

_UNSEEN = re.compile(
    rb"(?:\x1b\[|\xc2\x9b)[0-?]*[ -/]*[@-~]?"
    rb"|(?:\x1b[\]PX^_]|\xc2[\x9d\x90\x98\x9e\x9f])(?:[^\x07\x1b\n\xc2]|\xc2(?!\x9c))*(?:\x07|\x1b\\|\xc2\x9c)?"
    rb"|\x1b[ -/]*[0-Z\\^-~]?"
    rb"|[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f]"
    rb"|\xc2[\x80-\x9f\xad]|\xd8\x9c|\xe1\x85[\x9f\xa0]|\xe1\x9e[\xb4\xb5]|\xe1\xa0\x8e"
    rb"|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xaf]|\xe3\x85\xa4|\xef\xbb\xbf|\xef\xbe\xa0|\xef\xbf[\xb9-\xbb]"
    rb"|\xf3\xa0[\x80\x81][\x80-\xbf]"
)
"""What `for_screen` takes out, in bytes."""
_MAY_HOLD = re.compile(rb"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f\xc2\xd8\xe1-\xe3\xef\xf3]")

_NEXT_LINE = rb"(?:  [^\n]{0,20})?\n[ ]{0,8}(?:[0-9a-fA-F]{7,8}:?[ ]{1,2})?"
_RUN = re.compile(rb"(?:(?:0x|\\x|%)?[0-9a-fA-F]{2}(?:" + _NEXT_LINE + rb"|[ \t:,;-]{0,2})){6,}", re.ASCII)
_BETWEEN = re.compile(_NEXT_LINE + rb"|0x|[^0-9a-fA-F]+?")


class Shown:
    """A text without what no screen shows."""

    def __init__(self, original: bytes) -> None:
        self.text = original
        self._starts: list[int] = []
        self._places: list[int] = []
        if _MAY_HOLD.search(original) is None:
            return
        parts: list[bytes] = []
        place = length = 0
        for unseen in _UNSEEN.finditer(original):
            if place < unseen.start():
                self._note(parts, original[place : unseen.start()], length, place)
                length += unseen.start() - place
            place = unseen.end()
        if place:
            self._note(parts, original[place:], length, place)
            self.text = b"".join(parts)

    def span(self, start: int, end: int) -> Span:
        """Where a part of the text stands in the original."""
        return self._place(start), self._place(end - 1) + 1

    def _note(self, parts: list[bytes], part: bytes, length: int, place: int) -> None:
        parts.append(part)
        self._starts.append(length)
        self._places.append(place)

    def _place(self, at: int) -> int:
        row = bisect_right(self._starts, at) - 1
        return self._places[row] + at - self._starts[row]


def hex_spans(text: bytes, values: Values) -> Iterator[Span]:
    """Where values, given as plain lower-case hexadecimal, are written as bytes in any of the usual ways."""
    if not values.all:
        return
    for run in _RUN.finditer(text):
        plain = _BETWEEN.sub(b"", run[0]).lower()
        spans = list(values.spans(plain))
        rows = _digits(run[0]) if spans else []
        for start, end in spans:
            first, last = run.start() + rows[start], run.start() + rows[end - 1] + 1
            if b"\n" in text[first:last]:  # a dump: what follows on the line are the same bytes as text
                last = line_end if (line_end := text.find(b"\n", last)) >= 0 else len(text)
            yield first, last


def _digits(run: bytes) -> list[int]:
    """Where each digit stands that is left when what is between them is taken out."""
    places: list[int] = []
    at = 0
    for between in _BETWEEN.finditer(run):
        places += range(at, between.start())
        at = between.end()
    return [*places, *range(at, len(run))]
