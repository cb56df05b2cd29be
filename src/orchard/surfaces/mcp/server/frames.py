"""Lines of JSON-RPC, as both ends of a pipe read them: bounded, and never a reason to stop.

Whatever comes in is a message, or is refused with the error that the sender is to hear; the next line is read as if
nothing had happened. Light on purpose: the process that only hands on what is asked reads with this as well.
"""

import json
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

LINE_BYTES = 4 * 1024 * 1024
DEPTH = 100
"""How deep a message may be nested; a plan is refused long before that."""
ID_LENGTH = 1000

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
UNAVAILABLE = -32000
"""Ours: the server behind this connection cannot answer now."""

Message = dict[str, Any]
Id = str | int


class Refused(Struct, frozen=True):
    """A line that is no message, and what its sender hears."""

    code: int
    message: str
    id: Id | None = None


class Lines:
    """Cuts a stream into lines; of one that is too long only the fact is kept."""

    def __init__(self, most: int = LINE_BYTES) -> None:
        self._most = most
        self._begun = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes | Refused]:
        """The lines that end in these bytes."""
        *ended, rest = data.split(b"\n")
        for part in ended:
            skipped, self._skipping = self._skipping, False
            line = bytes(self._begun) + part
            self._begun.clear()
            if not skipped:
                yield self._too_long() if len(line) > self._most else line
        if not self._skipping:
            self._begun += rest
            if len(self._begun) > self._most:
                self._begun.clear()
                self._skipping = True
                yield self._too_long()

    def _too_long(self) -> Refused:
        return Refused(INVALID_REQUEST, f"The message is longer than {self._most} bytes.")


def parse(line: bytes) -> Message | Refused | None:
    """The message on a line; None where there is nothing on it."""
    if not line.strip():
        return None
    try:
        said = json.loads(line.decode(), parse_constant=_no_number)
    except UnicodeDecodeError:
        return Refused(PARSE_ERROR, "The message is not UTF-8 text.")
    except RecursionError:
        return Refused(PARSE_ERROR, "The message is nested too deep.")
    except ValueError as error:
        return Refused(PARSE_ERROR, f"The message is not JSON: {str(error)[:200]}")
    return _checked(said, line)


def _checked(said: Any, line: bytes) -> Message | Refused:
    if isinstance(said, list):
        return Refused(INVALID_REQUEST, "Several messages at once are not taken; send one a line.")
    if not isinstance(said, dict):
        return Refused(INVALID_REQUEST, "A message is an object.")
    known = said.get("id")
    name = known if is_id(known) else None
    if _is_too_deep(said, line):
        return Refused(PARSE_ERROR, "The message is nested too deep.", name)
    if b"\\u" in line and not _is_text(said):
        said_id = name if _is_text(name) else None
        return Refused(PARSE_ERROR, "The message holds half a character (an unpaired surrogate).", said_id)
    problem = _problem(said)
    if problem is None:
        return said
    code, message = problem
    return Refused(code, message, name if "method" in said else None)


def _problem(said: Message) -> tuple[int, str] | None:
    if said.get("jsonrpc") != "2.0":
        return INVALID_REQUEST, "'jsonrpc' has to be \"2.0\"."
    if "id" in said and not is_id(said["id"]):
        return INVALID_REQUEST, "'id' has to be a text or a whole number."
    if "method" in said:
        if not isinstance(said["method"], str):
            return INVALID_REQUEST, "'method' has to be a text."
        if said.get("params") is not None and not isinstance(said["params"], dict):
            return INVALID_PARAMS, "'params' has to be an object."
        return None
    if "id" in said and (isinstance(said.get("result"), dict) or isinstance(said.get("error"), dict)):
        return None
    return INVALID_REQUEST, "A message has a 'method', or answers one with 'id' and 'result' or 'error'."


def is_id(value: object) -> bool:
    """Whether a request may be known by this."""
    if isinstance(value, str):
        return len(value) <= ID_LENGTH and _is_text(value)
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63


def _is_text(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_too_deep(said: Message, line: bytes) -> bool:
    if line.count(b"[") + line.count(b"{") <= DEPTH:
        return False
    level: list[Any] = [said]
    for _ in range(DEPTH):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")


def encode(message: Message) -> bytes:
    """A message as a line; half characters, which odd file names bring in, are replaced."""
    return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode(errors="replace") + b"\n"


def error_line(code: int, message: str, id: Id | None = None, data: Message | None = None) -> bytes:
    """The answer to something that went wrong."""
    error: Message = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return encode({"jsonrpc": "2.0", "id": id, "error": error})
