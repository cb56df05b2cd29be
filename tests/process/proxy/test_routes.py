"""Keys that the proxy adds: they reach their endpoint, and nothing and no one else."""

import asyncio
import pickle
import ssl

import msgspec
import pytest

from orchard.process.proxy.heads import BadHead
from orchard.process.proxy.routes import Key, Route
from orchard.process.proxy.visits import Patience
from tests.process.proxy.world import SOON, Names, Site, certificate, head, server, status, world

pytestmark = pytest.mark.anyio

SECRET = "sk-canary-0123456789"
Contexts = tuple[ssl.SSLContext, ssl.SSLContext]


@pytest.fixture(scope="module")
def contexts(tmp_path_factory: pytest.TempPathFactory) -> Contexts:
    return certificate(tmp_path_factory.mktemp("tls"))


def anthropic(url: str) -> Route:
    return Route("llm", url, "x-api-key", "", Key(SECRET))


def names() -> Names:
    return Names(api_example="127.0.0.1", evil_example="127.0.0.1")


async def test_the_endpoint_gets_the_key_and_nothing_of_what_the_job_put_in_its_place(contexts: Contexts) -> None:
    site = Site()
    async with server(site, contexts[0]) as port:
        route = anthropic(f"https://api.example:{port}/base")
        async with world(names(), reach="nothing", routes=[route], tls=contexts[1]) as it:
            answer = await it.get(
                f"{it.door.base_url('llm')}/v1/messages?beta=true", "X-API-Key: of-a-stranger",
                "Authorization: Bearer x", "api-key: y", "Cookie: session=z",
                "anthropic-version: 2023-06-01", "Connection: x-api-key",
            )  # fmt: skip

    assert status(answer) == 200
    assert site.heads[0].startswith(b"GET /base/v1/messages?beta=true HTTP/1.1\r\n")
    assert site.field("host") == [f"api.example:{port}"]
    assert site.field("x-api-key") == [SECRET]
    assert site.field("anthropic-version") == ["2023-06-01"]
    assert site.field("authorization") + site.field("api-key") + site.field("cookie") == []
    assert SECRET.encode() not in answer


@pytest.mark.parametrize(
    ("header", "words", "sent"),
    [("Authorization", "Bearer", f"Bearer {SECRET}"), ("x-goog-api-key", "", SECRET), ("api-key", "", SECRET)],
)
async def test_each_kind_of_key_goes_where_its_endpoint_looks_for_it(
    header: str, words: str, sent: str, contexts: Contexts
) -> None:
    site = Site()
    async with server(site, contexts[0]) as port:
        route = Route("llm", f"https://api.example:{port}", header, words, Key(SECRET))
        async with world(names(), routes=[route], tls=contexts[1]) as it:
            await it.get(f"{it.door.base_url('llm')}/v1beta/models?key=of-a-stranger&alt=sse", f"{header}: mine")

    assert site.field(header.lower()) == [sent]
    assert site.heads[0].startswith(b"GET /v1beta/models?alt=sse HTTP/1.1\r\n")


async def test_the_route_is_found_through_the_proxy_as_well_as_without_it(contexts: Contexts) -> None:
    """Programs that send everything to the proxy name the door itself as the host."""
    site = Site()
    async with server(site, contexts[0]) as port:
        route = anthropic(f"https://api.example:{port}")
        async with world(names(), routes=[route], tls=contexts[1]) as it:
            plain = head("GET /_key/llm/v1 HTTP/1.1", f"Host: 127.0.0.1:{it.door.port}", "Connection: close")
            assert status(await it.say(plain)) == 200
            assert status(await it.get(f"http://localhost:{it.door.port}/_key/llm/v1")) == 200
            for path in ("/", "/_key/", "/_key/other/v1", "/_key/llm2/", "/v1", "/_key", "/_KEY/llm/"):
                assert status(await it.get(f"http://127.0.0.1:{it.door.port}{path}")) == 404
            for path in ("/../x", "/a/../../x", "/%2e%2e/x", "/a/%2E./b", "/.", "/a%2fb", "/..", "/a\\..\\b"):
                assert status(await it.get(f"http://127.0.0.1:{it.door.port}/_key/llm{path}")) == 400

    assert len(site.heads) == 2


