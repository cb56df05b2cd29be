"""Texts that begin with a head, as definitions, commands and skills do: fields between two lines of `---`, then a body.

Heads are read line by line: they look like YAML, but people write colons and quotes into them as they like.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from orchard.files import read_plain
from orchard.patterns import later

_FIELD = later(r"""(["']?)([A-Za-z][\w-]*)\1\s*:(?:\s+(.*)|$)""")
_BLOCKS = ("|", ">", "|-", ">-")
_ODD_KEY = later(r"""\{|\?\s|<<\s*:|[!&]\S.*:|"(?:[^"\\]|\\.)*"\s*:|'[^']*'\s*:""")
"""Forms in which YAML has keys, and which are not read here."""
_OF_TOOLS = later(r"tool[\w-]{0,20}\W{0,5}?[:=]", re.IGNORECASE)


class Head(Struct, frozen=True):
    fields: dict[str, str]
    """By names in small letters."""
    body: str
    doubtful: str = ""
    """The first line that may limit tools in a form that is not read; empty: there is none."""


def split(text: str) -> tuple[dict[str, str], str] | None:
    """The fields of the head, by names in small letters, and the body; None: there is no head."""
    found = read(text)
    return (found.fields, found.body) if found is not None else None


def read(text: str) -> Head | None:
    """The head of a text and what follows it; None: there is no head."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.strip() == "---"), None)
    if lines[0].strip() != "---" or end is None:
        return None
    fields, doubtful = _fields(lines[1:end])
    return Head(fields, "\n".join(lines[end + 1 :]).strip(), doubtful)


def _fields(lines: list[str]) -> tuple[dict[str, str], str]:
    found: dict[str, list[str]] = {}
    last = doubtful = ""
    for line in lines:
        start = _FIELD.fullmatch(line.rstrip()) if not line.startswith((" ", "\t", "-", "#")) else None
        if start is not None:
            last = start[2].lower()
            if last in found and "tool" in last:
                doubtful = doubtful or line
            said = value(start[3] or "")
            found[last] = ["" if said in _BLOCKS else said]
        elif line.strip() and not line.startswith("#"):
            doubtful = doubtful or (line if _is_doubtful(line, last, found.get(last, [""])[0]) else "")
            if last:
                found[last].append(line.strip().removeprefix("- "))
    return {name: "\n".join(rows).strip("\n") for name, rows in found.items()}, doubtful.strip()


def _is_doubtful(line: str, last: str, said: str) -> bool:
    """Whether a line that begins no field of ours may have been meant as one about tools."""
    if line.startswith((" ", "\t", "-")):
        # It goes on with a text, or lies below a key of its own, as the servers of an agent do.
        is_part = last == "description" or "tool" in last or (last and not said)
        return not is_part and _OF_TOOLS.search(line) is not None
    return _ODD_KEY.match(line) is not None or _OF_TOOLS.search(line) is not None


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
