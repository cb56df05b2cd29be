"""Who gets into the daemon and who does not, over real HTTP, compared with the rules written down a second time."""

import asyncio
import itertools
import json
import os
import random
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from http.cookiejar import CookieJar, DefaultCookiePolicy
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

import pytest

from orchard.surfaces.http.daemon import wire
from orchard.surfaces.http.daemon.owners import Peer
from orchard.surfaces.http.daemon.wire import MOST_LOOKS, OF_ANOTHER_USER, listen_at
from tests.acceptance.program import desks
from tests.http.daemon import Answer, Client, Daemon, served

STRICT = {
    "content-security-policy", "x-content-type-options", "x-frame-options", "referrer-policy",
    "cross-origin-opener-policy", "cross-origin-resource-policy", "cache-control", "date",
}  # fmt: skip
BODY_BYTES = 8 * 1024 * 1024


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    for desk in desks(tmp_path_factory.mktemp("door")):
        with served(desk) as found:
            yield found


@pytest.fixture(scope="module")
def session(daemon: Daemon) -> str:
    return daemon.session()


# -------------------------------------------------------------------------------------- the matrix

OUR_HOSTS = ("127.0.0.1:{port}", "localhost:{port}", "LocalHost:{port}", "[::1]:{port}")
OTHER_HOSTS = (
    "127.0.0.1",
    "localhost",
    "127.0.0.1:{other}",
    "evil.example:{port}",
    "127.0.0.1.evil.example:{port}",
    "",
)
ORIGINS = (
    None,
    "http://{host}",
    "null",
    "http://evil.example",
    "https://{host}",
    "http://localhost:{other}",
    "{host}",
    "",
)
SITES = (None, "same-origin", "none", "same-site", "cross-site", "")
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE", "TRACE", "BREW")
TYPES = (None, "application/json", "application/json; charset=utf-8", "text/plain", "application/x-www-form-urlencoded",
         "multipart/form-data; boundary=x", "text/json, application/json")  # fmt: skip
SECRETS = ("none", "wrong token", "token", "token in the address", "basic", "session", "wrong session",
           "session as a cookie", "token as a cookie", "session in a header of its own")  # fmt: skip
LOOKED_AT = "/api/v1/repos"
Case = tuple[str, str | None, str | None, str, str | None, str]


def verdict(case: Case) -> int:
    """What the rules say, for a path that can only be looked at."""
    host, origin, site, method, kind, secret = case
    if host not in OUR_HOSTS:
        return 421
    if method in ("TRACE", "BREW"):
        return 405
    if origin not in (None, "http://{host}"):
        return 403
    if site not in (None, "same-origin", "none"):
        return 403
    if secret not in ("token", "session"):
        return 401
    json_type = kind in ("application/json", "application/json; charset=utf-8")
    if method in ("POST", "PUT", "PATCH", "DELETE") and not json_type:
        return 415
    return 200 if method == "GET" else 405


def cases() -> list[Case]:
    """Every value of every part beside a request that is in order, and many others by lot."""
    parts = (OUR_HOSTS + OTHER_HOSTS, ORIGINS, SITES, METHODS, TYPES, SECRETS)
    good: list[Case] = [
        ("127.0.0.1:{port}", None, None, "GET", None, "token"),
        ("localhost:{port}", "http://{host}", "same-origin", "POST", "application/json", "session"),
    ]
    near = [
        (*case[:place], value, *case[place + 1 :])
        for case in good
        for place, values in enumerate(parts)
        for value in values
    ]
    every = list(itertools.product(*parts))
    passing = [case for case in every if verdict(case) in (200, 405, 415)]
    lot = random.Random(421)
    return [*near, *lot.sample(every, 900), *lot.sample(passing, 400)]


