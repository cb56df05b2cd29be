"""The program `orchard`: `python -m orchard` and the installed script both begin here.

`--version` is answered before anything is imported: scripts and editors ask it often.
"""

import gc
import os
import sys
from contextlib import suppress
from typing import NoReturn

from orchard import __version__

HOLD_SECRETS = frozenset({"agent", "approve", "do", "land", "mcp", "plan", "pr", "resume", "retry", "run", "serve"})
"""Verbs whose process may hold keys while jobs run beside it."""

STAY_WITH_WORK = frozenset(
    {"approve", "clone", "complete", "demo", "deploy", "do", "finalize", "land", "plan", "pr", "reject", "resolve"}
    | {"resume", "retry", "run", "send"}
)
"""Verbs that show a plan until it ends; at a terminal, a person can leave before that."""
RETURN_AT_ONCE = frozenset({"-d", "--detach", "--dry-run", "--json", "-q", "--quiet", "-h", "--help"})

OBJECTS_BEFORE_LOOKING = 100_000
"""Few of our objects refer to each other in circles, and looking for such as often as Python does slows the start."""


def program() -> NoReturn:
    """Be the program: do what the command line asks, and leave.

    Everything that must be closed is closed by then. Taking the interpreter apart as well would cost a
    tenth of a second and change nothing.
    """
    gc.set_threshold(OBJECTS_BEFORE_LOOKING)
    code = main()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(code)


def main() -> int:
    """Do what the command line asks; the exit code says how it went."""
    open_streams()
    if sys.argv[1:] == ["--version"]:
        return tell_version()
    if not HOLD_SECRETS.isdisjoint(sys.argv[1:]):
        from orchard.process.privacy import hide_memory

        hide_memory()  # at once: an engine does it anyway, but only when it opens
    if stays_with_work(sys.argv[1:]):
        from orchard.errors import EXIT_CANCELED
        from orchard.process import stand_in

        stand_in.begin(EXIT_CANCELED)  # before anything is open
    from orchard.surfaces.cli.start import run_command_line  # brings click: 40 ms and more

    return run_command_line(sys.argv[1:])


def tell_version() -> int:
    try:
        sys.stdout.write(f"orchard {__version__}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        return 0
    except OSError as error:
        sys.stderr.write(f"error: The output cannot be written: {error.strerror}.\n")
        return 1
    return 0


def stays_with_work(words: list[str]) -> bool:
    """Whether a person sits before a plan that goes on, perhaps in this process."""
    verb = next((word for word in words if not word.startswith("-")), "")
    return verb in STAY_WITH_WORK and RETURN_AT_ONCE.isdisjoint(words) and all(map(os.isatty, (0, 1)))


def open_streams() -> None:
    """Whoever closed a standard stream gets nothing there; else the next file that is opened would get its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))


if __name__ == "__main__":
    program()
