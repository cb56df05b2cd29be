"""Text to values: YAML, JSON or TOML, with the place of each value for whoever finds it wrong.

Places are looked up only when there is a problem to report, by reading the text a second time;
a document without problems does not pay for them. Whatever the text is, reading it ends in a value
or in `InvalidInput`, within the limits of `core.limits`.
"""

import json
import math
import re
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Literal

from msgspec import Struct

from orchard.errors import InvalidInput, Problem
from orchard.model import limits
from orchard.planfile.places import (
    TOO_DEEP,
    Finding,
    Path,
    Place,
    Places,
    Unreadable,
    place_at,
    show_path,
    written_float,
)
from orchard.planfile.yaml import read_yaml
from orchard.text import quoted

Format = Literal["yaml", "json", "toml"]

SHOWN_PROBLEMS = 100

_SUFFIXES: dict[str, Format] = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}


class Document(Struct, frozen=True, dict=True):
    value: Any
    name: str
    is_file: bool = False
    """Whether problems are shown with the name, and the lines, of a file."""
    root: str = ""
    """What the top of the value is called, where it is itself a part of something."""
    locate: Callable[[], Places] = Places

    @cached_property
    def places(self) -> Places:
        return self.locate()

    def position(self, path: Path, key: bool = False) -> Place | None:
        """Line and column where a value (or its key) begins; None if the text does not have it."""
        found = self.places.keys.get(path) if key else None
        return found or self.places.values.get(path)

    def problem(self, finding: Finding) -> Problem:
        """A finding with its place; what is missing is shown at what it is missing from."""
        place = finding.place or self.position(finding.path, finding.key)
        above = finding.path
        while place is None and above:
            above = above[:-1]
            place = self.position(above)
        line, column = place or (None, None)
        file = self.name if self.is_file else None
        path = show_path(finding.path, self.root) or ("" if self.is_file else self.name)
        return Problem(finding.message, path, line, column, file)

    def refuse(self, findings: Iterable[Finding]) -> InvalidInput:
        problems = [self.problem(finding) for finding in findings]
        problems.sort(key=lambda problem: (problem.line or 0, problem.column or 0))
        more = len(problems) - SHOWN_PROBLEMS
        if more > 0:
            problems[SHOWN_PROBLEMS:] = [Problem(f"... and {more} more")]
        return InvalidInput(self.name, problems)


def read_document(data: bytes, name: str, format: Format | None = None) -> Document:
    """The value that a file holds; its format follows from its name, or from how it begins."""
    try:
        text = _decoded(data)
        if not text.strip():
            raise Unreadable([Finding((), "the file is empty")])
        read, locate = _READERS[format or _format_of(name, text)]
        value = read(text)
        if value is None:
            raise Unreadable([Finding((), "the file is empty")])
        document = Document(value, name, is_file=True, locate=lambda: locate(text))
    except Unreadable as refused:
        raise Document(None, name, is_file=True).refuse(refused.findings) from None
    findings = value_findings(document.value)
    if findings:
        raise document.refuse(findings)
    return document


def value_findings(value: object) -> list[Finding]:
    """What no plan may hold, wherever the value came from: depth, long or broken text, odd numbers and types."""
    if _nothing_odd(value):
        return []
    found: list[Finding] = []
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        message = None
        if isinstance(item, str):
            message = _text_problem(item)
        elif isinstance(item, dict | list):
            if len(path) >= limits.NESTING:
                message = TOO_DEEP
            elif isinstance(item, list):
                waiting += [((*path, number), inner) for number, inner in enumerate(item)]
            else:
                found += _key_findings(path, item)
                waiting += [((*path, key), inner) for key, inner in item.items() if isinstance(key, str)]
        elif isinstance(item, float):
            message = None if math.isfinite(item) else "must be a finite number"
        elif item is not None and not isinstance(item, bool | int):
            message = "is a date or time, which plans do not use; put it in quotes"
        if message is not None:
            found.append(Finding(path, message))
    return found


