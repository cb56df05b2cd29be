"""The SDKs, imported once and off the event loop, and one set of connections for all who speak with the same server.

Making a client of an SDK takes 50 ms, nearly all of it for certificates, and importing one takes seconds: with fifty
agents in a process neither may happen fifty times, nor while everybody waits. A set of connections is closed when the
last who uses it is done.
"""

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

from msgspec import Struct

from orchard.agents.builtin.governor import pace_of, retry_after_of
from orchard.agents.builtin.model import LONGEST_REPLY, Hear, Json, Message, ModelError, Reply, Stop, TooLong
from orchard.agents.cli import reason_of
from orchard.model.usage import Usage
from orchard.text import one_line

CONNECT_SECONDS = 20.0
READ_SECONDS = 300.0
"""Without a single byte of an answer; servers that think for long send signs of life."""
MOST_CONNECTIONS = 500


class _Shared(Struct):
    client: Any
    users: int = 0


class _Loop:
    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.shared: dict[tuple[str, str], _Shared] = {}


_LOOPS: WeakKeyDictionary[asyncio.AbstractEventLoop, _Loop] = WeakKeyDictionary()


def _here() -> _Loop:
    return _LOOPS.setdefault(asyncio.get_running_loop(), _Loop())


async def load(name: str) -> Any:
    async with _here().lock:
        return await asyncio.to_thread(import_module, name)


@asynccontextmanager
async def open_connections(sdk: Any, server: str) -> AsyncIterator[Any]:
    """The HTTP client through which an SDK speaks with a server, shared by all who do so at the same time."""
    here = _here()
    key = (sdk.__name__, server)
    async with here.lock:
        if key not in here.shared:
            here.shared[key] = _Shared(await asyncio.to_thread(_connections, sdk))
        shared = here.shared[key]
        shared.users += 1
    try:
        yield shared.client
    finally:
        shared.users -= 1
        if shared.users == 0:
            here.shared.pop(key, None)
            await shared.client.aclose()


@asynccontextmanager
async def open_client(name: str, kind: str, key: str, server: str) -> AsyncIterator[tuple[Any, Any]]:
    """An SDK, and its client of this kind. Retries are the governor's: it knows of the other agents, and people see
    them."""
    sdk = await load(name)
    async with open_connections(sdk, server) as connections:
        yield sdk, getattr(sdk, kind)(api_key=key, base_url=server, max_retries=0, http_client=connections)


def _connections(sdk: Any) -> Any:
    http = import_module("httpx2")
    return sdk.DefaultAsyncHttpxClient(
        timeout=http.Timeout(READ_SECONDS, connect=CONNECT_SECONDS, pool=None),
        limits=http.Limits(max_connections=MOST_CONNECTIONS, max_keepalive_connections=MOST_CONNECTIONS),
    )


class Parts(ABC):
    def __init__(self, model: str, hear: Hear) -> None:
        self.begun = False
        self._model, self._hear = model, hear
        self._stop: str | None = None
        self._size = 0

    @abstractmethod
    def take(self, event: Any) -> None: ...

    @abstractmethod
    def usage(self, seconds: float) -> Usage: ...

    @abstractmethod
    def reply(self, seconds: float, headers: Any) -> Reply: ...

    def sign_of_life(self) -> None:
        """Something came from the server, if only a ping, of which the SDKs tell nothing."""
        self._hear("")

    def _name_model(self, model: Any) -> None:
        self._model = model if isinstance(model, str) and model else self._model

    def _grow_by(self, characters: int) -> None:
        self._size += characters
        if self._size > LONGEST_REPLY:
            raise ModelError("failed", f"The model's answer was longer than {LONGEST_REPLY:,} characters.")

    def _whole(self, blocks: tuple[Json, ...], stop: Stop, detail: str, seconds: float, headers: Any) -> Reply:
        malformed = {block["id"]: block.pop("malformed") for block in blocks if "malformed" in block}
        detail = detail or (self._stop or "" if stop == "other" else "")
        return Reply(Message("assistant", blocks), stop, self.usage(seconds), malformed, detail, pace_of(headers))


