"""The door of an engine: a unix socket through which other processes of the same user ask it for things.

The socket lies in a folder that only the user can enter, the peer's user is checked, and the first
line must hold a secret that is read from a 0600 file beside the journal: who can read that file may
do everything here anyway. Then each line is a request and each answer is a line. A request may carry an
`id`, which its answer repeats: such requests are carried out beside each other, and answered as they end;
those without are answered in their order. Its `sandbox` is the wall that who asks wants around programs.
`follow` is the one request that is answered many times: with the number of the newest durable event, whenever it grows.
`channel` hands the connection over to whoever speaks another language on it, such as MCP.

An agent gets a job token instead of the secret: with it a connection can only become a channel, which is
told whose token it was. Who brings neither is refused, and the refusal is written down.

Nothing but requests and numbers goes through here. What happened is read from the journal.
"""

import asyncio
import hmac
import json
import os
import secrets
import socket
import struct
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import asdict, replace

from orchard.engine.server.address import ADDRESS_FILE, Address, read_address, write_address
from orchard.engine.server.crowd import Crowd, family_of, note_refusal, peer_of
from orchard.engine.turns.job_tokens import JobTokens, Scope
from orchard.errors import (
    Bug,
    InvalidInput,
    NeedsPerson,
    Next,
    NotFound,
    OrchardError,
    Problem,
    SystemRefused,
    TimedOut,
    UsageError,
    hint_from,
)
from orchard.model.events.plans import Json
from orchard.model.sandbox import LEVELS, Level
from orchard.process.families.identity import identify
from orchard.store.journal import Journal

LINE_BYTES = 32 * 1024 * 1024
HANDSHAKE_SECONDS = 5.0
GOODBYE_SECONDS = 5.0
LINE_SECONDS = 20
"""How long a command stands in line at a door where a crowd is."""
ASKED_AT_ONCE = 64
"""Requests of one connection that are carried out beside each other; who asks for more is read later."""

Handle = Callable[[str, Mapping[str, Any], Level | None], Awaitable[Json]]


class Caller(Struct, frozen=True):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    args: Mapping[str, Any]
    scope: Scope | None
    """Whose job token was shown; None: the user's own secret, which allows everything."""


Channel = Callable[[Caller], Awaitable[None]]


@asynccontextmanager
async def listening(
    state: Path,
    path: Path,
    handle: Handle,
    journal: Journal,
    channels: Mapping[str, Channel] | None = None,
    job_tokens: JobTokens | None = None,
) -> AsyncIterator[Address]:
    nonce = secrets.token_hex(32)
    door = _Door(state, handle, journal, nonce, channels or {}, job_tokens or JobTokens())
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    server = await asyncio.start_unix_server(door.welcome, sock=listener, limit=LINE_BYTES)
    me = identify(os.getpid())
    assert me is not None
    address = Address(me.pid, me.started, me.boot, str(path), nonce)
    write_address(state, address)
    if job_tokens is not None:
        job_tokens.socket = str(path)
    made = path.stat().st_ino
    try:
        yield address
    finally:
        # Where the repository was made anew under us, another engine may have put its own there.
        if (now := read_address(state)) is None or now == address:
            (state / ADDRESS_FILE).unlink(missing_ok=True)
        server.close()
        await door.close()
        with suppress(FileNotFoundError):
            if path.stat().st_ino == made:
                path.unlink()


