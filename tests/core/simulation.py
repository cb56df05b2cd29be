"""Runs without an engine: events are made, applied and remembered, with a clock that only counts."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from orchard.core.replay import apply
from orchard.core.run import Run
from orchard.core.scheduler import StartJob
from orchard.model.events.plans import (
    Event,
    JobCanceled,
    JobContinued,
    JobEvent,
    JobFailed,
    JobHeld,
    JobPicked,
    JobRetried,
    JobStarted,
    JobSucceeded,
    NeedsConsumed,
    PlanStarted,
    PlanSubmitted,
    ProgramStarted,
    Recorded,
    SnapshotStarted,
    Warned,
    WorkCommitted,
    WorktreeTaken,
    decode,
    encode,
)
from orchard.model.phases import Phase
from orchard.model.plan import Job, JobId, Plan, PlanId, ShellWork
from orchard.model.plan_codec import plan_json
from tests.core.model import Task, Work
from tests.core.planted import Core


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


class PaperEngine:
    """All plans of a user, one journal, and whichever core decides: an engine that runs nothing.

    Events are believed at once and written in order, so a crash leaves a prefix of them.
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        self.journal: list[Recorded] = []
        self.runs: dict[str, Any] = {}
        self.turns: list[PlanId] = []

    def record(self, plan: str, event: Event) -> float:
        """Take in what happened; returns when."""
        number, name = len(self.journal) + 1, PlanId(plan)
        recorded = Recorded(number, float(number), name, event)
        if plan not in self.runs:
            self.runs[plan] = self.core.run.Run(name)
            self.turns.append(name)
        self.core.replay.apply(self.runs[plan], recorded)
        self.journal.append(recorded)
        return recorded.at

    def pick(self, free: int, default_limit: int) -> list[tuple[str, str, bool]]:
        """What the scheduler starts now: (plan, job, takes a slot)."""
        starts = self.core.scheduler.pick([self.runs[plan] for plan in self.turns], free, default_limit)
        self.turns = self.core.scheduler.next_turns(self.turns, starts)
        return [(start.plan, start.job, start.takes_slot) for start in starts]

    def crash(self, length: int) -> None:
        """Lose everything but the first events of the journal, and make the runs from those again."""
        self.journal = self.journal[:length]
        self.runs = self.replayed()
        self.turns = [PlanId(plan) for plan in self.runs]

    def replayed(self) -> dict[str, Any]:
        """Every run, from nothing but what the journal holds."""
        events: dict[str, list[Recorded]] = {}
        for recorded in self.journal:
            event = decode(*encode(recorded.event))
            events.setdefault(recorded.plan, []).append(replace(recorded, event=event))
        return {plan: self.core.replay.replay(own) for plan, own in events.items()}


def known_of(run: Any) -> dict[str, Any]:
    """Everything that a run knows, but for the order in which its queues lie, and for what is kept to show."""
    left_out = ("_ready", "_ready_free", "_queued", "views")
    return {name: value for name, value in vars(run).items() if name not in left_out}


# ------------------------------------------------------------------------- the model's words and ours


def job_of(task: Task) -> Job:
    """A job of the model as a plan holds it."""
    return Job(
        id=JobId(task.id),
        name=task.id,
        group=task.group,
        needs=tuple(JobId(need) for need in task.needs),
        work=ShellWork(command=task.work) if task.work else None,
        priority=task.priority,
        approve=task.approve,
        retry_on_interrupt=task.again,
    )


def change_json(what: str, whom: str, new: Task | None, needs: list[str]) -> dict[str, Any]:
    """A change of the graph as a person writes it."""
    found: dict[str, Any] = {"op": what}
    if what != "add":
        found["id"] = whom
    if what == "set_needs":
        found["needs"] = needs
    if new is not None:
        job = {"id": new.id.rpartition("/")[2], "needs": new.needs, "priority": new.priority, "approve": new.approve}
        group = {"group": new.group} if new.group else {}
        work = {"work": new.work} if new.work else {}
        found["job"] = {**job, **group, **work, "retry_on_interrupt": new.again}
    return found


