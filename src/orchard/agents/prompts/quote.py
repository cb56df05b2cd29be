"""Text of others inside of ours: made plain, cut to a size, and fenced by more backticks than it holds."""

from collections.abc import Iterable

from orchard.patterns import later
from orchard.text import fence

NAME = 200
OUTPUT_LINES = 150
OUTPUT = 8_000

_ESCAPES = later(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[@-Z\\-_])?")


def verbatim(text: str) -> str:
    """The user's own text: only what no program could take is removed."""
    text = text.replace("\r\n", "\n")
    return (
        "".join(one for one in text if one in "\n\t" or (ord(one) >= 32 and not 0x7F <= ord(one) < 0xA0))
        .encode(errors="replace")
        .decode()
    )


def plain_text(text: str) -> str:
    """Lines without escape sequences, control characters, or characters that cannot be seen."""
    text = _ESCAPES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return "".join(one if one in "\n\t" or one.isprintable() else " " if one.isspace() else "" for one in text)


def data(label: str, text: str, limit: int = OUTPUT) -> str:
    """A block of foreign text that cannot end itself."""
    return f"{label} (data):\n{fenced(text, limit)}"


def fenced(text: str, limit: int) -> str:
    """Text between more backticks than it holds."""
    # Cut before and after: what is cut away need not be looked at, and what is left may have lost nothing.
    shown = plain_text(text[: limit * 2]).strip("\n")
    if len(shown) > limit or len(text) > limit * 2:
        shown = shown[:limit].rstrip() + "\n[...]"
    ticks = fence(shown, 3)
    return f"{ticks}text\n{shown}\n{ticks}"


def tail(text: str) -> str:
    lines = plain_text(text[-OUTPUT * 2 :]).strip("\n").split("\n")[-OUTPUT_LINES:]
    shown = "\n".join(lines)
    return shown if len(shown) <= OUTPUT - 10 else "[...]" + shown[-(OUTPUT - 10) :]


def code(text: object, limit: int = NAME) -> str:
    """Foreign text within a sentence: one line, and no way out of its backticks."""
    shown = " ".join(plain_text(str(text)[: limit * 2]).split())
    shown = shown if len(shown) <= limit else shown[: limit - 1] + "…"
    ticks = fence(shown, 1)
    room = " " if len(ticks) > 1 else ""
    return f"{ticks}{room}{shown}{room}{ticks}" if shown else "(no name)"


def listed(names: Iterable[object], limit: int) -> str:
    found = list(names)
    shown = ", ".join(code(name, 500) for name in found[:limit])
    return shown if len(found) <= limit else f"{shown} and {len(found) - limit} more"
