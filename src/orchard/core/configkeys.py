"""The table of settings: every key that exists, what it may hold, and what it means.

Files, the environment and flags are all checked against `KEYS`, and the names of the environment
variables follow from it. A key that is in the table has an effect; every other key is a problem.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from orchard.core import limits
from orchard.core.names import Resolver
from orchard.core.suggest import did_you_mean, quoted

RawWork = str | Mapping[str, Any]
"""A work as it was written; `planfile.parse_work` makes a `Work` of it."""


# ------------------------------------------------------------------------------------- the kinds


@dataclass(frozen=True, slots=True)
class Kind:
    """What a value may be: `check` raises ValueError with the rule, `read` makes a value of a variable's text."""

    check: Callable[[object], object]
    read: Callable[[str], object]


def _sort_of(value: object) -> str:
    """What a person calls this value."""
    if isinstance(value, bool):
        return "true or false"
    names = {int: "a whole number", float: "a number", str: "text", list: "a list", dict: "a table"}
    return next((name for sort, name in names.items() if isinstance(value, sort)), "a date or time")


def found_instead(value: object) -> str:
    return f"not {quoted(value)}" if isinstance(value, str) else f"not {_sort_of(value)}"


def _number(text: str) -> object:
    """The number that a variable holds, or its text, which the check then refuses by its own rule."""
    if re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        return int(text)
    return float(text) if re.fullmatch(r"[+-]?[0-9]{0,18}\.?[0-9]{1,18}", text) else text


def _whole(low: int, high: int) -> Kind:
    def check(value: object) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise ValueError(f"must be a whole number, {found_instead(value)}")
        if not low <= value <= high:
            raise ValueError(f"must be from {low} to {high}, not {value if abs(value) < 2**64 else 'that'}")
        return value

    return Kind(check, _number)


def _seconds(high: float) -> Kind:
    def check(value: object) -> float:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ValueError(f"must be a number of seconds, {found_instead(value)}")
        # Not a number is in no range, so this refuses it as well.
        if not 0 <= value <= high:
            raise ValueError(f"must be from 0 to {high:g} seconds")
        return float(value)

    return Kind(check, _number)


def _seconds_or_none(high: float) -> Kind:
    """0 stands for "no limit", because TOML has no word for nothing and a layer must be able to say it."""
    seconds = _seconds(high)
    return Kind(lambda value: seconds.check(value) or None, _number)