def facts(job: JobId, number: int, phase: str) -> list[Event]:
    """What is remembered of a job in a phase; it changes nothing that the model knows."""
    if phase == "merge-fi":
        return [WorktreeTaken(job, number, f"w-{job}", f"trees/{job}", "base"), NeedsConsumed(job, ())]
    if phase == "work":
        return [ProgramStarted(job, number, Phase.WORK, 17, 1.5, "boot")]
    if phase == "commit":
        return [WorkCommitted(job, number, "base", "made", {"added": 1}), Warned("look", job)]
    return []


def happenings(name: str) -> list[tuple[JobEvent, Callable[[Work], None]]]:
    """One of everything that moves a job, as an event and as the model knows it."""
    job = JobId(name)
    return [
        (JobPicked(job, 1), lambda work: work.pick(name)),
        (JobStarted(job, 1), lambda work: work.start(name, 1, "merge-fi")),
        (JobSucceeded(job, 1, "x"), lambda work: work.succeed(name, "x")),
        (JobFailed(job, 1, None, "exit", "no"), lambda work: work.fail(name, 1, None, "exit")),
        (JobCanceled(job), lambda work: work.cancel(name, None)),
        (JobHeld(job, 1, "approval", "", Phase.WORK), lambda work: work.held(name, "approval", "work")),
        (JobContinued(job, 1, Phase.WORK), lambda work: work.carry_on(name, "work")),
        (JobRetried(job), lambda work: work.retry(name, None, False, None)),
    ]


def compare(core: Core, run: Any, work: Work) -> None:
    """Everything that people can see of a plan is what the model says."""
    statuses = work.statuses
    assert list(run.plan.jobs) == list(work.tasks)
    for name, task in work.tasks.items():
        seen, expected = _seen(run, name), _expected(task, statuses[name])
        assert seen == expected, f"{name}: {seen} instead of {expected}"
        assert run.records[name].undeployed == work.waits(task)
        if task.state in ("scheduled", "running", "succeeded"):
            assert all(run.records[need].state == "succeeded" for need in run.plan.jobs[name].needs)
    counts = {str(status): count for status, count in run.counts.items() if count}
    assert counts == {status: list(statuses.values()).count(status) for status in set(statuses.values())}
    assert run.slots_used == sum(work.tasks[name].does is not None for name in work.active)
    assert run.held == sum(task.hold is not None for task in work.tasks.values())
    assert run.active == work.active
    assert run.active_seconds(work.last) == work.seconds
    assert _plan_seen(core, run) == _plan_expected(work)
    assert run.status != "succeeded" or set(statuses.values()) == {"succeeded"}


def _seen(run: Any, name: str) -> tuple[object, ...]:
    record, job = run.records[name], run.job(name)
    attempts = [
        (one.number, one.first_phase, one.outcome, one.failure.reason if one.failure else None, one.phase)
        for one in record.attempts
    ]
    hold = record.hold.kind if record.hold else None
    goes_on = (record.continues, record.fresh, record.resume_from, record.released)
    does = (job.work.command if job.work else None, record.deployed)
    needs = (list(job.needs), list(run.plan.jobs[name].needs))
    crash = (record.last.where, record.last.entered) if record.state == "running" else None
    return record.status, record.commit, hold, goes_on, does, needs, job.group, attempts, crash


def _expected(task: Task, status: str) -> tuple[object, ...]:
    attempts = [(one.number, one.first, one.outcome, one.reason, one.phase) for one in task.tries]
    goes_on = (task.goes_on, task.fresh, task.resume, task.released)
    last = task.tries[-1] if task.state == "running" else None
    crash = (last.where, last.at == last.where) if last else None
    does, needs = (task.does, task.deployed), (task.needs, task.needs)
    return status, task.commit, task.hold, goes_on, does, needs, task.group, attempts, crash


def _plan_seen(core: Core, run: Any) -> tuple[object, ...]:
    landing, landed = run.landing, run.landed
    return (
        run.status,
        run.may_start,
        run.settled,
        dict(core.scheduler.group_statuses(run)),
        list(run.snapshot.merged) if run.snapshot.generation else None,
        landing.landing if landing else None,
        landed.landing if landed else None,
        run.undone is not None,
    )


def _plan_expected(work: Work) -> tuple[object, ...]:
    status = work.plan_status
    settled = status in ("succeeded", "failed", "canceled")
    merged = work.merged if work.started else None
    return status, work.may_start, settled, work.groups, merged, work.intent, work.landed, work.undone
