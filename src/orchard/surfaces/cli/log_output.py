"""Logs on their way to stdout: read in blocks, so that their size does not matter, redacted, and fit for a screen."""

import codecs
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from msgspec import Struct, field

from orchard.model.phases import Phase, shown_phase
from orchard.store.logs import log_size, opened
from orchard.store.redact import KEY_LENGTH, Redactor
from orchard.surfaces.cli.render.lines import colored, plain
from orchard.surfaces.cli.terminal import Terminal, is_terminal, put
from orchard.text import for_screen

BLOCK = 1 << 18
LONGEST_LINE = 1 << 16
"""A line is held back until it ends, but never more of it than this."""


class Part(Struct, frozen=True):
    attempt: int
    phase: Phase | None
    """None: of a subtask, which has one log."""
    path: Path

    @property
    def head(self) -> str:
        return f"{shown_phase(self.phase) if self.phase else self.path.stem}, attempt {self.attempt}"


# ---------------------------------------------------------------------------------------- reading


class Reading:
    """How far each log has been printed; the one that is printed last may still grow."""

    def __init__(self, printer: "Printer", tail: int | None) -> None:
        self.printer = printer
        self.tail = tail
        self.parts: dict[Path, int] = {}
        self.last: Part | None = None

    def take(self, parts: list[Part]) -> None:
        """Print what is new in these logs, in their order, as far as they went when we came.

        A program may print faster than we do: what it adds meanwhile is for the next time, or we would never end.
        """
        sizes = {part.path: log_size(part.path) or 0 for part in parts}
        if not self.parts and self.tail is not None:
            self.parts = dict(starts(sizes, self.tail))
        for part in parts:
            at = self.parts.get(part.path, 0)
            for block, after in blocks(part.path, at, sizes[part.path]):
                if self.last != part:
                    self.end()
                    self.printer.begin(part, before(part.path, at))
                    self.last = part
                self.printer.feed(block)
                at = after
            self.parts[part.path] = at

    def end(self) -> None:
        if self.last is not None:
            self.printer.close()


def blocks(path: Path, at: int, end: int) -> Iterator[tuple[bytes, int]]:
    """What a file holds between two offsets, with the offset after each block."""
    with opened(path) as (file, _):
        while file is not None and at < end and (block := os.pread(file, min(BLOCK, end - at), at)):
            at += len(block)
            yield block, at


def starts(sizes: dict[Path, int], lines: int) -> Iterator[tuple[Path, int]]:
    """Where to begin each log so that the last `lines` lines of all of them are printed."""
    for path in reversed(sizes):
        at, lines = last_lines(path, sizes[path], lines)
        yield path, at


def last_lines(path: Path, size: int, lines: int) -> tuple[int, int]:
    """The offset at which the last lines of a file of this size begin, and how many of those it does not have.

    Read backwards in blocks: the end of a large file is found at once.
    """
    if lines == 0 or size == 0:
        return size, lines
    at = size
    with opened(path) as (file, _):
        while file is not None and at > 0:
            length = min(BLOCK, at)
            at -= length
            block = os.pread(file, length, at)
            end = min(length, size - 1 - at)  # a newline at the very end begins no line
            while (newline := block.rfind(b"\n", 0, end)) >= 0:
                lines -= 1
                if lines == 0:
                    return at + newline + 1, 0
                end = newline
    return 0, lines - 1


def before(path: Path, at: int) -> bytes:
    """What stands before an offset, as far as a secret that began there can reach."""
    with opened(path) as (file, _):
        start = max(0, at - KEY_LENGTH)
        return b"" if file is None else os.pread(file, at - start, start)


# --------------------------------------------------------------------------------------- printing


def on_screen(shown: str, *, colors: bool) -> str:
    """A piece of a log as the screen gets it; most logs hold nothing to take out, and looking is faster than taking."""
    if shown.replace("\n", "").replace("\t", "").isprintable():
        return shown
    return for_screen(shown, keep_colors=colors)


class Printer(Struct):
    """Blocks of a log on their way to stdout: redacted, decoded, made safe, line by line."""

    terminal: Terminal
    redactor: Callable[[], Redactor]
    raw: bool = False
    _redact: Redactor | None = None
    _decode: codecs.IncrementalDecoder = field(default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace"))
    _held: str = ""
    _part: Part | None = None

    def begin(self, part: Part, unseen: bytes) -> None:
        """Start a new log; on a terminal its phase is named.

        What stands before the first line that is shown is not printed, but a key that begins there is known by it.
        """
        self._part, self._redact = part, self.redactor()
        self._redact.feed(unseen)
        if is_terminal(sys.stdout) and not self.raw:
            draw = colored if self.terminal.colors(sys.stdout) else plain
            put(sys.stdout, draw([(f"--- {part.head} ---", "dim")]) + "\n")

    def feed(self, data: bytes) -> None:
        assert self._redact is not None
        self._write(self._redact.feed(data))

    def close(self) -> None:
        if self._redact is None:
            return
        self._write(self._redact.close(), last=True)
        self._redact = None

    def _write(self, data: bytes, *, last: bool = False) -> None:
        if self.raw and not self.terminal.json:
            put(sys.stdout, data)
            return
        pending = self._held + self._decode.decode(data, final=last)
        end = len(pending) if last or len(pending) > LONGEST_LINE else pending.rfind("\n") + 1
        self._held = pending[end:]
        if last:
            self._decode.reset()
        if end:
            self._print(pending[:end])

    def _print(self, shown: str) -> None:
        if self.terminal.json and self._part is not None:
            row = {"type": "log", "attempt": self._part.attempt, "phase": self._part.phase, "text": shown}
            self.terminal.row(row)
        else:
            put(sys.stdout, on_screen(shown, colors=self.terminal.colors(sys.stdout)))
