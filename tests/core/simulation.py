"""A run without an engine: events are made, applied and remembered, with a clock that only counts."""

from orchard.core.events import Event, JobPicked, JobStarted, PlanStarted, PlanSubmitted, Recorded, SnapshotStarted
from orchard.core.plan import JobId, Plan, PlanId
from orchard.core.plancodec import plan_json
from orchard.core.replay import apply
from orchard.core.run import Run
from orchard.core.scheduler import StartJob


class Simulation:
    """One plan under way, and the journal it leaves."""

    def __init__(self, plan: Plan, plan_id: str = "p") -> None:
        self.run = Run(PlanId(plan_id))
        self.journal: list[Recorded] = []
        self.record(PlanSubmitted(plan_json(plan)))

    def start(self) -> "Simulation":
        self.record(PlanStarted("main", "base", "work", "base"))
        self.record(SnapshotStarted(1, "base"))
        return self

    def record(self, event: Event) -> None:
        number = len(self.journal) + 1
        recorded = Recorded(number, float(number), self.run.id, event)
        apply(self.run, recorded)
        self.journal.append(recorded)

    def begin(self, start: StartJob) -> None:
        attempt = len(self.run.records[start.job].attempts) + 1
        self.record(JobPicked(start.job, attempt))
        self.record(JobStarted(start.job, attempt))

    def attempt(self, job: JobId) -> int:
        last = self.run.records[job].last
        return last.number if last else 1
