"""What the user sees and how: the options that every command has, and everything that is printed.

stdout is the answer, stderr is talk: notes, warnings, questions. With `--json` the answer is JSON
and nothing else. Colours appear only where a person looks, one decision for each stream.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path
from typing import IO, Any

from msgspec import Struct, field, to_builtins

from orchard import own_log
from orchard.errors import OrchardError, UsageError, steps_of
from orchard.surfaces.cli.render.lines import Line, colored, plain, safe, wrapped
from orchard.surfaces.next_steps import in_commands

OfGit = Callable[[], str | None]
"""Which pager git's settings name; asked where a diff is paged."""


class Terminal(Struct):
    """The options given before or after the verb, and the streams they rule."""

    repo: Path = field(default_factory=Path)
    json: bool = False
    quiet: bool = False
    no_color: bool = False
    no_pager: bool = False
    unwritten: str = ""
    """Why something of the answer could not be written while the work went on."""

    # ----------------------------------------------------------------------------------- printing

    def show(self, *lines: Line) -> None:
        """Print lines of the answer; with `--json` they are left out, because stdout is data then."""
        if not self.json:
            self._write(sys.stdout, lines)

    def say(self, *lines: Line) -> None:
        """Print talk: what a person likes to know and a script does not."""
        if not self.quiet:
            self._talk(sys.stderr if self.json else sys.stdout, lines)

    def tell(self, *lines: Line) -> None:
        """Print on stderr what nobody may miss, also with `--quiet`: why something failed."""
        self._talk(sys.stderr, lines)

    def note(self, *lines: Line) -> None:
        """Print talk beside the answer, on stderr."""
        if not self.quiet:
            self._talk(sys.stderr, lines)

    def ring(self) -> None:
        """Ring the bell of the terminal, where there is one."""
        if is_terminal(sys.stderr):
            with suppress(BrokenPipeError, Unwritable):
                put(sys.stderr, "\a")

    def data(self, document: object) -> None:
        """Print a JSON document: indented for a person, one line for a program."""
        indent = 2 if is_terminal(sys.stdout) else None
        put(sys.stdout, json_text(document, indent) + "\n")

    def row(self, document: object) -> None:
        put(sys.stdout, json_text(document) + "\n")

    def answer(self, document: object, *lines: Line) -> None:
        if self.json:
            self.data(document)
        else:
            self.show(*lines)

    def fitted(self, lines: Sequence[Line]) -> list[Line]:
        """Lines of sentences, broken between words where a person looks at them."""
        width = os.get_terminal_size(sys.stdout.fileno()).columns if is_terminal(sys.stdout) else 0
        return [row for line in lines for row in wrapped(line, width)] if width else list(lines)

    def page_lines(self, lines: Sequence[Line], *, of_git: OfGit | None = None) -> None:
        """Print lines of a long answer, in the pager where they do not fit; those of a diff, in git's, as they are."""
        draw = colored if self.colors(sys.stdout) else plain
        width = os.get_terminal_size(sys.stdout.fileno()).columns if self.live and of_git is None else 0
        rows = [row for line in lines for row in wrapped(line, width)] if width else lines
        self.page("".join(draw(row) + "\n" for row in rows), of_git=of_git)

    def page(self, shown: str, *, of_git: OfGit | None = None) -> None:
        """Print a long answer where a person can read it: in the pager of the user's, unless it fits on the screen."""
        if not self.live or shown.count("\n") < os.get_terminal_size(sys.stdout.fileno()).lines:
            put(sys.stdout, shown)
            return
        with self.paging(of_git=of_git):
            put(sys.stdout, shown)

    def paging(self, *, of_git: OfGit | None = None) -> AbstractContextManager[None]:
        """What the block prints is shown in the pager of the user's, where a person looks and wants one."""
        from orchard.surfaces.cli.pager import paged, pager_of  # most commands do without it

        command = pager_of(os.environ, of_git=of_git) if self.live and not self.no_pager else None
        return paged(command) if command is not None else nullcontext()

    @property
    def colors_wanted(self) -> bool:
        return not (self.no_color or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb")

    def colors(self, stream: IO[str]) -> bool:
        return self.colors_wanted and is_terminal(stream)

    @property
    def live(self) -> bool:
        """Whether a picture that moves can be drawn on stdout."""
        fit = is_terminal(sys.stdout) and os.environ.get("TERM", "dumb") != "dumb"
        return fit and not self.json and not self.quiet and not own_log.is_shown()

    def _write(self, stream: IO[str], lines: Iterable[Line]) -> None:
        draw = colored if self.colors(stream) else plain
        put(stream, "".join(draw(line) + "\n" for line in lines))

    def _talk(self, stream: IO[str], lines: Iterable[Line]) -> None:
        """Talk that nobody can hear any more stops nothing."""
        try:
            width = os.get_terminal_size(stream.fileno()).columns if is_terminal(stream) else 0
            self._write(stream, [row for line in lines for row in wrapped(line, width)] if width else lines)
        except (BrokenPipeError, Unwritable):
            drop(stream)

    # ------------------------------------------------------------------------------------- asking

    @property
    def can_ask(self) -> bool:
        """Whether a person sits there who can be asked."""
        return is_terminal(sys.stdin) and is_terminal(sys.stderr) and not self.json

    def agreed(self, question: str) -> bool:
        """Ask a person; everything but a yes is a no."""
        sys.stderr.write(f"{safe(question)} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    # ----------------------------------------------------------------------------------- failures

    def fail(self, error: OrchardError) -> None:
        """Print what went wrong and what to do; in JSON as well where JSON was asked for."""
        problems = [str(problem) for problem in getattr(error, "problems", ())]
        self._talk(sys.stderr, error_lines(error, problems))
        if self.json:
            self.data({"error": error_view(error, problems)})


def error_lines(error: OrchardError, problems: list[str]) -> list[Line]:
    """An error as people read it: one line a problem, and the hint last."""
    messages = problems or error.message.split("\n")
    lines: list[Line] = [[("error: ", "bad"), (safe(message, 2000), "")] for message in messages]
    if error.hint:
        lines.append([("hint: ", "wait"), (safe(in_commands(error.hint), 2000), "")])
    return lines


def error_view(error: OrchardError, problems: list[str]) -> dict[str, Any]:
    return {
        "message": error.message,
        "hint": in_commands(error.hint) if error.hint else None,
        "next": to_builtins(steps_of(error.hint)),
        "exit_code": error.exit_code,
        "problems": problems,
    }


def is_terminal(stream: IO[str]) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # it was closed
        return False


def speaks_utf8(stream: IO[str]) -> bool:
    """Whether the stream can carry more than ASCII."""
    return (getattr(stream, "encoding", None) or "").lower().replace("-", "") == "utf8"


def json_text(document: object, indent: int | None = None) -> str:
    """JSON that every reader takes: what the stream cannot carry, or came from odd bytes, is escaped."""
    text = json.dumps(to_builtins(document, enc_hook=str), indent=indent, ensure_ascii=not speaks_utf8(sys.stdout))
    return text.encode(errors="backslashreplace").decode()


class Unwritable(OrchardError):
    """What was asked for cannot be printed: the disk is full, the terminal was closed."""


def put(stream: IO[str], shown: str | bytes) -> None:
    """Print at once; bytes go out as they are."""
    try:
        if isinstance(shown, bytes):
            stream.buffer.write(shown)  # type: ignore[attr-defined]
        else:
            stream.write(shown)
        stream.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        drop(stream)
        raise Unwritable(f"The output cannot be written: {error.strerror}.") from error


def drop(stream: IO[str]) -> None:
    """Nobody reads any more: let what is still buffered go nowhere, so that exiting does not fail on it."""
    hole = os.open(os.devnull, os.O_WRONLY)
    os.dup2(hole, stream.fileno())
    os.close(hole)


def read_input(name: str, most: int) -> bytes:
    """The bytes of a file, or of stdin for `-`; never more than a bound."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read(most + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(most + 1)
    except OSError as error:
        raise UsageError(f"Cannot read '{safe(name)}': {error.strerror}.") from error
    if len(data) > most:
        raise UsageError(f"'{safe(name)}' is longer than {most} bytes.")
    return data