def _flag() -> Kind:
    words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}

    def check(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError(f"must be true or false, {found_instead(value)}")
        return value

    return Kind(check, lambda text: words.get(text.lower(), text))


def _one_of(*choices: str) -> Kind:
    def check(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError(f"must be text, {found_instead(value)}")
        if value not in choices:
            raise ValueError(
                f"must be one of {', '.join(choices)}, {found_instead(value)}{did_you_mean(value, choices)}"
            )
        return value

    return Kind(check, str)


def _text(rule: Callable[[str], str | None]) -> Kind:
    return Kind(lambda value: checked_text(value, rule), str)


def _list_of(rule: Callable[[str], str | None]) -> Kind:
    def check(value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be a list of texts, {found_instead(value)}")
        return tuple(checked_text(item, rule) for item in value)

    return Kind(check, lambda text: [part.strip() for part in text.split(",") if part.strip()])


def _works() -> Kind:
    """Works as they were written: only what no work could be is refused here."""

    def check(value: object) -> tuple[RawWork, ...]:
        if not isinstance(value, list | tuple):
            raise ValueError(f"must be a list of works, {found_instead(value)}")
        if len(value) > limits.SETUP_WORKS:
            raise ValueError(f"must hold at most {limits.SETUP_WORKS} works, not {len(value)}")
        return tuple(item if isinstance(item, dict) else checked_text(item, _command) for item in value)

    return Kind(check, lambda text: [line for line in text.splitlines() if line.strip()])


def checked_text(value: object, rule: Callable[[str], str | None]) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, {found_instead(value)}")
    wrong = rule(value)
    if wrong is not None:
        raise ValueError(f"{wrong}, {found_instead(value)}")
    return value


def _command(text: str) -> str | None:
    return None if text.strip() and "\0" not in text else "must be a command"


def _variable(text: str) -> str | None:
    return None if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) else "must be the name of an environment variable"


def _place(text: str) -> str | None:
    """A folder that is no repository's top: a worktree root is emptied of what nobody knows."""
    if not text.isprintable() or text.startswith(("-", "~")):
        return "must be a path without control characters, leading '-' or '~'"
    return "must be the path of a folder of its own" if (_parts(text) or [".."])[-1] == ".." else None


def stays_inside(text: str) -> str | None:
    """A path that stays in the repository, and out of its `.git`."""
    parts = _parts(text)
    if text.startswith("/") or ".." in parts or not parts:
        return "must be a path inside the repository"
    return "must not be in '.git'" if ".git" in [part.lower() for part in parts] else None


def _pattern(text: str) -> str | None:
    if not text.strip() or not text.isprintable():
        return "must be a path or pattern without control characters"
    return "must not leave the repository" if ".." in _parts(text) else None


def _link(text: str) -> str | None:
    return _pattern(text) or stays_inside(text)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


# ------------------------------------------------------------------------------------- the table


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: its name in a file, what it may hold, and what it means."""

    name: str
    kind: Kind
    meaning: str
    needs_trust: bool = False
    """It runs programs or loosens safety, so a repository's own file is believed only after `orchard trust`."""
    stays_inside: bool = False
    """A repository's own file may only name a path inside that repository."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that set it; the second, where there is one, is the short form."""
        full = "ORCHARD_" + self.name.upper().replace(".", "_")
        section, _, rest = self.name.partition(".")
        short = {"limits": f"ORCHARD_{rest.upper()}", "capacity": "ORCHARD_CAPACITY"}.get(section)
        return (full,) if short is None or not rest else (full, short)


SLOTS = _whole(0, limits.MAX_PARALLEL)
MONTH = 30 * 86_400.0

_TABLE = (
    Key("max_parallel", SLOTS, "jobs of one plan at once; 0: as many as the global limit allows"),
    Key("resolver", _one_of(*get_args(Resolver)), "who settles a conflict; `agent` is `fail` where none is usable"),
    Key("worktree_root", _text(_place), "folder that holds the jobs' worktrees", stays_inside=True),
    Key("setup", _works(), "works that are run in each new worktree", needs_trust=True),
    Key("pass_env", _list_of(_variable), "variables that reach the work although they look secret", needs_trust=True),
    Key("heal.enabled", _flag(), "whether an agent tries to mend a failed check"),
    Key("heal.attempts", _whole(0, 100), "how often it tries, per phase"),
    Key("worktree.include", _list_of(_pattern), "ignored files that are copied into each new worktree"),
    Key("worktree.link", _list_of(_link), "folders of the checkout that worktrees share by a link", needs_trust=True),
    Key("worktree.keep", _list_of(_pattern), "ignored paths that a warm worktree keeps for its next job"),
    Key("worktree.pool", SLOTS, "warm worktrees that are kept; 0: none"),
    Key("capacity.global", SLOTS, "jobs at once over all repositories of the user; 0: no limit"),
    Key("limits.grace", _seconds(3600), "seconds between asking a program to stop and killing it"),
    Key("limits.log_bytes", _whole(1024, 2**50), "size of a phase's log at which its work is stopped"),
    Key("limits.idle", _seconds_or_none(MONTH), "seconds without output and CPU use before a stop; 0: no limit"),
    Key("limits.wall", _seconds_or_none(MONTH), "seconds for a work that has no `timeout`; 0: no limit"),
)

KEYS: Mapping[str, Key] = {key.name: key for key in _TABLE}
NEEDS_TRUST: tuple[str, ...] = tuple(key.name for key in _TABLE if key.needs_trust)

LATER = ("agent", "agents", "mcp_servers", "health", "sandbox")
"""Keys of the design whose effect does not exist yet; taking them in silence would be a lie."""

# Set by the engine for its jobs, or by tests for the engine: an Orchard inside a job inherits them.
NOT_SETTINGS = frozenset(
    f"ORCHARD_{name}"
    for name in ("PLAN", "JOB", "ATTEMPT", "WORKTREE", "BASE", "TARGET", "EVIDENCE", "TOKEN", "FAILPOINT")
)
