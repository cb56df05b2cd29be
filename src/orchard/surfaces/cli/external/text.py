"""One entry in a text that belongs to another program, in JSON or TOML: read, set, or taken out.

Everything else stays as it was written: order, indentation, numbers, comments. What JSON with comments allows beyond
plain JSON (comments, a comma before a closing bracket) is understood only where the reader of the file understands it
too. Every change is checked by reading the new text: it must differ from the old one in our entry alone.
"""

import json
import re
import tomllib
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from orchard.surfaces.mcp.hosts import Form
from orchard.text import line_end

# What is opened and never closed reaches to the end: nothing is looked for twice.
_STRING = r'"(?:[^"\\\n]|\\.)*(?:"|.*)'
_COMMENT = re.compile(rf"{_STRING}|(//[^\r\n]*|/\*.*?\*/)|/\*.*", re.DOTALL)
_LAST_COMMA = re.compile(rf'({_STRING}|[^\s{{}}\[\]:,"]+|[}}\]])(\s*,(?=\s*[}}\]]))?', re.DOTALL)
_BLANKS = re.compile(r"\s*")


class BadText(ValueError):
    """A text that cannot be changed safely; says why, and where if that is known."""


def read_text(text: str, form: Form) -> Any:
    """The value of a whole file; an empty one holds an empty object."""
    try:
        if form == "toml":
            return tomllib.loads(text)
        return json.loads(_plain_json(text, form), object_pairs_hook=_members_once) if text.strip() else {}
    except json.JSONDecodeError as error:
        raise BadText(f"line {error.lineno}: this is not JSON: {error.msg.lower()}") from None
    except tomllib.TOMLDecodeError as error:
        raise BadText(str(error)) from None
    except RecursionError:
        raise BadText("it is nested too deep") from None


def entry_of(text: str, form: Form, keys: Sequence[str]) -> Any:
    """What is there under `keys`; None if nothing is."""
    value, sort = read_text(text, form), "a table" if form == "toml" else "an object"
    for number, key in enumerate(keys):
        if not isinstance(value, dict):
            raise BadText(f"'{keys[number - 1]}' is not {sort}" if number else f"it does not hold {sort}")
        if key not in value:
            return None
        value = value[key]
    return value


def edited(text: str, form: Form, keys: Sequence[str], value: dict[str, Any] | None) -> str:
    """The text with a value under `keys`; None takes out what is there."""
    there = entry_of(text, form, keys)
    if there is None and value is None:
        return text
    try:
        if form == "toml":
            from orchard.surfaces.cli.external.toml import edited_toml  # brings tomlkit, for one host

            after = edited_toml(text, keys, value, new=there is None)
        else:
            after = _edited_json(text, form, keys, value)
        kept = _shown(_rest(read_text(after, form), keys)) == _shown(_rest(read_text(text, form), keys))
        if kept and _shown(entry_of(after, form, keys)) == _shown(value):
            return after
    except (ValueError, RecursionError):
        pass
    raise BadText("it is written in a way that cannot be changed here")


def holds_nothing_else(text: str, form: Form, keys: Sequence[str]) -> bool:
    """Whether a text from which our entry was taken out says nothing any more."""
    if form == "toml":
        return not text.strip()
    return read_text(text, form) == {keys[0]: {}} and not comments_of(text)


def comments_of(text: str) -> list[str]:
    return [found[1] for found in _COMMENT.finditer(text) if found[1]]


def _shown(value: object) -> str:
    """A value in a form that equals itself, also where a number does not."""
    return json.dumps(value, sort_keys=True, default=repr)


