"""Where things stand in a document, and what is wrong there."""

import json
import re

from msgspec import Struct, field

from orchard.model import limits

Path = tuple[str | int, ...]
"""The way from the top of a document to a value: keys of mappings, numbers of list items."""

Place = tuple[int, int]
"""Line and column, both counted from 1."""

TOO_DEEP = f"is nested deeper than {limits.NESTING} levels"

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class Finding(Struct, frozen=True):
    """One thing that is wrong, before it is known how to show where."""

    path: Path
    message: str
    key: bool = False
    """Whether the key is meant, not its value."""
    place: Place | None = None
    """None: wherever the document says that `path` is."""


class Unreadable(Exception):
    """Raised within the readers of documents: there is no value to go on with."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__(f"{len(findings)} findings")
        self.findings = findings


class Places(Struct, frozen=True):
    keys: dict[Path, Place] = field(default_factory=dict)
    values: dict[Path, Place] = field(default_factory=dict)


class Written:
    """A number that remembers how it was written: `012` in an environment must not become `12`, nor `1.10` a `1.1`."""

    written: str

    def __str__(self) -> str:
        return self.written


class WrittenInt(Written, int): ...


class WrittenFloat(Written, float): ...


def written_int(text: str, base: int = 10) -> int:
    """The number; one that Python would print otherwise keeps its text."""
    plain = int(text, base)
    if str(plain) == text:
        return plain
    number = WrittenInt(plain)
    number.written = text
    return number


def written_float(text: str) -> float:
    """The number; one that Python would print otherwise keeps its text."""
    plain = float(text)
    if str(plain) == text:
        return plain
    number = WrittenFloat(plain)
    number.written = text
    return number


def show_path(path: Path, root: str = "") -> str:
    """A path as people write it: `jobs[2].needs[0]`; odd keys are quoted, so that they cannot move a cursor."""
    shown = root
    for part in path:
        if isinstance(part, int):
            shown += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            shown += f".{part}" if shown else part
        else:
            shown += f"[{json.dumps(part[:60])}]"
    return shown


def place_at(text: str, offset: int) -> Place:
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)
