"""The pages of a job: what it printed, what it changed, and what is known of it."""

from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from orchard.app import App
from orchard.core.views.documents import JobView
from orchard.errors import NotFound
from orchard.model.plan import JobId, PlanId
from orchard.store.logs import log_size
from orchard.store.redact import Redactor
from orchard.surfaces.cli.commands.plans.views import diff_line
from orchard.surfaces.cli.log_output import Part, Printer, Reading, on_screen
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.job_page import job_lines
from orchard.surfaces.cli.render.lines import Line, Meaning, safe, safe_lines, wrapped
from orchard.surfaces.cli.render.tree import Look
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.next_steps import in_commands

Tab = Literal["log", "diff", "details"]

KEPT_LINES = 5000
LONGEST_LINE = 4000
FAR_BEHIND = 1 << 20
"""Bytes of a log: who prints more between two looks is not followed line by line, only its last lines are read."""
LONGEST_DIFF = 1 << 20


class Kept(Printer):
    """A log on its way into a page: redacted and made safe as `orchard logs` does it, the last lines kept."""

    rows: deque[tuple[str, Meaning]] = field(default_factory=lambda: deque(maxlen=KEPT_LINES))

    def begin(self, part: Part, unseen: bytes) -> None:
        self._part, self._redact = part, self.redactor()
        self._redact.feed(unseen)
        self.rows.append((f"--- {part.head} ---", "dim"))

    def _print(self, shown: str) -> None:
        for row in on_screen(shown, colors=False).removesuffix("\n").split("\n"):
            self.rows.append((safe(row.expandtabs(8), LONGEST_LINE), ""))


class Log:
    """The log of a job's last attempt, and how far it was read."""

    def __init__(self, app: App, plan: PlanId, job: JobId) -> None:
        self.app, self.plan, self.job = app, plan, job
        self.growing: Path | None = None
        """The log that may still grow."""
        self._attempt = 0
        self._reading: Reading | None = None
        self._kept: Kept | None = None

    def read(self) -> list[Line]:
        run = self.app.run_of(self.plan)
        attempt = run.records[self.job].last if self.job in run.records else None
        if attempt is None:
            status = run.records[self.job].status if self.job in run.records else "gone"
            return [text.done(text.NOT_BEGUN.format(job=safe(self.job), status=status))]
        paths = {
            one.phase: self.app.logs.path(self.plan, self.job, attempt.number, one.phase) for one in attempt.phases
        }
        parts = [Part(attempt.number, phase, path) for phase, path in paths.items()]
        ended = attempt.ended is not None
        self.growing = parts[-1].path if parts and not ended else None
        if self._reading is None or attempt.number != self._attempt or self._is_far_behind(parts):
            secrets = self.app.secrets(run)
            self._kept = Kept(Terminal(), lambda: Redactor(secrets))
            self._attempt, self._reading = attempt.number, Reading(self._kept, KEPT_LINES)
        self._reading.take(parts)
        if ended:
            self._reading.end()
            self._reading.last = None
        assert self._kept is not None
        return [[row] for row in self._kept.rows] or [text.done(text.NO_OUTPUT)]

    def _is_far_behind(self, parts: Sequence[Part]) -> bool:
        assert self._reading is not None
        read = self._reading.parts
        return any((log_size(part.path) or 0) - read.get(part.path, 0) > FAR_BEHIND for part in parts)


def diff_lines(app: App, plan: PlanId, job: JobId) -> list[Line]:
    """What a job changed, or has changed so far."""
    try:
        data = app.diff(job, plan, most=LONGEST_DIFF)
    except NotFound as error:
        return [text.done(error.message)]
    rows = safe_lines(data.decode(errors="replace"), LONGEST_LINE) if data else []
    return [diff_line(row) for row in rows] or [text.done("Nothing is changed.")]


def details_lines(app: App, plan: PlanId, job: JobId, look: Look, width: int) -> list[Line]:
    """What is known of a job, and what takes it further."""
    found = app.job(job, plan)
    lines = [*job_lines(found, look), *(text.next_command(in_commands(step)) for step in found.next)]
    return [row for line in lines for row in wrapped(line, max(20, width))]


def group_lines(tab: Tab, path: str) -> list[Line]:
    return [[("A group has no ", "dim"), (tab, "dim"), (": choose a job of ", "dim"), (safe(path), "strong")]]


def tab_line(tab: Tab, job: JobView | None) -> Line:
    """The names of the pages, and whose they are."""
    line: Line = []
    for one, key in (("log", "l"), ("diff", "d"), ("details", "i")):
        line += [(f"[{key}] {one}" if one != tab else f"[{key}] {one.upper()}", "strong" if one == tab else "dim")]
        line.append(("  ", ""))
    return [*line, (safe(job.id) if job is not None else "", "name")]


class PageState(Struct, frozen=True):
    """What of a job decides whether its pages are another."""

    status: str
    phase: str | None
    attempts: int
    commit: str | None
    waiting: str | None

    @classmethod
    def of(cls, job: JobView) -> "PageState":
        kind = job.waiting.kind if job.waiting is not None else None
        return cls(str(job.status), job.phase, job.attempts, job.commit, kind)