def asked(case: Case, daemon: Daemon, client: Client, session: str) -> Answer:
    host, origin, site, method, kind, secret = case
    name = host.format(port=daemon.port, other=daemon.port + 1)
    headers = {"Host": name}
    if origin is not None:
        headers["Origin"] = origin.format(host=name.lower(), other=daemon.port + 1)
    if site is not None:
        headers["Sec-Fetch-Site"] = site
    if kind is not None:
        headers["Content-Type"] = kind
    headers |= {
        "token": {"Authorization": f"Bearer {daemon.token}"},
        "wrong token": {"Authorization": "Bearer wrong"},
        "basic": {"Authorization": f"Basic {daemon.token}"},
        "session": {"Authorization": f"Bearer {session}"},
        "wrong session": {"Authorization": f"Bearer {session}x"},
        "session as a cookie": {"Cookie": f"a=b; orchard_{daemon.port}={session}", "X-Orchard": "1"},
        "token as a cookie": {"Cookie": f"orchard_{daemon.port}={daemon.token}", "X-Orchard": "1"},
        "session in a header of its own": {"X-Orchard": session, "X-Orchard-Code": session},
    }.get(secret, {})
    path = f"{LOOKED_AT}?token={daemon.token}" if "address" in secret else LOOKED_AT
    return client(method, path, headers, b"{}" if method not in ("GET", "HEAD", "OPTIONS") else None)


def test_every_combination_gets_exactly_the_verdict_of_the_rules(daemon: Daemon, session: str) -> None:
    client = Client(daemon.port)
    wrong = []
    seen = set()
    every = cases()

    for case in every:
        answer = asked(case, daemon, client, session)
        if answer.status != verdict(case):
            wrong.append((case, verdict(case), answer.status))
        seen.add(answer.status)
        check_strict(answer, case)

    client.close()
    assert not wrong, wrong[:5]
    assert len(every) >= 1000
    assert seen == {200, 401, 403, 405, 415, 421}


def check_strict(answer: Answer, case: object) -> None:
    names = [name.lower() for name, _ in answer.headers]
    assert set(names) >= STRICT, (case, names)
    assert not [name for name in names if name.startswith("access-control-") or name == "server"], names
    assert len(names) == len(set(names)), names
    if answer.status == 401:
        assert answer.header("www-authenticate") == 'Bearer realm="orchard"'
    if answer.status >= 400:
        assert answer.header("content-type") == "application/problem+json", case
        if answer.body:
            assert answer.json["status"] == answer.status


def test_the_policy_for_browsers_allows_nothing_from_elsewhere(daemon: Daemon) -> None:
    policy = daemon.ask("GET", "/healthz").header("content-security-policy")

    assert policy is not None and policy.startswith("default-src 'none'; script-src 'self'; ")
    assert (
        "unsafe" not in policy and "frame-ancestors 'none'" in policy and "require-trusted-types-for 'script'" in policy
    )


def test_only_whether_somebody_is_there_is_told_without_a_token(daemon: Daemon) -> None:
    paths = ("/session", "/metrics", "/api/v1/plans", "/api/v1/openapi.json", "/api/v1/events", "/mcp", "//", "/start",
             "/nothing", "/healthz/", "/healthz/x", "//healthz", "/HEALTHZ", "/./healthz", "/%68ealthz/x")  # fmt: skip

    assert daemon.ask("GET", "/healthz").json == {"status": "ok"}
    assert {path: daemon.ask("GET", path).status for path in paths} == dict.fromkeys(paths, 401)
    assert daemon.ask("POST", "/healthz", {"Content-Type": "application/json"}, b"{}").status == 401
    assert daemon.ask("POST", "/", {"Content-Type": "application/json"}, b"{}").status == 401
    page = daemon.ask("GET", "/")
    assert page.status == 200 and daemon.desk.repo.path.name not in page.body.decode().split()


def test_another_site_cannot_even_ask_whether_somebody_is_there(daemon: Daemon) -> None:
    assert daemon.ask("GET", "/healthz", {"Host": f"evil.example:{daemon.port}"}).status == 421
    assert daemon.ask("GET", "/healthz", {"Origin": "http://evil.example"}).status == 403


def test_a_write_without_a_body_needs_no_content_type(daemon: Daemon) -> None:
    assert daemon.ask("DELETE", "/", daemon.bearer).status == 405


