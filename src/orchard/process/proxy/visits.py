"""One connection of a job to its door: requests are read, judged and passed on, one after the other."""

import asyncio
import hmac
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from typing import NoReturn

from msgspec import Struct

from orchard.model.addresses import Address, authority, objection, split_authority
from orchard.model.endpoints import entry_for
from orchard.process.proxy.allowed import Allowed
from orchard.process.proxy.askers import asker
from orchard.process.proxy.bodies import LAST_CHUNK, Body, chunk
from orchard.process.proxy.dialer import Dialer, RefusedAddress, Unreachable, not_this_machine
from orchard.process.proxy.heads import (
    END,
    HEAD_BYTES,
    UNTIL_CLOSE,
    BadHead,
    Field,
    Request,
    Response,
    framing_of_request,
    framing_of_response,
    read_request,
    read_response,
    written,
)
from orchard.process.proxy.refusals import Refusal, Refusals
from orchard.process.proxy.routes import PREFIX, Route
from orchard.process.proxy.wires import Wire

_BARE_END = re.compile(rb"(?<!\r)\n")
_ABSOLUTE = re.compile(rb"(http)://([^/?#]*)([^#]*)", re.IGNORECASE)
_TOLD = {
    400: b"Bad Request", 403: b"Forbidden", 404: b"Not Found", 405: b"Method Not Allowed",
    407: b"Proxy Authentication Required", 408: b"Request Timeout",
    431: b"Request Header Fields Too Large", 501: b"Not Implemented", 502: b"Bad Gateway",
}  # fmt: skip
_UPGRADE: list[Field] = [(b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]


class Patience(Struct, frozen=True):
    """How long a job is waited for, in seconds."""

    head: float = 30.0
    """From the first byte of a head to its last."""
    idle: float = 120.0
    """Between two requests of a connection."""
    farewell: float = 2.0
    """For what a job still sends after an answer that ends the connection."""


class Terms(Struct, frozen=True):
    """What holds for all connections of one job."""

    allowed: Allowed
    routes: Mapping[str, Route]
    dialer: Dialer
    tls: ssl.SSLContext
    """How endpoints of routes prove who they are."""
    refusals: Refusals
    port: int
    """The door's own, as the job sees it on its 127.0.0.1."""
    token: str | None
    """What must be shown where others can reach the door as well."""
    patience: Patience
    keeper: int | None = None
    """A process in the network namespace of the job, where it has one."""


_Place = tuple[str, str, int]
"""Where a connection leads to: `http` or `https` of a route or `listed`, host and port."""


class _Answered(Exception):
    """The request was answered by us; the connection may go on where nothing of the request is still to come."""


class Visit:
    """One connection of a job, and the one connection to the outside that it holds at a time."""

    def __init__(self, wire: Wire, terms: Terms) -> None:
        self._wire = wire
        self._terms = terms
        self._out: tuple[_Place, Wire] | None = None
        self._answering = False
        """The job has the head of an answer: nothing but its body may follow."""

    async def serve(self) -> None:
        """Answer requests until one side has enough; everything is closed after it."""
        try:
            while await self._request():
                pass
            await self._farewell()
        except BadHead as bad:
            if not self._answering:
                await self._say(bad.status, bad.reason)
                await self._farewell()
        except ConnectionError:
            pass
        finally:
            self._hang_up()
            if not self._wire.transport.is_closing():
                self._wire.cut()

    async def _request(self) -> bool:
        """Answer one request; whether there may be another."""
        head = await self._head(self._wire, first_byte=self._terms.patience.idle)
        if head is None:
            return False
        request = read_request(head)
        self._answering = False
        try:
            if request.method == b"TRACE":
                raise BadHead("What was sent is not sent back.", 405)
            if request.method == b"CONNECT":
                await self._tunnel(request)
                return False
            return await self._pass_on(request)
        except _Answered:
            return request.stays_open and request.body == 0 and request.method not in (b"CONNECT", b"HEAD")

    async def _head(self, wire: Wire, first_byte: float | None) -> bytes | None:
        """The bytes of a head; None where the other side has ended before it began. Raises BadHead."""
        data = b""
        began = False
        try:
            async with asyncio.timeout(first_byte) as limit:
                while True:
                    piece = await wire.read()
                    if not piece:
                        if data:
                            raise BadHead("The head ends in the middle.")
                        return None
                    if not began and first_byte is not None:
                        limit.reschedule(asyncio.get_running_loop().time() + self._terms.patience.head)
                    start = max(len(data) - 3, 0)
                    # Some send an empty line after a body.
                    data = data + piece if began else piece.removeprefix(b"\r\n")
                    began = True
                    end = data.find(END, start)
                    if end >= 0:
                        wire.unread(data[end + 4 :])
                        data = data[:end]
                    if _BARE_END.search(data, start):
                        raise BadHead("A line does not end as lines of HTTP do.")
                    if len(data) > HEAD_BYTES:
                        raise BadHead("The head is too long.", 431)
                    if end >= 0:
                        return data
        except TimeoutError:
            if data:
                raise BadHead("The head did not come in time.", 408) from None
            return None

    # --------------------------------------------------------------------------------------- where to

    async def _tunnel(self, request: Request) -> None:
        self._check_token(request)
        found = split_authority(request.target.decode("ascii"))
        if found is None:
            raise BadHead("CONNECT takes 'host:port'.")
        out = await self._listed(*found)
        self._out = (("listed", *found), out)
        await self._wire.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await self._wire.join(out)

    async def _pass_on(self, request: Request) -> bool:
        absolute = _ABSOLUTE.fullmatch(request.target)
        if absolute is None and not request.target.startswith(b"/"):
            raise BadHead("The target is neither a path nor an http URL; of https there is only CONNECT.")
        found = split_authority(absolute[2].decode("ascii"), 80) if absolute is not None else None
        if absolute is not None and found is None:
            raise BadHead("The URL has no host that can be one.")
        path = absolute[3] if absolute is not None else request.target
        if found is None or found in (("127.0.0.1", self._terms.port), ("localhost", self._terms.port)):
            return await self._pass_to_route(request, path)
        self._check_token(request)
        host, port = found
        out = await self._outside(("listed", host, port))
        name = host if port == 80 and ":" not in host else authority(host, port)
        fields = [(b"Host", name.encode()), *request.fields.passed_on()]
        target = path if path.startswith(b"/") else b"/" + path
        return await self._exchange(request, out, target, fields)

    async def _pass_to_route(self, request: Request, path: bytes) -> bool:
        """What is asked of the door itself: `/_key/NAME/...`, or `/_key/TOKEN/NAME/...` where a token is needed."""
        prefix = PREFIX.encode()
        if not path.startswith(prefix):
            await self._refuse_request(404, "This is a proxy; there is nothing here.")
        rest = path.removeprefix(prefix)
        if self._terms.token is not None:
            shown, _, rest = rest.partition(b"/")
            if not hmac.compare_digest(shown, self._terms.token.encode()):
                await self._refuse_request(407, "The token is missing or wrong.")
        name = rest.partition(b"/")[0].partition(b"?")[0]
        route = self._terms.routes.get(name.decode("ascii"))
        if route is None:
            await self._refuse_request(404, "There is no such route.")
        target = route.target(rest.removeprefix(name))
        out = await self._outside(("https" if route.secure else "http", *route.endpoint), route)
        return await self._exchange(request, out, target, [(b"Host", route.host_field), *route.fields(request)])

    async def _outside(self, place: _Place, route: Route | None = None) -> Wire:
        """The connection of the request before, where it leads to the same place and is still good, or a new one."""
        if self._out is not None and self._out[0] == place and self._out[1].is_idle:
            return self._out[1]
        self._hang_up()
        out = await (self._listed(*place[1:]) if route is None else self._endpoint(route))
        self._out = (place, out)
        return out

    async def _listed(self, host: str, port: int) -> Wire:
        """A connection to what this job may reach; answers and raises where it may not."""
        allowed = self._terms.allowed
        reason = allowed.refuses(host, port)
        if reason is not None:
            await self._refuse(Refusal(host, port, reason, entry=entry_for(host, port)))

        def judge(address: Address) -> str | None:
            return allowed.refuses_address(address, port)

        def exempt(address: Address) -> bool:
            return allowed.names(address, port)

        try:
            return await self._terms.dialer.dial(host, port, not_this_machine(judge, exempt))
        except RefusedAddress as refused:
            entry = authority(refused.address, port)
            await self._refuse(Refusal(host, port, refused.reason, refused.address, entry, own=True))
        except Unreachable as error:
            await self._refuse_request(502, f"{authority(host, port)} cannot be reached: {error}.")

    async def _endpoint(self, route: Route) -> Wire:
        """A connection to the endpoint of a route. TLS proves who answers; without it, it must not leave the house."""
        host, port = route.endpoint

        def nearby(address: Address) -> str | None:
            return None if objection(address) in ("loopback", "private") else "public-without-tls"

        try:
            if route.secure:
                return await self._terms.dialer.dial(host, port, lambda _: None, self._terms.tls)
            return await self._terms.dialer.dial(host, port, nearby)
        except RefusedAddress as refused:
            await self._refuse(Refusal(host, port, refused.reason, refused.address))
        except Unreachable as error:
            await self._refuse_request(502, f"{authority(host, port)} cannot be reached: {error}.")

    # --------------------------------------------------------------------------------------- to and fro

    async def _exchange(self, request: Request, out: Wire, target: bytes, fields: list[Field]) -> bool:
        """Send a request, and what is answered back; whether this connection may go on."""
        websocket = request.wants_websocket
        first = b"%b %b HTTP/1.1" % (request.method, target)
        more = [*framing_of_request(request), *(_UPGRADE if websocket else [])]
        await self._send(out, written(first, [*fields, *more]))
        upload = asyncio.create_task(self._upload(request, out)) if request.body != 0 else None
        try:
            response = await self._response(request, out)
            if response is None:
                await self._wire.join(out)
                return False
            whole = await self._download(request, response, out)
            sent = upload is None or upload.done()
            if upload is not None and upload.done():
                upload.result()
            if not (response.stays_open and whole and sent):
                self._hang_up()
            return whole and sent and request.stays_open and response.stays_open
        except BadHead as bad:
            if upload is not None and upload.done():
                upload.result()  # what was wrong with the request comes before what followed from it
            raise BadHead(bad.reason, 502) from None
        finally:
            if upload is not None:
                upload.cancel()
                await asyncio.wait([upload])

    async def _send(self, out: Wire, data: bytes) -> None:
        try:
            await out.write(data)
        except ConnectionError:
            raise BadHead("The endpoint ended the connection.", 502) from None

    async def _upload(self, request: Request, out: Wire) -> None:
        """Pass the body of a request on. Where it breaks off, the endpoint is cut: it must not take it for whole."""
        body = Body(request.body)
        try:
            while not body.done:
                data = await self._wire.read()
                if not data:
                    raise BadHead("The body ends in the middle.")
                piece = body.take(data)
                await out.write(chunk(piece) if request.body is None else piece)
            self._wire.unread(body.rest)
            if request.body is None:
                await out.write(LAST_CHUNK)
        except BadHead:
            out.cut()
            raise
        except ConnectionError:
            return  # the endpoint is gone; perhaps it has answered before

    async def _response(self, request: Request, out: Wire) -> Response | None:
        """The head of the answer, sent on with those that come before it; None: the two speak something else now."""
        while True:
            head = await self._head(out, first_byte=None)
            if head is None:
                raise BadHead("The endpoint ended the connection without an answer.", 502)
            response = read_response(head, request.method)
            if response.status == 101:
                if not request.wants_websocket:
                    raise BadHead("The endpoint changed the protocol without being asked.")
                await self._answer(response, [*response.fields.passed_on(), *_UPGRADE])
                return None
            if response.is_interim:
                if request.minor == 1:
                    await self._answer(response, response.fields.passed_on())
                continue
            more = framing_of_response(response, request.method)
            if request.minor == 0:
                more = [row for row in more if row[0] != b"Transfer-Encoding"]
            if not (request.stays_open and response.stays_open):
                more.append((b"Connection", b"close"))
            self._answering = True
            await self._answer(response, [*response.fields.passed_on(), *more])
            return response

    async def _answer(self, response: Response, fields: list[Field]) -> None:
        await self._wire.write(written(b"HTTP/1.1 %d %b" % (response.status, response.reason), fields))

    async def _download(self, request: Request, response: Response, out: Wire) -> bool:
        """Pass the body of an answer on as it comes. False: it broke off, and the job's connection was cut to tell."""
        body = Body(response.body)
        chunks = response.body is None and request.minor == 1
        try:
            while not body.done:
                data = await out.read()
                if not data:
                    break
                piece = body.take(data)
                await self._wire.write(chunk(piece) if chunks else piece)
        except BadHead:
            self._wire.cut(broken=True)
            return False
        if not body.done and response.body != UNTIL_CLOSE:
            self._wire.cut(broken=True)
            return False
        if chunks:
            await self._wire.write(LAST_CHUNK)
        out.unread(body.rest)
        return True

    # --------------------------------------------------------------------------------------- answers of ours

    def _check_token(self, request: Request) -> None:
        if self._terms.token is None:
            return
        wanted = b"Basic " + b64encode(f"job:{self._terms.token}".encode())
        shown = request.fields.all(b"proxy-authorization")
        if len(shown) != 1 or not hmac.compare_digest(shown[0], wanted):
            raise BadHead("The token is missing or wrong.", 407)

    async def _refuse(self, refusal: Refusal) -> NoReturn:
        refusals, program = self._terms.refusals, None
        if refusals.wants_program(refusal):
            peer = self._wire.transport.get_extra_info("peername")
            at = (peer[1], self._terms.port, self._terms.keeper) if isinstance(peer, tuple) and len(peer) > 1 else None
            program = await asyncio.to_thread(asker, *at) if at is not None else None
        refusals.add(refusal, program)
        led = f" leads to {refusal.address}, which" if refusal.address not in (None, refusal.host) else ""
        words = f"{authority(refusal.host, refusal.port)}{led} is refused to this job ({refusal.reason})."
        await self._refuse_request(403, words)

    async def _refuse_request(self, status: int, words: str) -> NoReturn:
        await self._say(status, words)
        raise _Answered

    async def _say(self, status: int, words: str) -> None:
        if self._wire.lost or self._wire.transport.is_closing():
            return
        text = f"orchard: {words}\n".encode("ascii", "replace")
        fields = [(b"Content-Type", b"text/plain"), (b"Content-Length", b"%d" % len(text))]
        if status == 407:
            fields.append((b"Proxy-Authenticate", b'Basic realm="orchard"'))
        first = b"HTTP/1.1 %d %b" % (status, _TOLD.get(status, b"Error"))
        await self._wire.write(written(first, fields) + text)

    async def _farewell(self) -> None:
        """End without losing the answer: closing while the job still sends would throw away what it has not read."""
        self._wire.end()
        try:
            async with asyncio.timeout(self._terms.patience.farewell):
                while await self._wire.read():
                    pass
        except TimeoutError:
            pass
        await self._wire.close()

    def _hang_up(self) -> None:
        if self._out is not None:
            self._out[1].cut()
            self._out = None
