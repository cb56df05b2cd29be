"""YAML as plans use it: version 1.2, and only what JSON could say too.

A parser of the C library turns text into events; the values are put together here, for three
reasons. Only our own reading of plain words follows YAML 1.2 (`no` is text, `1:30` is text). What
plans refuse (aliases, tags, merge keys, the same key twice) is reported with its place. And nothing
recurses, so no text can exhaust the stack.
"""

from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NoReturn

from msgspec import Struct

from orchard.model import limits
from orchard.patterns import later
from orchard.planfile.places import (
    TOO_DEEP,
    Finding,
    Path,
    Place,
    Places,
    Unreadable,
    place_at,
    written_float,
    written_int,
)
from orchard.text import quoted

_WORDS: dict[str, object] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    **{sign + word: float(f"{sign}inf") for sign in ("", "+", "-") for word in (".inf", ".Inf", ".INF")},
}
_NUMBER_STARTS = frozenset("+-.0123456789")
_INT = later(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = later(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_LONGEST_NUMBER = 300

COLON_INSIDE = "found unexpected ':'"
"""What the C library says of `{a: 1:30}` and `{url: http://a/b}`. YAML 1.2 allows both; the parser in Python does."""

# What YAML allows nowhere, not even in quotes.
_FORBIDDEN = later("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufffe\uffff]")


class _Frame(Struct):
    value: dict[str, Any] | list[Any]
    path: Path
    key: str | None = None
    """In a mapping: the key whose value comes next."""


class _Composer:
    """Puts values together from events; notes places only if asked to, since most files have no problem."""

    def __init__(self, places: Places | None) -> None:
        self.places = places
        self.findings: list[Finding] = []
        self.stack: list[_Frame] = []
        self.roots: list[object] = []

    def scalar(self, event: Any) -> None:
        if event.anchor is not None or event.tag is not None:
            self.refuse_extras(event)
        if self.stack and (frame := self.stack[-1]).key is None and isinstance(frame.value, dict):
            self.key(event, frame, frame.value)
        else:
            self.put(event, self.value_of(event))

    def start(self, event: Any, value: dict[str, Any] | list[Any]) -> None:
        if event.anchor is not None or event.tag is not None:
            self.refuse_extras(event)
        if self.stack and (frame := self.stack[-1]).key is None and isinstance(frame.value, dict):
            self.stop(event, "a key must be text, not a list or a mapping")
        if len(self.stack) >= limits.NESTING:
            self.stop(event, TOO_DEEP)
        path = self.path()
        self.put(event, value)
        self.stack.append(_Frame(value, path))

    def end(self) -> None:
        self.stack.pop()

    def path(self) -> Path:
        if not self.stack:
            return ()
        frame = self.stack[-1]
        part = len(frame.value) if isinstance(frame.value, list) else frame.key
        return frame.path if part is None else (*frame.path, part)

    def put(self, event: Any, value: object) -> None:
        if self.places is not None:
            self.places.values.setdefault(self.path(), _place(event.start_mark))
        if not self.stack:
            self.roots.append(value)
            return
        frame = self.stack[-1]
        if isinstance(frame.value, list):
            frame.value.append(value)
        elif frame.key is not None:
            frame.value[frame.key] = value
            frame.key = None

    def key(self, event: Any, frame: _Frame, mapping: dict[str, Any]) -> None:
        text: str = event.value
        plain = event.implicit[0]
        at = (*frame.path, text)
        if plain and text == "<<":
            self.find(event, "merge keys ('<<') are not used in plans; write the fields out", at)
        elif plain and not isinstance(self.value_of(event), str):
            self.find(event, f"a key must be text; put {quoted(text)} in quotes", at)
        elif text in mapping:
            self.find(event, f"the key {quoted(text)} is given twice", at)
        if self.places is not None:
            self.places.keys.setdefault(at, _place(event.start_mark))
        frame.key = text

    def value_of(self, event: Any) -> object:
        """What a scalar means: quoted and block text is text, a plain word follows the core schema of 1.2."""
        text: str = event.value
        if not event.implicit[0]:
            return text
        if text[:1] not in _NUMBER_STARTS:
            return _WORDS.get(text, text)
        if len(text) > _LONGEST_NUMBER:
            return text
        if _INT.fullmatch(text):
            return written_int(text, 0 if text[:2] in ("0o", "0x") else 10)
        return written_float(text) if _FLOAT.fullmatch(text) else _WORDS.get(text, text)

    def refuse_extras(self, event: Any) -> None:
        if event.anchor is not None:
            self.find(event, f"anchors ({quoted('&' + event.anchor)}) are not used in plans; write the value out")
        if event.tag is not None:
            self.find(event, f"tags ({quoted(str(event.tag))}) are not used in plans; remove it")

    def find(self, event: Any, message: str, path: Path | None = None) -> None:
        at = self.path() if path is None else path
        self.findings.append(Finding(at, message, place=_place(event.start_mark)))

    def stop(self, event: Any, message: str) -> NoReturn:
        self.find(event, message)
        raise Unreadable(self.findings)


def read_yaml(text: str, places: Places | None = None, *, pure: bool = False) -> object:
    """The one value that the text holds; raises Unreadable. Fills `places`, if given."""
    if bad := _FORBIDDEN.search(text):
        raise Unreadable(
            [Finding((), f"the character {quoted(bad[0])} is not allowed", place=place_at(text, bad.start()))]
        )
    # Heavy, and not needed by commands that read no plan file.
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    composer = _Composer(places)
    try:
        _compose(composer, _events(text, pure=pure))
    except MarkedYAMLError as error:
        if not pure and str(error.problem) == COLON_INSIDE:
            if places is not None:
                places.keys.clear()
                places.values.clear()
            return read_yaml(text, places, pure=True)
        raise Unreadable([*composer.findings, _syntax_finding(error, text)]) from None
    except (YAMLError, ValueError, OverflowError) as error:
        # The readers of the two libraries differ in how they refuse odd characters and escapes.
        raise Unreadable([*composer.findings, Finding((), f"is not valid YAML: {_first_line(error)}")]) from None
    if composer.findings:
        raise Unreadable(composer.findings)
    return composer.roots[0] if composer.roots else None


def _events(text: str, *, pure: bool) -> Iterator[Any]:
    from ruamel.yaml import YAML

    # Without the C library the same is read more slowly.
    pure = pure or find_spec("_ruamel_yaml") is None
    parsed: Iterator[Any] = YAML(typ="safe", pure=pure).parse(text)
    return parsed


def _compose(composer: _Composer, events: Iterator[Any]) -> None:
    from ruamel.yaml import events as kinds

    for event in events:
        kind = event.__class__
        if kind is kinds.ScalarEvent:
            composer.scalar(event)
        elif kind is kinds.MappingStartEvent:
            composer.start(event, {})
        elif kind is kinds.SequenceStartEvent:
            composer.start(event, [])
        elif kind is kinds.MappingEndEvent or kind is kinds.SequenceEndEvent:
            composer.end()
        elif kind is kinds.AliasEvent:
            composer.stop(event, f"aliases ({quoted('*' + event.anchor)}) are not used in plans; write the value out")
        elif kind is kinds.DocumentStartEvent and composer.roots:
            composer.stop(event, "a plan is one document; remove the '---' and what follows it")


def _syntax_finding(error: Any, text: str) -> Finding:
    mark = error.problem_mark or error.context_mark
    message = f"is not valid YAML: {_first_line(error.problem or error.context)}"
    if mark is None:
        return Finding((), message)
    line, column = _place(mark)
    lines = text.split("\n")
    found = lines[line - 1][column - 1 : column] if line <= len(lines) else ""
    if found == "\t":
        message = "is not valid YAML: a tab is used to indent; use spaces"
    elif found and found in "@`%":
        message = f"is not valid YAML: text that begins with '{found}' must be in quotes"
    elif "mapping values are not allowed" in message:
        message += " (text that holds ': ' must be in quotes)"
    return Finding((), message, place=(line, column))


def _first_line(error: object) -> str:
    return quoted(str(error).partition("\n")[0])[1:-1]


def _place(mark: Any) -> Place:
    return mark.line + 1, mark.column + 1
