"""Agents that a repository describes: `.claude/agents/NAME.md` and `.github/agents/NAME.agent.md`.

    ---
    name: reviewer
    description: Reads a change and says what is wrong with it
    model: fast-model
    tools: Read, Grep
    ---
    You review changes. ...

A definition is a text that instructions begin with, and not a program: whoever works by it is an agent that the user
has. The files are a stranger's, so links are not followed, and all of it is bounded. What cannot be read is left out.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from orchard.agents.prompts.quote import plain_text
from orchard.files import read_plain

PLACES = ((".claude/agents", ".md"), (".github/agents", ".agent.md"))
MOST = 100
"""Definitions that are read of each place."""
FILE_BYTES = 64 * 1024
DESCRIPTION = 500
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_MODEL = re.compile(r"[A-Za-z0-9][\w.:/@+-]{0,199}")
"""What could be taken for an option of a program is no model."""
_FIELD = re.compile(r"([A-Za-z][\w-]*)\s*:(?:\s+(.*)|$)")
_NO_MODEL = ("", "inherit", "default")


class Definition(Struct, frozen=True):
    name: str
    description: str
    instructions: str
    model: str | None = None
    tools: tuple[str, ...] = ()
    file: str = ""


def definitions(folder: Path) -> dict[str, Definition]:
    """The definitions in a checkout by their names; where two have the same, the first place wins."""
    found: dict[str, Definition] = {}
    for place, ending in PLACES:
        for name in sorted(_names(folder / place, ending))[:MOST]:
            text = _read(folder / place / name)
            made = parse(text, name.removesuffix(ending), f"{place}/{name}") if text is not None else None
            if made is not None:
                found.setdefault(made.name, made)
    return found


def parse(text: str, stem: str, file: str = "") -> Definition | None:
    """The definition that a file holds; None where it has no head, no text, or a name that cannot be used.

    Heads are read line by line: they look like YAML, but people write colons and quotes into them as they like.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].strip() != "---":
        return None
    try:
        end = next(number for number, line in enumerate(lines[1:], 1) if line.strip() == "---")
    except StopIteration:
        return None
    fields = _fields(lines[1:end])
    name, body = fields.get("name") or stem, "\n".join(lines[end + 1 :]).strip()
    if not NAME.fullmatch(name) or not body:
        return None
    model = fields.get("model", "")
    tools = tuple(word for part in re.split(r"[,\n]", fields.get("tools", "").strip("[]")) if (word := _value(part)))
    return Definition(
        name,
        " ".join(plain_text(fields.get("description", "")).split())[:DESCRIPTION],
        body,
        None if model.lower() in _NO_MODEL or not _MODEL.fullmatch(model) else model,
        tools,
        file,
    )


def _fields(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    last = ""
    for line in lines:
        start = _FIELD.fullmatch(line.rstrip()) if not line.startswith((" ", "\t", "-", "#")) else None
        if start is not None:
            last = start[1].lower()
            said = _value(start[2] or "")
            found[last] = "" if said in ("|", ">", "|-", ">-") else said
        elif last and line.strip():
            found[last] = f"{found[last]}\n{line.strip().removeprefix('- ')}".strip("\n")
    return found


def _value(text: str) -> str:
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _names(folder: Path, ending: str) -> Iterator[str]:
    """The files of a folder that is reached through folders only."""
    if any(place.is_symlink() for place in (folder, folder.parent)):
        return
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(ending) and entry.is_file(follow_symlinks=False):
                    yield entry.name
    except OSError:
        return


def _read(path: Path) -> str | None:
    try:
        found = read_plain(path, FILE_BYTES + 1)
    except OSError:
        return None
    return found.decode(errors="replace") if len(found) <= FILE_BYTES else None
