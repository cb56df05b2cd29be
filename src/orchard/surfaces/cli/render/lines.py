"""Lines of styled text, without saying how they are drawn.

A line is a list of pieces, each a text and what it *means* (`good`, `bad`, `dim`, ...). The same
lines go to a pipe as plain text, to a terminal with colours, and to the live tree of `rich`; only
the last of these imports it. Everything that comes from a plan, a job or a log enters a line through
`safe`, which lets no control character pass.
"""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from orchard.text import safe as safe
from orchard.text import safe_lines as safe_lines

Meaning = Literal["", "good", "bad", "busy", "wait", "dim", "strong", "name"]
Piece = tuple[str, Meaning]
Line = list[Piece]

_COLORS: Mapping[Meaning, tuple[str, str]] = {
    "good": ("32", "green"),
    "bad": ("31", "red"),
    "busy": ("36", "cyan"),
    "wait": ("33", "yellow"),
    "dim": ("2", "dim"),
    "strong": ("1", "bold"),
    "name": ("1", "bold"),
}
ANSI: Mapping[Meaning, str] = {meaning: code for meaning, (code, _) in _COLORS.items()}
RICH: Mapping[Meaning, str] = {"": "", **{meaning: name for meaning, (_, name) in _COLORS.items()}}


def plain(line: Line) -> str:
    return "".join(text for text, _ in line).rstrip()


def colored(line: Line) -> str:
    pieces = [f"\x1b[{ANSI[meaning]}m{text}\x1b[0m" if meaning and text else text for text, meaning in line]
    return "".join(pieces).rstrip()


def cells(text: str) -> int:
    """How many columns a terminal takes for the text."""
    if text.isascii():
        return len(text)
    return sum(_cells_of(mark) for mark in text)


def _cells_of(mark: str) -> int:
    if unicodedata.combining(mark):
        return 0
    return 2 if unicodedata.east_asian_width(mark) in "WF" else 1


def cut(text: str, width: int) -> str:
    """The text in at most `width` columns; what is left out is marked."""
    if cells(text) <= width:
        return text
    taken, used = [], 0
    for mark in text:
        used += _cells_of(mark)
        if used > width - 1:
            break
        taken.append(mark)
    return "".join(taken) + "~"


COMMAND = re.compile(r"\borchard \w")


def wrapped(line: Line, width: int) -> list[Line]:
    """The line in rows that break between words; one with a command stays whole, because a break would be copied."""
    whole = plain(line)
    if cells(whole) <= width or COMMAND.search(whole):
        return [line]
    rows: list[Line] = [[]]
    used, indent = 0, " " * (len(whole) - len(whole.lstrip(" ")))
    for text, meaning in line:
        for word in re.findall(r" +|[^ ]+", text):
            if used + cells(word) > width and not word.isspace() and plain(rows[-1]).strip():
                while rows[-1][-1][0].isspace():  # it may be beyond the edge, where it would break the row
                    rows[-1].pop()
                rows.append([(indent, "")])
                used = cells(indent)
            if word.isspace() and len(rows) > 1 and not plain(rows[-1]).strip():
                continue
            rows[-1].append((word, meaning))
            used += cells(word)
    return rows


def padded(text: str, width: int) -> str:
    text = cut(text, width)
    return text + " " * (width - cells(text))


def table(rows: Sequence[Sequence[Piece]], widest: int = 40) -> list[Line]:
    """Columns that line up; the last one is as long as it likes."""
    if not rows:
        return []
    widths = [min(widest, max(cells(row[at][0]) for row in rows)) for at in range(len(rows[0]) - 1)]
    return [_row(row, widths) for row in rows]


def _row(row: Sequence[Piece], widths: Iterable[int]) -> Line:
    line: Line = []
    for (text, meaning), width in zip(row, widths, strict=False):
        line += [(padded(text, width), meaning), ("  ", "")]
    return [*line, row[-1]]
