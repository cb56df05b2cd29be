"""One table in TOML that belongs to another program, in any form in which it can be written.

A table with a header of its own is replaced by one, what is written inline or by dotted keys by an inline table; a new
one comes at the end. tomlkit keeps the rest as it was written.
"""

import re
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import AoT, InlineTable, Item, Key, SingleKey, Table, Trivia, Whitespace

from orchard.text import line_end

Body = list[tuple[Key | None, Item]]

HEADER = re.compile(r"^(?=[ \t]*\[\[?[^\[\]\n,={}]+\]\]?[ \t\r]*(?:#.*)?$)", re.MULTILINE)
CUT = "\0\n"
"""Stands where a table was taken out; no TOML holds it."""


def edited_toml(text: str, keys: Sequence[str], value: dict[str, Any] | None, *, new: bool) -> str:
    """The text with a table under `keys`, where with `new` nothing is yet; None takes out what is there."""
    ends = line_end(text)
    block = tomlkit.dumps({keys[0]: {keys[1]: value}}).replace("\n", ends) if value is not None else CUT
    if new:
        added = text + ("" if not text else ends if text.endswith("\n") else ends * 2) + block
        with suppress(tomllib.TOMLDecodeError):  # else the place for it is an inline table
            tomllib.loads(added)
            return added
    try:
        documents = [tomlkit.parse(piece) for piece in _pieces(text)]
    except TOMLKitError as error:
        raise ValueError(str(error)) from None
    if "".join(document.as_string() for document in documents) != text:
        raise ValueError("it is not kept as it was written")
    places = [place for document in documents for place in _places(document.body, keys)]
    for number, (body, at, inside) in reversed(list(enumerate(places))):
        key, found = body[at]
        first = number == 0 and value is not None  # what belongs to the same table and stands elsewhere is taken out
        if isinstance(found, Table) and key is not None and not key.is_dotted():
            body[at] = (None, Whitespace((block if first else CUT) + _tail(found)))
        elif first:
            trivia = Trivia(trail="" if inside else ends) if isinstance(found, Table) else found.trivia
            body[at] = (SingleKey(keys[-1]), _inline(value, trivia))
        elif inside:
            _take_out(body, at)
        else:
            body[at] = (None, Whitespace(""))
    for document in documents if new else ():
        for body, at, _ in _places(document.body, keys[:-1]):
            if isinstance(holder := body[at][1], InlineTable):
                _add(holder.value.body, keys[-1], _inline(value, Trivia(trail="")))
    changed = "".join(document.as_string() for document in documents)
    while CUT in changed:  # one blank line stood between a table and what is before it
        changed = re.sub(rf"(?:(\A|\n)[ \t]*\r?\n)?(?:{CUT})+", r"\1", changed, count=1)
    return changed


def _pieces(text: str) -> Iterator[str]:
    """The text, cut before headers: each piece is TOML by itself. As a whole tomlkit would put some tables together."""
    piece = ""
    for part in HEADER.split(text):
        piece += part
        with suppress(tomllib.TOMLDecodeError):  # else this header stands in a text or an array
            tomllib.loads(piece)
            yield piece
            piece = ""


def _places(body: Body, keys: Sequence[str], inside: bool = False) -> Iterator[tuple[Body, int, bool]]:
    """Wherever something is written under `keys`: among which items, its number, and whether in an inline table."""
    for number, (key, item) in enumerate(body):
        if key is not None and key.key == keys[0]:
            if len(keys) == 1:
                yield body, number, inside
            elif isinstance(item, Table | InlineTable):
                yield from _places(item.value.body, keys[1:], inside or isinstance(item, InlineTable))


def _inline(value: Any, trivia: Trivia) -> InlineTable:
    made = tomlkit.inline_table()
    made.update(value)
    return InlineTable(made.value, trivia, new=True)


def _add(body: Body, name: str, value: InlineTable) -> None:
    last = max((number for number, (key, _) in enumerate(body) if key is not None), default=-1) + 1
    comma: Body = [(None, Whitespace(", "))] if last else []
    body[last:last] = [*comma, (SingleKey(name), value)]


def _take_out(body: Body, at: int) -> None:
    members = [number for number, (key, _) in enumerate(body) if key is not None]
    before, after = [number for number in members if number < at], [number for number in members if number > at]
    del body[before[-1] + 1 if before and not after else at : after[0] if after else at + 1]


def _tail(table: Table) -> str:
    """The blank lines and comments after the last key of a table, and of those below it: they belong to others."""
    tail = ""
    for key, item in table.value.body:
        if key is None:
            tail += item.as_string()
        elif isinstance(item, AoT | Table) and not key.is_dotted():
            tail += "".join(CUT + _tail(below) for below in (item.body if isinstance(item, AoT) else [item]))
        else:
            tail = ""
    return tail
