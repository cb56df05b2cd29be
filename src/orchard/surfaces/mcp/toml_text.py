"""Changing one table of a TOML file that belongs to somebody else, and nothing else in it.

Only tables with a header of their own are written and taken out, as whole lines; the rest of the text is not touched.
What is written in another form (inline, by dotted keys) is left alone and refused. After every change the new text is
read: it must differ from the old one in our table alone.

    read_toml(text)                          the value, or BadText
    with_table(text, keys, table)            the text with the table at keys set
    without_table(text, keys)                the text without it
"""

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

from msgspec import Struct

from orchard.surfaces.mcp.json_text import BadText

_TOKEN = re.compile(
    r'"""(?:[^\\]|\\.)*?"""+|\'\'\'.*?\'\'\'+|"(?:[^"\\\n]|\\.)*"|\'[^\'\n]*\'|#[^\n]*|\n|[\[\]{}]|[^"\'#\n\[\]{}]+',
    re.DOTALL,
)


class _Line(Struct, frozen=True):
    """One statement: a header, a key with its value (which may take several lines), or nothing but a comment."""

    start: int
    end: int
    header: tuple[str, ...] | None = None
    empty: bool = False


def read_toml(text: str) -> dict[str, Any]:
    """The value of a whole file."""
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadText(str(error)) from None
    except RecursionError:
        raise BadText("it is nested too deep") from None


def with_table(text: str, keys: Sequence[str], table: Mapping[str, object]) -> str:
    """The text with the table at `keys` set: in the place of the one that is there, else at the end."""
    before = read_toml(text)
    end = "\r\n" if "\r\n" in text else "\n"
    block = "".join(row + end for row in table_rows(keys, table))
    expected = _expected(before, keys, dict(table))
    if _get(before, keys) is None:
        gap = "" if not text else end if text.endswith("\n") else end + end
        return _checked(text + gap + block, expected)
    blocks = _blocks(text, keys)
    rest = _without(text, blocks[1:])
    return _checked(rest[: blocks[0][0]] + block + rest[blocks[0][1] :], expected)


def without_table(text: str, keys: Sequence[str]) -> str:
    """The text without the table at `keys` and the tables below it."""
    rest = _expected(read_toml(text), keys, None)
    changed = text
    for start, stop in reversed(_blocks(text, keys)):
        before = changed[:start]
        # One blank line stood between this table and what is before it.
        before = re.sub(r"(\A|\n)[ \t]*\r?\n\Z", r"\1", before)
        changed = before + changed[stop:]
    return _checked(changed, rest, _pruned(rest, keys[:-1]))


def table_rows(keys: Sequence[str], table: Mapping[str, object]) -> list[str]:
    """A table as the lines of a file."""
    return [f"[{'.'.join(keys)}]", *(f"{key} = {_shown(value)}" for key, value in table.items())]


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_shown(one) for one in value)}]"
    # A string of JSON is one of TOML, but for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _get(value: object, keys: Sequence[str]) -> object | None:
    for key in keys:
        if not isinstance(value, dict) or key not in value:
            return None
        value = value[key]
    return value


def _expected(before: dict[str, Any], keys: Sequence[str], table: dict[str, Any] | None) -> dict[str, Any]:
    """The value that the changed text must have; None takes the table out."""
    made = deepcopy(before)
    inner: Any = made
    for key in keys[:-1]:
        inner = inner.setdefault(key, {})
        if not isinstance(inner, dict):
            raise BadText(f"'{key}' is not a table")
    if table is None:
        inner.pop(keys[-1], None)
    else:
        inner[keys[-1]] = table
    return made


def _pruned(value: dict[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    """The same without tables on the way that hold nothing: one that no header names is gone with its last member."""
    if not keys or _get(value, keys):
        return value
    return _pruned(_expected(value, keys, None), keys[:-1])


def _checked(changed: str, *allowed: dict[str, Any]) -> str:
    """Never hand out a text that says anything else than was meant."""
    try:
        found = _plain(read_toml(changed))
    except BadText:
        found = None
    if found not in [_plain(value) for value in allowed]:
        raise BadText("it is written in a way that cannot be changed here")
    return changed


def _plain(value: object) -> object:
    """A value that equals itself, whatever numbers and empty tables it holds."""
    if isinstance(value, dict):
        return {key: _plain(held) for key, held in value.items()}
    if isinstance(value, list):
        return [_plain(held) for held in value]
    return (type(value).__name__, repr(value))


def _blocks(text: str, keys: Sequence[str]) -> list[tuple[int, int]]:
    """Where the table at `keys` and the tables below it stand: from a header to the last key under it."""
    found: list[tuple[int, int]] = []
    ours = False
    for line in _lines(text):
        if line.header is not None:
            ours = line.header[: len(keys)] == tuple(keys)
            if ours:
                found.append((line.start, line.end))
        elif ours and not line.empty:
            found[-1] = (found[-1][0], line.end)
    if not found:
        raise BadText(f"'{'.'.join(keys)}' is there in another form than as a table with a header of its own")
    return found


def _without(text: str, blocks: Sequence[tuple[int, int]]) -> str:
    for start, end in reversed(blocks):
        text = text[:start] + text[end:]
    return text


def _lines(text: str) -> list[_Line]:
    """The statements of a text that is known to be TOML."""
    found, start, at, depth, first = [], 0, 0, 0, ""
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None, "valid TOML has no other tokens"
        word, at = token[0], token.end()
        if not first and word.strip() and word[0] != "#":
            first = word.lstrip()[0]
        depth += (word in "[{") - (word in "]}") if word.strip() and len(word) == 1 else 0
        if (word == "\n" and not depth) or at == len(text):
            header = _header(text[start:at]) if first == "[" else None
            found.append(_Line(start, at, header, not first))
            start, first = at, ""
    return found


def _header(line: str) -> tuple[str, ...]:
    """The keys of a table's header, read by those who know how keys are written."""
    keys: list[str] = []
    value: Any = tomllib.loads(line)
    while value:
        if isinstance(value, list):
            value = value[0]
            continue
        ((key, value),) = value.items()
        keys.append(key)
    return tuple(keys)
