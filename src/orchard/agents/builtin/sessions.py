"""Conversations on disk, so that a later turn can go on with one. A file each, written anew in one step."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from orchard.agents.builtin.memory import closed, is_whole
from orchard.agents.builtin.model import Json, Message
from orchard.files import read_plain, replace_whole

FOLDER = "builtin-sessions"
VERSION = 1
_LARGEST = 64 * 1024 * 1024
_IDS = re.compile(r"[0-9a-f]{32}")


def new_id() -> str:
    return uuid4().hex


def save(private: Path, session: str, messages: Sequence[Message], *, durable: bool = False) -> None:
    """Keep a conversation; whoever reads it at any moment finds the old one or this one, whole.

    `durable`: it is on disk when this returns, also if the machine loses its power then.
    """
    path = _path(private, session)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    body = {"version": VERSION, "messages": [_as_json(message) for message in messages]}
    replace_whole(path, json.dumps(body, ensure_ascii=False).encode(), durable=durable)


def read(private: Path, session: str) -> list[Message] | None:
    """A conversation to go on with: every call in it has an answer. None where there is none that could be used."""
    if not _IDS.fullmatch(session):
        return None
    try:
        data = read_plain(_path(private, session), _LARGEST + 1)
        body = json.loads(data) if len(data) <= _LARGEST else None
        found = closed([_message(one) for one in body["messages"]]) if body and body["version"] == VERSION else []
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if is_whole(found) else None


def forget_old(private: Path, kept: int) -> None:
    found: list[tuple[float, Path]] = []
    for path in (private / FOLDER).glob("*"):
        with suppress(OSError):  # another may do the same at the same time
            found.append((path.stat().st_mtime, path))
    for _, path in sorted(found, reverse=True)[kept:]:
        with suppress(OSError):
            path.unlink()


def _path(private: Path, session: str) -> Path:
    return private / FOLDER / f"{session}.json"


def _as_json(message: Message) -> Json:
    body: Json = {"role": message.role, "content": list(message.blocks)}
    return {**body, "summary": True} if message.summary else body


def _message(body: Json) -> Message:
    role, blocks = body["role"], body["content"]
    if role not in ("user", "assistant") or not isinstance(blocks, list) or not blocks:
        raise ValueError("no message")
    for block in blocks:
        needed = {"text": ("text",), "tool_use": ("id", "name"), "tool_result": ("tool_use_id", "content")}
        if not all(isinstance(block[name], str) for name in needed.get(block["type"], ())):
            raise ValueError("no block")
    return Message(role, tuple(blocks), summary=body.get("summary") is True)
