"""Messages of the protocol over a program's pipes: one line each, and nothing but sound ones.

The package's connection trusts who it talks with: a message of the wrong shape ends it, and is printed. So what is
no message is taken out here, before it is seen: such a line is shown to people like any other output.
"""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from orchard.process.pipes import Pipes, TooMuch

Json = dict[str, Any]

MOST_OPEN = 64
"""Requests of the agent that may wait for our answer. One that asks and does not listen is not read any further."""


class Lines:
    """What the package calls a transport."""

    def __init__(self, pipes: Pipes, stray: Callable[[bytes], None]) -> None:
        self._pipes, self._stray = pipes, stray
        self._lines = pipes.lines()
        self._open = 0
        self._room = asyncio.Event()
        self._room.set()
        self.ended = asyncio.Event()
        self.too_much: TooMuch | None = None

    async def send(self, message: Json) -> None:
        """Hand a message to the agent; one that does not listen any more loses it."""
        if not self._pipes.writer.is_closing():
            await self._pipes.write(json.dumps(message, separators=(",", ":")).encode() + b"\n")
        if "method" not in message:
            self._open -= 1
            self._room.set()

    async def receive(self) -> Json | None:
        await self._room.wait()
        # What the message before this one has set off comes first, so that everything is heard in order.
        await asyncio.sleep(0)
        try:
            async for line in self._lines:
                message = sound(line)
                if message is None:
                    self._stray(line)
                    continue
                if "method" in message and "id" in message:
                    self._open += 1
                    if self._open >= MOST_OPEN:
                        self._room.clear()
                return message
        except TooMuch as error:
            self.too_much = error
        self.ended.set()
        return None

    async def close(self) -> None:
        """Nothing is held here: the pipes belong to who started the program."""


def sound(line: bytes) -> Json | None:
    """The message in a line, if it is one: a request, a notification, or an answer to a request of ours."""
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    if "method" in message:
        return message if isinstance(message["method"], str) else None
    # Ours are numbered.
    return _answer(message) if type(message.get("id")) is int else None


def _answer(message: Json) -> Json | None:
    if "error" not in message or message["error"] is None:
        return {"id": message["id"], "result": message.get("result")}
    error = message["error"]
    if not isinstance(error, dict):
        error = {"message": str(error)}
    code, words = error.get("code"), error.get("message")
    return {
        "id": message["id"],
        "error": {
            "code": code if type(code) is int else 0,
            "message": words if isinstance(words, str) else "",
            "data": error.get("data"),
        },
    }
