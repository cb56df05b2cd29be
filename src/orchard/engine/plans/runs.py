"""The plans that an engine has in memory: those that are not over, those that are asked about, and the newest that are.

A plan that is over leaves memory once the journal holds all of it; the next question about it loads it again. So what
an engine holds, and what each of its steps costs, does not grow with the plans that it ever ran.

`Chain` says when a plan that comes after another one may begin, and what becomes of it when that one will not succeed.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from orchard.core.run import Run
from orchard.core.views.plans import plan_summary
from orchard.errors import Next, Say
from orchard.model.events import plans as events
from orchard.model.plan import PlanId
from orchard.model.statuses import PlanStatus
from orchard.store.plan_list import PlanRow
from orchard.store.reader import JournalReader


class Chain:
    """What is known of the plans that others wait for; those that are over may be in the journal only."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.reader: JournalReader | None = None

    def may_begin(self, runs: dict[PlanId, Run], run: Run) -> bool:
        status, _ = self._first(runs, run)
        return status == PlanStatus.SUCCEEDED or (run.begins_alone and self.is_lost(runs, run))

    def is_lost(self, runs: dict[PlanId, Run], run: Run) -> bool:
        """Whether the plan that this one comes after will not succeed by itself any more."""
        status, gone = self._first(runs, run)
        return gone or status in (PlanStatus.FAILED, PlanStatus.CANCELED)

    def question(self, runs: dict[PlanId, Run], run: Run) -> events.PlanPaused | None:
        """What a person is asked about a plan that would wait for ever."""
        if run.begins_alone or not self.is_lost(runs, run):
            return None
        first = run.plan.after
        status, gone = self._first(runs, run)
        begins, resume = f"It begins when plan '{first}' has succeeded, and that one", Next("resume_plan", run.id)
        said: tuple[str | Next, ...] = (f"{begins} is gone. ",)
        if not gone:
            again = Next("retry_plan", first)
            ended = "was canceled" if status == PlanStatus.CANCELED else f"has {status}"
            said = (f"{begins} {ended}. To run that one again: ", again, ", then ", resume, ". ")
        return events.PlanPaused(self._say((*said, "To begin without it: ", resume)), waiting=True)

    def _first(self, runs: dict[PlanId, Run], run: Run) -> tuple[str, bool]:
        """The status of the plan that this one comes after, and whether it is gone: deleted, or purged."""
        if run.plan.after is None:
            return PlanStatus.SUCCEEDED, False
        first = runs.get(PlanId(run.plan.after))
        if first is not None:
            return first.status, (first.deleted or first.purged) and first.status is not PlanStatus.SUCCEEDED
        row = self.reader.plan(PlanId(run.plan.after)) if self.reader is not None else None
        if row is None:
            return "", self.reader is not None
        return row.status, row.summary.deleted and row.status != PlanStatus.SUCCEEDED


KEPT_ENDED = 4
"""Plans that are over and stay in memory: what was just run is what people ask about."""

# These change what a list shows of a plan although its status stays the same.
ALWAYS_LISTED: tuple[type[events.Event], ...] = (
    events.Landed,
    events.LandingIntended,
    events.LandingUndone,
    events.LandingVoided,
    events.PlanDeleted,
    events.PlanReshaped,
    events.UndoIntended,
    events.UndoVoided,
)


class Runs(dict[PlanId, Run]):
    def __init__(self, say: Say) -> None:
        super().__init__()
        self._say = say
        self.turns: list[PlanId] = []
        """Who may start something next, the one that waited longest first."""
        self._statuses: dict[PlanId, PlanStatus] = {}
        self._ended: dict[PlanId, None] = {}
        """Those that are over, the newest last."""
        self._held: Counter[PlanId] = Counter()
        self._targets: dict[PlanId, str] = {}
        """Of plans that are over and not in here any more, and whose result a retry may still land."""
        self._merging: dict[PlanId, asyncio.Lock] = {}

    def add(self, run: Run, *, known: bool) -> None:
        """Take a run; `known`: the journal holds it already."""
        self[run.id] = run
        self.turns.append(run.id)
        self._targets.pop(run.id, None)
        if known:
            self._note(run, run.status)

    def drop(self, plan: PlanId) -> None:
        """Forget a run: it was purged, or is over and the journal holds all of it."""
        for known in (self, self._statuses, self._ended, self._targets, self._merging):
            known.pop(plan, None)
        if plan in self.turns:
            self.turns.remove(plan)

    @contextmanager
    def holding(self, plan: PlanId) -> Iterator[None]:
        self._held[plan] += 1
        try:
            yield
        finally:
            self._held[plan] -= 1
            self._held += Counter()  # drops what is zero

    def row_after(self, run: Run, event: events.Event, *, listed: bool) -> PlanRow | None:
        """What lists show of the plan after this event, where that changed."""
        status = run.status
        # What a subtask left open keeps a plan from being settled: the next engine has to end it.
        over = isinstance(event, events.SubtaskEnded) and run.settled
        if self._statuses.get(run.id) is status and not (listed or over or isinstance(event, ALWAYS_LISTED)):
            return None
        self._note(run, status)
        # While a branch is being moved, the next engine has to look what became of it.
        over = run.settled and run.moving is None and not run.has_open_subtasks
        return PlanRow(run.id, run.plan.name, run.created, 0, str(status), over, plan_summary(run, self._say))

    def _note(self, run: Run, status: PlanStatus) -> None:
        self._statuses[run.id] = status
        self._ended.pop(run.id, None)
        if run.settled:
            self._ended[run.id] = None

    def at_work(self) -> list[Run]:
        return [run for run in self.values() if run.is_active or run.slots_used]

    @property
    def too_many(self) -> bool:
        return len(self._ended) > KEPT_ENDED

    def let_go(self, in_use: Callable[[Run], bool]) -> list[PlanId]:
        """Drop plans that are over and that nobody works with, but for the newest few; returns which."""
        dropped = []
        for plan in list(self._ended)[:-KEPT_ENDED] if self.too_many else ():
            run = self[plan]
            if not self._held[plan] and not in_use(run):
                self.drop(plan)
                dropped.append(plan)
                if run.started is not None and run.status is not PlanStatus.SUCCEEDED:
                    self._targets[plan] = run.pinned.target_branch
        return dropped

    def targets(self, run: Run) -> list[str]:
        others = [other.started.target_branch for other in self.values() if other.started and other is not run]
        return [*others, *self._targets.values()]

    def merging(self, plan: PlanId) -> asyncio.Lock:
        """Held by the attempt that moves the plan's snapshot."""
        return self._merging.setdefault(plan, asyncio.Lock())
