"""Keeping secrets and control sequences out of what leaves a log.

Known values are looked for as they are, with control sequences in them, and as programs like to print them (URL,
base64, hex, JSON);
tokens of well-known services are looked for by their shape. A chunk may end anywhere, so the last
unfinished line is held back until it is whole: every shape but a private key stays within a line.

Plain searches for fixed bytes are many times as fast as a pattern with many branches. So a
shape's pattern runs only on a chunk that holds the shape's fixed word, and known values
are fixed words anyway.
"""

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus

from msgspec import Struct

from orchard.model.secrets import SECRET_LENGTH, looks_secret, secrets_of
from orchard.store.disguise import Shown, hex_spans
from orchard.store.values import Values

__all__ = ["REDACTED", "Redactor", "looks_secret", "redact_text", "secrets_of"]

REDACTED = b"[redacted]"
CARRY = 64 * 1024
HOLD = 16 * 1024
"""What stays back of a line that is longer than `CARRY`; no piece and no token is longer."""
KEY_LENGTH = 16 * 1024
PIECE = 4 * 1024
LINE_LENGTH = 8
"""Shorter lines of a secret of many lines are not looked for on their own."""

_Span = tuple[int, int]


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
    _Shape(b"sk-", re.compile(rb"(?<![A-Za-z0-9_-])sk-[A-Za-z0-9_-]{16,}")),
    _Shape(b"gh", re.compile(rb"gh[pousr]_[A-Za-z0-9]{16,}")),
    _Shape(b"github_pat_", re.compile(rb"github_pat_[A-Za-z0-9_]{16,}")),
    _Shape(b"glpat-", re.compile(rb"glpat-[A-Za-z0-9_-]{16,}")),
    _Shape(b"npm_", re.compile(rb"npm_[A-Za-z0-9]{30,}")),
    _Shape(b"xox", re.compile(rb"xox[a-z]-[A-Za-z0-9-]{10,}")),
    _Shape(b"AKIA", re.compile(rb"(?<![A-Za-z0-9])AKIA[A-Z0-9]{16}(?![A-Za-z0-9])")),
    _Shape(b"ASIA", re.compile(rb"(?<![A-Za-z0-9])ASIA[A-Z0-9]{16}(?![A-Za-z0-9])")),
    _Shape(b"AIza", re.compile(rb"AIza[A-Za-z0-9_-]{30,}")),
    # What has no dot after it is passed over as a whole: each `eyJ` inside of it would look for the same dot.
    _Shape(b"eyJ", re.compile(rb"(eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)?)|eyJ[\w-]{8,}+", re.ASCII)),
    _Shape(b"://", re.compile(rb"://[^\s/:@]*:([^\s/@]+)@")),
    _Shape(b"bearer", re.compile(rb"(?i:bearer)[ \t]+([A-Za-z0-9._~+/=-]{8,})"), any_case=True),
    _Shape(
        b"authorization",
        re.compile(rb"(?i:authorization[\"']?[:=][ \t]*[\"']?basic)[ \t]+([A-Za-z0-9+/=_-]{8,})"),
        any_case=True,
    ),
)
_SECRET_FIELDS = (
    b"password", b"passwd", b"passphrase", b"secret", b"token", b"api_key", b"apikey", b"access_key",
)  # fmt: skip
_FIELD_VALUE = re.compile(rb"[\"']?([^\s&\"';,]{6,})")
_KEY_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BEGIN_LENGTH = len(b"-----BEGIN ") + 40
_KEY_END = re.compile(rb"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")


class Redactor:
    """Hides secrets in a stream of bytes, wherever the stream is cut into chunks."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        secrets = tuple(secrets)
        self._known = Values(form for secret in secrets for form in _forms(secret))
        self._coded = Values(
            secret.strip().encode(errors="surrogateescape").hex().encode() for secret in _long(secrets)
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

    def hidden(self, data: bytes, *, ended: bool) -> tuple[list[_Span], int]:
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

    def _spans(self, text: bytes, *, ended: bool) -> tuple[list[_Span], int]:
        """What is to be hidden, in order and apart; and where a private key begins that has no end yet."""
        keys, open_key = _private_keys(text, ended=ended)
        spans = [*keys, *self._known.spans(text), *_tokens(text), *hex_spans(text, self._coded)]
        shown = Shown(text)
        if shown.text is not text:  # what a screen would show as a whole must be found as a whole
            spans += [shown.span(*span) for span in (*self._known.spans(shown.text), *_tokens(shown.text))]
        return _joined(spans), open_key


def redact_text(text: str, secrets: Iterable[str] = ()) -> str:
    return Redactor(secrets).whole(text.encode(errors="surrogateescape")).decode(errors="surrogateescape")


def _tokens(text: bytes) -> Iterator[_Span]:
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


def _private_keys(text: bytes, *, ended: bool) -> tuple[list[_Span], int]:
    """Whole keys; one that never ends is hidden up to a length, so that its first line cannot blind a log."""
    spans: list[_Span] = []
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


def _joined(spans: list[_Span]) -> list[_Span]:
    joined: list[_Span] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _hide(text: bytes, spans: list[_Span]) -> bytes:
    if not spans:
        return text
    parts, place = [], 0
    for start, end in spans:
        parts += [text[place:start], REDACTED]
        place = end
    return b"".join([*parts, text[place:]])


def _long(secrets: Iterable[str]) -> Iterator[str]:
    return (secret for secret in secrets if SECRET_LENGTH <= len(secret.strip()) <= PIECE // 2)


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
    coded = {url, quote(raw), quote_plus(raw), _lower_escapes(url), raw.hex(), raw.hex().upper()}
    forms = {text.encode(errors="surrogateescape") for text in texts | coded} | set(_base64_forms(raw))
    for form in forms:
        yield from (form[at : at + PIECE] for at in range(0, len(form), PIECE) if len(form) - at >= SECRET_LENGTH)


def _lower_escapes(url: str) -> str:
    return re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), url)


def _base64_forms(raw: bytes) -> Iterator[bytes]:
    """The characters that only the secret decides, wherever it lies in what was encoded."""
    for before, mixed in ((0, 0), (1, 2), (2, 3)):
        data = b"\0" * before + raw
        kept = slice(mixed, len(data) * 8 // 6)
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(data)[kept]
