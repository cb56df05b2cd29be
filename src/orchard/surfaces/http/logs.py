"""What programs printed, page by page or as it comes. Offsets are those of the file, so that any page can be asked for.

Everything that leaves a log is redacted. A page is cut where no secret and no character is cut through; what stands
around it is looked at as well, so that a secret is known by its whole self wherever a page begins. While the log still
grows its last unfinished line is held back: what it will be is not known yet.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from orchard.app import App
from orchard.core.events import Json
from orchard.core.phases import PHASES, Phase
from orchard.core.plan import JobId, PlanId
from orchard.core.records import Attempt
from orchard.core.run import Run
from orchard.core.states import ACTIVE, JobState
from orchard.errors import NotFound, UsageError
from orchard.frozen import frozen
from orchard.process.beside import beside
from orchard.store.follow import Changes
from orchard.store.logs import read
from orchard.store.redact import CARRY, HOLD, KEY_LENGTH, REDACTED, Redactor
from orchard.surfaces.http.problems import json_bytes
from orchard.surfaces.http.streams import first_frame, frame
from orchard.surfaces.served import Served

PAGE = 64 * 1024
GATHER = 0.02
"""Seconds that news may wait for more of them."""


@frozen
class Place:
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


@frozen
class Wanted:
    """Whose output is meant; without a phase, all of an attempt's."""

    plan: PlanId
    job: JobId
    attempt: int | None = None
    phase: Phase | None = None
    offset: int = 0
    limit: int = PAGE


def page(app: App, wanted: Wanted) -> Json:
    """One page of a log; without a phase, of the one that was written last."""
    run = app.run_of(wanted.plan)
    attempt = _attempt(run, wanted)
    phase = wanted.phase or (_last_written(app, run, wanted.job, attempt) if attempt is not None else None)
    if attempt is None or phase is None:
        ended = _over(app, run, wanted, attempt)
        return _page(attempt.number if attempt else None, None, "", (0, 0, 0), ended)
    ended = _phase_ended(app, run, wanted, attempt, phase)
    path = app.logs.path(wanted.plan, wanted.job, attempt.number, phase)
    text, places = read_page(path, wanted.offset, wanted.limit, Redactor(app.secrets(run.plan)), ended=ended)
    return _page(attempt.number, phase, text, places, ended)


def _page(attempt: int | None, phase: Phase | None, text: str, places: tuple[int, int, int], ended: bool) -> Json:
    offset, after, size = places
    return {
        "attempt": attempt,
        "phase": phase,
        "data": text,
        "offset": offset,
        "next_offset": after,
        "size": size,
        "ended": ended,
    }


def read_page(
    path: Path, offset: int, limit: int, redactor: Redactor, *, ended: bool
) -> tuple[str, tuple[int, int, int]]:
    """About `limit` bytes from `offset` on, fit to be shown; with where they begin and end, and the size of the log."""
    start = max(0, offset - KEY_LENGTH)
    block = read(path, start, offset - start + limit + HOLD)
    data, size = block.data, block.size
    at_end = block.offset + len(data) >= size
    spans, certain = redactor.hidden(data, ended=ended and at_end)
    low = min(offset - block.offset, len(data))
    high = min(low + limit, len(data))
    if at_end and not ended and certain < high:
        high = certain if len(data) - certain <= CARRY else max(certain, len(data) - HOLD)
    high = max(low, _between_characters(data, high))
    parts, place = [], low
    for begin, end in spans:
        if begin >= high:
            break
        if end > place:
            parts += [data[place : max(begin, place)], REDACTED if begin >= low else b""]
            place = end
    high = max(high, place)
    parts.append(data[place:high])
    text = b"".join(parts).decode(errors="replace")
    return text, (block.offset + low, block.offset + high, size)


def _between_characters(data: bytes, at: int) -> int:
    """The nearest place before this one that is inside no character."""
    for back in range(4):
        if at - back >= len(data) or at - back <= 0 or data[at - back] & 0xC0 != 0x80:
            return at - back
    return at  # this is no UTF-8 anyway


