"""Keeping secrets and control sequences out of what leaves a log.

Known values are looked for as they are, with control sequences in them, and as programs like to print them (URL,
base64, hex, JSON); tokens of well-known services are looked for by their shape. A chunk may end anywhere, so the last
unfinished line is held back until it is whole: every shape but a private key stays within a line.

Plain searches for fixed bytes are many times as fast as a pattern with many branches. So a shape's pattern runs only on
a chunk that holds the shape's fixed word, and known values are fixed words anyway. Nothing here takes a time that grows
with the square of the text.

    Redactor    a stream of bytes without the secrets
    Values      many values that are looked for at once
    Shown       a text as a screen would show it, and where each part of it stands in the original
    hex_spans   where bytes are written in hexadecimal: `706c`, `70 6c`, `70:6c`, `\\x70\\x6c`, `%70%6c`, `0x70, 0x6c`,
                and the dumps of xxd, hexdump and `od -tx1`, also over several lines
"""

import base64
import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal
from urllib.parse import quote, quote_plus

from msgspec import Struct

from orchard.model.secrets import SECRET_LENGTH
from orchard.patterns import later

Kind = Literal["Q", "I"]

WORDS: tuple[tuple[int, Kind], ...] = ((8, "Q"), (4, "I"))
"""Sizes of words and how `memoryview` calls them, the one that tells more first."""

Span = tuple[int, int]


class Values:
    """Values that are looked for at once, the longest first: many cost hardly more than one.

    The text is read as words of eight bytes, or of four. A value that is long enough covers at least one whole word
    wherever it begins, and it has one such word for each way to begin. So the words of the text tell which values may
    be in it, and only those are searched for.
    """

    def __init__(self, values: Iterable[bytes]) -> None:
        self.all = tuple(sorted(set(values), key=len, reverse=True))
        self._indexes: list[_Index] = []
        rest: Sequence[bytes] = self.all
        for size, kind in WORDS:
            self._indexes.append(_Index(size, kind, [value for value in rest if len(value) >= 2 * size - 1]))
            rest = [value for value in rest if len(value) < 2 * size - 1]
        self._short = rest

    def spans(self, text: bytes) -> Iterator[Span]:
        candidates = [value for index in self._indexes for value in index.candidates(text)]
        for value in (*candidates, *self._short):
            start = text.find(value)
            while start >= 0:
                yield start, start + len(value)
                start = text.find(value, start + len(value))


class _Index:
    """Which values a word may come from."""

    def __init__(self, size: int, kind: Kind, values: Iterable[bytes]) -> None:
        self._size, self._kind = size, kind
        self._by_word: dict[int, list[bytes]] = {}
        for value in values:
            # From the middle: values often begin alike (`sk-ant-api03-...`), so their beginnings tell little.
            first = (len(value) - (2 * size - 1)) // 2
            for at in range(first, first + size):
                word = memoryview(value[at : at + size]).cast(kind)[0]
                self._by_word.setdefault(word, []).append(value)
        self._words = frozenset(self._by_word)

    def candidates(self, text: bytes) -> Iterable[bytes]:
        if not self._words:
            return ()
        words = memoryview(text)[: len(text) - len(text) % self._size].cast(self._kind)
        return dict.fromkeys(value for word in self._words.intersection(words) for value in self._by_word[word])


_UNSEEN = later(
    rb"(?:\x1b\[|\xc2\x9b)[0-?]*[ -/]*[@-~]?"
    rb"|(?:\x1b[\]PX^_]|\xc2[\x9d\x90\x98\x9e\x9f])(?:[^\x07\x1b\n\xc2]|\xc2(?!\x9c))*(?:\x07|\x1b\\|\xc2\x9c)?"
    rb"|\x1b[ -/]*[0-Z\\^-~]?"
    rb"|[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f]"
    rb"|\xc2[\x80-\x9f\xad]|\xd8\x9c|\xe1\x85[\x9f\xa0]|\xe1\x9e[\xb4\xb5]|\xe1\xa0\x8e"
    rb"|\xe2\x80[\x8b-\x8f\xa8-\xae]|\xe2\x81[\xa0-\xaf]|\xe3\x85\xa4|\xef\xbb\xbf|\xef\xbe\xa0|\xef\xbf[\xb9-\xbb]"
    rb"|\xf3\xa0[\x80\x81][\x80-\xbf]"
)
"""What `for_screen` takes out, in bytes."""
_MAY_HOLD = later(rb"[\x00-\x08\x0b-\x0c\x0e-\x1f\x7f\xc2\xd8\xe1-\xe3\xef\xf3]")

