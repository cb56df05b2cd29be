"""What programs printed, page by page. Offsets are those of the file, so that any page can be asked for.

Everything that leaves a log is redacted. A page is cut where no secret and no character is cut through; what stands
around it is looked at as well, so that a secret is known by its whole self wherever a page begins. While the log still
grows its last unfinished line is held back: what it will be is not known yet.
"""

from pathlib import Path
from typing import Annotated

from msgspec import Struct

from orchard.core.records import Attempt
from orchard.core.run import Run
from orchard.core.states import ACTIVE, JobState
from orchard.errors import NotFound
from orchard.model.phases import PHASES, Phase
from orchard.model.plan import JobId, PlanId
from orchard.operations.library import Library
from orchard.operations.operation import says
from orchard.store.logs import read
from orchard.store.redact import CARRY, HOLD, KEY_LENGTH, REDACTED, Redactor

PAGE = 64 * 1024


class Wanted(Struct, frozen=True):
    """Whose output is meant; without a phase, all of an attempt's."""

    plan: PlanId
    job: JobId
    attempt: int | None = None
    phase: Phase | None = None
    offset: int = 0
    limit: int = PAGE
    subtask: str | None = None
    """The subtask whose output it is; it has one log for all that it does."""


class LogPage(Struct, frozen=True):
    """A part of a log."""

    attempt: int | None
    phase: Phase | None
    data: str
    offset: Annotated[int, says("The byte of the log at which this part begins.")]
    next_offset: Annotated[int, says("The `offset` of the next part.")]
    size: Annotated[int, says("Bytes of the log as it was then.")]
    ended: Annotated[bool, says("Whether the log grows no more: who has come to `size` is done.")]


def page(library: Library, wanted: Wanted) -> LogPage:
    """One page of a log; without a phase, of the one that was written last."""
    run = library.run_of(wanted.plan)
    if wanted.subtask is not None:
        return _of_subtask(library, run, wanted, wanted.subtask)
    attempt = attempt_of(run, wanted)
    phase = wanted.phase or (_last_written(library, run, wanted.job, attempt) if attempt is not None else None)
    if attempt is None or phase is None:
        ended = is_over(library, run, wanted, attempt)
        return LogPage(attempt.number if attempt else None, None, "", 0, 0, 0, ended)
    ended = phase_is_over(library, run, wanted, attempt, phase)
    path = library.logs.path(wanted.plan, wanted.job, attempt.number, phase)
    text, places = read_page(path, wanted.offset, wanted.limit, Redactor(library.secrets(run)), ended=ended)
    return LogPage(attempt.number, phase, text, *places, ended)


def _of_subtask(library: Library, run: Run, wanted: Wanted, subtask: str) -> LogPage:
    number = run.records[wanted.job].subtasks[subtask].attempt
    path, ended = log_of_subtask(library, run, wanted.job, subtask), subtask_is_quiet(library, run, wanted.job, subtask)
    text, places = read_page(path, wanted.offset, wanted.limit, Redactor(library.secrets(run)), ended=ended)
    return LogPage(number, None, text, *places, ended)


def log_of_subtask(library: Library, run: Run, job: JobId, subtask: str) -> Path:
    return library.logs.subtask_path(run.id, job, run.records[job].subtasks[subtask].attempt, subtask)


def subtask_is_quiet(library: Library, run: Run, job: JobId, subtask: str) -> bool:
    """Whether a subtask prints no more: it is over, waits to be told more, or its engine is gone."""
    one = run.records[job].subtasks[subtask]
    return one.over or one.at_rest or not library.engine_alive()


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


def attempt_of(run: Run, wanted: Wanted) -> Attempt | None:
    """The attempt that is meant; None where the job was not tried yet."""
    attempts = run.records[wanted.job].attempts
    if wanted.attempt is None:
        return attempts[-1] if attempts else None
    for one in attempts:
        if one.number == wanted.attempt:
            return one
    raise NotFound(f"Job '{wanted.job}' has no attempt {wanted.attempt}.", f"It has had {len(attempts)}.")


def _last_written(library: Library, run: Run, job: JobId, attempt: Attempt) -> Phase | None:
    written = [phase for phase in PHASES if library.logs.path(run.id, job, attempt.number, phase).is_file()]
    return written[-1] if written else None


def is_over(library: Library, run: Run, wanted: Wanted, attempt: Attempt | None) -> bool:
    """Whether the attempt prints no more: it has ended, waits for a person, or its engine is gone."""
    record = run.records[wanted.job]
    if run.settled or not library.engine_alive():
        return True
    if attempt is None:
        return record.state not in (JobState.PENDING, *ACTIVE)
    return attempt is not record.attempts[-1] or record.state not in ACTIVE


def phase_is_over(library: Library, run: Run, wanted: Wanted, attempt: Attempt, phase: Phase) -> bool:
    if is_over(library, run, wanted, attempt):
        return True
    records = [one for one in attempt.phases if one.phase is phase]
    return bool(records) and records[-1].outcome not in (None, "held")