# ----------------------------------------------------------------------------------------- following


def begin(app: App, wanted: Wanted, seen: str | None) -> Place | None:
    """Where a follower goes on; None: at the beginning of what it wants. What cannot be followed is refused."""
    if wanted.offset and wanted.phase is None:
        raise UsageError("An offset says nothing without a phase.", "Give 'phase' as well.")
    place = Place.parse(seen) if seen else None
    _attempt(app.run_of(wanted.plan), replace(wanted, attempt=place.attempt) if place else wanted)
    return place


async def frames(served: Served, wanted: Wanted, place: Place | None, idle: float | None) -> AsyncIterator[bytes]:
    """A log as it grows, phase after phase, until the attempt is over or nothing has come for `idle` seconds."""
    yield first_frame(None)
    app, news, loop = served.app, _News(), asyncio.get_running_loop()
    redactor = Redactor(await served.read(lambda: app.secrets(app.run_of(wanted.plan).plan)))
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


@frozen
class _Look:
    """What one look at a log came to."""

    path: Path
    """What grows next."""
    status: str
    place: Place | None = None
    piece: Json | None = None
    again: bool = False
    ended: bool = False


def _look(app: App, wanted: Wanted, place: Place | None, redactor: Redactor) -> _Look:
    run = app.run_of(wanted.plan)
    status = str(run.records[wanted.job].status)
    chosen = replace(wanted, attempt=place.attempt) if place else wanted
    attempt = _attempt(run, chosen)
    over = _over(app, run, chosen, attempt)
    if attempt is None:
        return _Look(app.logs.path(wanted.plan, wanted.job, 1, PHASES[0]), status, ended=over)
    place = place or Place(attempt.number, wanted.phase or PHASES[0], wanted.offset)
    ended = over or _phase_ended(app, run, chosen, attempt, place.phase)
    path = app.logs.path(wanted.plan, wanted.job, attempt.number, place.phase)
    text, (begin, after, size) = read_page(path, place.offset, wanted.limit, redactor, ended=ended)
    if after > begin:
        piece = _page(attempt.number, place.phase, text, (begin, after, size), ended)
        return _Look(path, status, Place(attempt.number, place.phase, after), piece)
    following = _next_phase(attempt, place.phase) if wanted.phase is None and not over else None
    if over and wanted.phase is None and place.phase is not PHASES[-1]:
        following = PHASES[PHASES.index(place.phase) + 1]
    if following is not None:
        return _Look(path, status, Place(attempt.number, following), again=True)
    return _Look(path, status, place, ended=over or (wanted.phase is not None and ended))


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


# ------------------------------------------------------------------------------------------- state


def _attempt(run: Run, wanted: Wanted) -> Attempt | None:
    """The attempt that is meant; None where the job was not tried yet."""
    attempts = run.records[wanted.job].attempts
    if wanted.attempt is None:
        return attempts[-1] if attempts else None
    for one in attempts:
        if one.number == wanted.attempt:
            return one
    raise NotFound(f"Job '{wanted.job}' has no attempt {wanted.attempt}.", f"It has had {len(attempts)}.")


def _last_written(app: App, run: Run, job: JobId, attempt: Attempt) -> Phase | None:
    written = [phase for phase in PHASES if app.logs.path(run.id, job, attempt.number, phase).is_file()]
    return written[-1] if written else None


def _over(app: App, run: Run, wanted: Wanted, attempt: Attempt | None) -> bool:
    """Whether the attempt prints no more: it has ended, waits for a person, or its engine is gone."""
    record = run.records[wanted.job]
    if run.settled or not app.engine_alive():
        return True
    if attempt is None:
        return record.state not in (JobState.PENDING, *ACTIVE)
    return attempt is not record.attempts[-1] or record.state not in ACTIVE


def _phase_ended(app: App, run: Run, wanted: Wanted, attempt: Attempt, phase: Phase) -> bool:
    if _over(app, run, wanted, attempt):
        return True
    records = [one for one in attempt.phases if one.phase is phase]
    return bool(records) and records[-1].outcome not in (None, "held")
