"""Endpoints whose key the job does not have: it speaks plain HTTP to a path of its door, and the proxy adds the key.

The key goes to the one endpoint of its route and nowhere else: a redirect is told to the job, whose next request is one
like any other. It is in no error, log or `repr`.
"""

import re
from collections.abc import Callable
from typing import NoReturn
from urllib.parse import urlsplit

from msgspec import Struct

from orchard.model.addresses import authority, split_authority
from orchard.process.proxy.heads import BadHead, Field, Request

PREFIX = "/_key/"
BaseUrl = Callable[[str], str]
"""Where programs of a job find the endpoint of a route, by its name: what an open door tells."""
_PORTS = {"http": 80, "https": 443}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_UP = re.compile(rb"(?:^|/)(?:\.|%2e){1,2}(?:/|\\|$)|%2f|%5c|\\", re.IGNORECASE)

_CREDENTIALS = frozenset((
    b"authorization", b"x-api-key", b"api-key", b"x-goog-api-key", b"x-auth-token", b"cookie", b"proxy-authorization",
))  # fmt: skip
"""What a job says of who it is. On a route only the proxy does: a key of a stranger would carry the work away."""
_QUERY_KEYS = frozenset((b"key", b"api_key", b"api-key", b"access_token"))


class Key:
    """A secret that can be used, and neither be shown nor be written away by accident."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        if not text.isascii() or not text.isprintable() or text != text.strip():
            raise ValueError("A key has characters that a header cannot hold.")
        self._text = text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __repr__(self) -> str:
        return "Key(...)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("A key is not written away.")

    def after(self, words: str) -> bytes:
        """The value of a header, such as `Bearer` and the key."""
        return f"{words} {self._text}".strip().encode()


class Route(Struct, frozen=True):
    """One endpoint, the path of the door that leads to it, and the key that is added on the way."""

    name: str
    url: str
    """Where it leads to: `https://host[:port][/path]`; http only to this machine or into a private network."""
    header: str = "Authorization"
    words: str = "Bearer"
    """What stands before the key; empty for `x-api-key` and its kind."""
    key: Key = Key("")
    """Empty: no header is added; an endpoint on this machine needs none."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"'{self.name}' cannot be the name of a route.")
        _ = self.endpoint

    @property
    def endpoint(self) -> tuple[str, int]:
        """Host and port; raises ValueError for what is no endpoint."""
        parts = urlsplit(self.url)
        found = split_authority(parts.netloc, _PORTS.get(parts.scheme))
        if found is None or parts.scheme not in _PORTS or parts.query or parts.fragment:
            raise ValueError("The address of a route is not http(s)://host[:port][/path].")
        return found

    @property
    def secure(self) -> bool:
        return self.url.startswith("https:")

    @property
    def host_field(self) -> bytes:
        host, port = self.endpoint
        usual = port == (443 if self.secure else 80)
        return (authority(host, port).rpartition(":")[0] if usual else authority(host, port)).encode()

    def target(self, rest: bytes) -> bytes:
        """The path at the endpoint, for what the job asked for below its prefix; raises BadHead for ways out of it."""
        path, question, query = rest.partition(b"?")
        if _UP.search(path):
            raise BadHead("The path leads out of its endpoint.")
        base = urlsplit(self.url).path.rstrip("/").encode()
        kept = [part for part in query.split(b"&") if part.partition(b"=")[0].lower() not in _QUERY_KEYS]
        return base + b"/" + path.lstrip(b"/") + (question + b"&".join(kept) if kept != [b""] and kept else b"")

    def fields(self, request: Request) -> list[Field]:
        """What goes to the endpoint: the job's fields without what says who it is, and the key."""
        header = self.header.lower().encode()
        passed = request.fields.passed_on({*_CREDENTIALS, header})
        return [*passed, (self.header.encode(), self.key.after(self.words))] if self.key else passed
