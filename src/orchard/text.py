"""Text of strangers, made plain: what a plan, a repository, a program or a model wrote, as others may read it.

    quoted      a name within a message, in quotes
    escaped     what cannot be seen is written out
    laid_open   the same for what a person has to judge: marks of no width too, and all as JSON writes them
    one_line    a line of at most so many characters
    for_screen  many lines for a terminal, perhaps with their colours
    shortened   the beginning and the end of what is too long
    ending      the end of it; `is_cut` knows both again
    fence       backticks around what may hold some

And words for messages about a name that is not known: `one_of`, `nearest`, `did_you_mean`.
"""

import json
import re
from collections.abc import Iterable

from orchard.patterns import later

_SHOWN = 60
# Similarity costs the product of both lengths: nobody mistypes a name that is longer than this.
_COMPARED = 80

_CONTROLS = later(
    r"(?P<color>\x1b\[[0-9;:]{0,64}m)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?"  # cursor, screen, modes
    r"|(?:\x1b[\]PX^_]|[\x9d\x90\x98\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"  # title, clipboard, links
    r"|\x1b[ -/]*[0-Z\\^-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"
    r"|[\u00ad\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb]"
    r"|[\U000e0000-\U000e007f]"
)
_UNSEEN = later(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"""Printable by their class, and seen by no reader: fillers, blanks, and marks that choose another form."""
_HALF_PAIRS = later("[\ud800-\udfff]")
_NO_COLOR = "\x1b[0m"


def escaped(text: str) -> str:
    """The text with everything written out that cannot be seen, or that could move a cursor."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def laid_open(text: str) -> str:
    """The text as a person has to see it who is asked whether it may be done: no sign is left out, moved or unseen.

    Signs are written as JSON writes them, so JSON stays JSON; `for_screen` finds nothing to take out of it.
    """
    if text.isprintable() and _UNSEEN.search(text) is None:
        return text
    return "".join(char if char.isprintable() and _UNSEEN.match(char) is None else _in_json(char) for char in text)


def _in_json(char: str) -> str:
    return "\\u007f" if char == "\x7f" else json.dumps(char)[1:-1]


def quoted(text: str) -> str:
    """Text from outside in quotes, cut short and escaped."""
    return f"'{escaped(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + '...')}'"


def one_line(text: str, limit: int = 200) -> str:
    """One line without control characters, escape sequences or broken encoding, cut at `limit` characters."""
    shown = "".join(each if each.isprintable() else " " for each in text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def for_screen(text: str, *, keep_colors: bool = False) -> str:
    """Text from a log or a name with nothing in it that a terminal or a reader's eye would obey.

    Lines and tabs stay; with `keep_colors` colours do too, and end with the text.
    """
    if text.isprintable():
        return text
    # A line that is written over becomes one of its own: what stood apart must not be read as one.
    text = _HALF_PAIRS.sub("\ufffd", text).replace("\r\n", "\n").replace("\r", "\n")
    if not keep_colors:
        return _CONTROLS.sub("", text)
    shown = _CONTROLS.sub(lambda match: match["color"] or "", text)
    return shown + _NO_COLOR if "\x1b" in shown else shown


def shortened(text: str, most: int) -> str:
    """The beginning and the end of a text that is too long, and between them how much was left out."""
    if len(text) <= most:
        return text
    half = (most - 60) // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def ending(text: str, most: int) -> str:
    """The end of a text that is too long, and before it how much was left out, which a log has."""
    if len(text) <= most:
        return text
    return f"[{len(text) - most:,} characters before this are left out; the log has all of them]\n{text[-most:]}"


_CUT = later(
    r"\A\[[\d,]{1,20} characters before this are left out; the log has all of them\]$"
    r"|^\[\.\.\. [\d,]{1,20} characters left out \.\.\.\]$",
    re.MULTILINE,
)


def is_cut(text: str) -> bool:
    """Whether a text says of itself, as `ending` and `shortened` do, that a part of it is left out."""
    return _CUT.search(text) is not None


# ------------------------------------------------------------------------ names that are not known


def fence(text: str, least: int) -> str:
    """More backticks than the text has in a row anywhere: between two of these, Markdown cannot be ended by it."""
    return "`" * max(least, 1 + max((len(run) for run in re.findall("`+", text)), default=0))


def one_of(words: Iterable[str]) -> str:
    """The words as a choice: `'a', 'b' or 'c'`."""
    *first, last = (quoted(word) for word in words)
    return f"{', '.join(first)} or {last}" if first else last


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most like this one, if any is like it at all."""
    if len(word) > _COMPARED:
        return None
    by_fold = {other.casefold(): other for other in known}
    from difflib import get_close_matches  # only a mistake pays for it

    found = get_close_matches(word.casefold(), by_fold, n=1, cutoff=0.6)
    return by_fold[found[0]] if found else None


def kind_of(value: object, other: str) -> str:
    """What a value is, in the words of someone who writes files; `other`: what it is where it is none of these."""
    kinds = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list"}
    return next((name for kind, name in kinds.items() if isinstance(value, kind)), other)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown word; empty if nothing is near."""
    found = nearest(word, known)
    return f"; did you mean {quoted(found)}?" if found is not None else ""


def line_end(text: str) -> str:
    """How the lines of a text end."""
    return "\r\n" if "\r\n" in text else "\n"


_CREDENTIALS = later(r"(?<=://)[^/\s@]+@|(?<![\w.@/:])[\w.+-]+:[^\s/@:]+@(?=[\w\[])")
"""A user, perhaps with a password, before a host: in an address, or by itself as git writes it."""


def without_credentials(text: str) -> str:
    """A text in which no address tells a user or a password."""
    return _CREDENTIALS.sub("", text)


def safe(text: object, most: int = 500) -> str:
    """Text of a stranger as one line that a terminal can be given."""
    shown = " ".join(for_screen(str(text)).split())
    return shown if len(shown) <= most else shown[: most - 3] + "..."


def safe_lines(text: object, most: int = 2000) -> list[str]:
    """Text of a stranger as several lines; each is bounded, and none is blank at the end."""
    rows = [row.rstrip().replace("\t", "    ") for row in for_screen(str(text)).rstrip().split("\n")]
    return [row if len(row) <= most else row[: most - 3] + "..." for row in rows]