def _nothing_odd(value: object) -> bool:
    """A quick answer to the same question, without places: false may mean only that a closer look is needed."""
    level: list[Any] = [value]
    for _ in range(limits.NESTING):
        inner: list[Any] = []
        for item in level:
            kind = item.__class__
            if kind is str:
                if not item.isascii() or len(item) > limits.STRING_BYTES or "\0" in item:
                    return False
            elif kind is dict:
                if any(key.__class__ is not str for key in item):
                    return False
                inner += item
                inner += item.values()
            elif kind is list:
                inner += item
            elif not (kind is int or kind is bool or item is None):
                return False
        level = inner
        if not level:
            return True
    return False


def _key_findings(path: Path, mapping: dict[Any, Any]) -> list[Finding]:
    wrong = [(key, _text_problem(key) if isinstance(key, str) else "a key must be text") for key in mapping]
    return [Finding((*path, str(key)), f"{message} (in a key)", key=True) for key, message in wrong if message]


def _text_problem(text: str) -> str | None:
    if text.isascii():
        size = len(text)
    else:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            return "holds half of a surrogate pair, which is no character"
    if size > limits.STRING_BYTES:
        return f"is text of {size} bytes; at most {limits.STRING_BYTES} are allowed"
    return "holds a NUL character" if "\0" in text else None


