"""The door of the daemon: what every request has to show before anything else looks at it.

A page of some other site can make a browser send requests here, and can point a name of its own at this address. So,
in this order, and before any route is looked up:

    Host             a name of ours with our very port, else 421: no name of somebody else's leads here
    Origin           absent, or exactly what Host says, else 403
    Sec-Fetch-Site   absent, `same-origin` or `none`, else 403: not even another port of this machine
    token            `Authorization: Bearer` with the token or a session; else 401. Only /healthz, the dashboard's
                     files, which are the same for everybody, and exchanging a code for a session need none
    body             JSON, else 415; at most 8 MiB, else 413. It is read here, as a whole, and never before the token

There is no cookie: a browser sends those of a machine to every port of it, so also to the servers that jobs start. The
dashboard keeps its session where only pages of the same port can read it, and sends it in a header, which no other
site can add without being asked: the browser would ask first, and the answer has no CORS header, ever. No answer leaves
without the headers that keep a browser strict.
"""

import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from email.utils import formatdate
from typing import Any

from msgspec import Struct, field

from orchard.surfaces.http.daemon.tokens import Tokens
from orchard.surfaces.http.problems import document, json_bytes

BODY_BYTES = 8 * 1024 * 1024
HEAD_BYTES = 16 * 1024
READING = frozenset({"GET", "HEAD", "OPTIONS"})
METHODS = READING | {"POST", "PUT", "PATCH", "DELETE"}
JSON_TYPES = frozenset({"application/json"})
COMES_FROM_HERE = frozenset({"same-origin", "none"})
HEALTH_PATH = "/healthz"
SESSION_PATH = "/session"
CODE_HEADER = "x-orchard-code"
CONNECTION = "orchard.connection"
"""In the state of a request: what to call once its sender has shown the token."""

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
)
STRICT: Mapping[bytes, bytes] = {
    b"content-security-policy": CSP.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
OURS_ALONE = (b"server", b"date", b"access-control-")
"""Beginnings of header names that no application behind the door may send."""

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Refusal(Struct, frozen=True):
    """Why a request does not get in, for whoever sent it."""

    status: int
    detail: str
    hint: str = ""
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Traffic(Struct):
    """What goes through the door: for the metrics, and to know when nobody comes any more."""

    open: int = 0
    streams: int = 0
    """Answers of events that are being sent."""
    last: float = field(default_factory=time.monotonic)
    answered: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Requests by method and class of status, such as ("GET", "2xx")."""


class Door:
    """Lets requests through to an application, or answers them itself."""

    def __init__(
        self,
        app: App,
        tokens: Tokens,
        hosts: Collection[str],
        traffic: Traffic,
        scheme: str,
        port: int,
        pages: Collection[str] = (),
    ) -> None:
        """`pages`: paths of what is the same for everybody, and tells nothing."""
        self._app, self._tokens, self._traffic, self._scheme = app, tokens, traffic, scheme
        self._open = {HEALTH_PATH, *pages}
        usual = {"http": 80, "https": 443}[scheme]
        self._hosts = {f"{host}:{port}" for host in hosts} | (set(hosts) if port == usual else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        traffic, answer = self._traffic, _Answer(send, scope["method"], self._traffic)
        traffic.open += 1
        try:
            await self._answer(scope, receive, answer)
        finally:
            traffic.open -= 1
            traffic.streams -= answer.streams
            traffic.last = time.monotonic()

    async def _answer(self, scope: Scope, receive: Receive, send: "_Answer") -> None:
        headers = _Headers(scope)
        code = _code(scope, headers)
        refusal = self._refuse(scope, headers, exchanging=code is not None)
        if refusal is not None:
            await refuse(send, refusal)
        elif code is not None:
            await self._exchange(code, send)
        elif not headers.has_body:
            await self._app(scope, receive, send)
        else:
            await self._pass_body(scope, receive, send)

    async def _pass_body(self, scope: Scope, receive: Receive, send: "_Answer") -> None:
        """Read what the request brings along, and hand it on in one piece; half of it is nothing."""
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return  # they went away, or were too slow
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > BODY_BYTES:
                await refuse(send, TOO_LARGE)
                return
            more = message.get("more_body", False)
        await self._app(scope, _once(b"".join(parts), receive), send)

    def _refuse(self, scope: Scope, headers: "_Headers", *, exchanging: bool) -> Refusal | None:
        """Why this request is not let in, if it is not; the rules in their order."""
        method, path = scope["method"], scope["path"]
        if headers.bytes + len(scope["raw_path"]) + len(scope["query_string"]) > HEAD_BYTES:
            return Refusal(431, f"The head of a request may have {HEAD_BYTES} bytes.")
        host = headers.only("host").lower()
        if host not in self._hosts:
            return Refusal(
                421, "This is not the host that was asked for.", "Use the address that 'orchard serve' printed."
            )
        if method not in METHODS or not scope["raw_path"].startswith(b"/"):
            allow = (b"allow", ", ".join(sorted(METHODS)).encode())
            return Refusal(405, "No such request is answered here.", headers=(allow,))
        if "origin" in headers and headers.only("origin").lower() != f"{self._scheme}://{host}":
            return Refusal(403, "Requests of other sites are refused.")
        if "sec-fetch-site" in headers and headers.only("sec-fetch-site").lower() not in COMES_FROM_HERE:
            return Refusal(403, "Requests of other sites are refused.")
        if exchanging or (path in self._open and method in ("GET", "HEAD")):
            return NO_BODY if headers.has_body else None
        refusal = self._not_allowed(headers)
        if refusal is None:
            prove = scope.get("state", {}).get(CONNECTION)
            if prove is not None:
                prove()
        return refusal or _bad_body(method, headers)

    def _not_allowed(self, headers: "_Headers") -> Refusal | None:
        """Why this caller may do nothing here; a header, since a browser sends cookies to every port of a machine."""
        kind, _, given = headers.only("authorization").partition(" ")
        known = self._tokens.is_token(given.strip()) or self._tokens.is_session(given.strip())
        return None if kind.lower() == "bearer" and known else UNKNOWN

    async def _exchange(self, code: str, send: "_Answer") -> None:
        """Give the dashboard its session for the code of its link."""
        session = self._tokens.exchange(code)
        if session is None:
            await refuse(send, USED_UP)
            return
        body = json_bytes({"session": session})
        found = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": 200, "headers": found})
        await send({"type": "http.response.body", "body": body})


NEW_LINK = "Run 'orchard serve' in the repository again: it prints a new link."
UNKNOWN = Refusal(401, "This needs the daemon's token.", NEW_LINK, ((b"www-authenticate", b'Bearer realm="orchard"'),))
USED_UP = Refusal(401, "This link was used before, or is older than ten minutes.", NEW_LINK, UNKNOWN.headers)
NO_BODY = Refusal(413, "Nothing may be sent along with this: the daemon reads nothing before the token.")
TOO_LARGE = Refusal(413, f"A request may have {BODY_BYTES} bytes.")


def _bad_body(method: str, headers: "_Headers") -> Refusal | None:
    """What is wrong with what the request brings along, as far as its head tells."""
    if not headers.has_body:
        return None
    if int(headers.only("content-length") or 0) > BODY_BYTES:
        return TOO_LARGE
    if method not in READING and headers.only("content-type").partition(";")[0].strip().lower() not in JSON_TYPES:
        return Refusal(415, "What is written here is JSON.", "Send 'Content-Type: application/json'.")
    return None


class _Headers:
    """The headers of a request. One that comes twice counts as one that is wrong."""

    def __init__(self, scope: Scope) -> None:
        self._values: dict[str, list[str]] = {}
        self.bytes = 0
        for name, value in scope["headers"]:
            self._values.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
            self.bytes += len(name) + len(value) + 4

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def only(self, name: str) -> str:
        values = self._values.get(name, [])
        return ", ".join(values).strip()

    @property
    def has_body(self) -> bool:
        return "transfer-encoding" in self or self.only("content-length") not in ("", "0")


class _Answer:
    """The way back: every answer gets the strict headers, and is counted."""

    def __init__(self, send: Send, method: str, traffic: Traffic) -> None:
        self._send, self._traffic = send, traffic
        self._method = method if method in METHODS else "OTHER"
        self.streams = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = [
                (name, value) for name, value in message.get("headers", ()) if not name.lower().startswith(OURS_ALONE)
            ]
            said = {name.lower(): value for name, value in headers}
            headers += [(name, value) for name, value in STRICT.items() if name not in said]
            if b"cache-control" not in said:
                headers.append((b"cache-control", b"no-store"))
            headers.append((b"date", formatdate(usegmt=True).encode()))
            message = {**message, "headers": headers}
            self._traffic.answered[self._method, f"{message['status'] // 100}xx"] += 1
            if said.get(b"content-type", b"").startswith(b"text/event-stream"):
                self.streams += 1
                self._traffic.streams += 1
        await self._send(message)


async def refuse(send: Send, refusal: Refusal) -> None:
    body = json_bytes(document(refusal.status, refusal.detail, refusal.hint or None))
    headers = [
        (b"content-type", b"application/problem+json"), (b"content-length", str(len(body)).encode()), *refusal.headers,
    ]  # fmt: skip
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _code(scope: Scope, headers: "_Headers") -> str | None:
    """The code of a link that 'orchard serve' printed, as the dashboard brings it to be exchanged.

    It comes in a header, which no other site can add without being asked.
    """
    wanted = scope["method"] == "POST" and scope["path"] == SESSION_PATH and CODE_HEADER in headers
    return headers.only(CODE_HEADER) if wanted else None


def _once(body: bytes, receive: Receive) -> Receive:
    """The body in one piece, and afterwards whatever else is to be heard."""
    given = False

    async def read() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return read
