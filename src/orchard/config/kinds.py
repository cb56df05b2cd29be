"""What a setting may hold: kinds of values, and rules for texts.

A kind checks a value that a file holds, and makes one of the text that a variable holds. A rule says what is wrong
with a text, or None.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from orchard.model import limits, permissions
from orchard.model.agent_rows import ACP
from orchard.model.endpoints import problem
from orchard.text import did_you_mean, kind_of, quoted

RawWork = str | Mapping[str, Any]
"""A work as it was written; `planfile.parse_work` makes a `Work` of it."""

TEXT: Mapping[str, Any] = {"type": "string"}
TEXTS: Mapping[str, Any] = {"type": "array", "items": TEXT}

ROW_NAME = r"[a-z0-9][a-z0-9_-]{0,31}"


class Kind(Struct, frozen=True):
    """What a value may be: `check` raises ValueError with the rule, `read` makes a value of a variable's text."""

    check: Callable[[object], object]
    read: Callable[[str], object]
    schema: Mapping[str, Any] = {}
    """The same as JSON Schema, as far as it can say it: for editors."""


def found_instead(value: object) -> str:
    other = "a table" if isinstance(value, dict) else "a date or time"
    return f"not {quoted(value) if isinstance(value, str) else kind_of(value, other)}"


def _number(text: str) -> object:
    """The number that a variable holds, or its text, which the check then refuses by its own rule."""
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(r"[+-]?[0-9]{0,18}\.?[0-9]{1,18}", text) else text


def whole(low: int, high: int) -> Kind:
    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"must be a whole number, {found_instead(value)}")
        if not low <= value <= high:
            raise ValueError(f"must be from {low} to {high}, not {value if abs(value) < 2**64 else 'that'}")
        return value

    return Kind(check, _number, {"type": "integer", "minimum": low, "maximum": high})


def seconds(high: float) -> Kind:
    def check(value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"must be a number of seconds, {found_instead(value)}")
        # Not a number is in no range, so this refuses it as well.
        if not 0 <= value <= high:
            raise ValueError(f"must be from 0 to {high:g} seconds")
        return float(value)

    return Kind(check, _number, {"type": "number", "minimum": 0, "maximum": high})


def seconds_or_none(high: float) -> Kind:
    """0 stands for "no limit", because TOML has no word for nothing and a layer must be able to say it."""
    given = seconds(high)
    return Kind(lambda value: given.check(value) or None, _number, given.schema)


def whole_or_none(high: int) -> Kind:
    """0 stands for "no limit", as it does for seconds."""
    given = whole(0, high)
    return Kind(lambda value: given.check(value) or None, _number, given.schema)


_SIZE = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?) ?(B|([KMGT])(i?B)?)", re.IGNORECASE)
SIZE = "a number of bytes, or a size such as 512MB or 2GiB"


def size_or_none(high: int) -> Kind:
    """Bytes, or a size with its unit: kB, MB and GB count in thousands, KiB, MiB, GiB and K, M, G in steps of 1024."""
    given = whole_or_none(high)

    def check(value: object) -> object:
        if not isinstance(value, str):
            return given.check(value)
        found = _SIZE.fullmatch(value.strip())
        if found is None:
            raise ValueError(f"must be {SIZE}, {found_instead(value)}")
        base = 1000 if (found[4] or "").lower() == "b" else 1024
        return given.check(int(float(found[1]) * base ** (" KMGT".index((found[3] or " ").upper()))))

    text = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)? ?([KMGTkmgt]?[iI]?[bB]?)$"}
    return Kind(check, _number, {"anyOf": [given.schema, text]})