# -------------------------------------------------------------------------------------- the secrets


def test_the_token_is_long_private_and_nowhere_to_be_read(daemon: Daemon) -> None:
    place = Path(daemon.said["token_file"])

    assert len(daemon.token) >= 43
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE((daemon.desk.state / "http.json").stat().st_mode) == 0o600
    assert daemon.token not in (daemon.desk.state / "http.json").read_text()
    assert daemon.running is not None and daemon.token not in daemon.running.talk
    assert not [word for word in daemon.process.cmdline() if daemon.token in word]
    assert daemon.token not in str(daemon.process.environ())


def test_a_code_is_good_once_and_becomes_a_session(daemon: Daemon) -> None:
    code = daemon.new_code()

    first, second = daemon.exchange(code), daemon.exchange(code)

    assert (first.status, second.status) == (200, 401)
    session = {"Authorization": f"Bearer {first.json['session']}"}
    assert len(first.json["session"]) >= 43
    assert daemon.ask("GET", "/api/v1/repos", session).status == 200
    assert "session" not in second.json


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("HEAD", "/session", {}),
        ("GET", "/session", {}),
        ("POST", "/", {"Content-Type": "application/json"}),
        ("POST", "/session", {"Origin": "http://evil.example"}),
        ("POST", "/session", {"Origin": "http://127.0.0.1:1"}),
        ("POST", "/session", {"Sec-Fetch-Site": "same-site"}),
        ("POST", "/session", {"Host": "evil.example"}),
        ("OPTIONS", "/session", {"Access-Control-Request-Headers": "x-orchard-code"}),
    ],
)
def test_what_is_refused_does_not_use_a_code_up(
    daemon: Daemon, method: str, path: str, headers: dict[str, str]
) -> None:
    code = daemon.new_code()

    refused = daemon.ask(method, path, {"X-Orchard-Code": code, **headers})

    assert refused.status in (401, 403, 421)
    assert daemon.exchange(code).status == 200


def test_a_code_in_the_address_opens_nothing_and_stays_good(daemon: Daemon) -> None:
    code = daemon.new_code()

    assert daemon.ask("POST", f"/session?code={code}").status == 401
    assert daemon.ask("GET", f"/?code={code}").header("set-cookie") is None
    assert daemon.exchange(code).status == 200


def test_a_code_that_is_too_old_is_refused(daemon: Daemon) -> None:
    code = daemon.new_code()
    for place in (Path(daemon.said["token_file"]).parent / "codes").iterdir():
        os.utime(place, (time.time() - 601, time.time() - 601))

    answer = daemon.exchange(code)

    assert answer.status == 401
    assert "ten minutes" in answer.json["detail"]


@pytest.mark.parametrize("code", ["", "x", "../../token", "%2e%2e%2ftoken", "%00", "\xff", "a" * 2000])
def test_a_code_that_was_never_made_is_refused(daemon: Daemon, code: str) -> None:
    assert daemon.exchange(code).status == 401