_NEXT_LINE = rb"(?:  [^\n]{0,20})?\n[ ]{0,8}(?:[0-9a-fA-F]{7,8}:?[ ]{1,2})?"
_RUN = later(rb"(?:(?:0x|\\x|%)?[0-9a-fA-F]{2}(?:" + _NEXT_LINE + rb"|[ \t:,;-]{0,2})){6,}", re.ASCII)
_BETWEEN = later(_NEXT_LINE + rb"|0x|[^0-9a-fA-F]+?")


class Shown:
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


REDACTED = b"[redacted]"
CARRY = 64 * 1024
HOLD = 16 * 1024
"""What stays back of a line that is longer than `CARRY`; no piece and no token is longer."""
KEY_LENGTH = 16 * 1024
PIECE = 4 * 1024
LINE_LENGTH = 8
"""Shorter lines of a secret of many lines are not looked for on their own."""


class _Shape(Struct, frozen=True):
    """Tokens of one kind: the last group of the pattern is what is hidden if it has any, else all of it.

    A pattern takes a time that grows with the text and not with its square: it may not read the same long run
    from two places.
    """

    word: bytes
    """In every text that holds such a token; in lower case where case does not matter."""
    pattern: re.Pattern[bytes]
    any_case: bool = False


_SHAPES = (
    _Shape(b"sk-", later(rb"(?<![A-Za-z0-9_-])sk-[A-Za-z0-9_-]{16,}")),
    _Shape(b"gh", later(rb"gh[pousr]_[A-Za-z0-9]{16,}")),
    _Shape(b"github_pat_", later(rb"github_pat_[A-Za-z0-9_]{16,}")),
    _Shape(b"glpat-", later(rb"glpat-[A-Za-z0-9_-]{16,}")),
    _Shape(b"npm_", later(rb"npm_[A-Za-z0-9]{30,}")),
    _Shape(b"xox", later(rb"xox[a-z]-[A-Za-z0-9-]{10,}")),
    _Shape(b"AKIA", later(rb"(?<![A-Za-z0-9])AKIA[A-Z0-9]{16}(?![A-Za-z0-9])")),
    _Shape(b"ASIA", later(rb"(?<![A-Za-z0-9])ASIA[A-Z0-9]{16}(?![A-Za-z0-9])")),
    _Shape(b"AIza", later(rb"AIza[A-Za-z0-9_-]{30,}")),
    # What has no dot after it is passed over as a whole: each `eyJ` inside of it would look for the same dot.
    _Shape(b"eyJ", later(rb"(eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)?)|eyJ[\w-]{8,}+", re.ASCII)),
    _Shape(b"://", later(rb"://[^\s/:@]*:([^\s/@]+)@")),
    _Shape(b"bearer", later(rb"(?i:bearer)[ \t]+([A-Za-z0-9._~+/=-]{8,})"), any_case=True),
    _Shape(
        b"authorization",
        later(rb"(?i:authorization[\"']?[:=][ \t]*[\"']?basic)[ \t]+([A-Za-z0-9+/=_-]{8,})"),
        any_case=True,
    ),
)
_SECRET_FIELDS = (
    b"password", b"passwd", b"passphrase", b"secret", b"token", b"api_key", b"apikey", b"access_key",
)  # fmt: skip
_FIELD_VALUE = later(rb"[\"']?([^\s&\"';,]{6,})")
_KEY_BEGIN = later(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BEGIN_LENGTH = len(b"-----BEGIN ") + 40
_KEY_END = later(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")


class Redactor:
    def __init__(self, secrets: Iterable[str] = ()) -> None:
        secrets = tuple(secrets)
        self._known = Values(form for secret in secrets for form in _forms(secret))
        self._coded = Values(
            secret.strip().encode(errors="surrogateescape").hex().encode()
            for secret in secrets
            if SECRET_LENGTH <= len(secret.strip()) <= PIECE // 2
        )
        self._with_breaks = tuple(form for form in self._known.all if b"\n" in form or b"\r" in form)
        self._carry = b""

    def feed(self, data: bytes) -> bytes:
        """What may be shown so far; an unfinished line is kept for the next call."""
        text = self._carry + data
        spans, open_key = self._spans(text, ended=False)
        cut = min(self._cut(text), open_key)
        cut = next((start for start, end in spans if start < cut < end), cut)
        if len(text) - cut > CARRY:
            cut = len(text) - HOLD
            cut = next((end for start, end in spans if start < cut < end), cut)
        self._carry = text[cut:]
        return _hide(text[:cut], [span for span in spans if span[1] <= cut])

    def close(self) -> bytes:
        text, self._carry = self._carry, b""
        spans, _ = self._spans(text, ended=True)
        return _hide(text, spans)

    def whole(self, data: bytes) -> bytes:
        """A text that is there as a whole, redacted; the stream is not touched."""
        spans, _ = self._spans(data, ended=True)
        return _hide(data, spans)

    def text(self, words: str) -> str:
        """The same for text; what is no text in it stays as it is."""
        return self.whole(words.encode(errors="surrogateescape")).decode(errors="surrogateescape")

    def hidden(self, data: bytes, *, ended: bool) -> tuple[list[Span], int]:
        """What of a text is to be hidden, in order and apart, and up to where that is certain if more may follow."""
        spans, open_key = self._spans(data, ended=ended)
        return spans, len(data) if ended else min(self._cut(data), open_key)

    def _cut(self, text: bytes) -> int:
        """Where the last unfinished line begins, or the beginning of what may become a known value of many lines."""
        cut = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        for form in self._with_breaks:
            for length in range(min(len(form) - 1, len(text)), len(text) - cut, -1):
                if text.endswith(form[:length]):
                    cut = len(text) - length
                    break
        return cut

    def _spans(self, text: bytes, *, ended: bool) -> tuple[list[Span], int]:
        """What is to be hidden, in order and apart; and where a private key begins that has no end yet."""
        keys, open_key = _private_keys(text, ended=ended)
        spans = [*keys, *self._known.spans(text), *_tokens(text), *hex_spans(text, self._coded)]
        shown = Shown(text)
        if shown.text is not text:  # what a screen would show as a whole must be found as a whole
            spans += [shown.span(*span) for span in (*self._known.spans(shown.text), *_tokens(shown.text))]
        return _joined(spans), open_key


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    return Redactor(secrets).text(text)


def _tokens(text: bytes) -> Iterator[Span]:
    lower = text.lower()
    for shape in _SHAPES:
        if shape.word in (lower if shape.any_case else text):
            for match in shape.pattern.finditer(text):
                if match.end(shape.pattern.groups) >= 0:
                    yield match.span(shape.pattern.groups)
    place = lower.find(b"=")
    while place >= 0:
        after = place + 1
        if lower.endswith(_SECRET_FIELDS, 0, place) and (value := _FIELD_VALUE.match(text, after)):
            yield value.span(1)
            after = value.end()  # a field inside of it has a value that ends where this one does
        place = lower.find(b"=", after)


def _private_keys(text: bytes, *, ended: bool) -> tuple[list[Span], int]:
    """Whole keys; one that never ends is hidden up to a length, so that its first line cannot blind a log."""
    spans: list[Span] = []
    place = max(0, text.find(b"PRIVATE KEY") - _KEY_BEGIN_LENGTH) if b"PRIVATE KEY" in text else len(text)
    while begin := _KEY_BEGIN.search(text, place):
        start, limit = begin.start(), begin.start() + KEY_LENGTH
        if end := _KEY_END.search(text, begin.end(), limit):
            place = end.end()
        elif ended or len(text) >= limit:
            place = min(limit, len(text))
        else:
            return spans, start
        spans.append((start, place))
    return spans, len(text)


def _joined(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _hide(text: bytes, spans: list[Span]) -> bytes:
    if not spans:
        return text
    parts, place = [], 0
    for start, end in spans:
        parts += [text[place:start], REDACTED]
        place = end
    return b"".join([*parts, text[place:]])


def _forms(secret: str) -> Iterator[bytes]:
    """A secret as programs print it; long ones in pieces, so that little has to be held back."""
    secret = secret.strip()
    if len(secret) < SECRET_LENGTH:
        return
    raw = secret.encode(errors="surrogateescape")
    lines = [line.strip() for line in secret.splitlines()] if len(secret.splitlines()) > 1 else []
    texts = {
        secret,
        *(line for line in lines if len(line) >= LINE_LENGTH),
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
    }
    url = quote(raw, safe="")
    lower = re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), url)
    coded = {url, quote(raw), quote_plus(raw), lower, raw.hex(), raw.hex().upper()}
    forms = {text.encode(errors="surrogateescape") for text in texts | coded} | set(_base64_forms(raw))
    for form in forms:
        yield from (form[at : at + PIECE] for at in range(0, len(form), PIECE) if len(form) - at >= SECRET_LENGTH)


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    """The characters that only the secret decides, wherever it lies in what was encoded."""
    for before, mixed in ((0, 0), (1, 2), (2, 3)):
        data = b"\0" * before + raw
        kept = slice(mixed, len(data) * 8 // 6)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(data)[kept]
