"""Redaction takes a time that grows with the text, whatever the text is, and hardly with the number of secrets."""

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchard.store.redact import _KEY_BEGIN, _SECRET_FIELDS, _SHAPES, Redactor, Values

SMALL, LARGE = 16 * 1024, 256 * 1024
UNITS = sorted(
    {
        beginning + end
        for beginning in (
            *(shape.word for shape in _SHAPES),
            *(field + b"=" for field in _SECRET_FIELDS),
            b"-----BEGIN PRIVATE KEY-----",
            b"-----BEGIN ",
            b"eyJaaaaaaaa.",
            b"eyJaaaaaaaa.bbbbbbbb.",
            b"://a:",
            b"://a:b",
            b"authorization: basic ",
            b"xoxb-",
            b"ghp_",
            b"=",
        )
        for end in (b"", b" ", b"-", b'"', b"a", b".", b":", b"\n")
    }
)


def seconds(action: Callable[[], object]) -> float:
    """The best of three, in processor time: other programs do not count."""
    times = []
    for _ in range(3):
        began = time.thread_time()
        action()
        times.append(time.thread_time() - began)
    return min(times)


@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_what_begins_like_a_token_again_and_again_takes_linear_time(unit: bytes) -> None:
    redactor = Redactor()

    def take(size: int) -> float:
        return seconds(lambda: redactor.whole(unit * (size // len(unit))))

    # Sixteen times the text takes sixteen times as long; 256 times would be its square.
    assert take(LARGE) < 0.02 + 64 * take(SMALL)


@pytest.mark.parametrize("end", [b"", b" ", b"-", b"\n", b"x"])
@pytest.mark.parametrize(
    "unit",
    [b"\x1b[", b"\x1b]0;", b"\x1b", b"\xc2\x9d", b"\xe2\x80\x8b", b"70 6c ", b"\\x70", b"70  ", b"70\n",
     b"70  x\n00000000: "],
)  # fmt: skip
def test_what_begins_like_a_disguise_again_and_again_takes_linear_time(unit: bytes, end: bytes) -> None:
    redactor = Redactor(["planlevelsecret77"])

    def take(size: int) -> float:
        return seconds(lambda: redactor.whole((unit + end) * (size // len(unit + end))))

    assert take(LARGE // 8) < 0.02 + 64 * take(SMALL // 8)


def test_the_first_word_of_a_key_far_behind_is_looked_for_once() -> None:
    key = b"-----BEGIN PRIVATE KEY-----x-----END PRIVATE KEY-----\n"

    def take(size: int) -> float:
        return seconds(lambda: Redactor().whole(b"." * size + key * (size // len(key))))

    assert take(LARGE) < 0.02 + 64 * take(SMALL)
    assert _KEY_BEGIN.search(Redactor().whole(b"." * SMALL + key * 10)) is None


def test_two_hundred_secrets_take_hardly_longer_than_ten() -> None:
    log = b"2026-01-01 12:00:00 compiled src/parser/module.py in 12 ms, warnings=3, ok\n" * 20_000
    few, many = (Redactor([f"{number:04d}/correct-horse-{number}" for number in range(count)]) for count in (10, 200))

    assert seconds(lambda: many.whole(log)) < 0.05 + 2 * seconds(lambda: few.whole(log))


@given(
    st.lists(st.binary(min_size=1, max_size=24), max_size=8),
    st.lists(st.tuples(st.binary(max_size=9), st.integers(0, 7)), max_size=12),
)
def test_values_are_found_wherever_each_of_them_would_be(values: list[bytes], parts: list[tuple[bytes, int]]) -> None:
    text = b"".join(filler + (values[index % len(values)] if values else b"") for filler, index in parts)

    expected = {match.span() for value in values for match in re.finditer(re.escape(value), text)}

    assert set(Values(values).spans(text)) == expected


@given(st.text(alphabet="eyJa.-", max_size=60))
def test_a_web_token_is_found_as_the_plain_pattern_finds_it(text: str) -> None:
    plain = re.compile(rb"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?")
    raw = text.encode()

    assert Redactor().whole(raw) == plain.sub(b"[redacted]", raw)
