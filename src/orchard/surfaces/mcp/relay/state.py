"""What a relay knows of its client, and decides: no file, no socket, no clock here.

    Desk   takes the client's lines and the server's, and says what goes to whom

It keeps what a new server has to be told after the old one died (the handshake, the subscriptions), and every request
that is not answered yet. Those that nobody sent yet, and those that may be asked twice, go to the next server; for the
others the client hears that the server went away, and what to look at.
"""

import os
from collections.abc import Iterable
from typing import Any

from msgspec import Struct, field

from orchard.surfaces.mcp.relay.handshake_cache import DISCOVER, LISTS, Greeting
from orchard.surfaces.mcp.server.frames import UNAVAILABLE, Id, Message, Refused, encode, error_line, parse

OPEN = 256
HELD_BYTES = 16 * 1024 * 1024
"""Requests that may be open at once, and what may be kept of them to be asked again."""
SENDINGS = 3
"""A request that was there when three servers died may be why."""
ADDRESSES = 256

SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"
SAFE = frozenset({
    "initialize", "ping", DISCOVER, *LISTS, "prompts/get", "resources/list", "resources/read", "resources/subscribe",
    "resources/unsubscribe", "subscriptions/listen", "completion/complete",
})  # fmt: skip
"""Requests that change nothing, so that they can be asked again."""

WENT_AWAY = (
    "The Orchard daemon went away while this was under way: it may or may not have been done. "
    "Look with list_plans or get_plan before you ask again; plans that were running go on by themselves."
)
TOO_MANY = "Too many requests are waiting for the Orchard daemon."


class Open(Struct):
    """A request that is not answered."""

    id: Id
    method: str
    params: Message
    line: bytes
    safe: bool = True
    """Whether it may be asked again; known when it is sent."""
    sent: int = 0
    """To how many servers it was sent."""
    waiting: bool = True
    """Whether the server that is there, if any, has not been given it."""


