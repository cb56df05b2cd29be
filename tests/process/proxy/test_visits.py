"""What a job gets through its door, and what it does not."""

import asyncio
import socket
from collections.abc import Callable

import pytest

from orchard.process.proxy.visits import Patience
from tests.process.proxy.world import SOON, Names, Site, head, server, status, world

pytestmark = pytest.mark.anyio


async def test_a_listed_host_is_reached_by_connect_and_the_bytes_go_through_unchanged() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()

    names = Names(good_example="127.0.0.1")
    async with server(echo) as port, world(names, listed=[f"good.example:{port}"], own=[f"127.0.0.1:{port}"]) as it:
        reader, writer = await it.connect()
        # What is said before the answer is not lost.
        writer.write(head(f"CONNECT good.example:{port} HTTP/1.1", f"Host: good.example:{port}") + b"early ")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 200 Connection established\r\n\r\n"
        sent = bytes(range(256)) * 8192
        writer.write(sent)
        writer.write_eof()
        async with asyncio.timeout(SOON):
            assert await reader.read() == b"early " + sent
        writer.close()
    assert it.refused == []


async def test_a_host_that_is_not_listed_is_not_even_looked_up() -> None:
    names = Names(evil_example="192.0.2.1")
    async with world(names, listed=["good.example"]) as it:
        answers = [await it.connect_to("evil.example:443"), await it.get("http://evil.example/x")]

    assert [status(answer) for answer in answers] == [403, 403]
    assert names.asked == []
    assert [(one.host, one.port, one.reason, one.entry) for one in it.refused] == [
        ("evil.example", 443, "not-listed", "evil.example"), ("evil.example", 80, "not-listed", "evil.example"),
    ]  # fmt: skip


async def test_with_the_network_off_nothing_is_reached() -> None:
    async with world(Names(good_example="93.184.215.14"), reach="nothing") as it:
        assert status(await it.connect_to("good.example:443")) == 403

    assert it.reasons == [("good.example", "network-off")]


@pytest.mark.parametrize("reach", ["public", "listed"])
async def test_a_name_that_leads_to_an_address_which_is_not_public_is_refused(reach: str) -> None:
    site = Site()
    async with server(site) as port:
        names = Names(
            a_example="127.0.0.1", b_example="::1", c_example="::ffff:127.0.0.1", d_example="169.254.169.254",
            e_example="fd00:ec2::254", f_example="10.1.2.3", g_example="64:ff9b::7f00:1", h_example="2002:7f00:1::1",
            i_example="0.0.0.0", j_example="100.64.0.1", k_example="fe80::1%lo",
        )  # fmt: skip
        hosts = list(names.known)
        async with world(names, reach=reach, listed=[f"{host}:{port}" for host in hosts]) as it:  # type: ignore[arg-type]
            answers = [await it.connect_to(f"{host}:{port}") for host in hosts]
            answers += [await it.get(f"http://{host}:{port}/") for host in hosts]

    assert {status(answer) for answer in answers} == {403, 502}
    assert site.connections == 0
    assert {one.address for one in it.refused} >= {"127.0.0.1", "169.254.169.254", "fd00:ec2::254", "10.1.2.3"}
    first = it.refused[0]
    assert (first.host, first.reason, first.entry, first.own) == ("a.example", "loopback", f"127.0.0.1:{port}", True)


async def test_a_name_is_looked_up_once_and_the_address_that_was_judged_is_called() -> None:
    """Rebinding: the first answer is what may be reached, the second is another service of this machine."""
    site, secret = Site(), Site()
    async with server(site) as port, server(secret, place=("127.0.0.2", port)):
        names = Names(rebind_example="127.0.0.2")
        names.turns["rebind.example"] = [["127.0.0.1"]]
        async with world(names, listed=[f"rebind.example:{port}"], own=[f"127.0.0.1:{port}"]) as it:
            assert status(await it.get(f"http://rebind.example:{port}/")) == 200
            assert names.asked == ["rebind.example"]
            assert status(await it.get(f"http://rebind.example:{port}/")) == 403

    assert (site.connections, secret.connections) == (1, 0)


async def test_of_several_addresses_only_those_that_passed_are_called() -> None:
    site, secret = Site(), Site()
    async with server(site) as port, server(secret):
        names = Names(two_example=["10.0.0.1", "::1", "127.0.0.1"])
        async with world(names, listed=[f"two.example:{port}"], own=[f"127.0.0.1:{port}"]) as it:
            assert status(await it.get(f"http://two.example:{port}/")) == 200


