"""Conversations on disk, so that a later turn can go on with one. A file each, written anew in one step."""

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal
from uuid import uuid4

from msgspec import Struct
from msgspec.json import decode, encode

from orchard.agents.builtin.memory import closed, is_whole
from orchard.agents.builtin.model import Message
from orchard.files import read_plain, replace_whole

FOLDER = "builtin-sessions"
_LARGEST = 64 * 1024 * 1024
_IDS = re.compile(r"[0-9a-f]{32}")
_NEEDED = {"text": ("text",), "tool_use": ("id", "name"), "tool_result": ("tool_use_id", "content")}


class _Kept(Struct):
    version: Literal[1]
    messages: list[Message]


def new_id() -> str:
    return uuid4().hex


def save(private: Path, session: str, messages: Sequence[Message], *, durable: bool = False) -> None:
    """Keep a conversation; whoever reads it at any moment finds the old one or this one, whole.

    `durable`: it is on disk when this returns, also if the machine loses its power then.
    """
    path = _path(private, session)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    replace_whole(path, encode(_Kept(1, list(messages))), durable=durable)


def read(private: Path, session: str) -> list[Message] | None:
    """A conversation to go on with: every call in it has an answer. None where there is none that could be used."""
    if not _IDS.fullmatch(session):
        return None
    try:
        messages = decode(read_plain(_path(private, session), _LARGEST), type=_Kept).messages
    except (OSError, ValueError, RecursionError):  # one that is too long is cut, and so is no JSON
        return None
    found = closed(messages) if all(map(_is_sound, messages)) else []
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


def _is_sound(message: Message) -> bool:
    names = [(block, name) for block in message.blocks for name in _NEEDED.get(block.get("type", ""), ())]
    return bool(message.blocks) and all(isinstance(block.get(name), str) for block, name in names)
