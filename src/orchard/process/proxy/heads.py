"""The heads of requests and responses, read strictly, and written anew: nothing is passed on as it came.

Where two readers can disagree about where a message ends, one of them can be made to see a request that the other did
not (request smuggling). So what RFC 9112 leaves to the recipient is refused here: bare line ends, folded lines, a
length said twice or beside chunks, other codings than `chunked`, spaces before a colon. Nothing here touches a socket.
"""

from collections.abc import Iterable

from msgspec import Struct

from orchard.patterns import later

HEAD_BYTES = 64 * 1024
MOST_FIELDS = 200
END = b"\r\n\r\n"

Framing = int | None
"""How long a body is; None: it comes in chunks."""
UNTIL_CLOSE = -1

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE = later(rb"(%s) ([\x21-\x7e]+) HTTP/1\.([01])" % _TOKEN)
_STATUS_LINE = later(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
_FIELD = later(
    rb"(%s):[ \t]*((?:[\x21-\x7e\x80-\xff](?:[\t\x20-\x7e\x80-\xff]*[\x21-\x7e\x80-\xff])?)?)[ \t]*" % _TOKEN
)
_LENGTH = later(rb"[0-9]{1,18}")

_OF_ONE_CONNECTION = frozenset((
    b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
    b"transfer-encoding", b"upgrade", b"content-length", b"host", b"http2-settings",
))  # fmt: skip
"""What holds between us and one side only; what stands here and is needed is written by us."""


class BadHead(Exception):
    """A head that is refused, with the status that says so."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


Field = tuple[bytes, bytes]


class Fields(Struct, frozen=True):
    """The fields of a head in their order, as they were written."""

    rows: tuple[Field, ...]

    def all(self, name: bytes) -> list[bytes]:
        return [value for one, value in self.rows if one.lower() == name]

    def tokens(self, name: bytes) -> list[bytes]:
        """The words of a list that may stand in several fields, in small letters."""
        words = b",".join(self.all(name)).lower().split(b",")
        return [word.strip(b" \t") for word in words if word.strip(b" \t")]

    def passed_on(self, without: Iterable[bytes] = ()) -> list[Field]:
        """What may go further: neither what is of one connection, nor what the sender declared to be."""
        left_out = {*_OF_ONE_CONNECTION, *self.tokens(b"connection"), *without}
        return [row for row in self.rows if row[0].lower() not in left_out]


class Request(Struct, frozen=True):
    method: bytes
    target: bytes
    minor: int
    fields: Fields
    body: Framing

    @property
    def stays_open(self) -> bool:
        words = self.fields.tokens(b"connection") + self.fields.tokens(b"proxy-connection")
        return self.minor == 1 and b"close" not in words

    @property
    def wants_websocket(self) -> bool:
        upgrade = b"upgrade" in self.fields.tokens(b"connection")
        return upgrade and self.fields.tokens(b"upgrade") == [b"websocket"] and self.method == b"GET" and self.body == 0


class Response(Struct, frozen=True):
    status: int
    reason: bytes
    minor: int
    fields: Fields
    body: Framing

    @property
    def stays_open(self) -> bool:
        return self.body != UNTIL_CLOSE and self.minor == 1 and b"close" not in self.fields.tokens(b"connection")

    @property
    def is_interim(self) -> bool:
        return 100 <= self.status < 200


def read_request(head: bytes) -> Request:
    """The request that stands in `head`, without the empty line at its end; raises BadHead."""
    first, fields = _lines(head)
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise BadHead("The first line is not one of an HTTP/1 request.")
    hosts = fields.all(b"host")
    minor = int(line[3])
    if len(hosts) > 1 or (minor == 1 and not hosts):
        raise BadHead("There is not exactly one Host.")
    length, chunked = _framing(fields)
    if chunked and minor == 0:
        raise BadHead("HTTP/1.0 has no chunks.")
    if line[1] in (b"CONNECT", b"TRACE") and (chunked or length):
        raise BadHead("There is a body where none can be.")
    return Request(line[1], line[2], minor, fields, None if chunked else length or 0)


def read_response(head: bytes, method: bytes) -> Response:
    """The response that stands in `head`, to a request by this method; raises BadHead."""
    first, fields = _lines(head)
    line = _STATUS_LINE.fullmatch(first)
    if line is None:
        raise BadHead("The first line is not one of an HTTP/1 response.", 502)
    status, minor = int(line[2]), int(line[1])
    length, chunked = _framing(fields)
    body: Framing
    if method == b"HEAD" or status < 200 or status in (204, 304):
        body = 0
    elif chunked:
        body = None
    else:
        body = UNTIL_CLOSE if length is None else length
    return Response(status, line[3] or b"", minor, fields, body)


def _lines(head: bytes) -> tuple[bytes, Fields]:
    first, *lines = head.split(b"\r\n")
    if len(lines) > MOST_FIELDS:
        raise BadHead("There are too many fields.", 431)
    rows = []
    for line in lines:
        row = _FIELD.fullmatch(line)
        if row is None:
            raise BadHead("A line is not a field.")
        rows.append((row[1], row[2]))
    return first, Fields(tuple(rows))


def _framing(fields: Fields) -> tuple[int | None, bool]:
    """The length that is told, if one is, and whether there are chunks."""
    lengths = fields.all(b"content-length")
    codings = fields.all(b"transfer-encoding")
    if len(lengths) > 1 or len(codings) > 1 or (lengths and codings):
        raise BadHead("The length of the body is told twice.")
    if codings and codings[0].lower() != b"chunked":
        raise BadHead("There is no transfer coding but 'chunked' here.", 501)
    if lengths and not _LENGTH.fullmatch(lengths[0]):
        raise BadHead("The length of the body is not a number.")
    return (int(lengths[0]) if lengths else None), bool(codings)


def written(first: bytes, fields: Iterable[Field]) -> bytes:
    """A head with the empty line at its end."""
    return b"\r\n".join((first, *(name + b": " + value for name, value in fields))) + END


def framing_of_request(request: Request) -> list[Field]:
    """What tells an endpoint how long the body is; a length of nothing only where the sender told it."""
    if request.body is None:
        return [(b"Transfer-Encoding", b"chunked")]
    told = request.body or request.fields.all(b"content-length")
    return [(b"Content-Length", b"%d" % request.body)] if told else []


def framing_of_response(response: Response, method: bytes) -> list[Field]:
    """What tells a job how long the body is; where there is none by rule, what was told of it stays."""
    if method == b"HEAD" or response.status == 304:
        return [(b"Content-Length", value) for value in response.fields.all(b"content-length")]
    if response.status < 200 or response.status == 204 or response.body == UNTIL_CLOSE:
        return []
    if response.body is None:
        return [(b"Transfer-Encoding", b"chunked")]
    return [(b"Content-Length", b"%d" % response.body)]