@pytest.mark.parametrize(
    "host",
    ["0x7f.1", "2130706433", "127.1", "0177.0.0.1", "127.0.0.1.", "[::ffff:127.0.0.1]", "[::1]",
     "good.example@127.0.0.1",
     "127.0.0.1%00.good.example", "good.example#@127.0.0.1", "localhost", "LOCALHOST.", "0", "[::]",
     "good.example\\@127.0.0.1",
     "127。0。0。1", "①②⑦.0.0.1", "good.example:80@127.0.0.1", "[::1%25lo]", "0.0.0.0", "017700000001"],
)  # fmt: skip
async def test_no_spelling_of_this_machine_gets_through(host: str) -> None:
    site = Site()
    async with server(site) as port:
        names = Names(localhost="127.0.0.1", good_example="93.184.215.14")
        async with world(names, reach="public") as it:
            lines = (f"Host: {host}:{port}", "Connection: close")
            answers = [
                await it.say("\r\n".join((f"CONNECT {host}:{port} HTTP/1.1", *lines, "", "")).encode()),
                await it.say("\r\n".join((f"GET http://{host}:{port}/ HTTP/1.1", *lines, "", "")).encode()),
            ]

    assert {status(answer) for answer in answers} <= {400, 403}
    assert site.connections == 0


async def test_an_address_that_the_users_settings_name_is_reached_and_the_same_from_a_plan_is_not() -> None:
    site = Site()
    async with server(site) as port:
        async with world(own=[f"127.0.0.1:{port}"]) as it:
            assert status(await it.get(f"http://127.0.0.1:{port}/")) == 200
            assert status(await it.get(f"http://127.0.0.1:{port + 1 if port < 65535 else 1}/")) == 403
        async with world(listed=[f"127.0.0.1:{port}"]) as it:
            assert status(await it.get(f"http://127.0.0.1:{port}/")) == 403
    assert site.connections == 1