def test_a_server_on_another_port_gets_nothing_that_opens_the_api(daemon: Daemon) -> None:
    received: list[dict[str, str]] = []

    class Neighbour(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(dict(self.headers))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nobody reads it."""

    jar = CookieJar(DefaultCookiePolicy(strict_domain=False))
    browser = build_opener(ProxyHandler({}), HTTPCookieProcessor(jar))
    here = f"http://127.0.0.1:{daemon.port}"
    with HTTPServer(("127.0.0.1", 0), Neighbour) as neighbour:
        serving = Thread(target=neighbour.serve_forever)
        serving.start()
        for path in ("/", f"/?code={daemon.new_code()}", "/start.js"):
            browser.open(f"{here}{path}").close()
        with browser.open(Request(f"{here}/session", b"", {"X-Orchard-Code": daemon.new_code()})) as answer:
            session = json.loads(answer.read())["session"]
        browser.open(Request(f"{here}/api/v1/repos", headers={"Authorization": f"Bearer {session}"})).close()
        browser.open(f"http://127.0.0.1:{neighbour.server_port}/").close()
        neighbour.shutdown()
        serving.join()

    (got,) = received
    assert not list(jar) and "Cookie" not in got and session not in str(got)
    replayed = {**got, "Host": f"127.0.0.1:{daemon.port}", "X-Orchard": "1"}
    assert daemon.ask("GET", "/api/v1/repos", replayed).status == 401
    assert daemon.ask("POST", "/api/v1/plans", replayed).status == 401


# --------------------------------------------------------------------------------------- the limits


def talk(daemon: Daemon, *parts: bytes) -> bytes:
    """Say this, and hear all there is until the other side hangs up."""
    with daemon.raw() as line:
        try:
            for part in parts:
                line.sendall(part)
        except (BrokenPipeError, ConnectionResetError):
            pass
        return heard(line)


def heard(line: socket.socket) -> bytes:
    found = b""
    try:
        while part := line.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def head(daemon: Daemon, *lines: str, method: str = "POST") -> bytes:
    rows = (f"{method} / HTTP/1.1", f"Host: 127.0.0.1:{daemon.port}", f"Authorization: Bearer {daemon.token}",
            "Content-Type: application/json", "Connection: close", *lines)  # fmt: skip
    return "".join(f"{row}\r\n" for row in rows).encode() + b"\r\n"


@pytest.mark.parametrize("count", [1, 40])
def test_a_head_that_is_too_long_is_refused(daemon: Daemon, count: int) -> None:
    long = [f"X-{number}: {'a' * (20_000 // count)}" for number in range(count)]

    assert talk(daemon, head(daemon, *long, method="GET")).startswith(b"HTTP/1.1 431 ")


def test_a_head_that_never_ends_is_refused(daemon: Daemon) -> None:
    begun = f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\n".encode()

    answer = talk(daemon, begun, *(b"X-more: " + b"a" * 5000 for _ in range(10)))

    assert answer.startswith(b"HTTP/1.1 431 ") and b"content-security-policy" in answer


def test_a_body_that_says_it_is_too_long_is_refused_unread(daemon: Daemon) -> None:
    assert talk(daemon, head(daemon, f"Content-Length: {BODY_BYTES + 1}")).startswith(b"HTTP/1.1 413 ")


def test_a_body_in_pieces_is_refused_when_it_gets_too_long(daemon: Daemon) -> None:
    piece = b"100000\r\n" + b" " * 0x100000 + b"\r\n"

    assert talk(daemon, head(daemon, "Transfer-Encoding: chunked"), *[piece] * 9).startswith(b"HTTP/1.1 413 ")


def test_a_body_as_long_as_is_allowed_passes(daemon: Daemon) -> None:
    answer = daemon.ask("POST", "/", {**daemon.bearer, "Content-Type": "application/json"}, b" " * BODY_BYTES)

    assert answer.status == 405


@pytest.mark.parametrize(
    "said",
    [
        b"\x16\x03\x01\x02\x00\x01\x00", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", b"\x00" * 100 + b"\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_request_is_told_so_and_hung_up_on(daemon: Daemon, said: bytes) -> None:
    answer = talk(daemon, said)

    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in answer
    assert daemon.ask("GET", "/healthz").status == 200


def test_a_request_to_another_server_is_not_passed_on(daemon: Daemon) -> None:
    answer = talk(daemon, head(daemon, method="GET").replace(b"GET /", b"GET http://evil.example/"))

    assert answer.startswith(b"HTTP/1.1 405 ")


def test_a_path_in_other_clothes_is_no_way_around_the_door(daemon: Daemon) -> None:
    for target in (b"//healthz", b"/healthz;x", b"/x/../healthz", b"/%2e/healthz", b"\\healthz", b"*"):
        line = head(daemon, method="GET").replace(b"GET / ", b"GET " + target + b" ")
        without = b"\r\n".join(row for row in line.split(b"\r\n") if not row.startswith(b"Authorization"))
        assert talk(daemon, without).split(b" ")[1] in (b"400", b"401", b"405"), target


# --------------------------------------------------------------- before the token nothing costs anything


@pytest.mark.parametrize("path", ["/healthz", "/", "/start.js"])
@pytest.mark.parametrize("more", ["Content-Length: 8388608", "Transfer-Encoding: chunked"])
def test_a_body_is_refused_where_no_token_is_asked_for(daemon: Daemon, path: str, more: str) -> None:
    begun = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\n{more}\r\n\r\n".encode()

    with daemon.raw() as line:
        line.sendall(begun)
        assert line.recv(4096).startswith(b"HTTP/1.1 413 "), "before a byte of the body has come"


def test_bodies_without_a_token_do_not_fill_the_memory(daemon: Daemon) -> None:
    before = daemon.process.memory_info().rss
    crowd = []
    for _ in range(40):
        line = daemon.raw()
        line.settimeout(0.2)
        line.sendall(
            f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{daemon.port}\r\nContent-Length: 8388608\r\n\r\n".encode()
        )
        with suppress(OSError):
            for _ in range(7):
                line.sendall(b" " * 1024 * 1024)
        crowd.append(line)

    grown = daemon.process.memory_info().rss - before
    for line in crowd:
        line.close()
    assert grown < 60 * 1024 * 1024


def test_who_holds_every_connection_without_a_token_keeps_nobody_out(daemon: Daemon) -> None:
    crowd = [daemon.raw() for _ in range(400)]
    try:
        assert daemon.ask("GET", "/api/v1/plans", daemon.bearer).status == 200
        assert daemon.ask("GET", "/api/v1/plans", daemon.bearer).status == 200
    finally:
        for line in crowd:
            line.close()


@pytest.mark.skipif(os.getuid() != 0 or not Path("/proc/net/tcp").exists(), reason="needs to be another user")
def test_another_user_holds_so_many_connections_and_no_more(daemon: Daemon) -> None:
    script = (
        "import os, socket, sys, time\n"
        "'x'.encode('idna'); os.setgid(54321); os.setuid(54321)\n"
        f"lines = [socket.create_connection(('127.0.0.1', {daemon.port})) for _ in range(150)]\n"
        "for line in lines: line.setblocking(False)\n"
        "def told(line):\n"
        "    try: return line.recv(12)\n"
        "    except BlockingIOError: return 'open'\n"
        "    except OSError: return b''\n"
        "def held(): return sum(told(line) == 'open' for line in lines)\n"
        "for _ in range(100):\n"
        f"    if held() <= {OF_ANOTHER_USER}: break\n"
        "    time.sleep(0.1)\n"
        "time.sleep(1.5)\n"
        "print(held())\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)

    assert int(done.stdout) == OF_ANOTHER_USER == 64


@pytest.mark.anyio
async def test_whose_a_connection_is_is_asked_again_where_one_look_does_not_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mallory, looks = os.getuid() + 1, 0

    def half_blind(peers: Iterable[Peer | None]) -> dict[Peer | None, int]:
        """Like the kernel's table while it changes: every other row of it is missing."""
        nonlocal looks
        looks += 1
        return {peer: mallory for number, peer in enumerate(peers) if number % 2}

    monkeypatch.setattr(wire, "owners_of", half_blind)
    monkeypatch.setattr(wire, "SWEEP_SECONDS", 0.01)

    async def app(scope: object, receive: object, send: object) -> None:
        """Nobody asks for anything."""

    server = wire.make_server(app, None)
    with listen_at("127.0.0.1", 0) as listener, ExitStack() as lines:
        task = asyncio.create_task(server.serve([listener]))
        await server.listens.wait()
        for _ in range(150):
            lines.enter_context(socket.create_connection(listener.getsockname()))
            await asyncio.sleep(0)
        for _ in range(500):
            await asyncio.sleep(0.01)
            if looks > MOST_LOOKS:
                break
        left = len(server.server_state.connections)
        server.end()
        await task

    # One is never found, as in every list of one: it is asked for so often, and then left alone.
    assert left == OF_ANOTHER_USER + 1