def _rest(value: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """A value without our entry, and without what holds nothing but that: some forms cannot say an empty table."""
    rest, inner = {key: held for key, held in value.items() if key != keys[0]}, value.get(keys[0])
    held = _rest(inner, keys[1:]) if len(keys) > 1 and isinstance(inner, dict) else None
    return {**rest, keys[0]: held} if held else rest


# ------------------------------------------------------------------------------------------- JSON


def _without_comments(text: str, form: Form) -> str:
    """The same with blanks for comments: every place in it is the same."""

    def blanks(found: re.Match[str]) -> str:
        return re.sub(r"[^\r\n]", " ", found[1]) if found[1] else found[0]

    return _COMMENT.sub(blanks, text) if form == "jsonc" else text


def _plain_json(text: str, form: Form) -> str:
    """The same as JSON without comments and last commas: every place in it is the same."""
    if form == "json":
        return text
    return _LAST_COMMA.sub(lambda found: found[1] + (found[2] or "").replace(",", " "), _without_comments(text, form))


def _members_once(found: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in found:
        if key in made:
            raise BadText(f"'{key}' is given twice")
        made[key] = value
    return made


class _Member(Struct, frozen=True):
    """One member of an object: where it, its value, and what comes after it begin."""

    key: str
    start: int
    value: int
    end: int


class _Object:
    """An object in a text: where it and its members stand."""

    def __init__(self, text: str, form: Form, opening: int) -> None:
        self.text, self.opening = text, opening
        self.members: list[_Member] = []
        self.marks = _without_comments(text, form)
        plain, decode = _plain_json(text, form), json.JSONDecoder().raw_decode
        at = _after_blanks(plain, opening + 1)
        while plain[at] != "}":
            key, end = decode(plain, at)
            value = _after_blanks(plain, _after_blanks(plain, end) + 1)
            _, end = decode(plain, value)
            self.members.append(_Member(key, at, value, end))
            at = _after_blanks(plain, end)
            at = _after_blanks(plain, at + 1) if plain[at] == "," else at
        self.closing = at

    def member(self, key: str) -> _Member | None:
        return next((member for member in self.members if member.key == key), None)

    def indent(self, at: int) -> str | None:
        """The blanks before the first thing in a line; None where another stands before it."""
        before = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        return before if not before.strip() else None

    def with_last(self, key: str, value: object, unit: str) -> str:
        text, ends = self.text, line_end(self.text)
        at = self.members[-1].end if self.members else self.opening + 1
        indent = self.indent(self.members[-1].start) if self.members else None
        tail = text[at : self.closing].rstrip()
        comma = "," if self.members and "," not in self.marks[at : self.closing] else ""
        head, end, name = f"{text[:at]}{comma}{tail}", text[at + len(tail) :], json.dumps(key, ensure_ascii=False)
        if self.members and indent is None and not tail.strip(","):
            return f"{head} {name}: {json.dumps(value, ensure_ascii=False)}{end}"
        line = text[text.rfind("\n", 0, self.opening) + 1 :]
        left = line[: len(line) - len(line.lstrip(" \t"))]
        inner = left + unit if indent is None else indent
        end = end if self.members else f"{ends}{left}{text[self.closing :]}"
        return f"{head}{ends}{inner}{name}: {_json_lines(value, unit, inner, ends)}{end}"

    def with_value(self, member: _Member, value: object, unit: str) -> str:
        indent = self.indent(member.start)
        if indent is None and "\n" not in self.text:
            shown = json.dumps(value, ensure_ascii=False)
        else:
            shown = _json_lines(value, unit, indent or "", line_end(self.text))
        return self.text[: member.value] + shown + self.text[member.end :]

    def without(self, member: _Member) -> str:
        """The text without a member, the comma that belonged to it and the blanks before or after it."""
        before, after = self.text[: member.start], self.text[member.end :]
        first, last = member is self.members[0], member is self.members[-1]
        following = _after_blanks(self.marks, member.end)
        if self.marks[following] == ",":
            after = self.text[member.end : following] + self.text[following + 1 :]
        elif not first:
            comma = self.marks.rindex(",", 0, member.start)
            before = before[:comma] + before[comma + 1 :]
        bare = before.rstrip()
        ends_comment = bare != before.rstrip(" \t") and "//" in bare.rpartition("\n")[2]
        if first or not last:
            after = after.lstrip()
        if last and (not ends_comment or after.startswith(("\r", "\n"))):
            before = bare
        return before + after


def _after_blanks(text: str, at: int) -> int:
    found = _BLANKS.match(text, at)
    assert found is not None
    return found.end()


def _json_lines(value: object, unit: str, indent: str, ends: str) -> str:
    """A value over several lines, all but the first behind an indent."""
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", ends + indent)


def _edited_json(text: str, form: Form, keys: Sequence[str], value: object) -> str:
    text = text if text.strip() else "{}\n"
    held = top = _Object(text, form, _after_blanks(_without_comments(text, form), 0))
    unit = (top.indent(top.members[0].start) if top.members else None) or "  "
    for number, key in enumerate(keys):
        member = held.member(key)
        if member is None:
            for name in reversed(keys[number + 1 :]):
                value = {name: value}
            return held.with_last(key, value, unit)
        if number == len(keys) - 1:
            return held.without(member) if value is None else held.with_value(member, value, unit)
        held = _Object(text, form, member.value)
    raise AssertionError("there is no key")