async def received(sdk: Any, parts: Parts, create: Callable[[], Awaitable[Any]]) -> Reply:
    """The answer to one call of a model, put together; what a broken one took all the same is told with the error."""
    begun = time.monotonic()

    def used() -> Usage | None:
        return parts.usage(time.monotonic() - begun) if parts.begun else None

    try:
        async with await create() as stream:
            headers = stream.response.headers
            stream.response.stream = _listened()(stream.response.stream, parts.sign_of_life)
            async for event in stream:
                parts.take(event)
        return parts.reply(time.monotonic() - begun, headers)
    except ModelError as error:
        error.usage = error.usage or used()
        raise
    except expected(sdk) as error:
        raise _with_usage(model_error(sdk, error), used()) from error


@cache
def _listened() -> Any:
    """The kind of a response's body that says when bytes of it come; its base is imported late."""

    class Listened(import_module("httpx2").AsyncByteStream):  # type: ignore[misc]
        def __init__(self, body: Any, came: Callable[[], None]) -> None:
            self._body, self._came = body, came

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for some in self._body:
                self._came()
                yield some

        async def aclose(self) -> None:
            await self._body.aclose()

    return Listened


def read_input(text: str) -> tuple[Json, str | None]:
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError) as error:
        return {}, f"The input is not valid JSON: {error}"
    if not isinstance(value, dict):
        return {}, "The input must be a JSON object."
    return value, None


def expected(sdk: Any) -> tuple[type[Exception], ...]:
    """What an SDK raises when a call fails: its own errors, those of the connection, and a body that is no JSON.

    And what it raises, or we do, when a server sends events of a shape that nobody knows.
    """
    http = import_module("httpx2")
    return (sdk.APIError, http.HTTPError, http.StreamError, ValueError, *UNREADABLE)


UNREADABLE = (AttributeError, TypeError, KeyError, IndexError, RecursionError, OverflowError)
"""Of a stream whose events are odd. Such an answer is none: as if the connection had been cut, it may be whole the next
time."""


_KINDS = {
    "overloaded_error": 529,
    "api_error": 500,
    "rate_limit_error": 429,
    "timeout_error": 408,
    "authentication_error": 401,
    "permission_error": 403,
    "server_error": 500,
    "rate_limit_exceeded": 429,
}
"""Errors in the middle of an answer come without a status: what they would have had."""


def model_error(sdk: Any, error: Exception) -> ModelError:
    if isinstance(error, UNREADABLE):
        why = one_line(f"{type(error).__name__}: {error}", 200)
        return ModelError("network", f"The model's answer cannot be read ({why}).")
    if isinstance(error, sdk.APITimeoutError):
        return ModelError("network", "The model's server did not answer in time.")
    body = getattr(error, "body", None)
    inner = body.get("error") if isinstance(body, dict) and isinstance(body.get("error"), dict) else body
    inner = inner if isinstance(inner, dict) else {}
    words = inner.get("message") or getattr(error, "message", None) or str(error) or type(error).__name__
    said = one_line(str(words), 400)
    if isinstance(error, sdk.APIConnectionError) or not isinstance(error, sdk.APIError):
        cause = one_line(str(error.__cause__ or ""), 200)
        detail = f" ({cause})" if cause and cause not in said else ""
        return ModelError("network", f"The connection to the model failed: {said.rstrip('.')}{detail}.")
    kind = str(inner.get("type") or inner.get("code") or "")
    status = getattr(error, "status_code", None)
    status = _KINDS.get(kind, 500) if status is None or status < 400 else status
    return _of_status(said, kind, status, inner, getattr(getattr(error, "response", None), "headers", {}))


def _with_usage(error: ModelError, usage: Usage | None) -> ModelError:
    """The error with what the call used.

    A caller that named the error would keep itself, and with it a connection that is half read, until a collection of
    garbage comes by, in whatever thread.
    """
    error.usage = usage
    return error


def _of_status(said: str, kind: str, status: int, inner: dict[str, Any], headers: Any) -> ModelError:
    message = f"The model's server answered {status}{f' {one_line(kind, 40)}' if kind else ''}: {said}"
    if status == 413 or (status == 400 and _is_too_long(said, str(inner.get("code") or ""))):
        return TooLong(message)
    spent = inner.get("code") == "insufficient_quota"
    return ModelError(
        "failed" if spent else reason_of(said, status),
        message,
        retry_after=retry_after_of(headers),
        pace=pace_of(headers),
        final=spent or headers.get("x-should-retry") == "false",
    )


def _is_too_long(said: str, code: str) -> bool:
    words = said.casefold()
    return code == "context_length_exceeded" or any(
        part in words for part in ("prompt is too long", "context length", "context window", "input is too long")
    )
