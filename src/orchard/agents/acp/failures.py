"""How a turn failed, by what agents say about it: as an error, beside the answer, or only in words.

Some end a turn as if all were well and say what went wrong in a message for people. Two of them can say it in a way
that programs understand, to a client that asks for it (`ASKED_FOR`); of one the words are known.
"""

import json
from collections.abc import Mapping
from typing import Any

from orchard.agents.backends.stream import part
from orchard.agents.cli import reason_of
from orchard.agents.facts.programs import traits_of_program
from orchard.agents.protocol import Reason, Result
from orchard.text import one_line

ASKED_FOR = {"jetbrains": {"air": {"version": 1, "capabilities": ["sessionFailure"]}}}
"""What a client puts beside its capabilities to be told of failures: an extension of two widely used agents."""

AUTH_REQUIRED, NOT_FOUND = -32000, -32002
LONGEST_WORDS = 500

_CATEGORIES: dict[str, Reason] = {"access": "not-logged-in", "service": "overloaded", "connection": "network"}


def from_error(name: str, code: int, message: str, data: Any, *, session: str | None) -> Result:
    """What an error means; with a `session` it was that which could not go on."""
    words = _words(message, data)
    if code == AUTH_REQUIRED:
        return Result("not-logged-in", f"{name} is not logged in: {words}")
    reason = reason_of(words)
    if code == NOT_FOUND or (session is not None and reason == "failed"):
        return Result("session-lost", f"{name} cannot go on with the session: {words}")
    return Result(reason, f"{name}: {words}")


def from_answer(answer: Mapping[str, Any]) -> tuple[Reason, str] | None:
    """The failure that is told beside the answer to a prompt, or beside an update; None: there is none."""
    failure = part(answer, "_meta", "jetbrains", "air", "sessionFailure")
    if failure.get("severity") != "error":
        return None
    words = _words(str(failure.get("title") or ""), failure.get("details"))
    reason = reason_of(words)
    if reason == "failed":
        actions = failure.get("actions")
        again = isinstance(actions, list) and "retry" in actions
        category = str(failure.get("category"))
        reason = "rate-limit" if category == "limit" and again else _CATEGORIES.get(category, "failed")
    return reason, words


def warning_of(update: Mapping[str, Any]) -> tuple[str, str] | None:
    """What an agent warns of beside an update, as the kind of a note and its words: `retry` where it tries again."""
    failure = part(update, "_meta", "jetbrains", "air", "sessionFailure")
    if failure.get("severity") != "warning":
        return None
    kind = "warning" if failure.get("category") == "unknown" else "retry"
    return kind, _words(str(failure.get("title") or ""), failure.get("details"))


def from_words(agent: str, said: str, *, used: bool, denied: bool) -> tuple[Reason, str] | None:
    """The failure that an agent has only words for, known by its own name for itself."""
    traits = traits_of_program(agent.lower())
    return traits.failure(said, used, denied) if traits is not None and traits.failure is not None else None


def _words(message: str, data: Any) -> str:
    details = data
    for name in ("details", "message", "error"):
        if isinstance(details, dict) and isinstance(details.get(name), str):
            details = details[name]
    if details is not None and not isinstance(details, str):
        try:
            details = json.dumps(details)
        except (ValueError, RecursionError):
            details = None
    words = message if not details or details in message else f"{message}: {details}"
    return one_line(" ".join(words[: 4 * LONGEST_WORDS].split()) or "no reason is told", LONGEST_WORDS)