async def test_a_redirect_is_told_to_the_job_and_the_key_does_not_follow_it(contexts: Contexts) -> None:
    evil = Site()
    async with server(evil) as other:
        away = b"HTTP/1.1 307 Away\r\nLocation: http://evil.example:%d/x\r\nContent-Length: 0\r\n\r\n" % other
        site = Site(away)
        async with server(site, contexts[0]) as port:
            route = anthropic(f"https://api.example:{port}")
            open_to = {"listed": [f"evil.example:{other}"], "own": [f"127.0.0.1:{other}"]}
            async with world(names(), routes=[route], tls=contexts[1], **open_to) as it:  # type: ignore[arg-type]
                program = await asyncio.create_subprocess_exec(
                    "curl", "-sL", "-m", "10", "-d", "body", "--noproxy", "", "--proxy", it.door.url, "-o", "/dev/null",
                    "-w", "%{http_code}", f"{it.door.base_url('llm')}/v1", stdout=asyncio.subprocess.PIPE,
                )  # fmt: skip
                assert (await program.communicate())[0] == b"200"

    assert site.field("x-api-key") == [SECRET]
    assert len(evil.heads) == 1
    assert SECRET.encode() not in evil.heads[0]


async def test_one_connection_that_goes_to_both_keeps_the_key_to_its_endpoint(contexts: Contexts) -> None:
    site, evil = Site(), Site()
    async with server(site, contexts[0]) as port, server(evil) as other:
        route = anthropic(f"https://api.example:{port}")
        async with world(names(), routes=[route], tls=contexts[1], own=[f"127.0.0.1:{other}"]) as it:
            first = head("GET /_key/llm/v1 HTTP/1.1", "Host: x")
            second = head(f"GET http://127.0.0.1:{other}/ HTTP/1.1", "Host: x")
            answer = await it.say(first + second + first + first)

    assert answer.count(b"HTTP/1.1 200 OK") == 4
    assert (len(site.heads), len(evil.heads)) == (3, 1)
    assert site.connections == 2
    assert SECRET.encode() not in evil.heads[0]


async def test_an_endpoint_that_cannot_prove_who_it_is_gets_no_key(contexts: Contexts) -> None:
    site = Site()
    async with server(site, contexts[0]) as port:
        wrong_name = anthropic(f"https://evil.example:{port}")
        async with world(names(), routes=[wrong_name], tls=contexts[1]) as it:
            answer = await it.get(f"{it.door.base_url('llm')}/")
        async with world(names(), routes=[anthropic(f"https://api.example:{port}")]) as it:
            untrusted = await it.get(f"{it.door.base_url('llm')}/")

    assert [status(answer), status(untrusted)] == [502, 502]
    assert site.heads == []
    assert SECRET.encode() not in answer + untrusted


async def test_without_tls_a_route_stays_in_the_house() -> None:
    site = Site()
    async with server(site) as port:
        async with world(routes=[anthropic(f"http://127.0.0.1:{port}")]) as it:
            assert status(await it.get(f"{it.door.base_url('llm')}/")) == 200
        assert site.field("x-api-key") == [SECRET]
        far = Names(far_example="93.184.215.14", meta_example="169.254.169.254")
        for host in ("far.example", "meta.example"):
            async with world(far, routes=[anthropic(f"http://{host}:{port}")]) as it:
                assert status(await it.get(f"{it.door.base_url('llm')}/")) == 403
            assert it.reasons == [(host, "public-without-tls")]