async def test_a_redirect_is_a_new_request_and_judged_like_any_other() -> None:
    site = Site()
    async with server(site) as secret:
        away = Site(b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:%d/\r\nContent-Length: 0\r\n\r\n" % secret)
        names = Names(good_example="127.0.0.1")
        async with (
            server(away) as port,
            world(names, listed=[f"good.example:{port}"], own=[f"127.0.0.1:{port}"]) as it,
        ):
            program = await asyncio.create_subprocess_exec(
                "curl", "-sL", "-o", "/dev/null", "-w", "%{http_code} %{num_redirects}", "--noproxy", "",
                "--proxy", it.door.url, f"http://good.example:{port}/", stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            said, _ = await program.communicate()

    assert said == b"403 1"
    assert (len(away.heads), site.connections) == (1, 0)
    assert it.reasons == [("127.0.0.1", "not-listed")]


async def test_a_public_address_of_this_machine_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback stands for such an address here: the tables are made to call it public."""
    monkeypatch.setattr("orchard.process.proxy.allowed.objection", lambda address: None)
    site = Site()
    async with server(site) as port, world(reach="public") as it:
        assert status(await it.get(f"http://127.0.0.1:{port}/")) == 403

    assert it.reasons == [("127.0.0.1", "this-machine")]
    assert site.connections == 0


# ---------------------------------------------------------------------------------------------- plain HTTP


async def test_what_belongs_to_one_connection_is_not_passed_on() -> None:
    site = Site(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: x-mine\r\nX-Mine: 1\r\nX-Yours: 2\r\n\r\nhi")
    async with server(site) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        answer = await it.get(
            f"http://127.0.0.1:{port}/a?b=c", "Proxy-Authorization: Basic eA==", "Connection: x-hop", "X-Hop: 1",
            "X-End: 2", "TE: trailers", "Keep-Alive: 5", "Proxy-Connection: keep-alive", "Upgrade: h2c",
        )  # fmt: skip

    assert site.heads[0].startswith(b"GET /a?b=c HTTP/1.1\r\n")
    assert site.field("host") == [f"127.0.0.1:{port}"]
    for name in ("proxy-authorization", "x-hop", "te", "keep-alive", "proxy-connection", "upgrade", "connection"):
        assert site.field(name) == []
    assert site.field("x-end") == ["2"]
    assert b"X-Mine" not in answer
    assert b"X-Yours: 2" in answer


async def test_requests_of_one_connection_use_one_connection_to_the_outside() -> None:
    site = Site()
    async with server(site) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        one = head(f"GET http://127.0.0.1:{port}/ HTTP/1.1", "Host: x")
        body = head(f"POST http://127.0.0.1:{port}/ HTTP/1.1", "Host: x", "Content-Length: 3") + b"abc"
        answer = await it.say(one + body + one)  # all at once

    assert answer.count(b"HTTP/1.1 200 OK") == 3
    assert site.bodies == [b"", b"abc", b""]
    assert site.connections == 1


async def test_chunks_go_through_in_both_directions_and_trailers_end_here() -> None:
    site = Site(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nX-Trailer: 1\r\n\r\n"
    )
    async with server(site) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        one = head(f"POST http://127.0.0.1:{port}/ HTTP/1.1", "Host: x", "Transfer-Encoding: chunked")
        answer = await it.say(one + b"4\r\nwxyz\r\n0\r\nT: 1\r\n\r\n" + one + b"1\r\n!\r\n0\r\n\r\n")
        old = await it.say(head(f"GET http://127.0.0.1:{port}/ HTTP/1.0"))

    assert site.bodies == [b"wxyz", b"!", b""]
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert b"Trailer" not in answer
    assert b"abc" in answer
    assert answer.endswith(b"0\r\n\r\n")
    assert old.endswith(b"\r\n\r\nabcde")  # HTTP/1.0 knows no chunks


async def test_an_answer_without_a_body_ends_where_its_head_ends() -> None:
    for method, first, framing in (
        ("HEAD", "200 OK", "Content-Length: 5"),
        ("GET", "304 Not Modified", "ETag: x"),
        ("GET", "204 No Content", "A: b"),
    ):
        site = Site(head(f"HTTP/1.1 {first}", framing))
        async with server(site) as port, world(own=[f"127.0.0.1:{port}"]) as it:
            one = head(f"{method} http://127.0.0.1:{port}/ HTTP/1.1", "Host: x")
            answer = await it.say(one + one)
        assert answer.count(f"HTTP/1.1 {first}".encode()) == 2
        assert framing.encode() in answer


async def test_an_answer_that_ends_with_its_connection_and_one_that_breaks_off_can_be_told_apart() -> None:
    async def until_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.0 200 OK\r\n\r\nwhole")

    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")

    async with server(until_close) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        answer = await it.get(f"http://127.0.0.1:{port}/")
        assert answer.endswith(b"Connection: close\r\n\r\nwhole")
    async with server(broken) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        with pytest.raises(ConnectionError):
            await it.get(f"http://127.0.0.1:{port}/")


async def test_a_body_waits_for_100_continue_and_is_not_sent_where_the_answer_is_no() -> None:
    async def patient(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got = await reader.readuntil(b"\r\n\r\n")
        assert b"Expect: 100-continue" in got
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        await reader.readexactly(4)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        await reader.read()

    async with server(patient) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        reader, writer = await it.connect()
        writer.write(
            head(f"PUT http://127.0.0.1:{port}/ HTTP/1.1", "Host: x", "Content-Length: 4", "Expect: 100-continue")
        )
        async with asyncio.timeout(SOON):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"body")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        writer.close()
    site = Site(b"HTTP/1.1 417 No\r\nContent-Length: 0\r\n\r\n")

    async def no(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(site.answer)
        await reader.read()

    async with server(no) as port, world(own=[f"127.0.0.1:{port}"], patience=Patience(farewell=0.2)) as it:
        put = head(f"PUT http://127.0.0.1:{port}/ HTTP/1.1", "Host: x", "Content-Length: 4", "Expect: 100-continue")
        assert status(await it.say(put, end=False)) == 417


async def test_a_websocket_is_a_tunnel_after_the_endpoint_agreed_and_no_other_upgrade_is() -> None:
    async def socket_server(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got = await reader.readuntil(b"\r\n\r\n")
        assert b"Upgrade: websocket\r\n" in got
        writer.write(
            b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n"
        )
        while data := await reader.read(100):
            writer.write(data.upper())

    async def forward_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 Switching\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n")
        await reader.read()

    async with server(socket_server) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        wish = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x")
        answer = await it.say(head(f"GET http://127.0.0.1:{port}/ HTTP/1.1", "Host: x", *wish) + b"frame")
        assert answer.startswith(b"HTTP/1.1 101 ")
        assert answer.endswith(b"\r\n\r\nFRAME")
    async with server(forward_one) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        answer = await it.say(
            head(f"GET http://127.0.0.1:{port}/ HTTP/1.1", "Host: x", "Connection: Upgrade", "Upgrade: h2c")
        )
        assert status(answer) == 502


async def test_what_was_sent_is_not_sent_back() -> None:
    site = Site()
    async with server(site) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        assert status(await it.say(head(f"TRACE http://127.0.0.1:{port}/ HTTP/1.1", "Host: x"))) == 405
    assert site.heads == []


def post(*fields: str, body: bytes = b"") -> Callable[[str], bytes]:
    return lambda url: head(f"POST {url} HTTP/1.1", "Host: x", *fields) + body


def chunked(body: bytes) -> Callable[[str], bytes]:
    return post("Transfer-Encoding: chunked", body=body)


SMUGGLING: dict[str, Callable[[str], bytes]] = {
    "length-and-chunks": post("Content-Length: 6", "Transfer-Encoding: chunked", body=b"0\r\n\r\nG"),
    "two-lengths": post("Content-Length: 6", "Content-Length: 5", body=b"abcdef"),
    "two-equal-lengths": post("Content-Length: 3", "Content-Length: 3", body=b"abc"),
    "list-of-lengths": post("Content-Length: 3, 3", body=b"abc"),
    "signed-length": post("Content-Length: +3", body=b"abc"),
    "folded": post("X: a", " Content-Length: 3", body=b"abc"),
    "space-before-colon": post("Content-Length : 3", body=b"abc"),
    "other-coding": post("Transfer-Encoding: gzip, chunked", body=b"0\r\n\r\n"),
    "two-codings": post("Transfer-Encoding: chunked", "Transfer-Encoding: x", body=b"0\r\n\r\n"),
    "strange-coding": post("Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n"),
    "chunk-without-length": chunked(b"x\r\n\r\n"),
    "chunk-too-long": chunked(b"2\r\nabcd\r\n0\r\n\r\n"),
    "signed-chunk": chunked(b"+2\r\nab\r\n"),
    "bare-chunk-end": chunked(b"2\nab\r\n0\r\n\r\n"),
    "bare-line-end": lambda url: f"GET {url} HTTP/1.1\r\nHost: x\nX: y\r\n\r\n".encode(),
    "bare-return": lambda url: f"GET {url} HTTP/1.1\r\nHost: x\rX: y\r\n\r\n".encode(),
    "zero-byte": lambda url: head(f"GET {url} HTTP/1.1", "Host: x", "X: a\0b"),
    "two-hosts": lambda url: head(f"GET {url} HTTP/1.1", "Host: x", "Host: y"),
    "no-host": lambda url: head(f"GET {url} HTTP/1.1"),
    "line-in-host": lambda url: head("GET http://a\r\nX: y/ HTTP/1.1", "Host: x"),
    "space-in-target": lambda url: head(f"GET {url} x HTTP/1.1", "Host: x"),
    "old-version": lambda url: head(f"GET {url} HTTP/0.9", "Host: x"),
    "new-version": lambda url: head(f"GET {url} HTTP/2.0", "Host: x"),
    "chunks-of-old": lambda url: head(f"POST {url} HTTP/1.0", "Host: x", "Transfer-Encoding: chunked") + b"0\r\n\r\n",
    "https": lambda url: head("GET https://127.0.0.1/ HTTP/1.1", "Host: x"),
    "no-port": lambda url: head("CONNECT 127.0.0.1 HTTP/1.1", "Host: x"),
    "star": lambda url: head("OPTIONS * HTTP/1.1", "Host: x"),
}


async def test_no_endpoint_gets_a_whole_request_of_what_two_readers_could_read_differently() -> None:
    site = Site()
    second = b"GET http://evil.example/second HTTP/1.1\r\nHost: x\r\n\r\n"
    async with server(site) as port, world(own=[f"127.0.0.1:{port}"], patience=Patience(farewell=0.5)) as it:
        for name, made in SMUGGLING.items():
            answer = await it.say(made(f"http://127.0.0.1:{port}/") + second)
            assert status(answer) in (400, 501), name
            assert answer.count(b"HTTP/1.1") == 1, name
            assert it.refused == [], name
            assert site.bodies == [], name


async def test_an_endpoint_that_could_be_read_differently_is_not_passed_on() -> None:
    for bad in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 0\n\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000,
    ):
        site = Site(bad)
        async with server(site) as port, world(own=[f"127.0.0.1:{port}"]) as it:
            assert status(await it.get(f"http://127.0.0.1:{port}/")) == 502


async def test_answers_that_nobody_asked_for_are_not_taken_for_the_next_answer() -> None:
    site = Site(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    async with server(site) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        one = head(f"GET http://127.0.0.1:{port}/ HTTP/1.1", "Host: x")
        answer = await it.say(one + one)

    assert b"evil" not in answer
    assert site.connections == 2


async def test_a_half_closed_connection_still_gets_its_answer() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b"question"
        await asyncio.sleep(0.1)
        writer.write(b"answer")

    async with server(slow) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        answer = await it.say(head(f"CONNECT 127.0.0.1:{port} HTTP/1.1", "Host: x") + b"question")
    assert answer.endswith(b"\r\n\r\nanswer")


async def test_a_job_that_is_gone_takes_its_connection_to_the_outside_with_it() -> None:
    ended = asyncio.Event()

    async def waits(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.read()
        finally:
            ended.set()

    async with server(waits) as port, world(own=[f"127.0.0.1:{port}"]) as it:
        reader, writer = await it.connect()
        writer.write(head(f"CONNECT 127.0.0.1:{port} HTTP/1.1", "Host: x"))
        await reader.readuntil(b"\r\n\r\n")
        bare: socket.socket = writer.get_extra_info("socket")
        assert bare.fileno() >= 0
        writer.transport.abort()
        async with asyncio.timeout(SOON):
            await ended.wait()
