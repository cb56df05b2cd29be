"""What operations answer with, as models: the OpenAPI document is made from them, and tests hold answers against them.

Nothing is checked against these while a daemon runs: a plan of a thousand jobs would cost more in checking than in
reading. Models of what clients send are in `operation`, `plans` and `jobs`, where they are checked every time.
"""

from typing import Any, Literal

from pydantic import Field

from orchard.planfile.fields import PhaseName
from orchard.surfaces.http.operation import Shown

PlanStatusName = Literal["scaffolding", "pending", "running", "paused", "waiting", "succeeded", "failed", "canceled"]
JobStatusName = Literal["pending", "ready", "scheduled", "running", "succeeded", "failed", "blocked", "canceled"]
Moment = str
"""A time as ISO 8601, in UTC."""
Values = dict[str, Any]


class ProblemItem(Shown):
    """One thing that is wrong with what was sent, and where it stands."""

    path: str = Field(description="Where: `jobs[2].needs[0]`, or the name of a parameter; empty for all of it.")
    message: str
    line: int | None = Field(description="In the body, counted from 1.")


class ProblemDocument(Shown):
    """Why a request was refused, and what to do about it."""

    type: str = Field(description="Which kind of problem, for programs: `urn:orchard:not-found`.")
    title: str
    status: int
    detail: str = Field(description="One sentence: what happened, to what.")
    hint: str | None = Field(description="What to do, often a command.")
    problems: list[ProblemItem] = Field(description="Everything that is wrong with the input, if it is the input.")


class Branch(Shown):
    """A branch, and a commit on it."""

    branch: str | None
    commit: str | None


class Waits(Shown):
    """Why a job waits for a person."""

    job: str
    kind: str = Field(description="`approval`, `landing`, `budget` or `worker`.")
    reason: str


class Push(Shown):
    """What became of the push."""

    ok: bool
    message: str


class Settled(Shown):
    """A conflict that was resolved."""

    job: str | None
    phase: str
    by: str = Field(description="The agent, `ours` or `theirs` where a side was taken, or `remembered`.")
    paths: list[str]
    ours: list[str] = Field(
        description="The jobs whose version is `ours`; empty: the target's, where a side was taken."
    )
    theirs: list[str]


class HealedPhase(Shown):
    """A failed phase that an agent made pass."""

    phase: str
    agent: str


class HealedJob(HealedPhase):
    """The same, with its job."""

    job: str


class PlanSummary(Shown):
    """A plan in a few fields."""

    id: str
    name: str
    status: PlanStatusName
    base: Branch
    target: Branch
    landed: bool
    undone: bool
    undoing: bool
    landing: bool = Field(False, description="Whether it was told to land, and its engine ended before it had landed.")
    result: Branch | None = Field(description="Where the merged result is, landed or not.")
    counts: dict[str, int] = Field(description="Jobs by status, and `total`.")
    usage: Values = Field(description="What jobs and agents used so far; empty where nothing was used.")
    created_at: Moment | None
    started_at: Moment | None
    ended_at: Moment | None
    idle_seconds: float = Field(0.0, description="For how long it was over, or without an engine, before it went on.")
    idle_since: Moment | None = Field(
        None, description="Since when there is no engine for it although it is not over; null: it is over, or there is."
    )
    error: str | None = Field(description="Why the plan is not done, in one sentence.")
    paused: str | None = Field(description="Why it is paused; null: it is not.")
    hint: str | None = Field(description="The command that takes it further.")
    waiting: list[Waits]
    warnings: list[str]
    resolutions: list[Settled]
    healed: list[HealedJob]
    pushed: Push | None
    groups: dict[str, JobStatusName] = Field(description="Every group with what it shows.")
    after: str | None = Field(description="The plan that has to succeed before this one starts.")
    deleted: bool
    deleted_at: Moment | None = Field(default=None, description="When it was deleted.")
    key: Values | None = Field(
        description="The `Idempotency-Key` it was made with, and a digest of what was asked for."
    )


class WholePlan(PlanSummary):
    """A plan, with how much its result changes."""

    summary: Values | None = Field(description="How much the result changes; null where there is none yet.")


class AtWork(Shown):
    """The agent that is in the middle of a turn."""

    name: str
    doing: str


class Progress(Shown):
    """How far an agent says that it is."""

    message: str
    percent: float | None


class Worker(Shown):
    """The agent of a job."""

    state: Literal["created", "running", "idle", "paused", "completed", "error"]
    agent: str | None
    session: str | None
    interactive: bool
    turns: int
    queued: int = Field(description="Messages that wait for its next turn.")
    said: str = Field(description="The last it said.")


class Hold(Shown):
    """What a job waits for."""

    kind: str
    reason: str


class Job(Shown):
    """A job in a few fields."""

    id: str = Field(description="The full id: with a group, `group/id`.")
    name: str
    group: str | None
    needs: list[str]
    status: JobStatusName
    phase: PhaseName | None
    agent: AtWork | None
    progress: Progress | None
    subtasks: list[Values]
    attempts: int
    base_commit: str | None
    commit: str | None
    failed_phase: str | None
    error: str | None
    reason: str | None
    exit_code: int | None
    hint: str | None
    worktree: str | None
    summary: Values
    usage: Values
    healed: list[HealedPhase]
    task: str
    leaf: bool
    merged: bool
    waiting: Hold | None
    evidence: Values | None
    deployed: bool
    worker: Worker | None
    validation: bool = Field(description="Whether this is the job that checks and lands the result of all others.")
    started_at: Moment | None
    ended_at: Moment | None
    idle_seconds: float = Field(
        0.0, description="For how long the last attempt was held, or without an engine, before it went on."
    )


