"""Places where a test can make us die, fail or wait.

Every durable step calls `failpoint` on both sides: `failpoint("journal.before-commit")`. Nothing
happens there unless the environment arms it:

    ORCHARD_FAILPOINT=journal.before-commit:1:kill,landing.after-move:2:sleep=0.5

reads "at the first time through the one, SIGKILL; at the second time through the other, half a
second of sleep". The actions are `kill` (SIGKILL to ourselves, as a crash), `exit` (leave at once
with status 70, nothing flushed), `error` (an OSError with EIO), `sleep=SECONDS`, `note=FILE` (one
line with the place and the number is added to the file) and `wait=FILE` (until the file exists, a
minute at most). Several actions at one place are done in the order in which they are written.

Names must stand in `FAILPOINTS`: a crash test walks through that list, so a place that is not in it
would never be tried.
"""

import errno
import os
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

VARIABLE = "ORCHARD_FAILPOINT"
LONGEST_WAIT = 60.0

FAILPOINTS: frozenset[str] = frozenset(
    {
        # the program runs, but nobody has written down who it is
        "process.after-spawn",
        # the program has ended, but its family may still hold processes
        "process.before-sweep",
        # around the one place where events become durable, and around the making of its file
        "journal.half-written",
        "journal.before-commit",
        "journal.after-commit",
        "store.before-name",
        "store.after-name",
        # what a person asks for
        "request.before",
        "request.checking",
        "request.after-durable",
        "plan.submitted",
        "plan.before-pin",
        "plan.started",
        "command.recorded",
        "cancel.before-stop",
        "cancel.after-stop",
        "delete.recorded",
        "delete.after-folders",
        "purge.before-refs",
        "purge.after-refs",
        "purge.before-forget",
        "purge.after-forget",
        # an attempt, from its start to its end
        "attempt.started",
        "attempt.before-end",
        "attempt.after-end",
        "program.before-start",
        "program.after-end",
        "agent.before-turn",
        "agent.after-turn",
        # what agents handed to other agents, and took over from them
        "subtask.spawned",
        "subtask.before-pull",
        "subtask.after-pull",
        # what agents resolved and healed
        "resolve.remembered",
        "conflict.before-unmerge",
        "conflict.saved",
        "conflict.remembered",
        "mending.before-merge",
        # refs: every transaction of ours, and the proof that what a new ref holds can be read
        "ref.before-update",
        "ref.after-update",
        "hold.before-read-back",
        # folders: made, taken, saved, given back, reset, removed
        "worktree.after-register",
        "worktree.before-take",
        "worktree.after-take",
        "worktree.before-release",
        "worktree.after-release",
        "worktree.before-reset",
        "worktree.after-reset",
        "worktree.before-remove",
        "worktree.after-rename",
        "worktree.after-remove",
        "trash.before-empty",
        "pool.before-close",
        "wip.before-save",
        "wip.before-hold",
        "wip.after-save",
        # results, what they are gathered into, and the snapshot
        "commit.before",
        "keep.before-hold",
        "keep.after-hold",
        "commit.after",
        "gather.before-hold",
        "gather.after-hold",
        "snapshot.before-start",
        "snapshot.after-start",
        "snapshot.before-publish",
        "snapshot.after-publish",
        # the check of the whole, and the user's branch
        "validation.before-verify",
        "validation.after-verify",
        "validation.before-settle",
        "landing.before-intent",
        "landing.before-move",
        "branch.before-swap",
        "branch.after-swap",
        "checkout.before",
        "checkout.locked",
        "checkout.staged",
        "checkout.intended",
        "checkout.before-rename",
        "checkout.after-rename",
        "checkout.placed",
        "checkout.swapped",
        "checkout.published",
        "checkout.settled",
        "checkout.after",
        "landing.after-move",
        "landing.after-done",
        "landing.after-branch",
        # a branch of a remote, and the pull request for it
        "pull-request.before-push",
        "pull-request.after-push",
        "pull-request.after-open",
        # taking a landing back
        "undo.before-intent",
        "undo.before-move",
        "undo.after-move",
        "undo.after-done",
        # recovery from all of the above
        "recovery.before-job",
        "recovery.after-survivors",
        "recovery.after-job",
        "recovery.before-stray",
        "recovery.done",
    }
)
"""Every place that can be armed. A new call site adds its name here."""


class BadFailpoint(ValueError):
    """The variable does not say `name:nth:action`; only people who test us set it."""


class _Armed(Struct):
    name: str
    nth: int
    action: str
    value: str = ""
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
    verb, _, value = action.partition("=")
    with suppress(ValueError):
        if verb == "sleep":
            float(value)
        if verb in ("sleep", "note", "wait") and value:
            return _Armed(name, int(nth), verb, value)
    known_actions = "kill, exit, error, sleep=SECONDS, note=FILE, wait=FILE"
    raise BadFailpoint(f"{VARIABLE}: the action '{action}' is none of {known_actions}")


def _pass(name: str) -> None:
    global _armed  # noqa: PLW0603 - parsed once for the whole process
    if _armed is _UNREAD:
        _armed = parse(os.environ.get(VARIABLE, ""))
    assert name in FAILPOINTS, f"'{name}' is missing in FAILPOINTS"
    for armed in _armed or ():
        if armed.name == name:
            with _counting:
                armed.passed += 1
                is_due = armed.passed == armed.nth
            if is_due:
                _act(armed)


def _act(armed: _Armed) -> None:
    if armed.action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif armed.action == "exit":
        os._exit(70)
    elif armed.action == "error":
        raise OSError(errno.EIO, os.strerror(errno.EIO), f"failpoint {armed.name}")
    elif armed.action == "note":
        with Path(armed.value).open("a") as file:
            file.write(f"{armed.name}:{armed.nth}\n")
    elif armed.action == "wait":
        deadline = time.monotonic() + LONGEST_WAIT
        while not Path(armed.value).exists() and time.monotonic() < deadline:
            time.sleep(0.005)
    else:
        time.sleep(float(armed.value))
