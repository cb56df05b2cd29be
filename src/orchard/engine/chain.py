"""Plans that begin after another one: when they may, and what becomes of them when that one will not succeed."""

from orchard.core.run import Run
from orchard.errors import Next, Say
from orchard.model.events.plans import PlanPaused
from orchard.model.plan import PlanId
from orchard.model.statuses import PlanStatus
from orchard.store.reader import JournalReader


class Chain:
    """What is known of the plans that others wait for; those that are over may be in the journal only."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.reader: JournalReader | None = None

    def may_begin(self, runs: dict[PlanId, Run], run: Run) -> bool:
        """Whether nothing keeps a plan from beginning, as far as other plans go."""
        status, _ = self._first(runs, run)
        return status == PlanStatus.SUCCEEDED or (run.begins_alone and self.is_lost(runs, run))

    def is_lost(self, runs: dict[PlanId, Run], run: Run) -> bool:
        """Whether the plan that this one comes after will not succeed by itself any more."""
        status, gone = self._first(runs, run)
        return gone or status in (PlanStatus.FAILED, PlanStatus.CANCELED)

    def question(self, runs: dict[PlanId, Run], run: Run) -> PlanPaused | None:
        """What a person is asked about a plan that would wait for ever."""
        if run.begins_alone or not self.is_lost(runs, run):
            return None
        first = run.plan.after
        status, gone = self._first(runs, run)
        begins, resume = f"It begins when plan '{first}' has succeeded, and that one", Next("resume_plan", run.id)
        said: tuple[str | Next, ...] = (f"{begins} is gone. ",)
        if not gone:
            again = Next("retry_plan", first)
            said = (f"{begins} {_words(status)}. To run that one again: ", again, ", then ", resume, ". ")
        return PlanPaused(self._say((*said, "To begin without it: ", resume)), waiting=True)

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


def _words(status: str) -> str:
    return "was canceled" if status == PlanStatus.CANCELED else f"has {status}"
