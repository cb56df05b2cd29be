"""What a user can act on: one sentence that says what happened, and a hint that says what to do next.

A hint names operations, not commands: a terminal shows a `Next` as a command line, a model as a tool call, a page as
a button. Words around it are written once, `("Look first: ", Next("get_plan", plan))`, quotes and all.

Three kinds of trouble exist, and only the first is here. An `OrchardError` is for people: it is
printed without a traceback and carries the exit code of the command. An expected outcome (a
conflict, a failed check) is a value, not an error. Anything else is a bug: it keeps its traceback
and ends in exit code 70.
"""

import errno
import os
from collections.abc import Callable
from typing import Any

from msgspec import Struct, ValidationError, convert, to_builtins

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_NOT_FOUND = 3
EXIT_WAITING = 4
EXIT_INTERNAL = 70
EXIT_TIMED_OUT = 124
EXIT_CANCELED = 130


class Next(Struct, frozen=True, omit_defaults=True):
    """Something to ask for next: which operation, of which plan and job, with which other arguments."""

    operation: str
    plan: str | None = None
    job: str | None = None
    args: dict[str, Any] = {}


Hint = str | Next | tuple[str | Next, ...]
"""What to do: words, a step, or words with steps in them."""

Say = Callable[[Hint], str]
"""Whoever makes a text of a hint; each surface does, in its own words."""

RUN_DOCTOR: Hint = ("Run '", Next("get_doctor"), "'.")


def parts_of(hint: Hint | None) -> tuple[str | Next, ...]:
    """The words and steps of a hint, in order; none where there is no hint."""
    return hint if isinstance(hint, tuple) else () if hint is None else (hint,)


def steps_of(hint: Hint | None) -> list[Next]:
    """The steps of a hint, without the words."""
    return [part for part in parts_of(hint) if isinstance(part, Next)]


def hint_from(said: object) -> Hint | None:
    """The hint that another process sent, as JSON; None for what is none."""
    try:
        found: Hint | None = convert(said, Hint | None)
        return found
    except ValidationError:
        return None


def plain_hint(hint: Hint | None) -> tuple[str | dict[str, Any], ...]:
    """The words and steps of a hint as plain values, for the journal; () where it names no step."""
    return tuple(to_builtins(parts_of(hint))) if steps_of(hint) else ()


class OrchardError(Exception):
    """Something the user can act on."""

    exit_code = EXIT_FAILED

    def __init__(self, message: str, hint: Hint | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(OrchardError):
    """The request itself is wrong; nothing was changed."""

    exit_code = EXIT_USAGE


class NotFound(OrchardError):
    """The plan, job or file that was named does not exist."""

    exit_code = EXIT_NOT_FOUND


class NeedsPerson(OrchardError):
    """Nothing goes on before a person decides."""

    exit_code = EXIT_WAITING


def no_locks(path: os.PathLike[str], error: OSError) -> OrchardError:
    """The error of a file that cannot be locked: it cannot be written, or its file system has no locks."""
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return OrchardError(
            f"{os.fspath(path)} cannot be written: {error.strerror}.",
            hint="Orchard keeps its notes in the repository: let your user write there, or use a clone that you can.",
        )
    return OrchardError(
        f"{os.fspath(path)} cannot be locked ({error.strerror or error}); two engines could then work at once.",
        hint="Put the repository on a file system that supports locks (flock), such as a local disk.",
    )


class SystemRefused(OrchardError):
    """A disk or the system did not do what every program may ask of it; the user can mend that, we cannot."""

    def __init__(self, error: OSError) -> None:
        place = f" with '{os.fsdecode(error.filename)}'" if isinstance(error.filename, str | bytes) else ""
        super().__init__(
            f"The system refused something{place}: {error.strerror or error}.",
            hint=(
                "Mend that, then go on where it stopped; '",
                Next("get_doctor"),
                "' looks for what else could go wrong.",
            ),
        )


class TimedOut(OrchardError):
    """What was waited for did not happen in the time given."""

    exit_code = EXIT_TIMED_OUT


class Bug(OrchardError):
    """A mistake of ours, told to the user; everything else goes on."""

    exit_code = EXIT_INTERNAL


class Problem(Struct, frozen=True):
    """One thing that is wrong with an input, and where it stands."""

    message: str
    path: str = ""
    """Where in the document: `jobs[2].needs[0]`; empty for the document itself."""
    line: int | None = None
    """Counted from 1; None where the input has no lines (a request over a socket)."""
    column: int | None = None
    file: str | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        where = " ".join(part for part in (place, self.path) if part)
        return f"{where}: {self.message}" if where else self.message


class InvalidInput(UsageError):
    """A document with problems, all of them reported at once."""

    def __init__(self, what: str, problems: list[Problem], hint: Hint | None = None) -> None:
        super().__init__("\n".join(str(problem) for problem in problems), hint)
        self.what = what
        self.problems = tuple(problems)
