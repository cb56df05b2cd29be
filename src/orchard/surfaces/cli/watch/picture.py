"""One plan as it is now, in documents: read where plans are read, and drawn elsewhere."""

import time
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from orchard.app import App
from orchard.core.run import Run
from orchard.core.views.documents import JobView, PlanSummary
from orchard.core.views.plans import changed_jobs, job_view, plan_summary
from orchard.model.plan import JobId, PlanId
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line
from orchard.surfaces.cli.render.progress import Beside
from orchard.surfaces.cli.render.tree import Look, Row, bar, counts_line, end_lines, header, name_width, row_line
from orchard.surfaces.next_steps import in_commands

HEAD_LINES = 4


class Seen(Struct, frozen=True):
    """A plan as it was read."""

    plan: PlanSummary
    jobs: Sequence[JobView]
    said: Mapping[JobId, str]
    """What running jobs printed last."""
    left: float | None
    """Seconds until it ends, as far as that is known."""
    capacity: int | None
    moves: bool
    """Whether time passes for it: something runs."""
    settled: bool

    def ended_since(self, before: "Seen") -> bool:
        """Whether it came to an end, perhaps not for the first time."""
        return self.settled and (not before.settled or before.plan.ended_at != self.plan.ended_at)


class Picture:
    """What is remembered of a plan between two looks, so that a look costs what changed."""

    def __init__(self, app: App, plan: PlanId) -> None:
        self.app, self.plan = app, plan
        self._run: Run | None = None
        self._gone = False
        self._seq = 0
        self._views: dict[JobId, JobView] = {}
        self._beside = Beside(app, Run(plan))
        self._summary: PlanSummary | None = None

    def read(self) -> Seen:
        run, gone = self.app.seen(self.plan)
        if run is not self._run:
            self._run, self._seq, self._beside = run, 0, Beside(self.app, run)
        if gone is not self._gone:
            self._gone, self._seq = gone, 0
        if self._summary is None or run.seq != self._seq or run.ahead:
            changed = changed_jobs(run, self._seq, interrupted=gone) if self._seq else list(run.plan.jobs)
            self._views.update({job: job_view(run, job, interrupted=gone) for job in changed})
            self._summary = plan_summary(run, in_commands, interrupted=gone)
            self._seq = run.seq
        return Seen(
            plan=self._summary,
            jobs=self._beside.lively([self._views[job] for job in run.plan.jobs]),
            said=self._beside.said() if run.active and not gone else {},
            left=self._beside.left(time.time()) if run.active and not gone else None,
            capacity=run.plan.max_parallel,
            moves=bool(run.active) and not gone,
            settled=run.settled,
        )


class TreeLines(Struct):
    """The tree of a plan, drawn row by row."""

    rows: Sequence[Row]
    look: Look
    width: int = field(default=0)

    def __post_init__(self) -> None:
        self.width = name_width(self.rows)

    @property
    def names(self) -> list[str]:
        return [row_name(row) for row in self.rows]

    def line(self, number: int) -> Line:
        return row_line(self.rows[number], self.width, self.look)


def row_name(row: Row) -> str:
    """What tells rows apart: a group may be called as a job is."""
    return row.path if row.job is not None else f"{row.path}/"


def head_lines(seen: Seen, look: Look, repository: str) -> list[Line]:
    """What is to know of a plan as a whole."""
    ascii_only = look.marks is text.ASCII_MARKS
    counted = counts_line(seen.plan, seen.capacity)
    if seen.moves:
        counted = [*bar(seen.plan, seen.left, ascii_only=ascii_only), *counted]
    where: Line = [(f"{repository}  ", "dim")] if repository else []
    return [[*where, *header(seen.plan, look)], counted, *end_lines(seen.plan)][:HEAD_LINES]
