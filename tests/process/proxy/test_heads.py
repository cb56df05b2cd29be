"""Heads and bodies under any bytes: they are read in one way, or refused."""

import contextlib

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchard.process.proxy.bodies import LAST_CHUNK, Body, chunk
from orchard.process.proxy.heads import (
    BadHead,
    Request,
    framing_of_request,
    read_request,
    read_response,
    written,
)

token = st.text("abcXYZ-_!#$09", min_size=1, max_size=8).map(str.encode)
value = st.binary(max_size=20) | st.sampled_from(
    [b"chunked", b"5", b"0", b"close", b"upgrade", b"x, y", b"", b"\tx", b"5, 5"]
)
name = token | st.sampled_from(
    [
        b"Content-Length",
        b"content-length ",
        b"Transfer-Encoding",
        b"Host",
        b"Connection",
        b"Upgrade",
        b" X",
        b"X\n",
        b"",
    ]
)
line_end = st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r", b"\r\n "])
first_line = st.sampled_from(
    [
        b"GET http://a.example/ HTTP/1.1",
        b"POST / HTTP/1.1",
        b"CONNECT a:1 HTTP/1.0",
        b"GET  / HTTP/1.1",
        b"GET / HTTP/1.1 ",
    ]
) | st.binary(max_size=30)


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    rows = draw(st.lists(st.tuples(name, st.sampled_from([b": ", b":", b" : "]), value), max_size=5))
    parts = [draw(first_line)]
    for one, colon, what in rows:
        parts += [draw(line_end), one + colon + what]
    return b"".join(parts)


@given(heads() | st.binary(max_size=200))
def test_a_head_of_any_bytes_is_a_request_or_refused(data: bytes) -> None:
    with contextlib.suppress(BadHead):
        request = read_request(data)
        again = passed_on(request)
        assert read_request(again.removesuffix(b"\r\n\r\n")).body == request.body
        agrees_with_another_reader(again, request)
    for method in (b"GET", b"HEAD"):
        with contextlib.suppress(BadHead):
            read_response(data, method)


def passed_on(request: Request) -> bytes:
    fields = [(b"Host", b"a.example"), *request.fields.passed_on(), *framing_of_request(request)]
    target = b"/x" if request.method != b"CONNECT" else b"a:1"
    return written(b"%b %b HTTP/1.1" % (request.method, target), fields)


def agrees_with_another_reader(data: bytes, request: Request) -> None:
    """What we pass on ends, for a reader that others wrote, where it ends for us."""
    reader = h11.Connection(h11.SERVER)
    reader.receive_data(data)
    event = reader.next_event()
    assert isinstance(event, h11.Request)
    lengths = [what for one, what in event.headers if one == b"content-length"]
    codings = [what for one, what in event.headers if one == b"transfer-encoding"]
    assert codings == ([b"chunked"] if request.body is None else [])
    assert [int(length) for length in lengths] == ([] if not lengths else [request.body])
    assert bool(lengths) or not request.body


@given(st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=30), st.binary(max_size=40))
def test_chunks_cut_anywhere_give_the_same_body_and_leave_what_follows(
    data: bytes, cuts: list[int], rest: bytes
) -> None:
    coded, at = b"", 0
    for size in cuts:
        coded += chunk(data[at : at + size])
        at += size
    coded += chunk(data[at:]) + LAST_CHUNK + rest
    for step in (1, 3, 1000):
        body, found = Body(None), b""
        for start in range(0, len(coded), step):
            found += body.take(coded[start : start + step])
        assert (found, body.done, body.rest) == (data, True, rest)


@given(
    st.binary(max_size=120) | st.from_regex(rb"([0-9a-f]{1,3}(;x)?\r\n.{0,5}\r\n){0,4}(0\r\n)?\r?\n?", fullmatch=True)
)
def test_chunks_of_any_bytes_are_read_or_refused_wherever_they_are_cut(data: bytes) -> None:
    results: list[tuple[bytes, bool, bytes] | None] = []
    for step in (1, 7, 1000):
        body, found = Body(None), b""
        try:
            for start in range(0, len(data), step):
                found += body.take(data[start : start + step])
            results.append((found, body.done, body.rest))
        except BadHead:
            results.append(None)
    assert results == [results[0]] * 3


def test_lengths_end_where_they_say() -> None:
    body = Body(5)
    assert body.take(b"abc") == b"abc"
    assert not body.done
    assert body.take(b"defg") == b"de"
    assert (body.done, body.rest) == (True, b"fg")
    assert Body(0).done


def test_chunk_lines_and_trailers_have_a_limit() -> None:
    for endless in (b"1;" + b"x" * 9000, b"0\r\n" + b"X: y\r\n" * 9000, b"f" * 20):
        body = Body(None)
        with pytest.raises(BadHead):
            for start in range(0, len(endless), 1000):
                body.take(endless[start : start + 1000])
            body.take(b"\r\n")