def flag() -> Kind:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}

    def check(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false, {found_instead(value)}")
        return value

    return Kind(check, lambda text: words.get(text.lower(), text), {"type": "boolean"})


def flag_or(word: str) -> Kind:
    """True, false, or a word that stands for None: as the case may be."""
    given = flag()

    def check(value: object) -> bool | None:
        if value == word:
            return None
        if not isinstance(value, bool):
            raise ValueError(f"must be true, false or '{word}', {found_instead(value)}")
        return value

    return Kind(check, given.read, {"enum": [True, False, word]})


def one_of(*choices: str) -> Kind:
    def check(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"must be text, {found_instead(value)}")
        if value not in choices:
            raise ValueError(
                f"must be one of {', '.join(choices)}, {found_instead(value)}{did_you_mean(value, choices)}"
            )
        return value

    return Kind(check, str, {"enum": list(choices)})


def text_of(rule: Callable[[str], str | None]) -> Kind:
    return Kind(lambda value: checked_text(value, rule), str, TEXT)


def maybe(rule: Callable[[str], str | None]) -> Kind:
    return Kind(lambda value: checked_text(value, lambda text: rule(text) if text else None) or None, str, TEXT)


def list_of(rule: Callable[[str], str | None]) -> Kind:
    def check(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be a list of texts, {found_instead(value)}")
        return tuple(checked_text(item, rule) for item in value)

    return Kind(check, _split, TEXTS)


def tool_set() -> Kind:
    """What an agent may use: a word, or a list of tools. A variable holds either, a list with commas."""
    return Kind(
        lambda value: _tools(value, modes=True),
        lambda text: _split(text) if "," in text else text,
        {"anyOf": [{"enum": [*permissions.MODES, permissions.ASK]}, TEXTS]},
    )


def tool_names() -> Kind:
    return Kind(lambda value: _tools(value, modes=False), _split, TEXTS)


def _tools(value: object, *, modes: bool) -> str | tuple[str, ...]:
    if (wrong := permissions.wrong(value, modes=modes)) is not None:
        raise ValueError(f"{wrong}, {found_instead(value)}")
    assert isinstance(value, str | list | tuple)
    return value if isinstance(value, str) else tuple(value)


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def table_of(name: Callable[[str], str | None], rule: Callable[[str], str | None]) -> Kind:
    """Texts by name; a value is not shown in a problem, since it may be a secret."""

    def check(value: object) -> dict[str, str]:
        if not isinstance(value, dict):
            raise ValueError(f"must be a table of texts, {found_instead(value)}")
        for key, held in value.items():
            wrong = name(key) or (None if isinstance(held, str) else "must be text") or rule(held)
            if wrong is not None:
                raise ValueError(f"{quoted(key)} {wrong}")
        return dict(value)

    return Kind(check, str, {"type": "object", "additionalProperties": TEXT})


def works() -> Kind:
    """Works as they were written: only what no work could be is refused here."""

    def check(value: object) -> tuple[RawWork, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be a list of works, {found_instead(value)}")
        if len(value) > limits.SETUP_WORKS:
            raise ValueError(f"must hold at most {limits.SETUP_WORKS} works, not {len(value)}")
        return tuple(item if isinstance(item, dict) else checked_text(item, command) for item in value)

    most = {"type": "array", "items": {"type": ["string", "object"]}, "maxItems": limits.SETUP_WORKS}
    return Kind(check, lambda text: [line for line in text.splitlines() if line.strip()], most)


def checked_text(value: object, rule: Callable[[str], str | None]) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, {found_instead(value)}")
    wrong = rule(value)
    if wrong is not None:
        raise ValueError(f"{wrong}, {found_instead(value)}")
    return value


def command(text: str) -> str | None:
    return None if text.strip() and "\0" not in text else "must be a command"


def like(wanted: str, wrong: str) -> Callable[[str], str | None]:
    """The rule that a text is as a pattern wants it, whole."""
    return lambda text: None if re.fullmatch(wanted, text) else wrong


told = like("done|waiting|failed", "must be 'done', 'waiting' or 'failed'")
variable = like(r"[A-Za-z_][A-Za-z0-9_]*", "must be the name of an environment variable")


def address(text: str) -> str | None:
    fits = re.fullmatch(r"https?://[^\s/?#]+[^\s\x00-\x1f]{0,2000}", text) and text.isprintable()
    return None if fits else "must begin with http:// or https://"


def server(text: str) -> str | None:
    """A host, with a port where it is not that of https; an address only for a server on this machine."""
    here = r"http://(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?"
    if re.fullmatch(rf"[A-Za-z0-9](?:[A-Za-z0-9.-]{{0,250}}[A-Za-z0-9])?(:[0-9]{{1,5}})?|{here}", text):
        return None
    return "must be a host, with a port where it is not that of https, such as 'git.example.org'"


def endpoint(text: str) -> str | None:
    """A host, `*.host`, `host:port`, or an address with either in front of it; `model.endpoints` has the grammar."""
    if problem(text, own=True) is None:
        return None
    return "must be a host, with a port where it is not that of http or https, such as 'example.org' or '10.0.0.5:443'"


def agent_name(text: str) -> str | None:
    """A name, or `acp:` and a command; nothing stands for the first agent that is usable."""
    if text.startswith(ACP):
        return None if text[len(ACP) :].strip() and text.isprintable() else f"must have a command after '{ACP}'"
    return None if not text or re.fullmatch(ROW_NAME, text) else "must be the name of an agent"


def agent() -> Kind:
    return Kind(lambda value: checked_text(value, agent_name) or None, str, TEXT)


def place(text: str) -> str | None:
    """A folder that is no repository's top: a worktree root is emptied of what nobody knows."""
    if not text.isprintable() or text.startswith(("-", "~")):
        return "must be a path without control characters, leading '-' or '~'"
    return "must be the path of a folder of its own" if (_parts(text) or [".."])[-1] == ".." else None


def outside(text: str) -> str | None:
    """A path anywhere on the disk; `~/` is the home folder."""
    if not text.isprintable() or not text.startswith(("/", "~/")) or ".." in _parts(text) or not _parts(text):
        return "must be a path that begins with '/' or '~/', without '..'"
    return None


def stays_inside(text: str) -> str | None:
    """A path that stays in the repository, and out of its `.git`."""
    parts = _parts(text)
    if text.startswith("/") or ".." in parts or not parts:
        return "must be a path inside the repository"
    return "must not be in '.git'" if ".git" in [part.lower() for part in parts] else None


def pattern(text: str) -> str | None:
    if not text.strip() or not text.isprintable():
        return "must be a path or pattern without control characters"
    return "must not leave the repository" if ".." in _parts(text) else None


def link(text: str) -> str | None:
    return pattern(text) or stays_inside(text)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]
