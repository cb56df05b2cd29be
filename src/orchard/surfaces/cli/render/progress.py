"""A plan while it runs, for whoever looks: a tree that moves, lines in a pipe, JSON, or nothing.

Each form takes the events of a plan in batches, applies them to its own `Run` and shows the change.
The tree is drawn when something happened, and once a second while something runs so that durations
count; it costs nothing while a plan waits.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from itertools import chain
from typing import Any, Protocol

from msgspec.structs import replace

from orchard.core.forecast import seconds_left, seconds_taken
from orchard.core.replay import apply
from orchard.core.run import Run
from orchard.core.views.documents import JobView, time_text
from orchard.core.views.plans import job_view, plan_summary
from orchard.model.events.plans import Recorded, encode
from orchard.model.plan import JobId
from orchard.model.statuses import JobStatus
from orchard.operations.library import Library
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.event_lines import Chronicle
from orchard.surfaces.cli.render.last_lines import LastLines
from orchard.surfaces.cli.render.lines import RICH, Line, cells, colored, plain
from orchard.surfaces.cli.render.tree import Look, bar, counts_line, end_lines, flat, header, tree
from orchard.surfaces.cli.terminal import Terminal, drop, is_terminal, json_text, speaks_utf8
from orchard.surfaces.next_steps import in_commands

FRAME_SECONDS = 1 / 8
TICK_SECONDS = 1.0
SHARE = 5
"""A frame that is slow to draw is drawn less often: drawing takes at most a fifth of the time."""


LARGEST_TREE = 500
"""Jobs of a plan whose groups are folded to fit the screen; of a larger one only the jobs under way are looked at."""
LARGEST_HISTORY = 1000
"""Jobs of an earlier plan that are worth reading for how long they took."""


class Beside:
    """What is known of a plan beside its events: what its workers do and print, and how long its jobs took before."""

    def __init__(self, library: Library | None, run: Run) -> None:
        self._library, self._run = library, run

    def lively(self, jobs: list[JobView]) -> list[JobView]:
        return jobs if self._library is None else self._library.with_activity(self._run, jobs)

    def said(self) -> dict[JobId, str]:
        return {} if self._library is None else self._lines.of(self._run)

    def left(self, now: float) -> float | None:
        return seconds_left(self._run, self._before, now)

    @cached_property
    def _lines(self) -> LastLines:
        assert self._library is not None
        return LastLines(self._library.logs, self._library.secrets(self._run))

    @cached_property
    def _before(self) -> Mapping[JobId, float]:
        """By job, what it took in the last plan of this name."""
        name = self._run.plan.name
        rows = self._library.reader.plans() if self._library is not None else []
        ended = [row for row in rows if row.name == name and row.settled and row.id != self._run.id]
        if not ended or self._library is None or sum(ended[-1].summary.counts.values()) > LARGEST_HISTORY:
            return {}
        return seconds_taken(self._library.run_of(ended[-1].id))


class Progress(Protocol):
    def take(self, batch: Sequence[Recorded]) -> None:
        """Show what happened."""

    def say(self, line: Line) -> None:
        """Put a sentence between what is shown."""

    async def keep_drawing(self) -> None:
        """Show the passing of time, until canceled."""


@contextmanager
def open_progress(terminal: Terminal, run: Run, library: Library, foot: str = "") -> Iterator[Progress]:
    """The form that suits the terminal, for as long as the plan is followed; `foot`: what keys do meanwhile."""
    if terminal.live:
        with LiveTree(terminal, run, library) as live:
            live.footer = [(foot, "dim")] if foot else []
            yield live
    elif terminal.json:
        yield Printed(terminal, run, lambda recorded: json_text(event_row(recorded)) + "\n")
    elif terminal.quiet:
        yield Printed(terminal, run, lambda recorded: "")
    else:
        draw = colored if terminal.colors(sys.stdout) else plain
        told = Chronicle(run)
        yield Printed(terminal, run, lambda recorded: "".join(draw(row) + "\n" for row in told.lines(recorded)))


class Printed:
    """Text for each event, written as soon as the event is known."""

    def __init__(self, terminal: Terminal, run: Run, show: Callable[[Recorded], str]) -> None:
        self.terminal, self.run, self.show = terminal, run, show

    def take(self, batch: Sequence[Recorded]) -> None:
        rows = []
        for recorded in batch:
            apply(self.run, recorded)
            rows.append(self.show(recorded))
        try:
            sys.stdout.write("".join(rows))
            sys.stdout.flush()
        except OSError as error:
            # `orchard run plan.yaml | head` must not stop the work: nobody reads, the plan goes on.
            drop(sys.stdout)
            if not isinstance(error, BrokenPipeError):
                self.terminal.unwritten = str(error.strerror)

    def say(self, line: Line) -> None:
        self.terminal.note(line)

    async def keep_drawing(self) -> None:
        return


def event_row(recorded: Recorded) -> dict[str, Any]:
    """An event as a row of `run --json`; the fields of the event itself stand beside its name."""
    name, body = encode(recorded.event)
    place = {"type": "event", "seq": recorded.seq, "at": time_text(recorded.at), "plan_id": recorded.plan}
    return {**place, "event": name, **json.loads(body)}


# ------------------------------------------------------------------------------------- pictures


def interesting(run: Run, most: int) -> list[JobId]:
    """The jobs worth a line when there is no room for all: running ones, then failed, then waiting for a person, and
    as many as there is room for of those to which something happened last, and of those that come next.
    """
    ranks = {JobStatus.RUNNING: 0, JobStatus.SCHEDULED: 1, JobStatus.FAILED: 2}
    found: list[list[JobId]] = [[], [], [], []]
    for job, record in run.records.items():
        rank = 3 if record.hold is not None else ranks.get(record.status)
        if rank is not None:
            found[rank].append(job)
    chosen = dict.fromkeys([job for jobs in found for job in jobs][:most])
    begun = (job for job in reversed(run.changed) if run.records[job].attempts)
    to_come = (job for job, record in run.records.items() if not record.attempts)
    for job in chain(begun, to_come):
        if len(chosen) >= most:
            break
        chosen[job] = None
    return sorted(chosen, key=run.plan.position.__getitem__)


def picture(
    run: Run, look: Look, height: int, beside: Beside | None = None, *, interrupted: bool = False
) -> list[Line]:
    """A run in at most `height` lines; with details, also what is wrong and what to do next."""
    plan = plan_summary(run, in_commands, interrupted=interrupted)
    counted = counts_line(plan, run.plan.max_parallel)
    beside = beside or Beside(None, run)
    if run.active:
        counted = [*bar(plan, beside.left(look.now), ascii_only=look.marks is text.ASCII_MARKS), *counted]
    foot = [counted, *(end_lines(plan) if look.details else [])]
    room = max(1, height - 2 - len(foot))
    groups = len(plan.groups)
    bare = replace(look, details=False)
    if len(run.plan.jobs) + groups <= room:
        jobs = beside.lively([job_view(run, job, interrupted=interrupted) for job in run.plan.jobs])
        return [header(plan, look), *tree(plan, jobs, bare), *foot][:height]
    if groups and len(run.plan.jobs) <= LARGEST_TREE:
        jobs = beside.lively([job_view(run, job, interrupted=interrupted) for job in run.plan.jobs])
        lines = tree(plan, jobs, bare, folded=True)
        if len(lines) <= room:
            return [header(plan, look), *lines, *foot]
    shown = interesting(run, room - 1)
    rows = flat(beside.lively([job_view(run, job, interrupted=interrupted) for job in shown]), bare)
    rest: Line = [(f"  ... and {text.many(len(run.plan.jobs) - len(shown), 'more job')}", "dim")]
    return [header(plan, look), *rows, rest, *foot][:height]


class LiveTree:
    def __init__(
        self,
        terminal: Terminal,
        run: Run,
        library: Library | None = None,
        *,
        screen: bool = False,
        interrupted: bool = False,
    ) -> None:
        # rich takes longer to import than most commands take to run.
        from rich.console import Console
        from rich.live import Live

        color = terminal.colors(sys.stdout)
        self.console = Console(no_color=not color, highlight=False, markup=False, emoji=False)
        self.live = Live(console=self.console, auto_refresh=False, screen=screen, vertical_overflow="crop")
        self.run, self.beside = run, Beside(library, run)
        # What follows below says how it ended; a full screen has nothing below.
        self.details = screen
        self.interrupted = interrupted
        self.footer: Line = []
        self.marks = text.MARKS if speaks_utf8(sys.stdout) else text.ASCII_MARKS
        self._changed = asyncio.Event()
        self._keys = ExitStack()
        self._drawn: tuple[int, list[int]] = (0, [])
        """How wide the screen was when the picture was last drawn, and how long its lines were."""

    def __enter__(self) -> "LiveTree":
        self._keys.enter_context(_without_echo())
        with _unseen():
            self.live.__enter__()
        self._changed.set()
        return self

    def __exit__(self, *error: Any) -> None:
        if not self.details:
            self.footer = []  # what stays on the screen has no keys
        self.draw()
        with _unseen(), self._keys:
            self.live.__exit__(*error)

    def take(self, batch: Sequence[Recorded]) -> None:
        for recorded in batch:
            apply(self.run, recorded)
        self._changed.set()

    def say(self, line: Line) -> None:
        with _unseen():
            self.console.print(self._text(line))

    async def keep_drawing(self) -> None:
        """Draw after every change, at most eight times a second, and each second while jobs run."""
        while True:
            try:
                async with asyncio.timeout(TICK_SECONDS if self.run.active else None):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()
            began = time.monotonic()
            self.draw()
            await asyncio.sleep(max(FRAME_SECONDS, SHARE * (time.monotonic() - began)))

    def draw(self) -> None:
        from rich.console import Group

        if not self.run.records:
            return
        height = max(4, self.console.size.height - (1 if self.footer else 0) - 1)
        look = Look(time.time(), self.marks, self.details, self.beside.said(), self.console.width)
        lines = picture(self.run, look, height, self.beside, interrupted=self.interrupted)
        if self.footer:
            lines.append(self.footer)
        with _unseen():
            self._take_back_what_was_folded()
            self._drawn = self.console.size.width, [min(cells(plain(line)), self.console.size.width) for line in lines]
            self.live.update(Group(*[self._text(line) for line in lines]), refresh=True)

    def _take_back_what_was_folded(self) -> None:
        """Erase the last picture where the screen became narrower: the terminal broke its lines into more rows."""
        width, (drawn_at, lengths) = self.console.size.width, self._drawn
        if self.live.is_started and not self.details and lengths and width < drawn_at:
            rows = sum(max(1, -(-length // width)) for length in lengths)
            up = f"\x1b[{rows - 1}A" if rows > 1 else ""
            # Rich goes up as many lines as it drew: they are there again, and empty.
            self.console.file.write(f"\r{up}\x1b[J" + "\n" * (len(lengths) - 1))

    def _text(self, line: Line) -> Any:
        from rich.text import Text

        # Text.append reads no markup, so brackets in names stay brackets.
        drawn = Text(no_wrap=True, overflow="ellipsis")
        for piece, meaning in line:
            drawn.append(piece, RICH[meaning] or None)
        return drawn


def has_keyboard() -> bool:
    """Whether keys come to us: who is in the background would be stopped for looking at them."""
    try:
        return is_terminal(sys.stdin) and os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:  # it is not the terminal of our session, and stops nobody
        return True


@contextmanager
def _without_echo() -> Iterator[None]:
    """What is typed, `^C` too, is not written into the picture; a key is heard without the return key after it."""
    if not has_keyboard():
        yield
        return
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    silent = [*before[:3], before[3] & ~termios.ECHO & ~termios.ICANON, *before[4:]]
    termios.tcsetattr(terminal, termios.TCSANOW, silent)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal may be gone
            termios.tcsetattr(terminal, termios.TCSANOW, before)


@contextmanager
def _unseen() -> Iterator[None]:
    """Draw, or go on without: a terminal that was closed must not keep its plan from being canceled and saved."""
    try:
        yield
    except OSError:
        drop(sys.stdout)
