"""Places where a test can make us die, fail or wait.

Every durable step calls `failpoint` on both sides: `failpoint("journal.before-commit")`. Nothing
happens there unless the environment arms it:

    ORCHARD_FAILPOINT=journal.before-commit:1:kill,landing.after-move:2:sleep=0.5

reads "at the first time through the one, SIGKILL; at the second time through the other, half a
second of sleep". The actions are `kill` (SIGKILL to ourselves, as a crash), `exit` (leave at once
with status 70, nothing flushed), `error` (an OSError with EIO) and `sleep=SECONDS`.

Names must stand in `FAILPOINTS`: a crash test walks through that list, so a place that is not in it
would never be tried.
"""

import errno
import os
import signal
import threading
import time
from dataclasses import dataclass

VARIABLE = "ORCHARD_FAILPOINT"

FAILPOINTS: frozenset[str] = frozenset(
    {
        # the program runs, but nobody has written down who it is
        "process.after-spawn",
        # the program has ended, but its family may still hold processes
        "process.before-sweep",
        # around the one place where events become durable
        "journal.before-commit",
        "journal.after-commit",
        # an attempt, from its start to the end of a program
        "attempt.started",
        "program.before-start",
        "program.after-end",
        # folders: taken, saved, given back
        "worktree.before-take",
        "worktree.after-take",
        "worktree.before-release",
        "wip.before-save",
        "wip.after-save",
        # results and the snapshot
        "commit.before",
        "commit.after",
        "snapshot.before-start",
        "snapshot.after-start",
        "snapshot.before-publish",
        "snapshot.after-publish",
        # the user's branch
        "landing.before-move",
        "landing.after-move",
        "landing.after-done",
        "undo.before-move",
        "undo.after-move",
        # recovery from all of the above
        "recovery.before-job",
        "recovery.after-job",
        "recovery.before-stray",
    }
)
"""Every place that can be armed. A new call site adds its name here."""


class BadFailpoint(ValueError):
    """The variable does not say `name:nth:action`; only people who test us set it."""


@dataclass(slots=True)
class _Armed:
    name: str
    nth: int
    action: str
    seconds: float = 0.0
    passed: int = 0


_UNREAD: list[_Armed] = []
# None is the everyday case: read, and nothing is armed.
_armed: list[_Armed] | None = _UNREAD
_counting = threading.Lock()


def failpoint(name: str) -> None:
    """Do what the environment asks for at this place; as good as free when it asks for nothing."""
    if _armed is not None:
        _pass(name)


def known() -> list[str]:
    """Every name that can be armed, in order, for tests that walk through all of them."""
    return sorted(FAILPOINTS)


def rearm(text: str | None) -> None:
    """Arm as if the variable had held this text from the start; None reads the variable again when next needed."""
    global _armed  # noqa: PLW0603 - the state of the whole process, as the environment is
    _armed = _UNREAD if text is None else parse(text)


def parse(text: str) -> list[_Armed] | None:
    """What the variable's text arms; None when that is nothing."""
    return [_parse_one(part.strip()) for part in text.split(",") if part.strip()] or None


def _parse_one(part: str) -> _Armed:
    name, _, rest = part.partition(":")
    nth, _, action = rest.partition(":")
    if name not in FAILPOINTS:
        raise BadFailpoint(f"{VARIABLE}: '{name}' is not a failpoint; known are: {', '.join(known())}")
    if not nth.isdecimal() or int(nth) < 1:
        raise BadFailpoint(f"{VARIABLE}: '{part}' is not NAME:NTH:ACTION with NTH of 1 or more")
    if action in ("kill", "exit", "error"):
        return _Armed(name, int(nth), action)
    verb, _, seconds = action.partition("=")
    try:
        if verb == "sleep":
            return _Armed(name, int(nth), verb, float(seconds))
    except ValueError:
        pass
    raise BadFailpoint(f"{VARIABLE}: the action '{action}' is none of kill, exit, error, sleep=SECONDS")


def _pass(name: str) -> None:
    global _armed  # noqa: PLW0603 - parsed once for the whole process
    if _armed is _UNREAD:
        _armed = parse(os.environ.get(VARIABLE, ""))
    assert name in FAILPOINTS, f"'{name}' is missing in FAILPOINTS"
    for armed in _armed or ():
        if armed.name == name and _is_due(armed):
            _act(armed)


def _is_due(armed: _Armed) -> bool:
    with _counting:
        armed.passed += 1
        return armed.passed == armed.nth


def _act(armed: _Armed) -> None:
    if armed.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif armed.action == "exit":
        os._exit(70)
    elif armed.action == "error":
        raise OSError(errno.EIO, os.strerror(errno.EIO), f"failpoint {armed.name}")
    else:
        time.sleep(armed.seconds)
