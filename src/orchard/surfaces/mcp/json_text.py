"""Changing one member of a JSON file that belongs to somebody else, and nothing else in it.

The file is edited as text: order, indentation, numbers and comments stay as they were written. What JSON with comments
allows beyond plain JSON (comments, a comma before a closing bracket) is understood only where the reader of the file
understands it too. Every change is checked by reading the new text: it must differ from the old one in our member
alone.

    read_json(text, comments)                         the value, or BadText
    with_member(text, comments, keys, value)          the text with the member at keys set
    without_member(text, comments, keys)              the text without it
"""

import json
import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from msgspec import Struct

_TOKEN = re.compile(
    r'\s+|(?P<comment>//[^\r\n]*|/\*.*?\*/)|(?P<mark>"[^"\\\n]*(?:\\.[^"\\\n]*)*"|[{}\[\]:,]|[^\s{}\[\]:,"/]+)',
    re.DOTALL,
)
_OPENING, _CLOSING, _BEFORE = "{[", "}]", "{[,:"


class BadText(ValueError):
    """A file that cannot be changed safely; says why, and where if that is known."""

    def __init__(self, why: str, line: int | None = None) -> None:
        super().__init__(why if line is None else f"line {line}: {why}")


class _Member(Struct, frozen=True):
    """One member of an object, by the numbers of its tokens."""

    key: str
    first: int
    value: int
    last: int


class _Text:
    """The tokens of a text, and where they stand."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.comments: list[tuple[int, int]] = []
        self.marks: list[tuple[int, int]] = []
        at = 0
        for found in _TOKEN.finditer(text):
            start, end = found.span()
            if start != at:
                break  # what lies between is no token
            if found.lastgroup is not None:
                (self.marks if found.lastgroup == "mark" else self.comments).append((start, end))
            at = end
        if at != len(text):
            raise BadText("this is not JSON", self.line(at))

    def line(self, at: int) -> int:
        return self.text.count("\n", 0, at) + 1

    def mark(self, number: int) -> str:
        start, end = self.marks[number]
        return self.text[start:end]

    def value(self) -> Any:
        """What the tokens say, whatever stands between them."""
        words = [f"{self.mark(number)} " for number in range(len(self.marks))]
        for number, word in enumerate(words[:-1]):
            if word == ", " and words[number + 1][0] in _CLOSING and number and words[number - 1][0] not in _BEFORE:
                words[number] = "  "
        try:
            return _load("".join(words))
        except json.JSONDecodeError as error:
            starts = list(accumulate((len(word) for word in words), initial=0))
            number = min(bisect_right(starts, error.pos) - 1, len(self.marks) - 1)
            raise BadText(error.msg.lower(), self.line(self.marks[number][0])) from None

    def members(self, opening: int) -> tuple[list[_Member], int]:
        """The members of the object that begins with a token, and the number of its closing bracket."""
        found, at = [], opening + 1
        while self.mark(at) != "}":
            end = self._after(at + 2)
            found.append(_Member(json.loads(self.mark(at)), at, at + 2, end - 1))
            at = end + 1 if self.mark(end) == "," else end
        return found, at

    def _after(self, number: int) -> int:
        """The token that follows a whole value."""
        text, marks, depth = self.text, self.marks, 0
        while True:
            first = text[marks[number][0]]
            depth += (first in _OPENING) - (first in _CLOSING)
            number += 1
            if not depth:
                return number

    def indent(self, number: int) -> str | None:
        """The blanks before a token that is the first in its line; None where another stands before it."""
        start = self.marks[number][0]
        before = self.text[self.text.rfind("\n", 0, start) + 1 : start]
        return before if not before.strip() else None

    def left(self, number: int) -> str:
        """The blanks with which a token's line begins."""
        line = self.text[self.text.rfind("\n", 0, self.marks[number][0]) + 1 :]
        return line[: len(line) - len(line.lstrip(" \t"))]


def read_json(text: str, comments: bool) -> Any:
    """The value of a whole file; an empty one holds an empty object."""
    if not text.strip():
        return {}
    if not comments:
        try:
            return _load(text)
        except json.JSONDecodeError as error:
            raise BadText(error.msg.lower(), error.lineno) from None
    return _Text(text).value()


def comments_of(text: str) -> list[str]:
    """Every comment, in order."""
    read = _Text(text)
    return [read.text[start:end] for start, end in read.comments]


def with_member(text: str, comments: bool, keys: Sequence[str], value: object) -> str:
    """The text with the member at `keys` set to a value; objects on the way are made."""
    before = read_json(text, comments)
    changed = _set(text, keys, value, before)
    _check(changed, comments, _expected(before, keys, value))
    return changed


def without_member(text: str, comments: bool, keys: Sequence[str]) -> str:
    """The text without the member at `keys`; the object that it was in stays."""
    before = read_json(text, comments)
    read, parent = _Text(text), 0
    for key in keys[:-1]:
        parent = _child(read, parent, key).value
    changed = _cut(read, parent, keys[-1])
    _check(changed, comments, _expected(before, keys, None))
    return changed


# ---------------------------------------------------------------------------------------- reading


def _load(text: str) -> Any:
    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(found)
        if len(made) != len(found):
            twice = next(key for key, _ in found if sum(key == other for other, _ in found) > 1)
            raise BadText(f"'{twice}' is given twice")
        return made

    try:
        return json.loads(text, object_pairs_hook=pairs)
    except RecursionError:
        raise BadText("it is nested too deep") from None


