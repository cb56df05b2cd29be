"""A plan under way: its state, which is the replay of its events and nothing else.

`replay.apply` is the only caller of what changes a run. Counters are kept (unmet needs, dead needs,
jobs by status) so that one event costs its dependents and not the whole plan; `statuses` computes
the same from scratch, and a property test holds the two equal.

A job that has not ended is *ready* when everything it needs has succeeded, and *blocked* when
something it needs can no longer succeed: it failed, was canceled, or is itself blocked. A job that was
allowed to fail counts as if it had succeeded and changed nothing.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from orchard.core.records import JobRecord, Snapshot
from orchard.core.states import ACTIVE, JobState, after
from orchard.model.events import plans as events
from orchard.model.plan import VALIDATION, Job, JobId, Plan, PlanId
from orchard.model.sandbox import Level
from orchard.model.secrets import secrets_of_plan
from orchard.model.statuses import OVER, JobStatus, PlanStatus

Rank = tuple[int, int, int, int, JobId]
"""Where a ready job stands in the queue; the smallest goes first."""


class Run:
    seq = 0
    file: str | None = None
    key: dict[str, Any] | None = None
    """By which the request that made it is known when it comes again."""
    reshaped = 0
    """The last event that gave the plan another graph."""
    ahead = False
    """Whether it holds what will have happened, and nobody has recorded yet."""
    slots_used = 0
    held = 0
    created = 0.0
    started: events.PlanStarted | None = None
    sandbox: Level | None = None
    """The wall that its creator, or who let it go on last, asks for; None: whatever the engine's settings say."""
    walls: tuple[str | None, tuple[str, ...]] = (None, ())
    """The wall around its programs, and the limits that hold behind it."""
    started_at: float | None = None
    changed_at = 0.0
    alive_at = 0.0
    """When an engine was last known to work on it; what the next engine finds and records comes later."""
    ended_at: float | None = None
    """When it was over; what a person does with it afterwards does not make it longer."""
    idle_seconds = 0.0
    """For how long it was over, or without an engine, before it went on."""
    _resting_since: float | None = None
    _went_on = 0.0
    scaffolding = False
    paused: events.PlanPaused | None = None
    begins_alone = False
    canceled: events.PlanCanceled | None = None
    deleted = False
    deleted_at: float | None = None
    purged = False
    landing: events.LandingIntended | None = None
    landed: events.Landed | None = None
    unlanded: events.NothingToLand | None = None
    undo: events.UndoIntended | None = None
    undone: events.LandingUndone | None = None
    pushed: events.Pushed | None = None
    pull_asked: events.PullRequestAsked | None = None
    pull_request: events.PullRequestOpened | None = None
    budget_from = 0.0
    """How many active seconds were used before a person last let the plan go on."""
    used_tokens = 0
    used_cost = 0.0
    used_before = (0, 0.0)
    """How many tokens and how much money were used before a person last let the plan go on."""
    _active_seconds = 0.0
    _active_since: float | None = None

    def __init__(self, plan_id: PlanId) -> None:
        self.id = plan_id
        self.plan = Plan(name="", jobs={})
        self.records: dict[JobId, JobRecord] = {}
        self.past_secrets: dict[str, None] = {}
        """Secrets that the plan has set before, and those of retries: logs may hold them for good."""
        self.changed: dict[JobId, int] = {}
        """After which event each job was last another one to look at, the latest last; `mark` alone writes it."""
        self.removed: dict[JobId, int] = {}
        """Which event took a job away that is not there now."""
        self.views: dict[JobId, Any] = {}
        """What was made of a job to show it, until something happens to it."""
        self.counts: Counter[JobStatus] = Counter()
        self.group_counts: dict[str, Counter[JobStatus]] = {}
        """By group, the jobs that are in it and in no group below it."""
        self.snapshot = Snapshot(0, "", "", "")
        self.warnings: list[events.Warned] = []
        self.resolutions: list[events.ConflictSettled] = []
        """How conflicts were resolved that are in what jobs start from, or in the snapshot as it is now."""
        self.superseded: list[events.ConflictSettled] = []
        """How conflicts were resolved in snapshots that were thrown away."""
        self.pull_commits: list[str] = []
        """Commits at which a branch for a pull request was put, or was about to be."""
        self.budget_warned: set[str] = set()
        self._ready: list[Rank] = []
        self._ready_free: list[Rank] = []
        self._queued: set[JobId] = set()

    # ------------------------------------------------------------------------------------ asking

    @property
    def status(self) -> PlanStatus:
        active = self.is_active
        if self.canceled is not None and self.landed is None:
            return PlanStatus.RUNNING if active else PlanStatus.CANCELED
        if self.scaffolding:
            return PlanStatus.SCAFFOLDING
        if self.records[VALIDATION].state is JobState.SUCCEEDED:
            return PlanStatus.SUCCEEDED
        if self.paused is not None and (active or self._goes_on):
            return PlanStatus.WAITING if self.paused.waiting else PlanStatus.PAUSED
        if self.started is None:
            return PlanStatus.PENDING
        if active or self.counts[JobStatus.READY]:
            return PlanStatus.RUNNING
        if self.held or self.to_deploy:
            return PlanStatus.WAITING
        return PlanStatus.FAILED if self.counts[JobStatus.FAILED] else PlanStatus.CANCELED

    @property
    def _goes_on(self) -> bool:
        return bool(self.counts[JobStatus.READY] or self.held or self.started is None or self.to_deploy)

    @property
    def failed(self) -> list[JobId]:
        """The jobs whose failure stops the plan; where none does, those that were allowed to fail."""
        failed = [job for job, record in self.records.items() if record.state is JobState.FAILED]
        return [job for job in failed if not self.records[job].is_met] or failed

    @property
    def pinned(self) -> events.PlanStarted:
        """What base and target were pinned to; nobody asks before the plan has started."""
        assert self.started is not None
        return self.started

    @property
    def settled(self) -> bool:
        """Whether nothing will happen any more unless a person acts."""
        return self.status in OVER

    @property
    def proposes(self) -> bool:
        """Whether its result becomes a pull request."""
        return self.pull_asked.wanted if self.pull_asked is not None else self.plan.land == "pr"

    @property
    def moving(self) -> events.LandingIntended | events.UndoIntended | None:
        """The landing or undo of which nobody has recorded yet how it ended."""
        return self.landing or self.undo

    @property
    def is_active(self) -> bool:
        known = self.counts.get  # not by index: that is slow for what was never counted
        return bool(known(JobStatus.RUNNING) or known(JobStatus.SCHEDULED))

    def active_seconds(self, now: float) -> float:
        """For how long at least one job has been worked on."""
        return self._active_seconds + (max(0.0, now - self._active_since) if self._active_since is not None else 0.0)

    def clock_active(self, was_active: bool, at: float) -> None:
        """Start or stop the count of active seconds when the first job begins or the last one ends."""
        if self.is_active and not was_active:
            self._active_since = at
        elif was_active and not self.is_active and self._active_since is not None:
            self._active_seconds += max(0.0, at - self._active_since)
            self._active_since = None

    def skip(self, since: float, at: float) -> None:
        """No engine worked on the plan between these moments: that time is not counted."""
        if self._active_since is not None:
            self._active_seconds += max(0.0, since - self._active_since)
            self._active_since = at

    def rest(self, since: float) -> None:
        """Nobody has worked on the plan since then."""
        if self._resting_since is None:
            self._resting_since = max(since, self._went_on)  # an engine that finds several jobs finds one night

    def note_end(self, at: float) -> None:
        """Remember when the plan was over, if it is; what a person does with it afterwards makes it no longer."""
        if not self.settled:
            self.ended_at = None
        elif self.ended_at is None:
            self.rest(at)
            self.ended_at = self._resting_since

    def go_on(self, at: float) -> None:
        """Count the time for which nobody had worked on the plan, if it is not over."""
        if self._resting_since is not None and not self.settled:
            self.idle_seconds += max(0.0, at - self._resting_since)
            self._resting_since, self._went_on = None, at

    @property
    def has_open_subtasks(self) -> bool:
        return any(record.open_subtasks for record in self.records.values() if record.subtasks)

    @property
    def active(self) -> list[JobId]:
        if not self.is_active:
            return []
        return [job for job, record in self.records.items() if record.state in ACTIVE]

    @property
    def may_start(self) -> bool:
        """Whether the scheduler may give this plan's jobs slots."""
        blocked = self.scaffolding or self.paused is not None or self.canceled is not None or self.deleted
        return not blocked and self.started is not None

    @property
    def waiting_for(self) -> list[events.JobHeld]:
        return [record.hold for record in self.records.values() if record.hold is not None] if self.held else []

    @property
    def to_deploy(self) -> list[JobId]:
        """The jobs that could still run if somebody deployed them."""
        if self.plan.deploy != "manual":
            return []
        pending = JobStatus.PENDING
        return [job for job, record in self.records.items() if record.undeployed and record.status is pending]

    def job(self, job_id: JobId) -> Job:
        """The job as it is to be run, with what a retry replaced; one that somebody called done runs nothing."""
        job = self.described(job_id)
        if self.records[job_id].done is None:
            return job
        return replace(job, work=None, prechecks=(), postchecks=(), approve=False)

    def described(self, job_id: JobId) -> Job:
        """The job as its plan and the last retry describe it, also where somebody called it done."""
        return self.records[job_id].job or self.plan.jobs[job_id]

    def takes_slot(self, job_id: JobId) -> bool:
        """Whether the job runs a program: only such jobs count against capacity."""
        return not self.job(job_id).runs_nothing

    def ready_jobs(self, slots: int) -> Iterator[JobId]:
        """The jobs to start now, best first: all that need no slot, and as many others as there are slots."""
        yield from self._take(self._ready_free, len(self._ready_free))
        yield from self._take(self._ready, slots)

    def has_ready(self) -> bool:
        return self.counts[JobStatus.READY] > 0

    def _take(self, heap: list[Rank], most: int) -> Iterator[JobId]:
        taken = 0
        while heap and taken < most:
            job = heapq.heappop(heap)[-1]
            self._queued.discard(job)
            if job not in self.records or self.records[job].status is not JobStatus.READY:
                continue
            if (heap is self._ready) != self.takes_slot(job):  # a retry gave it other work since it was queued
                self.push(job)
                continue
            taken += 1
            yield job

    def changed_after(self, since: int) -> list[JobId]:
        """The jobs that look otherwise than after event `since`, in the order of the plan."""
        since = min(since, self.seq - 1) if self.ahead else since
        found = takewhile(lambda job: self.changed[job] > since, reversed(self.changed))
        return sorted(found, key=self.plan.position.__getitem__)

    def story(self, job_id: JobId) -> tuple[str, ...]:
        """What happened to a job, a line per attempt and phase."""
        lines = []
        for attempt in self.records[job_id].attempts:
            phases = ", ".join(f"{phase.phase} {phase.outcome or 'running'}" for phase in attempt.phases)
            lines.append(
                f"attempt {attempt.number} from {attempt.first_phase}: {phases or 'no phase'}; {attempt.outcome}"
            )
        return tuple(lines)

    # ---------------------------------------------------------------------------------- changing

    def mark(self, job_id: JobId) -> None:
        """Remember that a job is another one to look at from this event on."""
        self.changed.pop(job_id, None)
        self.changed[job_id] = self.seq
        self.views.pop(job_id, None)

    def move(self, event: events.JobEvent, seq: int) -> None:
        record = self.records[event.job]
        before = record.state
        now = after(before, event, lambda: self.story(event.job))
        self.seq = seq
        with_slot, was_met = self.takes_slot(event.job), record.is_met
        if isinstance(event, events.JobFailed):
            record.stand_in = event.stand_in
        self._change(event.job, state=now)
        if with_slot:
            self.slots_used += (now in ACTIVE) - (before in ACTIVE)
        if record.is_met != was_met:
            step = -1 if record.is_met else 1
            for dependent in self.plan.needed_by[event.job]:
                self._change(dependent, unmet=step)

    def _change(self, job_id: JobId, state: JobState | None = None, unmet: int = 0, dead: int = 0) -> None:
        """Change what a job's status follows from, and carry a change of "dead" to its dependents."""
        todo = [(job_id, state, unmet, dead)]
        while todo:
            job, state, unmet, dead = todo.pop()
            record = self.records[job]
            old, was_dead = record.status, record.is_dead
            if state is not None:
                record.state = state
            record.unmet += unmet
            record.dead += dead
            self._recount(job, old, record.status)
            if record.is_dead != was_dead:
                step = 1 if not was_dead else -1
                todo.extend((dependent, None, 0, step) for dependent in self.plan.needed_by[job])

    def _recount(self, job: JobId, old: JobStatus, new: JobStatus) -> None:
        if old is new:
            return
        for counts in self._counts_of(job):
            counts[old] -= 1
            counts[new] += 1
        self.mark(job)
        if new is JobStatus.READY:
            self.push(job)

    def _counts_of(self, job: JobId) -> tuple[Counter[JobStatus], ...]:
        group = self.plan.jobs[job].group
        return (self.counts,) if group is None else (self.counts, self.group_counts[group])

    def push(self, job_id: JobId) -> None:
        """Put a job that became ready in its place: priority, longest path, most dependents, order of the plan."""
        if job_id in self._queued:
            return
        self._queued.add(job_id)
        plan, job = self.plan, self.job(job_id)
        rank = (
            -job.priority,
            -plan.remaining_path[job_id],
            -len(plan.needed_by[job_id]),
            plan.position[job_id],
            job_id,
        )
        heapq.heappush(self._ready_free if job.runs_nothing else self._ready, rank)

    def set_plan(self, plan: Plan) -> None:
        """Take a new graph, keeping what is known of the jobs in it."""
        before = {job: self._looks(job) for job in self.records}
        self.past_secrets.update(dict.fromkeys(secrets_of_plan(self.plan)))
        gone = [job for job in self.plan.jobs if job not in plan.jobs]
        self.records = {job.id: self._kept(job) for job in plan.jobs.values()}
        self.plan = plan
        for job_id in plan.in_order:
            needs = [self.records[need] for need in plan.jobs[job_id].needs]
            record = self.records[job_id]
            record.unmet = sum(not need.is_met for need in needs)
            record.dead = sum(need.is_dead for need in needs)
            record.undeployed = plan.deploy == "manual" and job_id != VALIDATION and not record.deployed
        self._count()
        self.held = sum(record.hold is not None for record in self.records.values())
        self.slots_used = sum(self._slots_of(job_id) for job_id in self.records)
        self._ready, self._ready_free, self._queued = [], [], set()
        for job, record in self.records.items():
            if record.status is JobStatus.READY:
                self.push(job)
        self._compare(before, gone)

    def _count(self) -> None:
        self.counts = Counter(record.status for record in self.records.values())
        self.group_counts = {}
        for job in self.plan.jobs.values():
            if job.group is not None:
                self.group_counts.setdefault(job.group, Counter())[self.records[job.id].status] += 1

    def _looks(self, job_id: JobId) -> tuple[object, ...]:
        record = self.records[job_id]
        return self.job(job_id), record.status, record.undeployed, job_id in self.plan.leaf_set

    def _compare(self, before: Mapping[JobId, object], gone: Iterable[JobId]) -> None:
        """Mark what another graph changed; `before` has the looks of the jobs that kept their past."""
        self.reshaped = self.seq
        for job in gone:
            del self.changed[job]
            self.views.pop(job, None)
            self.removed[job] = self.seq
        for job in self.records:
            self.removed.pop(job, None)
            if before.get(job) != self._looks(job):
                self.mark(job)

    def _slots_of(self, job_id: JobId) -> int:
        """How many slots a job and its subtasks have: none is left to a job that is no longer there."""
        record = self.records[job_id]
        own = record.state in ACTIVE and self.takes_slot(job_id)
        waits = record.last is not None and record.last.awaits
        lent = sum(one.status == "running" and not one.awaits for one in record.subtasks.values())
        return own - waits + lent

    def _kept(self, job: Job) -> JobRecord:
        """What is known of a job that the new graph holds too, perhaps with other needs."""
        record = self.records.get(job.id) or JobRecord()
        if record.done is not None and job.id in self.plan.jobs and self.plan.jobs[job.id].work != job.work:
            record.done = None  # there is other work to do
        if record.job is not None:
            record.job = replace(record.job, needs=job.needs)
        return record

    def set_hold(self, job_id: JobId, hold: events.JobHeld | None) -> None:
        record = self.records[job_id]
        old = record.status
        self.held += (hold is not None) - (record.hold is not None)
        record.hold = hold
        self.mark(job_id)
        self._recount(job_id, old, record.status)

    def requeue(self, job_id: JobId) -> None:
        """Put a ready job that needs no slot any more into the other queue; its old place is passed over."""
        self._queued.discard(job_id)
        self.push(job_id)

    def deploy(self, job_id: JobId) -> None:
        record = self.records[job_id]
        old = record.status
        record.deployed, record.undeployed = True, False
        self._recount(job_id, old, record.status)


def statuses(
    plan: Plan,
    states: Mapping[JobId, JobState],
    held: frozenset[JobId] = frozenset(),
    allowed: frozenset[JobId] = frozenset(),
) -> dict[JobId, JobStatus]:
    """What people see of each job, computed from nothing but states: the meaning of the counters above.

    `held`: the jobs that wait for a person, who has to decide or to deploy them. `allowed`: those whose failure is.
    """
    dead = (JobStatus.FAILED, JobStatus.CANCELED, JobStatus.BLOCKED)
    found: dict[JobId, JobStatus] = {}
    for job in plan.in_order:
        state, needs = states[job], plan.jobs[job].needs
        if state is not JobState.PENDING:
            found[job] = JobStatus(state.value)
        elif any(found[need] in dead and need not in allowed for need in needs):
            found[job] = JobStatus.BLOCKED
        elif job not in held and all(found[need] is JobStatus.SUCCEEDED or need in allowed for need in needs):
            found[job] = JobStatus.READY
        else:
            found[job] = JobStatus.PENDING
    return found
