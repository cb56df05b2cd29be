"""MCP at the engine's door: a connection that became a channel speaks lines of JSON-RPC from then on.

The SDK is imported when the first connection comes, in a thread: an engine that nobody speaks MCP to never pays for
it, and one that does goes on meanwhile. What cannot be read is answered here, so that the SDK only sees messages.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

import anyio
from msgspec import Struct, field, to_builtins

from orchard.app import App
from orchard.config.load import Settings
from orchard.config.user_dirs import user_dirs
from orchard.engine.server.server import Caller
from orchard.engine.server.session import Session
from orchard.engine.server.start import OwnEngine
from orchard.errors import OrchardError, UsageError
from orchard.model.events.plans import Json
from orchard.process.background import beside
from orchard.surfaces.mcp.selection import Selection
from orchard.surfaces.mcp.server.frames import (
    INVALID_REQUEST,
    UNAVAILABLE,
    Id,
    Lines,
    Refused,
    encode,
    error_line,
    parse,
)
from orchard.surfaces.next_steps import told
from orchard.surfaces.served import Served

READ_BYTES = 64 * 1024
AT_ONCE = 256
"""Requests of one connection that may be under way; one more is refused."""


async def speak(session: Session, caller: Caller, served: Served | None = None) -> None:
    """Speak MCP on a connection until it ends; whoever keeps the repository open may lend what it reads with."""
    relayed = caller.args.get("relay") is True
    try:
        selection = selection_of(caller.args)
    except OrchardError as error:
        await _say(
            caller,
            {"refused": {"message": error.message, "hint": to_builtins(error.hint)}} if relayed else _refusal(error),
        )
        return
    await asyncio.to_thread(import_module, "orchard.surfaces.mcp.server.sessions")
    if served is not None:
        await _speak(served, caller, selection, relayed)
        return
    async with shared(session) as own:
        await _speak(own, caller, selection, relayed)


async def _speak(served: Served, caller: Caller, selection: Selection, relayed: bool) -> None:
    from orchard.surfaces.mcp.server.sessions import Conversation, read_only_names, recorded

    if relayed:
        await _say(caller, {"ready": True, "read_only": read_only_names(selection, caller.scope)})
    conversation = Conversation(served, selection, caller.scope)
    line = _Line(caller)
    works = [line.read(conversation), line.write(conversation), conversation.tell()]
    if relayed and caller.scope is None:
        works.append(recorded(selection))
    async with beside(*works):
        await conversation.run()


def selection_of(args: Mapping[str, Any]) -> Selection:
    """What a connection asks for; what an agent in a job gets of it is the toolbox's to say."""
    toolsets, tools, exclude = (_words(args, name) for name in ("toolsets", "tools", "exclude"))
    read_only = args.get("read_only", False)
    if not isinstance(read_only, bool):
        raise UsageError("'read_only' is true or false.")
    return Selection.from_names(toolsets, tools, exclude, read_only)


def _words(args: Mapping[str, Any], name: str) -> list[str]:
    given = args.get(name) or []
    words = [given] if isinstance(given, str) else given
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise UsageError(f"'{name}' is a list of names.")
    return words


def _refusal(error: OrchardError) -> Json:
    return {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": told(error)}}


async def _say(caller: Caller, message: Json) -> None:
    with suppress(OSError):
        caller.writer.write(encode(message))
        await caller.writer.drain()


# ---------------------------------------------------------------------------------------- the line


class _Line:
    """The connection's bytes on one side, the SDK's messages on the other."""

    def __init__(self, caller: Caller) -> None:
        self._reader, self._writer = caller.reader, caller.writer
        self._turn = asyncio.Lock()
        self._open: dict[Id, int] = {}
        """The requests under way, and how often each id is among them."""

    async def read(self, conversation: Any) -> None:
        """Hand on every message until the other end is gone; nothing that it says ends this earlier."""
        lines = Lines()
        async with conversation.heard:
            with suppress(OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
                while data := await self._reader.read(READ_BYTES):
                    for line in lines.feed(data):
                        await self._take(line, conversation)

    async def _take(self, line: bytes | Refused, conversation: Any) -> None:
        said = parse(line) if isinstance(line, bytes) else line
        if said is None:
            return
        if isinstance(said, Refused):
            await self._put(error_line(said.code, said.message, said.id))
            return
        id, method = said.get("id"), said.get("method")
        if method is not None and id is not None:
            if sum(self._open.values()) >= AT_ONCE:
                await self._put(error_line(UNAVAILABLE, "Too many requests are under way on this connection.", id))
                return
            self._open[id] = self._open.get(id, 0) + 1
        elif method == "notifications/cancelled":
            # A request that is taken back is never answered.
            self._ended((said.get("params") or {}).get("requestId"))
        if not await conversation.hear(said):
            self._ended(id)
            await self._put(error_line(INVALID_REQUEST, "This is no message of JSON-RPC.", id if method else None))

    async def write(self, conversation: Any) -> None:
        """Write down what the server says until it says no more, or nobody reads it."""
        async with conversation.said:
            with suppress(OSError):
                async for message in conversation.said:
                    body: Json = message.message.model_dump(by_alias=True, mode="json", exclude_unset=True)
                    if "method" not in body:
                        self._ended(body.get("id"))
                    await self._put(encode(body))

    async def _put(self, line: bytes) -> None:
        async with self._turn:
            self._writer.write(line)
            await self._writer.drain()

    def _ended(self, id: Any) -> None:
        if isinstance(id, str | int) and id in self._open:
            self._open[id] -= 1
            if not self._open[id]:
                del self._open[id]


# ------------------------------------------------------------------------------- what is read with


class _Lent(Struct):
    """A repository that several connections of one engine read with."""

    served: Served
    users: int = 0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    following: Any = None


_LENT: WeakKeyDictionary[Session, _Lent] = WeakKeyDictionary()


@asynccontextmanager
async def shared(session: Session) -> AsyncIterator[Served]:
    """The repository of this engine: one for all its connections, for as long as there is one."""
    lent = _LENT.get(session)
    if lent is None:
        lent = _LENT[session] = _Lent(Served(_app_of(session), session))
    lent.users += 1
    try:
        async with lent.turn:
            if lent.following is None:
                lent.following = lent.served.following()
                await lent.following.__aenter__()
        yield lent.served
    finally:
        lent.users -= 1
        if not lent.users and _LENT.get(session) is lent:
            del _LENT[session]
            await lent.following.__aexit__(None, None, None)
            lent.served.close()


def _app_of(session: Session) -> App:
    """The App of the engine that this door belongs to, with the very settings that the engine has."""
    assert isinstance(session.link, OwnEngine), "a door is always an engine's own"
    world = session.link.engine.world
    return App(world.repo, Settings(world.config), user_dirs(), world.say)
