"""Long answers on a terminal: in the pager of the user's, one for all commands.

It is `$ORCHARD_PAGER`; for a diff `$GIT_PAGER`, else git's `core.pager`; else `$PAGER`, else `less`. Empty or `cat`
means none, and so does `--no-pager`. `less` is told as git tells it (FRX): to show colours, and to end by itself where
everything fits on the screen.
"""

import io
import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

from orchard.git.repository import Repository
from orchard.process.pager import Pager


class _Screen(io.TextIOWrapper):
    """What a pager shows is on a screen, for all who decide about colours and headings."""

    def isatty(self) -> bool:
        return True


def pager_of(env: Mapping[str, str], *, of_git: Callable[[], str | None] | None = None) -> list[str] | None:
    """The program that pages; None: there is to be none. For a diff, `of_git` says what git's settings name."""
    said = env.get("ORCHARD_PAGER")
    if said is None and of_git is not None:
        said = env.get("GIT_PAGER")
        said = of_git() if said is None else said
    said = env.get("PAGER", "less") if said is None else said
    try:
        words = shlex.split(said)
    except ValueError:
        return None
    if not words or words == ["cat"]:
        return None
    return words if shutil.which(words[0], path=env.get("PATH")) else None


def pager_in_git(repo: Repository) -> str | None:
    """What the user's settings of git name; those of the repository are left out, since a job may have written them."""
    rows = repo.git("config", "--show-scope", "-z", "--get-all", "core.pager", ok=(0, 1)).fields
    named = [value for scope, value in zip(rows[::2], rows[1::2], strict=True) if scope in (b"system", b"global")]
    return named[-1].decode(errors="replace") if named else None


@contextmanager
def paged(command: list[str]) -> Iterator[None]:
    """What is printed on stdout in the block is shown in the pager; who quits it has seen enough."""
    env = {**os.environ, "LESS": os.environ.get("LESS", "FRX"), "LV": os.environ.get("LV", "-c")}
    before = sys.stdout
    before.flush()
    try:
        pager = Pager(command, env)
    except OSError:  # it cannot be started, so its pages are simply printed
        yield
        return
    sys.stdout = screen = _Screen(pager.pages, encoding=before.encoding, errors=before.errors)
    try:
        yield
    except BrokenPipeError:
        pass
    finally:
        sys.stdout = before
        with _undisturbed():
            with suppress(OSError, ValueError):
                screen.close()
            pager.wait()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Leave ^C to the pager, which has the terminal now."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