def _decoded(data: bytes) -> str:
    if len(data) > limits.PLAN_BYTES:
        raise Unreadable([Finding((), f"the file has {len(data)} bytes; at most {limits.PLAN_BYTES} are allowed")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        message = f"the file is not UTF-8 text (byte 0x{data[error.start]:02x})"
        raise Unreadable([Finding((), message, place=(line, column))]) from None


def _format_of(name: str, text: str) -> Format:
    dot = name.rfind(".")
    if dot >= 0 and (known := _SUFFIXES.get(name[dot:].lower())):
        return known
    return "json" if text.lstrip().startswith("{") else "yaml"


def _locate_yaml(text: str) -> Places:
    places = Places()
    read_yaml(text, places)
    return places


# ----------------------------------------------------------------------------------------- JSON


def _read_json(text: str) -> object:
    twice: list[bool] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(items)
        if len(made) != len(items):
            twice.append(True)
        return made

    try:
        value: object = json.loads(text, object_pairs_hook=pairs, parse_float=written_float)
    except json.JSONDecodeError as error:
        place = (error.lineno, error.colno)
        raise Unreadable([Finding((), f"is not valid JSON: {error.msg}", place=place)]) from None
    except RecursionError:
        raise Unreadable([Finding((), TOO_DEEP)]) from None
    except ValueError:
        raise Unreadable([Finding((), "is not valid JSON: a number has too many digits")]) from None
    if twice:
        duplicates: list[Finding] = []
        _walk_json(text, Places(), duplicates)
        raise Unreadable(duplicates)
    return value


_JSON_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)


def _locate_json(text: str) -> Places:
    places = Places()
    _walk_json(text, places, [])
    return places


def _walk_json(text: str, places: Places, duplicates: list[Finding]) -> None:
    """Note where each key and value of valid JSON begins, without recursion.

    `stack` holds the containers that are open: the path of each, and the key or number its next value has
    (None in an object that waits for a key).
    """
    stack: list[tuple[Path, str | int | None]] = []
    lines = _LineTable(text)
    for token in _JSON_TOKEN.finditer(text):
        word, place = token[0], lines.place(token.start())
        if word in "]}":
            stack.pop()
        elif word == ",":
            path, part = stack.pop()
            stack.append((path, part + 1 if isinstance(part, int) else None))
        elif stack and stack[-1][1] is None and word != ":":
            path, key = stack.pop()[0], json.loads(word)
            if (*path, key) in places.keys:
                duplicates.append(Finding((*path, key), f"the key {quoted(key)} is given twice", place=place))
            places.keys[*path, key] = place
            stack.append((path, key))
        elif word != ":":
            at: Path = (*stack[-1][0], stack[-1][1]) if stack and stack[-1][1] is not None else ()
            places.values[at] = place
            if word in "[{":
                stack.append((at, 0 if word == "[" else None))


class _LineTable:
    """Turns offsets into lines and columns, for offsets that only grow."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.line = 1
        self.begin = 0

    def place(self, offset: int) -> Place:
        while (end := self.text.find("\n", self.begin, offset)) >= 0:
            self.line += 1
            self.begin = end + 1
        return self.line, offset - self.begin + 1


# ----------------------------------------------------------------------------------------- TOML

_TOML_PART = r"(?:[A-Za-z0-9_-]+|\"[^\"\n]*\"|'[^'\n]*')"
_TOML_KEY = rf"{_TOML_PART}(?:[ \t]*\.[ \t]*{_TOML_PART})*"
# These are compiled when they are first used: most plans are YAML.
# The reader takes time that grows with the square of a dotted key's length, so such a key is not let in.
_TOML_DEEP = rf"(?m)(?:^|[\[{{,])[ \t]*{_TOML_PART}(?:[ \t]*\.[ \t]*{_TOML_PART}){{{limits.NESTING}}}"
_TOML_ERROR = r"(?s)(.*) \(at (?:line (\d+), column (\d+)|end of document)\)"
_TOML_LINE = rf"[ \t]*(?:(\[\[?)[ \t]*({_TOML_KEY})[ \t]*\]|({_TOML_KEY})[ \t]*=[ \t]*)"


def _read_toml(text: str) -> object:
    import tomllib  # most plans are YAML

    if deep := re.search(_TOML_DEEP, text):
        raise Unreadable([Finding((), TOO_DEEP, place=place_at(text, deep.start()))])
    try:
        return tomllib.loads(text, parse_float=written_float)
    except tomllib.TOMLDecodeError as error:
        found = re.fullmatch(_TOML_ERROR, str(error))
        place = (int(found[2]), int(found[3])) if found and found[2] else place_at(text, len(text))
        message = found[1] if found else str(error)
        raise Unreadable([Finding((), f"is not valid TOML: {quoted(message)[1:-1]}", place=place)]) from None
    except RecursionError:
        raise Unreadable([Finding((), TOO_DEEP)]) from None
    except ValueError:
        raise Unreadable([Finding((), "is not valid TOML: a number has too many digits, or a date is none")]) from None


def locate_toml(text: str) -> Places:
    """The places of what stands on a line of its own; what is inside an inline table is shown at that table."""
    places = Places()
    counts: dict[Path, int] = {}
    table: Path = ()
    quotes = ""
    for number, line in enumerate(text.split("\n"), 1):
        found = None if quotes else re.match(_TOML_LINE, line)
        if found and found[2]:
            table = _toml_table(_toml_parts(found[2]), found[1] == "[[", counts)
            places.values.setdefault(table, (number, found.start(1) + 1))
        elif found:
            path = (*table, *_toml_parts(found[3]))
            places.keys.setdefault(path, (number, found.start(3) + 1))
            places.values.setdefault(path, (number, found.end() + 1))
        for mark in ('"""', "'''"):
            if quotes in ("", mark) and line.count(mark) % 2:
                quotes = "" if quotes else mark
    return places


def _toml_parts(key: str) -> Path:
    return tuple(part.strip("\"'") for part in re.findall(_TOML_PART, key))


def _toml_table(parts: Path, is_list: bool, counts: dict[Path, int]) -> Path:
    """The path a header opens: each name that was opened as a list means its newest item."""
    path: Path = ()
    for number, part in enumerate(parts):
        path = (*path, part)
        if is_list and number == len(parts) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


_READERS: dict[Format, tuple[Callable[[str], object], Callable[[str], Places]]] = {
    "yaml": (read_yaml, _locate_yaml),
    "json": (_read_json, _locate_json),
    "toml": (_read_toml, locate_toml),
}