class _Door:
    def __init__(
        self,
        state: Path,
        handle: Handle,
        journal: Journal,
        nonce: str,
        channels: Mapping[str, Channel],
        job_tokens: JobTokens,
    ) -> None:
        self._state, self._handle, self._journal, self._nonce = state, handle, journal, nonce
        self._channels, self._job_tokens = channels, job_tokens
        self._open: dict[asyncio.StreamWriter, asyncio.Task[Any] | None] = {}
        self._asked: Counter[asyncio.StreamWriter] = Counter()
        self._crowd = Crowd()
        self._grown: set[asyncio.Event] = set()
        self._closing = False

    async def close(self) -> None:
        """They are waited for: a task that the loop has to end says so on the screen."""
        self._closing = True
        tasks = {task for task in self._open.values() if task is not None}
        for writer in self._open:
            if not self._asked[writer]:
                writer.close()
        for grown in self._grown:
            grown.set()
        if tasks:
            await asyncio.wait(tasks, timeout=GOODBYE_SECONDS)

    async def welcome(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open[writer] = asyncio.current_task()
        try:
            peer = writer.get_extra_info("socket")
            if not _same_user(peer):
                note_refusal(self._state, peer, "another user")
                return
            self._crowd.enter(writer, family_of(peer))
            scope = await self._greeted(reader)
            refused = scope if isinstance(scope, str) else self._crowd.greet(writer, scope)
            if isinstance(scope, str) or refused is not None:
                note_refusal(self._state, peer, str(refused))
                return
            await self._serve(Caller(reader, writer, {}, scope), peer)
        except (OSError, ValueError, RecursionError, TimeoutError, EngineGone):
            return  # a peer that went away, or that does not speak our language
        finally:
            self._open.pop(writer, None)
            self._crowd.leave(writer)
            writer.close()

    async def _serve(self, caller: Caller, peer: socket.socket) -> None:
        """Answer the requests of one connection until it ends; what was asked is carried out to its end."""
        under_way: set[asyncio.Task[None]] = set()
        try:
            while not self._closing and (request := await self._request(caller)) is not None:
                if request.get("op") == "channel":
                    await self._hand_over(request, replace(caller, args=_args(request)))
                    return
                if caller.scope is not None:
                    note_refusal(self._state, peer, "a request with the pass of a job")
                    return
                if "id" not in request or request.get("op") == "follow":
                    await self._answer(request, caller.reader, caller.writer)
                    continue
                under_way.add(task := asyncio.create_task(self._answer(request, caller.reader, caller.writer)))
                task.add_done_callback(under_way.discard)
                if len(under_way) >= ASKED_AT_ONCE:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if under_way:
                await asyncio.wait(under_way)

    async def _request(self, caller: Caller) -> Json | None:
        """The next request; a line that cannot be read is answered, and is the last one."""
        try:
            return await _line(caller.reader)
        except (ValueError, RecursionError):
            error = UsageError("A request is one line of JSON: an object with 'id', 'op' and 'args'.")
            await _say(caller.writer, {"id": None, "error": encode_error(error)})
            return None

    async def _greeted(self, reader: asyncio.StreamReader) -> Scope | str | None:
        """Whose job token was shown, None for the secret itself, or why neither will do."""
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                said = await _line(reader)
        except TimeoutError:
            return "no secret in time"
        except (ValueError, RecursionError):
            return "a first line that cannot be read"
        if said is None:
            return "gone before it said anything"
        given = said.get("nonce")
        if isinstance(given, str) and hmac.compare_digest(given.encode(errors="replace"), self._nonce.encode()):
            return None
        shown = said.get("pass")
        scope = self._job_tokens.scope_of(shown) if isinstance(shown, str) else None
        if scope is not None:
            return scope
        return "no secret" if given is None and shown is None else "a wrong secret"

    async def _hand_over(self, request: Json, caller: Caller) -> None:
        name = request.get("name")
        channel = self._channels.get(name) if isinstance(name, str) else None
        if channel is None:
            error = UsageError("This engine speaks no such language.", hint="Update and restart orchard.")
            await _say(caller.writer, {"id": request.get("id"), "error": encode_error(error)})
            return
        with self._job_tokens.while_good(caller.scope, caller.writer.close):
            await _say(caller.writer, {"ok": {}})
            await channel(caller)

    async def _answer(self, request: Json, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if request.get("op") == "follow":
            await self._tell_numbers(reader, writer)
            return
        self._asked[writer] += 1
        try:
            answer = await self._carried_out(request)
            if "id" in request:
                answer["id"] = request["id"]
            with suppress(EngineGone):  # nobody is there any more to hear it
                await _say(writer, answer)
        finally:
            self._asked[writer] -= 1
            self._asked += Counter()  # drops what is zero
            if self._closing and not self._asked[writer]:
                writer.close()

    async def _carried_out(self, request: Json) -> Json:
        """What became of a request: whatever went wrong with it is told in words, and is no reason to hang up."""
        op, args = request.get("op"), request.get("args", {})
        try:
            if not isinstance(op, str) or not isinstance(args, dict):
                raise UsageError("A request is an object with 'op' and 'args'.")
            answer: Json = {"ok": await self._handle(op, args, _wall(request))}
            json.dumps(answer)
        except OrchardError as error:
            return {"error": encode_error(error)}
        except OSError as error:
            return {"error": encode_error(SystemRefused(error))}
        except Exception as error:  # a mistake of ours in one request: the engine and all others go on
            return {"error": encode_error(_bug(op, error))}
        return answer

    async def _tell_numbers(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Every growth of the journal, the last one winning: a slow listener gets fewer numbers, not a queue."""
        grown = asyncio.Event()
        # An idle journal does not notice that nobody listens any more.
        ended = asyncio.create_task(_end_of(reader))
        ended.add_done_callback(lambda _: grown.set())
        self._grown.add(grown)
        unsubscribe = self._journal.on_commit(lambda _: grown.set(), asyncio.get_running_loop())
        try:
            while not writer.is_closing() and not self._closing and not ended.done():
                grown.clear()
                await _say(writer, {"seq": self._journal.durable_seq})
                await grown.wait()
        finally:
            self._grown.discard(grown)
            unsubscribe()
            ended.cancel()
            await asyncio.wait({ended})


async def _end_of(reader: asyncio.StreamReader) -> None:
    """Hear a peer out who has nothing more to ask."""
    with suppress(OSError):
        while await reader.read(4096):
            pass


class Connection:
    """A follower's side: requests beside each other, each with a number that its answer repeats."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = count(1)
        self._waiting: dict[int, asyncio.Future[Json]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._gone = False

    async def request(self, op: str, args: Mapping[str, Any], sandbox: Level | None = None) -> Json:
        if self._gone:
            raise EngineGone()
        number, heard = next(self._numbers), asyncio.get_running_loop().create_future()
        self._waiting[number] = heard
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen())
        try:
            await _say(self._writer, {"id": number, "op": op, "args": dict(args), "sandbox": sandbox})
            answer: Json = await heard
        finally:
            self._waiting.pop(number, None)
        if "error" in answer:
            raise decode_error(answer["error"])
        found: Json = answer.get("ok", {})
        return found

    async def _listen(self) -> None:
        """Hand each answer to who waits for it; one whose asker is gone is dropped."""
        try:
            while (line := await _line(self._reader)) is not None:
                # An engine of an older Orchard answers in order, and repeats no number.
                number = line.get("id", next(iter(self._waiting), None))
                heard = self._waiting.get(number) if isinstance(number, int) else None
                if heard is not None and not heard.done():
                    heard.set_result(line)
        except (OSError, ValueError, RecursionError):
            return  # it does not speak our language: as good as gone
        finally:
            self._gone = True
            for heard in self._waiting.values():
                if not heard.done():
                    heard.set_exception(EngineGone())

    async def read(self) -> Json:
        """The next line; an engine that is gone is an error."""
        line = await _line(self._reader)
        if line is None:
            raise EngineGone()
        return line

    async def start_following(self) -> None:
        """Have the newest number sent from now on; nothing else can be asked here any more."""
        await _say(self._writer, {"op": "follow"})

    def close(self) -> None:
        """Hang up; who still waits for an answer is told that nobody gives one."""
        self._writer.close()
        if self._listening is not None:
            self._listening.cancel()


class EngineGone(OrchardError):
    def __init__(self) -> None:
        super().__init__(
            "The engine of this repository has ended.", hint=("Run '", Next("get_plan"), "' to see how far it came.")
        )


class EngineBusy(EngineGone):
    """It is there, but so many stand at its door that our turn did not come."""

    def __init__(self) -> None:
        OrchardError.__init__(
            self,
            f"The engine of this repository is at work, but did not answer within {LINE_SECONDS} s: too many programs "
            "stand in line at its door.",
            hint="Try again. If a job makes connections without end, cancel it.",
        )


async def connect(address: Address) -> Connection:
    try:
        reader, writer = await _connected(address.socket)
    except BlockingIOError as error:
        raise EngineBusy() from error
    except OSError as error:
        raise EngineGone() from error
    await _say(writer, {"nonce": address.nonce})
    return Connection(reader, writer)


async def _connected(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection, also where so many come at once that the next has to stand in line.

    The loop takes the answer of a full line for that of a slow connection, and would write to one that is none.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.setblocking(False)
        try:
            made.connect(path)
        except BlockingIOError:
            made.setblocking(True)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", LINE_SECONDS, 0))
            await asyncio.to_thread(made.connect, path)
            made.setblocking(False)
        return await asyncio.open_unix_connection(sock=made, limit=LINE_BYTES)
    except BaseException:
        made.close()
        raise


async def open_channel(path: str, shown: str, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open the door of an engine with a job token, for one language that is spoken there and nothing else."""
    reader, writer = await _connected(path)
    try:
        await _say(writer, {"pass": shown})
        await _say(writer, {"op": "channel", "name": name})
        answer = await _line(reader)
        if answer is None:
            raise EngineGone()
        if "error" in answer:
            raise decode_error(answer["error"])
    except BaseException:
        writer.close()
        raise
    return reader, writer


async def _say(writer: asyncio.StreamWriter, message: Json) -> None:
    try:
        writer.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        await writer.drain()
    except ConnectionError as error:
        raise EngineGone() from error


async def _line(reader: asyncio.StreamReader) -> Json | None:
    with suppress(ConnectionError):
        line = await reader.readline()
        if line.endswith(b"\n"):
            said = json.loads(line)
            return said if isinstance(said, dict) else {}
    return None


def _args(request: Json) -> Mapping[str, Any]:
    args = request.get("args", {})
    return args if isinstance(args, dict) else {}


def _wall(request: Json) -> Level | None:
    """The wall around programs that who asks wants; an older Orchard says nothing about it."""
    asked = request.get("sandbox")
    if asked is not None and asked not in LEVELS:
        raise UsageError("'sandbox' of a request is one of its levels.", hint=f"Levels: {', '.join(LEVELS)}")
    return asked


def _same_user(peer: socket.socket) -> bool:
    """Whether the other end runs as us; where the system cannot tell, the folder's mode has to do."""
    found = peer_of(peer)
    return found is None or found[1] == os.getuid()


_KINDS: tuple[type[OrchardError], ...] = (UsageError, NotFound, NeedsPerson, TimedOut, Bug)


def _bug(op: object, error: Exception) -> Bug:
    frames = traceback.extract_tb(error.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}, in {frames[-1].name}" if frames else "nowhere"
    said = f"{type(error).__name__}: {error}"
    return Bug(f"The request '{op}' failed by a mistake of ours: {said[:500]} ({where})", hint="Please report it.")


def encode_error(error: OrchardError) -> Json:
    problems = [asdict(problem) for problem in error.problems] if isinstance(error, InvalidInput) else None
    return {
        "message": error.message,
        "hint": to_builtins(error.hint),
        "exit_code": error.exit_code,
        "problems": problems,
    }


def decode_error(body: Json) -> OrchardError:
    hint = hint_from(body.get("hint"))
    if body.get("problems"):
        return InvalidInput("request", [Problem(**problem) for problem in body["problems"]], hint)
    kind = next((kind for kind in _KINDS if kind.exit_code == body.get("exit_code")), OrchardError)
    return kind(body["message"], hint)
