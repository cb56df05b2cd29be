"""Conversations on disk, so that a later turn can go on with one. A file each, written anew in one step."""

import os
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
from orchard.files import held, read_below, write_below

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
    write_below(private, _name(session), encode(_Kept(1, list(messages))), durable=durable)


def read(private: Path, session: str) -> list[Message] | None:
    """A conversation to go on with: every call in it has an answer. None where there is none that could be used."""
    if not _IDS.fullmatch(session):
        return None
    try:
        messages = decode(read_below(private, _name(session), _LARGEST), type=_Kept).messages
    except (OSError, ValueError, RecursionError):  # one that is too long is cut, and so is no JSON
        return None
    found = closed(messages) if all(map(_is_sound, messages)) else []
    return found if is_whole(found) else None


def forget_old(private: Path, kept: int) -> None:
    with suppress(OSError), held(private, FOLDER) as place:  # a link of the agent's there may lead to files of others
        with os.scandir(place) as entries:
            found = [(entry.stat(follow_symlinks=False).st_mtime, entry.name) for entry in entries]
        for _, name in sorted(found, reverse=True)[kept:]:
            with suppress(OSError):  # another may do the same at the same time
                os.unlink(name, dir_fd=place)


def _name(session: str) -> str:
    return f"{FOLDER}/{session}.json"


def _is_sound(message: Message) -> bool:
    names = [(block, name) for block in message.blocks for name in _NEEDED.get(block.get("type", ""), ())]
    return bool(message.blocks) and all(isinstance(block.get(name), str) for block, name in names)