class PlanDocument(Shown):
    """The whole of a plan: what `orchard status PLAN --json` prints."""

    plan: WholePlan
    jobs: list[Job]


class PlanPage(Shown):
    """Some plans, the newest first."""

    plans: list[PlanSummary]
    next: str | None = Field(description="The `cursor` for those that come after these; null: there are no more.")


class JobPage(Shown):
    """Some jobs of a plan, in its order."""

    plan: str
    jobs: list[Job]
    total: int = Field(description="How many jobs fit the filter, on all pages.")
    next: str | None = Field(description="The `cursor` for those that come after these; null: there are no more.")


class PhaseView(Shown):
    """One phase of an attempt."""

    phase: PhaseName
    outcome: str | None
    started_at: Moment | None
    ended_at: Moment | None
    note: str


class Failure(Shown):
    """How an attempt failed."""

    phase: PhaseName | None
    reason: str
    message: str
    hint: str | None
    exit_code: int | None
    signal: int | None
    tail: str = Field(description="The last lines that were printed.")


class Attempt(Shown):
    """One try at a job."""

    number: int
    outcome: str
    first_phase: PhaseName
    started_at: Moment | None
    ended_at: Moment | None
    idle_seconds: float = Field(0.0, description="For how long it was held, or without an engine, before it went on.")
    work: Values | None = Field(description="What this attempt ran; a retry can change it. Secret values are hidden.")
    prechecks: list[Values]
    postchecks: list[Values]
    phases: list[PhaseView]
    turns: list[Values] = Field(description="What agents did, turn by turn.")
    subtasks: list[Values]
    usage: Values
    failure: Failure | None


class Attempts(Shown):
    """Every try at a job."""

    plan: str
    job: str
    attempts: list[Attempt]


class JobDocument(Job):
    """Everything about one job: what `orchard job JOB --json` prints."""

    plan: str
    aggregated: Values | None
    attempts_detail: list[Attempt]
    processes: list[Values] = Field(description="What runs for it now.")
    logs: list[Values] = Field(description="Which logs there are: attempt, phase, path and size.")
    configuration: Values = Field(
        description="The job as it runs now, also after a retry; values that look secret are hidden."
    )
    saved: list[Values] = Field(description="What was saved of its folders.")


class JobFailure(Shown):
    """Why a job is not done."""

    plan: str
    job: str
    status: JobStatusName
    attempt: int | None
    failure: Failure | None = Field(description="How the last attempt failed; null: it did not.")
    log: str | None = Field(description="Where the log of the failed phase can be read.")
    hint: str | None


class LogPage(Shown):
    """A part of a log."""

    attempt: int | None
    phase: PhaseName | None
    data: str
    offset: int = Field(description="The byte of the log at which this part begins.")
    next_offset: int = Field(description="The `offset` of the next part.")
    size: int = Field(description="Bytes of the log as it was then.")
    ended: bool = Field(description="Whether the log grows no more: who has come to `size` is done.")


class Node(Shown):
    """A job in a graph."""

    id: str
    name: str
    group: str | None
    status: JobStatusName
    validation: bool


class Graph(Shown):
    """Which job needs which."""

    plan: str
    jobs: list[Node]
    edges: list[list[str]] = Field(description="Pairs: what is needed, and who needs it.")


class Group(Shown):
    """Jobs that belong together."""

    path: str
    status: JobStatusName
    counts: dict[str, int]
    jobs: list[str] = Field(description="Its own, not those of the groups inside it.")


class Groups(Shown):
    """Every group of a plan."""

    plan: str
    groups: list[Group]


class UsageReport(Shown):
    """What the agents of a plan used."""

    plan: Values
    total: Values
    by: dict[str, dict[str, Values]] = Field(description="The same by job, attempt, model, agent, phase and trigger.")
    rows: list[Values]


class Made(Shown):
    """A plan that was accepted."""

    plan: str
    known: bool = Field(description="Whether the same request had made it before.")
    notes: list[str]


class Valid(Shown):
    """A plan in which nothing is wrong."""

    valid: Literal[True]
    name: str
    jobs: int
    groups: int
    leaves: list[str]


class Done(Shown):
    """What was asked for is done, and durable."""

    plan: str
    status: PlanStatusName | None = Field(description="What the plan shows now; null: it is gone.")


class DoneJobs(Done):
    """The same, for some jobs."""

    jobs: list[str]


class DoneJob(Done):
    """The same, for one job."""

    job: str


class Moved(Done):
    """A branch that was moved; of a landing that is only under way, nothing is known yet."""

    branch: str | None = None
    commit: str | None = None


class Deleted(Done):
    """What is left of a plan that was deleted."""

    kept_folders: list[str] = Field(default=[], description="Folders that could not be saved, and were left.")
    refs: int = Field(default=0, description="Refs that were removed.")


class Sent(DoneJob):
    """A message that will be read."""

    number: int
    queued: bool
    worker: str | None


class Told(DoneJob):
    """What a worker does now."""

    worker: str | None
