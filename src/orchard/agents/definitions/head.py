"""Texts that begin with a head, as definitions, commands and skills do: fields between two lines of `---`, then a body.

Heads are read line by line: they look like YAML, but people write colons and quotes into them as they like.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from orchard.files import read_plain

_FIELD = re.compile(r"([A-Za-z][\w-]*)\s*:(?:\s+(.*)|$)")


def split(text: str) -> tuple[dict[str, str], str] | None:
    """The fields of the head, by names in small letters, and the body; None: there is no head."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if lines[0].strip() != "---" or end is None:
        return None
    return _fields(lines[1:end]), "\n".join(lines[end + 1 :]).strip()


def _fields(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    last = ""
    for line in lines:
        start = _FIELD.fullmatch(line.rstrip()) if not line.startswith((" ", "\t", "-", "#")) else None
        if start is not None:
            last = start[1].lower()
            said = value(start[2] or "")
            found[last] = "" if said in ("|", ">", "|-", ">-") else said
        elif last and line.strip():
            found[last] = f"{found[last]}\n{line.strip().removeprefix('- ')}".strip("\n")
    return found


def value(text: str) -> str:
    """Without the quotes around it."""
    text = text.strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def folder_below(top: Path, place: str, *, links: bool) -> Path | None:
    """A folder below another, reached through folders only unless `links` are followed; None: there is none."""
    path = top
    for name in place.split("/"):
        path = path / name
        if not links and path.is_symlink():
            return None
    return path if path.is_dir() else None


def entries(folder: Path, *, links: bool) -> Iterator[os.DirEntry[str]]:
    """What lies in a folder, in order of names, without what is hidden; links only where they are followed."""
    try:
        with os.scandir(folder) as found:
            rows = sorted(found, key=lambda entry: entry.name)
    except OSError:
        return
    for row in rows:
        if row.name.isprintable() and not row.name.startswith(".") and (links or not row.is_symlink()):
            yield row


def read_text(path: Path, most: int, *, links: bool) -> str | None:
    """A text of at most so many bytes; None where it is longer, or no file."""
    try:
        data = read_plain(path.resolve() if links else path, most + 1)
    except OSError:
        return None
    return data.decode(errors="replace") if len(data) <= most else None