class Desk(Struct):
    """One client, whichever server it is connected with."""

    greeting: Greeting | None = None
    read_only: frozenset[str] = frozenset()
    """The tools that may be called again."""
    connected: bool = False
    out: bytearray = field(default_factory=bytearray)
    """What the client is to hear."""
    to_server: bytearray = field(default_factory=bytearray)
    open: dict[Id, Open] = field(default_factory=dict)
    _hello: Message | None = None
    """The parameters of the handshake that was made, with us or with a server."""
    _version: str | None = None
    _initialized: bool = False
    _addresses: dict[str, None] = field(default_factory=dict)
    _asked: set[Id] = field(default_factory=set)
    """What the present server asked the client."""
    _heard: set[Id] = field(default_factory=set)
    """Streams whose client was told already that they are open."""
    _own: str = field(default_factory=lambda: f"orchard-relay-{os.urandom(8).hex()}-")
    _number: int = 0
    _served: bool = False
    """Whether there was a server before."""

    @property
    def wants_server(self) -> bool:
        """Whether somebody waits for what only a server can say; a stream that was open once can wait for others."""
        return any(one.waiting and (one.method != "subscriptions/listen" or not one.sent) for one in self.open.values())

    @property
    def listens(self) -> bool:
        """Whether the client is to be told of changes."""
        return bool(self._addresses) or any(one.method == "subscriptions/listen" for one in self.open.values())

    # ------------------------------------------------------------------------------ from the client

    def hear(self, line: bytes | Refused) -> None:
        """Take a line of the client's."""
        said = parse(line) if isinstance(line, bytes) else line
        if said is None:
            return
        if isinstance(said, Refused):
            self.out += error_line(said.code, said.message, said.id)
        elif "method" not in said:
            self._take_answer(said, line)
        elif "id" in said:
            self._take_request(said, line)
        else:
            self._take_notice(said, line)

    def _take_request(self, said: Message, line: Any) -> None:
        id, method, params = said["id"], said["method"], said.get("params") or {}
        known = None if self.connected else self._remembered(method, params)
        if method == "initialize":
            self._hello, self._initialized = params, False
            self._version = known["protocolVersion"] if known is not None else None
        if known is not None:
            self.out += encode({"jsonrpc": "2.0", "id": id, "result": known})
            return
        held = sum(len(one.line) for one in self.open.values())
        if len(self.open) >= OPEN or held + len(line) > HELD_BYTES:
            self.out += error_line(UNAVAILABLE, TOO_MANY, id)
            return
        request = Open(id, method, params, bytes(line))
        self.open[id] = request
        if self.connected:
            self._send(request)

    def _remembered(self, method: str, params: Message) -> Message | None:
        """The answer that was written down for this, if there is one."""
        if self.greeting is None:
            return None
        if method == "initialize":
            return self.greeting.to_initialize(params)
        if method == DISCOVER or method in LISTS:
            return self.greeting.to_list(method, params, self._version)
        return None

    def _may_be_asked_again(self, method: str, params: Message) -> bool:
        if method != "tools/call":
            return method in SAFE
        arguments = params.get("arguments")
        keyed = isinstance(arguments, dict) and bool(arguments.get("idempotency_key"))
        return keyed or params.get("name") in self.read_only

    def _take_notice(self, said: Message, line: Any) -> None:
        params = said.get("params") or {}
        if said["method"] == "notifications/initialized":
            self._initialized = True
        elif said["method"] == "notifications/cancelled":
            id = params.get("requestId")
            taken_back = self.open.pop(id, None) if isinstance(id, str | int) else None
            if taken_back is not None and taken_back.waiting:
                return  # no server knows of it
        if self.connected:
            self.to_server += line + b"\n"

    def _take_answer(self, said: Message, line: Any) -> None:
        """An answer goes to the server that asked; the question of one that died is nobody's any more."""
        if said["id"] in self._asked:
            self._asked.discard(said["id"])
            self.to_server += line + b"\n"

    # ------------------------------------------------------------------------------ from the server

    def take(self, line: bytes | Refused) -> None:
        """Take a line of the server's."""
        said = parse(line) if isinstance(line, bytes) else None
        if not isinstance(said, dict):
            return
        id = said.get("id")
        if "method" in said:
            if id is not None:
                self._asked.add(id)
            elif said["method"] == "notifications/subscriptions/acknowledged" and self._was_told(said):
                return
        elif isinstance(id, str) and id.startswith(self._own):
            return  # the answer to something that the client did not ask
        elif id is not None:
            self._note_answer(id, said)
        assert isinstance(line, bytes)
        self.out += line + b"\n"

    def _note_answer(self, id: Id, said: Message) -> None:
        request = self.open.pop(id, None)
        self._heard.discard(id)
        if request is None:
            return
        if "result" not in said:
            if request.method == "initialize":
                self._hello = None  # it was not agreed on
            return
        if request.method == "initialize":
            self._version = said["result"].get("protocolVersion")
        elif request.method == "resources/subscribe" and len(self._addresses) < ADDRESSES:
            self._addresses[str(request.params.get("uri"))] = None
        elif request.method == "resources/unsubscribe":
            self._addresses.pop(str(request.params.get("uri")), None)

    def _was_told(self, said: Message) -> bool:
        """Whether this only says again that a stream is open."""
        meta = (said.get("params") or {}).get("_meta")
        id = meta.get(SUBSCRIPTION_KEY) if isinstance(meta, dict) else None
        if id is None or id not in self.open:
            return False
        told = id in self._heard
        self._heard.add(id)
        return told

    # ------------------------------------------------------------------------- servers come and go

    def connect(self, read_only: Iterable[str]) -> None:
        """A server is there: tell it what its client and the one before it agreed on, then ask what is open."""
        self.connected, self.read_only = True, frozenset(read_only)
        unsaid = any(one.method == "initialize" for one in self.open.values())
        if self._hello is not None and not unsaid:
            self._ask("initialize", self._hello)
            if self._initialized:
                self.to_server += encode({"jsonrpc": "2.0", "method": "notifications/initialized"})
            for uri in self._addresses:
                self._ask("resources/subscribe", {"uri": uri})
        for request in list(self.open.values()):
            self._send(request)
        if self._served:
            self._tell_all_changed()
        self._served = True

    def disconnect(self) -> None:
        """The server is gone: whoever asked it for something that must not be asked twice hears that."""
        self.connected = False
        self.to_server.clear()
        for request in list(self.open.values()):
            if request.waiting:
                continue
            request.waiting = True
            if not request.safe or request.sent >= SENDINGS:
                del self.open[request.id]
                self.out += error_line(UNAVAILABLE, WENT_AWAY, request.id)
        for id in self._asked:
            params = {"requestId": id, "reason": "The Orchard daemon went away."}
            self.out += encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})
        self._asked.clear()

    def give_up(self, why: str) -> None:
        """No server can be had: everybody who waits for one hears why."""
        for request in list(self.open.values()):
            if request.method == "subscriptions/listen" and request.sent:
                continue  # it may still be told of a server that somebody else starts
            del self.open[request.id]
            self.out += error_line(UNAVAILABLE, why, request.id)

    def _send(self, request: Open) -> None:
        request.waiting = False
        request.sent += 1
        request.safe = self._may_be_asked_again(request.method, request.params)
        self.to_server += request.line + b"\n"
        if not request.safe:
            request.line = b""  # it will not be sent again

    def _ask(self, method: str, params: Message) -> None:
        self._number += 1
        self.to_server += encode(
            {"jsonrpc": "2.0", "id": f"{self._own}{self._number}", "method": method, "params": params}
        )

    def _tell_all_changed(self) -> None:
        """Nobody heard what happened between two servers: whatever somebody watches may have changed."""
        for uri in self._addresses:
            self._tell_changed({"uri": uri})
        for request in self.open.values():
            wanted = request.params.get("notifications")
            uris = wanted.get("resourceSubscriptions") if isinstance(wanted, dict) else None
            if request.method == "subscriptions/listen" and isinstance(uris, list):
                for uri in uris[:ADDRESSES]:
                    self._tell_changed({"uri": uri, "_meta": {SUBSCRIPTION_KEY: request.id}})

    def _tell_changed(self, params: Message) -> None:
        self.out += encode({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": params})
