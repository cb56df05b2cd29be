"""What programs print, as it comes; `operations.queries.log_pages` cuts it into pages."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from orchard.app import App
from orchard.core.records import Attempt
from orchard.core.run import Run
from orchard.errors import UsageError
from orchard.model.phases import PHASES, Phase
from orchard.operations.queries.log_pages import (
    LogPage,
    Wanted,
    attempt_of,
    is_over,
    log_of_subtask,
    phase_is_over,
    read_page,
    subtask_is_quiet,
)
from orchard.process.background import beside
from orchard.store.log_follower import Changes
from orchard.store.redact import Redactor
from orchard.surfaces.http.problems import json_bytes
from orchard.surfaces.http.streams import first_frame, frame
from orchard.surfaces.served import Served

GATHER = 0.02
"""Seconds that news may wait for more of them."""


class Place(Struct, frozen=True):
    """How far somebody has read: in which attempt and phase, and up to which byte."""

    attempt: int
    phase: Phase
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.attempt}.{self.phase}.{self.offset}"

    @classmethod
    def parse(cls, text: str) -> "Place":
        """The place that was shown so."""
        number, _, rest = text.partition(".")
        phase, _, offset = rest.rpartition(".")
        with suppress(ValueError):
            if text.isascii() and len(text) < 60 and number.isdecimal() and offset.isdecimal():
                return cls(int(number), Phase(phase), int(offset))
        raise UsageError("This is no place in a log.", "Give the id of the last event as it was sent.")


def begin(app: App, wanted: Wanted, seen: str | None) -> Place | None:
    """Where a follower goes on; None: at the beginning of what it wants. What cannot be followed is refused."""
    place = Place.parse(seen) if seen else None
    if wanted.subtask is not None:
        return place
    if wanted.offset and wanted.phase is None:
        raise UsageError("An offset says nothing without a phase.", "Give 'phase' as well.")
    attempt_of(app.run_of(wanted.plan), replace(wanted, attempt=place.attempt) if place else wanted)
    return place


async def frames(served: Served, wanted: Wanted, place: Place | None, idle: float | None) -> AsyncIterator[bytes]:
    """A log as it grows, phase after phase, until the attempt is over or nothing has come for `idle` seconds."""
    yield first_frame(None)
    app, news, loop = served.app, _News(), asyncio.get_running_loop()
    redactor = Redactor(await served.read(lambda: app.secrets(app.run_of(wanted.plan))))
    quiet_since = loop.time()
    async with beside(_wake(served, news)):
        try:
            while True:
                look = await served.read(_look, app, wanted, place, redactor)
                place = look.place or place
                if look.piece is not None:
                    yield frame(json_bytes(look.piece).decode(), "log", str(place))
                    quiet_since = loop.time()
                elif look.ended:
                    yield frame(json_bytes({"status": look.status}).decode(), "end", str(place or ""))
                    return
                elif not look.again and not await news.of(look.path, idle, quiet_since):
                    return
        finally:
            news.close()


class _Look(Struct, frozen=True):
    """What one look at a log came to."""

    path: Path
    """What grows next."""
    status: str
    place: Place | None = None
    piece: LogPage | None = None
    again: bool = False
    ended: bool = False


def _look(app: App, wanted: Wanted, place: Place | None, redactor: Redactor) -> _Look:
    run = app.run_of(wanted.plan)
    if wanted.subtask is not None:
        return _look_at_subtask(app, run, replace(wanted, offset=place.offset if place else wanted.offset), redactor)
    status = str(run.records[wanted.job].status)
    chosen = replace(wanted, attempt=place.attempt) if place else wanted
    attempt = attempt_of(run, chosen)
    over = is_over(app, run, chosen, attempt)
    if attempt is None:
        return _Look(app.logs.path(wanted.plan, wanted.job, 1, PHASES[0]), status, ended=over)
    place = place or Place(attempt.number, wanted.phase or PHASES[0], wanted.offset)
    ended = over or phase_is_over(app, run, chosen, attempt, place.phase)
    path = app.logs.path(wanted.plan, wanted.job, attempt.number, place.phase)
    text, (begin, after, size) = read_page(path, place.offset, wanted.limit, redactor, ended=ended)
    if after > begin:
        piece = LogPage(attempt.number, place.phase, text, begin, after, size, ended)
        return _Look(path, status, Place(attempt.number, place.phase, after), piece)
    following = _next_phase(attempt, place.phase) if wanted.phase is None and not over else None
    if over and wanted.phase is None and place.phase is not PHASES[-1]:
        following = PHASES[PHASES.index(place.phase) + 1]
    if following is not None:
        return _Look(path, status, Place(attempt.number, following), again=True)
    return _Look(path, status, place, ended=over or (wanted.phase is not None and ended))


def _look_at_subtask(app: App, run: Run, wanted: Wanted, redactor: Redactor) -> _Look:
    """A subtask has one log; in the places that are told its phase is that of the work that it is a part of."""
    assert wanted.subtask is not None
    one, ended = (
        run.records[wanted.job].subtasks[wanted.subtask],
        subtask_is_quiet(app, run, wanted.job, wanted.subtask),
    )
    path = log_of_subtask(app, run, wanted.job, wanted.subtask)
    text, (begin, after, size) = read_page(path, wanted.offset, wanted.limit, redactor, ended=ended)
    place = Place(one.attempt, Phase.WORK, after)
    piece = LogPage(one.attempt, None, text, begin, after, size, ended) if after > begin else None
    return _Look(path, one.status, place, piece, ended=ended)


def _next_phase(attempt: Attempt, phase: Phase) -> Phase | None:
    """The phase after this one, once the attempt has come to it or to a later one."""
    begun = [PHASES.index(one.phase) for one in attempt.phases]
    here = PHASES.index(phase)
    return PHASES[here + 1] if any(number > here for number in begun) else None


class _News:
    """Wakes a follower when the log that it reads grows, or when anything happens."""

    def __init__(self) -> None:
        self._changes: Changes | None = None

    async def of(self, path: Path, idle: float | None, since: float) -> bool:
        """Wait for news; a file that is watched for the first time may have grown already. False: it is too quiet."""
        left = None if idle is None else since + idle - asyncio.get_running_loop().time()
        if left is not None and left <= 0:
            return False
        if self._changes is None or self._changes.path != path:
            self.close()
            self._changes = Changes(path)
            return True
        await (self._changes.wait() if left is None else self._changes.wait(left))
        await asyncio.sleep(GATHER)
        return True

    def wake(self) -> None:
        if self._changes is not None:
            self._changes.wake()

    def close(self) -> None:
        if self._changes is not None:
            self._changes.close()
            self._changes = None


async def _wake(served: Served, news: _News) -> None:
    while await served.newer(served.newest):
        news.wake()
