"""The logs of attempts: plain files that programs write themselves and that are read in blocks.

Nothing here reads a log as a whole, however long it or one of its lines is. A job may have written
to any place it could reach, so links are never followed and only regular files are read.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

from orchard.model.limits import JOB_ID_PATTERN
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, JobId, PlanId

BLOCK = 64 * 1024

_JOB_PART = re.compile(JOB_ID_PATTERN)
_SUBTASK = re.compile(r"^subtask-[a-z0-9]{5}$")
_PLAN_ID = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")


class Block(Struct, frozen=True):
    data: bytes
    offset: int
    next_offset: int
    size: int
    """Of the file as it was then."""


class LogFiles(Struct, frozen=True):
    """Where the logs of a repository's plans lie: `<state>/logs/<plan>/<job>/<attempt>/<phase>.log`."""

    state: Path

    def path(self, plan: PlanId, job: JobId, attempt: int, phase: Phase) -> Path:
        return self.attempt_folder(plan, job, attempt) / f"{phase.value}.log"

    def subtask_path(self, plan: PlanId, job: JobId, attempt: int, subtask: str) -> Path:
        assert _SUBTASK.fullmatch(subtask), f"{subtask!r} is no id of a subtask"
        return self.attempt_folder(plan, job, attempt) / f"{subtask}.log"

    def result_path(self, plan: PlanId, job: JobId, attempt: int, subtask: str) -> Path:
        """Where the whole result of a subtask is kept that is too long to be told at once."""
        return self.subtask_path(plan, job, attempt, subtask).with_suffix(".result")

    def evidence_path(self, plan: PlanId, job: JobId, attempt: int) -> Path:
        """Where an attempt may leave evidence of work that changed no file."""
        return self.attempt_folder(plan, job, attempt) / "evidence.json"

    def attempt_folder(self, plan: PlanId, job: JobId, attempt: int) -> Path:
        assert attempt >= 0, attempt
        return self._plan_folder(plan).joinpath(*_parts_of(job), str(attempt))

    def make(self, path: Path) -> Path:
        """A log, there to be appended to: folders and file are the user's alone."""
        self._make_folder(path.parent)
        flags = os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        os.close(os.open(path, flags, 0o600))
        return path

    def _make_folder(self, folder: Path) -> None:
        if folder == self.state / "logs":
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            return
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except FileNotFoundError:
            self._make_folder(folder.parent)
            folder.mkdir(mode=0o700, exist_ok=True)

    def remove(self, plan: PlanId) -> None:
        """Delete the logs of a plan; a link among them is removed, what it points to stays."""
        from shutil import rmtree  # a command that only looks at logs does not pay for it

        folder = self._plan_folder(plan)
        if folder.is_symlink():
            folder.unlink()
            return
        with suppress(FileNotFoundError):
            rmtree(folder)

    def _plan_folder(self, plan: PlanId) -> Path:
        assert _PLAN_ID.fullmatch(plan), f"{plan!r} is no id of a plan"
        return self.state / "logs" / plan


def read(path: Path, offset: int = 0, limit: int = BLOCK) -> Block:
    """At most `limit` bytes from `offset` on; nothing where there is no such file yet."""
    with opened(path) as (descriptor, size):
        start = min(max(offset, 0), size)
        data = os.pread(descriptor, limit, start) if descriptor is not None else b""
        return Block(data, start, start + len(data), max(size, start + len(data)))


def tail(path: Path, lines: int = 40, max_bytes: int = BLOCK) -> str:
    """The last lines as text, within `max_bytes` however long they are; not yet redacted."""
    with opened(path) as (descriptor, size):
        start = max(size - max_bytes, 0)
        data = os.pread(descriptor, max_bytes, start) if descriptor is not None else b""
    text = data.decode(errors="replace")
    found = text.removesuffix("\n").split("\n")
    if start > 0 and len(found) > 1:
        del found[0]  # the end of a line whose beginning was not read
    return "\n".join(found[-lines:]) if lines > 0 else ""


def log_size(path: Path) -> int | None:
    """How long a log is now; None where there is none, or something else is in its place."""
    with opened(path) as (descriptor, found):
        return None if descriptor is None else found


@contextmanager
def opened(path: Path) -> Iterator[tuple[int | None, int]]:
    """A regular file and its size; anything else counts as missing (a fifo would make us wait for ever)."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        yield None, 0
        return
    except OSError:
        if not path.is_symlink():
            raise
        yield None, 0
        return
    try:
        found = os.fstat(descriptor)
        yield (descriptor, found.st_size) if stat.S_ISREG(found.st_mode) else (None, 0)
    finally:
        os.close(descriptor)


def _parts_of(job: JobId) -> list[str]:
    parts = job.split("/")
    assert job == VALIDATION or all(_JOB_PART.fullmatch(part) for part in parts), f"{job!r} is no id of a job"
    return parts