def _child(read: _Text, parent: int, key: str) -> _Member:
    return next(member for member in read.members(parent)[0] if member.key == key)


def _expected(before: Any, keys: Sequence[str], value: object | None) -> Any:
    """The value that the changed text must have; None takes the member out."""
    if not isinstance(before, dict):
        raise BadText("it does not hold an object")
    if len(keys) > 1:
        return {**before, keys[0]: _expected(before.get(keys[0], {}), keys[1:], value)}
    rest = {key: held for key, held in before.items() if key != keys[0]}
    return rest if value is None else {**rest, keys[0]: value}


def _check(changed: str, comments: bool, expected: Any) -> None:
    """Never hand out a text that says anything else than was meant."""
    if read_json(changed, comments) != expected:
        raise BadText("it is written in a way that cannot be changed here")


# --------------------------------------------------------------------------------------- changing


def _set(text: str, keys: Sequence[str], value: object, before: Any) -> str:
    if not text.strip():
        return _shown(_nested(keys, value), "  ", "", "\n") + "\n"
    read, parent = _Text(text), 0
    for depth, key in enumerate(keys):
        if not isinstance(before, dict):
            raise BadText(f"'{keys[depth - 1]}' is not an object" if depth else "it does not hold an object")
        if key not in before:
            return _insert(read, parent, key, _nested(keys[depth + 1 :], value))
        if depth == len(keys) - 1:
            return _replace(read, _child(read, parent, key), value)
        parent, before = _child(read, parent, key).value, before[key]
    raise AssertionError("there is no key")


def _nested(keys: Sequence[str], value: object) -> object:
    for key in reversed(keys):
        value = {key: value}
    return value


def _shown(value: object, unit: str, indent: str, line_end: str) -> str:
    """A value over several lines, all but the first behind an indent."""
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", line_end + indent)


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _unit(read: _Text) -> str:
    """What one step of indentation is in this file."""
    members, _ = read.members(0)
    return (read.indent(members[0].first) or "  ") if members else "  "


def _replace(read: _Text, member: _Member, value: object) -> str:
    start, end = read.marks[member.value][0], read.marks[member.last][1]
    indent = read.indent(member.first)
    if indent is None and "\n" not in read.text:
        shown = json.dumps(value, ensure_ascii=False)
    else:
        shown = _shown(value, _unit(read), indent or "", _line_end(read.text))
    return read.text[:start] + shown + read.text[end:]


def _insert(read: _Text, parent: int, key: str, value: object) -> str:
    """A new last member."""
    text, line_end, unit = read.text, _line_end(read.text), _unit(read)
    members, closing = read.members(parent)
    name = json.dumps(key, ensure_ascii=False)
    left, close = read.left(parent), read.marks[closing][0]
    if not members:
        inner = text[read.marks[parent][1] : close].rstrip()
        shown = f"{name}: {_shown(value, unit, left + unit, line_end)}"
        return f"{text[: read.marks[parent][1]]}{inner}{line_end}{left}{unit}{shown}{line_end}{left}{text[close:]}"
    last = read.marks[members[-1].last][1]
    indent = read.indent(members[-1].first)
    tail = text[last:close].rstrip()
    comma = "" if read.mark(closing - 1) == "," else ","
    if indent is None and not tail.lstrip(","):
        return f"{text[:last]}{comma}{tail} {name}: {json.dumps(value, ensure_ascii=False)}{text[last + len(tail) :]}"
    indent = left + unit if indent is None else indent
    shown = f"{name}: {_shown(value, unit, indent, line_end)}"
    return f"{text[:last]}{comma}{tail}{line_end}{indent}{shown}{text[last + len(tail) :]}"


def _cut(read: _Text, parent: int, key: str) -> str:
    """The text without a member and the comma that belonged to it; a line of which nothing is left goes as well."""
    text, member = read.text, _child(read, parent, key)
    members, closing = read.members(parent)
    start, end = read.marks[member.first][0], read.marks[member.last][1]
    if read.mark(member.last + 1) == ",":
        end_comma = read.marks[member.last + 1]
        text = text[: end_comma[0]] + text[end_comma[1] :]
    elif member.first != parent + 1:
        comma = read.marks[member.first - 1]
        text = text[: comma[0]] + text[comma[1] :]
        start, end = start - 1, end - 1
    before, after = text[:start], text[end:]
    blank, rest = before[before.rfind("\n") + 1 :], after.partition("\n")
    if not blank.strip() and "\n" in before and not rest[0].strip() and rest[1]:
        before, after = before[: len(before) - len(blank)], rest[2]
    elif len(members) == 1:
        before, after = before.rstrip(" \t"), after.lstrip(" \t")
    else:
        before = before.rstrip(" \t") if after.lstrip(" \t")[:1] in ("}", "\r", "\n") else before
        after = after.lstrip(" \t") if before[-1:] in ("{", " ", "\t") else after
    if len(members) == 1:
        opened = read.marks[parent][1]
        inner_end = len(before) + len(after) - (len(read.text) - read.marks[closing][0])
        whole = before + after
        if not whole[opened:inner_end].strip():
            return whole[:opened] + whole[inner_end:]
    return before + after