async def test_events_of_a_stream_are_passed_on_one_by_one(contexts: Contexts) -> None:
    go = asyncio.Semaphore(0)

    async def stream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(3):
            await go.acquire()
            writer.write(b"9\r\ndata: %d\n\n\r\n" % number)
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        await reader.read()

    async with server(stream, contexts[0]) as port:
        route = anthropic(f"https://api.example:{port}")
        async with world(names(), routes=[route], tls=contexts[1]) as it:
            reader, writer = await it.connect()
            writer.write(head("POST /_key/llm/v1 HTTP/1.1", "Host: x", "Content-Length: 2") + b"{}")
            async with asyncio.timeout(SOON):
                await reader.readuntil(b"\r\n\r\n")
                for number in range(3):
                    go.release()  # the next is sent only after the one before has come through
                    assert await reader.readuntil(b"\n\n\r\n") == b"9\r\ndata: %d\n\n\r\n" % number
                assert await reader.readuntil(b"\r\n\r\n") == b"0\r\n\r\n"
            writer.close()


async def test_a_token_is_asked_for_where_others_reach_the_door_too(contexts: Contexts) -> None:
    site = Site()
    async with server(site, contexts[0]) as port, server(site) as plain:
        route = anthropic(f"https://api.example:{port}")
        async with world(
            names(),
            routes=[route],
            tls=contexts[1],
            own=[f"127.0.0.1:{plain}"],
            token=True,
            patience=Patience(farewell=0.2),
        ) as it:
            token = it.door.token
            assert token is not None
            assert len(token) >= 32
            assert status(await it.get(f"{it.door.base_url('llm')}/v1")) == 200
            url = f"http://127.0.0.1:{plain}/"
            for path in ("llm/v1", "/llm/v1", f"{token[:-1]}/llm/v1", f"{token}x/llm/v1"):
                assert status(await it.get(f"http://127.0.0.1:{it.door.port}/_key/{path}")) == 407
            for wrong in ([], ["Proxy-Authorization: Basic am9iOng="], [f"Proxy-Authorization: Bearer {token}"]):
                answer = await it.get(url, *wrong)
                assert status(answer) == 407
                assert b"Proxy-Authenticate: Basic" in answer
                assert status(await it.connect_to(f"127.0.0.1:{plain}", *wrong)) == 407
            program = await asyncio.create_subprocess_exec(
                "curl", "-s", "-m", "10", "-p", "-o", "/dev/null", "-w", "%{http_code}", "--noproxy", "", url,
                env={"http_proxy": it.door.url}, stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            assert (await program.communicate())[0] == b"200"

    assert len(site.heads) == 2


def test_a_key_is_shown_nowhere() -> None:
    route = anthropic("https://api.example")

    shown = [repr(route), str(route), f"{route.key}", f"{route!r:>100}", repr({"key": route.key})]
    assert not [text for text in shown if SECRET in text]
    with pytest.raises(TypeError):
        pickle.dumps(route.key)
    with pytest.raises(TypeError):
        msgspec.json.encode(route)
    for bad in ("a\r\nX: y", "ä", " x", "a\0"):
        with pytest.raises(ValueError, match="key") as caught:
            Key(bad)
        assert bad not in str(caught.value)


def test_a_route_leads_to_one_endpoint_or_is_none() -> None:
    for url in (
        "ftp://a.example",
        "https://u:p@a.example",
        "https://",
        "a.example",
        "https://a.example/?x=1",
        "https://0x7f.1",
    ):
        with pytest.raises(ValueError, match="address of a route"):
            Route("llm", url)
    for name in ("", "a/b", "..", "a b", "ä"):
        with pytest.raises(ValueError, match="name of a route"):
            Route(name, "https://a.example")
    assert Route("llm", "https://API.example").host_field == b"api.example"
    assert Route("llm", "https://[2001:db8::1]:8443").host_field == b"[2001:db8::1]:8443"
    with pytest.raises(BadHead):
        Route("llm", "https://a.example/v1").target(b"/../admin")
