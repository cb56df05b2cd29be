"""From the command line's words to an exit code: the one place where errors become text.

An `OrchardError` is for the user and ends in its own exit code. What click refuses is bad usage, 2.
Everything else is a bug of ours: its traceback goes into a report that only the user can read, and
the exit code is 70.
"""

import errno
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path

import click

from orchard import __version__, own_log
from orchard.errors import EXIT_CANCELED, EXIT_FAILED, EXIT_INTERNAL, Bug, OrchardError, SystemRefused, UsageError
from orchard.process import failpoint
from orchard.surfaces.cli.group import cli
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.terminal import Terminal, drop

_VERBOSE = re.compile("-v+")
OF_THE_MACHINE = frozenset(
    {errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE}
    | {errno.EAGAIN, errno.ENOMEM, errno.EFBIG, errno.ENOTDIR}
)
"""What a disk or a system can do to any program; it is the user who can mend it."""


def run_command_line(words: Sequence[str]) -> int:
    """Do what the words ask; every way to fail ends in a sentence and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a test's stream may be of another kind
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    terminal = Terminal(json=_asks_for_json(words))
    try:
        code = _run(words, terminal)
        sys.stdout.flush()
    except BrokenPipeError:
        drop(sys.stdout)
        code = 0
    return code


def _run(words: Sequence[str], terminal: Terminal) -> int:
    try:
        _check_failpoints()
        _start_own_log(words)
        done = cli.main(list(words), prog_name="orchard", standalone_mode=False, obj=terminal)
        return done if isinstance(done, int) else 0
    except click.exceptions.Abort:
        return EXIT_CANCELED
    except click.ClickException as error:
        terminal.fail(_usage(error))
        return _usage(error).exit_code
    except (Exception, KeyboardInterrupt, BaseExceptionGroup) as error:
        return _failed(error, words, terminal)


def _start_own_log(words: Sequence[str]) -> None:
    """Before anything is done: what `-v` should show happens while options are still being read."""
    asked = list(takewhile(lambda word: word != "--", words))
    verbose = sum(word.count("v") if _VERBOSE.fullmatch(word) else word == "--verbose" for word in asked)
    wanted = os.environ.get(own_log.VARIABLE)
    if verbose or wanted:
        from orchard.config.user_dirs import user_dirs

        own_log.start(wanted, verbose, user_dirs().state)


def _check_failpoints() -> None:
    """Refuse a bad variable of those who test us before anything has begun, not in the middle of it."""
    if failpoint.VARIABLE in os.environ:
        try:
            failpoint.parse(os.environ[failpoint.VARIABLE])
        except failpoint.BadFailpoint as error:
            raise UsageError(str(error)) from error


def _failed(error: BaseException, words: Sequence[str], terminal: Terminal) -> int:
    cause = single_cause(error)
    if isinstance(cause, OrchardError):
        terminal.fail(cause)
        return cause.exit_code
    if isinstance(cause, BrokenPipeError | SystemExit):
        raise cause
    if isinstance(cause, KeyboardInterrupt):
        return EXIT_CANCELED
    if isinstance(cause, OSError) and cause.errno in OF_THE_MACHINE:
        terminal.fail(SystemRefused(cause))
        return EXIT_FAILED
    terminal.fail(_bug(error, words))
    return EXIT_INTERNAL


def single_cause(error: BaseException) -> BaseException:
    """The error inside groups of one; of several, the first that is for the user."""
    while isinstance(error, BaseExceptionGroup):
        inner = error.exceptions
        error = next((one for one in inner if isinstance(single_cause(one), OrchardError)), inner[0])
    return error


def _usage(error: click.ClickException) -> UsageError:
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "orchard"
    return UsageError(" ".join(error.format_message().split()), text.see_help(command))


def _bug(error: BaseException, words: Sequence[str]) -> Bug:
    import traceback  # only a bug pays for it

    report = "".join(
        [
            f"orchard {__version__}, Python {sys.version}, {sys.platform}\n",
            f"command: {list(words)!r}\n\n",
            *traceback.format_exception(error),
        ]
    )
    said = f"This is a bug in orchard: {type(error).__name__}: {error}"
    try:
        where = f"The report is in {_save(report)} - please send it with what you did."
        return Bug(said, f"{where} Run 'orchard doctor' to look at the repository.")
    except (OSError, OrchardError):
        sys.stderr.write(report)
        return Bug(said, "No report could be saved; what happened is printed above. Please send it with what you did.")


def _save(report: str) -> Path:
    from orchard.config.user_dirs import make_state_dir, user_dirs

    folder = make_state_dir(make_state_dir(user_dirs().state) / "reports")
    path = folder / f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{os.getpid()}.txt"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
        file.write(report)
    return path


def _asks_for_json(words: Sequence[str]) -> bool:
    """Whether `--json` is among the words, known before they are parsed: bad usage is told in JSON too."""
    before = words[: list(words).index("--")] if "--" in words else words
    return "--json" in before
