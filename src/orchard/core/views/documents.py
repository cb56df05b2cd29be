"""The documents that every surface shows, as types: `--json`, the API, tools and pages are all written from these.

Their fields are promised to other programs: one may be added, none goes. One with a default may be missing in old rows.
"""

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from orchard.core.views.figures import AgentUsage, JobUsage, PlanUsage
from orchard.core.views.remotes import PullRequest as PullRequest
from orchard.core.views.remotes import Push as Push
from orchard.core.views.sandbox import RefusalView
from orchard.core.views.saved_work import SavedRef
from orchard.errors import Next
from orchard.model.permissions import Mode
from orchard.model.phases import Phase
from orchard.model.statuses import JobStatus, PlanStatus

Moment = Annotated[str, Meta(description="A time as ISO 8601, in UTC.")]
WorkerState = Literal["created", "running", "idle", "paused", "completed", "error"]


def time_text(at: float | None) -> str | None:
    """A moment as people and programs both read it."""
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")


class FileCounts(Struct, frozen=True, kw_only=True):
    """How many files are added, modified and deleted."""

    added: int = 0
    modified: int = 0
    deleted: int = 0


class Changes(FileCounts, frozen=True, kw_only=True):
    """How much a job, or a plan, changes."""

    commits: int = 0
    lines_added: int | UnsetType = UNSET
    lines_deleted: int | UnsetType = UNSET


class CommitView(Struct, frozen=True):
    """A commit that a job, or a plan, made."""

    commit: str
    subject: str
    author: str
    at: Moment | None


class Branch(Struct, frozen=True):
    """A branch, and a commit on it."""

    branch: str | None
    commit: str | None


class WaitingJob(Struct, frozen=True):
    """Why a job waits for a person."""

    job: str
    kind: Annotated[str, Meta(description="`approval`, `landing`, `pr`, `budget` or `worker`.")]
    reason: str


class Resolution(Struct, frozen=True):
    """A conflict that was resolved."""

    job: str | None
    phase: str
    by: Annotated[str, Meta(description="The agent, `ours` or `theirs` where a side was taken, or `remembered`.")]
    paths: list[str]
    ours: Annotated[
        list[str],
        Meta(description="The jobs whose version is `ours`; empty: the target's, where a side was taken."),
    ] = []
    theirs: list[str] = []


class HealedPhase(Struct, frozen=True):
    """A failed phase that an agent made pass."""

    phase: str
    agent: str


class HealedJob(Struct, frozen=True):
    """A failed phase of a job that an agent made pass."""

    job: str
    phase: str
    agent: str


class PlanSummary(Struct, frozen=True, kw_only=True):
    """A plan in a few fields."""

    id: str
    name: str
    status: PlanStatus
    base: Branch
    target: Branch
    landed: bool
    undone: bool = False
    reverted: Annotated[bool, Meta(description="Whether it was undone by a commit on top of the branch.")] = False
    undoing: bool = False
    landing: Annotated[bool, Meta(description="Whether its engine ended after it was told to land.")] = False
    result: Annotated[Branch | None, Meta(description="Where the merged result is, landed or not.")] = None
    counts: Annotated[dict[str, int], Meta(description="Jobs by status, and `total`, the validation job included.")]
    validation: Annotated[JobStatus | None, Meta(description="The status of the validation job.")] = None
    usage: Annotated[PlanUsage, Meta(description="What jobs and agents used so far.")] = PlanUsage()
    created_at: Moment | None
    started_at: Moment | None
    ended_at: Moment | None
    idle_seconds: Annotated[
        float, Meta(description="For how long it was over, or without an engine, before it went on.")
    ] = 0.0
    idle_since: Annotated[
        Moment | None,
        Meta(description="Since when there is no engine for it although it is not over; null otherwise."),
    ] = None
    error: Annotated[str | None, Meta(description="Why the plan is not done, in one sentence.")]
    paused: Annotated[str | None, Meta(description="Why it is paused; null: it is not.")] = None
    hint: Annotated[str | None, Meta(description="The command that takes it further.")] = None
    next: Annotated[list[Next], Meta(description="The same as operations, for programs.")] = []
    waiting: list[WaitingJob] = []
    warnings: list[str] = []
    resolutions: list[Resolution] = []
    healed: list[HealedJob] = []
    pushed: Push | None = None
    pull_request: PullRequest | None = None
    groups: Annotated[dict[str, JobStatus], Meta(description="Every group with what it shows.")] = {}
    after: Annotated[str | None, Meta(description="The plan that has to succeed before this one starts.")] = None
    sandbox: Annotated[str | None, Meta(description="The wall around its programs: `bwrap`, `landlock`, `off`.")] = None
    limits: Annotated[list[str], Meta(description="What its programs may use at most, where the user has said.")] = []
    deleted: bool = False
    deleted_at: Annotated[Moment | None, Meta(description="When it was deleted.")] = None
    key: Annotated[
        dict[str, Any] | None,
        Meta(description="The `Idempotency-Key` it was made with, and a digest of what was asked for."),
    ] = None


def bare_summary(plan: str, name: str, status: str, created: float) -> PlanSummary:
    """As much as can be said of a plan about which nothing else is known."""
    nowhere = Branch(None, None)
    return PlanSummary(
        id=plan,
        name=name,
        status=PlanStatus(status),
        base=nowhere,
        target=nowhere,
        landed=False,
        counts={},
        created_at=time_text(created),
        started_at=None,
        ended_at=None,
        error=None,
    )


class WholePlan(PlanSummary, frozen=True, kw_only=True):
    """A plan, with what it is for and how much its result changes."""

    description: str = ""
    summary: Annotated[
        Changes | None, Meta(description="How much the result changes; null where there is none yet.")
    ] = None


class ActivityView(Struct, frozen=True):
    """What a worker does now."""

    active_at: Annotated[Moment | None, Meta(description="When something was seen of it last.")]
    doing: Annotated[str, Meta(description="The last call of a tool, or the last words.")]


class ConditionView(Struct, frozen=True):
    """A condition that the health monitor found a worker in."""

    condition: str
    evidence: str
    action: Annotated[str, Meta(description="What was done about it: tell, ask, interrupt or fail.")]
    since: Moment | None
    ended_at: Moment | None = None


class AgentAtWork(Struct, frozen=True):
    """The agent that is in the middle of a turn."""

    name: str
    doing: str
    health: list[ConditionView] = []
    activity: ActivityView | None = None


class Progress(Struct, frozen=True):
    """How far an agent says that it is."""

    message: str
    percent: float | None


class SubtaskView(Struct, frozen=True, kw_only=True):
    """A part of a job's work that its agent handed to another agent."""

    id: str
    name: str
    parent: str | None
    agent: str
    definition: str | None
    instructions: str
    blocking: bool
    status: str
    message: str | None
    summary: str | None
    base_commit: str | None
    commit: str | None
    changes: FileCounts
    files: list[str]
    pulled: bool
    worktree: str | None
    progress: Progress | None
    usage: AgentUsage
    spawned_at: Moment | None
    started_at: Moment | None
    ended_at: Moment | None
    log: str | UnsetType | None = UNSET
    health: Annotated[list[ConditionView], Meta(description="The conditions that its worker is in.")] = []
    activity: ActivityView | None = None
    interactive: bool = False
    queued: Annotated[int, Meta(description="Messages that wait for its next turn.")] = 0
    result_bytes: Annotated[int, Meta(description="How long its whole result is; `summary` may be a part.")] = 0


class WorkerView(Struct, frozen=True, kw_only=True):
    """The agent of a job."""

    state: WorkerState
    agent: str | None
    session: str | None
    interactive: bool
    turns: int
    queued: Annotated[int, Meta(description="Messages that wait for its next turn.")]
    said: Annotated[str, Meta(description="The last it said.")]
    health: Annotated[list[ConditionView], Meta(description="The conditions that it is in.")] = []
    activity: Annotated[ActivityView | None, Meta(description="What it does now; only while an engine runs it.")] = None
    model: Annotated[str | None, Meta(description="The model that it used last.")] = None
    definition: Annotated[str | None, Meta(description="The definition by which it works.")] = None


class Hold(Struct, frozen=True):
    """What a job waits for."""

    kind: str
    reason: str
    input: str | None = None
    """What the call would be made with, whole, where it waits for a permission."""


class Said(Struct, frozen=True):
    """Somebody who says what an agent may use."""

    origin: str
    tools: str


class Permissions(Struct, frozen=True):
    """What an agent may use."""

    tools: Annotated[str, Meta(description="In words: `edit, without git_commit`.")]
    mode: Annotated[Mode, Meta(description="The smallest of these that holds all of it.")]
    sources: Annotated[list[Said], Meta(description="Where it comes from; each can only take away.")]


class JobView(Struct, frozen=True, kw_only=True):
    """A job in a few fields."""

    id: Annotated[str, Meta(description="The full id: with a group, `group/id`.")]
    name: str
    group: str | None
    needs: list[str]
    status: JobStatus
    phase: Phase | None
    agent: AgentAtWork | None
    progress: Progress | None
    subtasks: list[SubtaskView]
    attempts: int
    base_commit: str | None
    commit: str | None
    failed_phase: str | None
    error: str | None
    reason: str | None
    exit_code: int | None
    hint: str | None
    worktree: str | None
    summary: Changes
    usage: JobUsage
    healed: list[HealedPhase]
    task: str
    leaf: bool
    merged: bool
    waiting: Hold | None
    evidence: dict[str, Any] | None
    deployed: bool
    worker: WorkerView | None
    validation: Annotated[
        bool, Meta(description="Whether this is the job that checks and lands the result of all others.")
    ]
    started_at: Moment | None
    ended_at: Moment | None
    idle_seconds: Annotated[
        float, Meta(description="For how long the last attempt was held, or without an engine, before it went on.")
    ]
    result: Annotated[
        str | None, Meta(description="What it came to, as the person or agent that completed it says.")
    ] = None
    allowed: Annotated[bool, Meta(description="Whether it failed, and the plan went on as it says.")] = False
    conflict: Annotated[str | None, Meta(description="The worktree in which its conflict is resolved by hand.")] = None


class PlanView(Struct, frozen=True):
    """The whole of a plan: what `orchard status PLAN --json` prints."""

    plan: WholePlan
    jobs: list[JobView]
    seq: Annotated[int, Meta(description="The number of the plan's last event: `since` for what changes later.")]


class PlanChanges(Struct, frozen=True):
    """What is another in a plan than after event `since`.

    Whoever has the plan as it was then has it as it is now after putting these jobs in the place of those with the
    same id, and taking the removed ones out.
    """

    plan: WholePlan
    jobs: Annotated[list[JobView], Meta(description="Those that changed, as they are now.")]
    removed: Annotated[list[str], Meta(description="Those that were taken out of the plan.")]
    seq: Annotated[int, Meta(description="The number of the plan's last event: `since` for what changes later.")]
    since: int
    order: Annotated[
        list[str] | UnsetType, Meta(description="All jobs as they follow each other, where the graph is another one.")
    ] = UNSET


class PhaseView(Struct, frozen=True, kw_only=True):
    """One phase of an attempt."""

    phase: Phase
    outcome: str | None
    started_at: Moment | None
    ended_at: Moment | None
    note: str


class Note(Struct, frozen=True):
    """Something that happened in a turn, and is worth telling."""

    kind: str
    message: str


class TurnView(Struct, frozen=True, kw_only=True):
    """What an agent did in one turn."""

    agent: str
    trigger: str
    subtask: str | None
    phase: str
    number: int
    model: str | None
    session: str | None
    resumed: bool
    started_at: Moment | None
    ended_at: Moment | None
    outcome: str | None
    message: str
    text: str
    healed: str | None
    notes: list[Note]
    usage: AgentUsage
    definition: Annotated[str | None, Meta(description="By which definition it worked.")] = None
    health: Annotated[list[ConditionView], Meta(description="The conditions that its worker was in.")] = []
    permissions: Annotated[Permissions | None, Meta(description="What the agent might use.")] = None


class Failure(Struct, frozen=True, kw_only=True):
    """How an attempt failed."""

    phase: Phase | None
    reason: str
    message: str
    hint: str | None
    exit_code: int | None
    signal: int | None
    tail: Annotated[str, Meta(description="The last lines that were printed.")]


class AttemptView(Struct, frozen=True, kw_only=True):
    """One try at a job."""

    number: int
    outcome: str
    first_phase: Phase
    started_at: Moment | None
    ended_at: Moment | None
    idle_seconds: Annotated[
        float, Meta(description="For how long it was held, or without an engine, before it went on.")
    ]
    scheduled_at: Annotated[Moment | None, Meta(description="When the scheduler gave it a slot.")] = None
    base_commit: str | None = None
    commit: str | None = None
    worktree: Annotated[str | None, Meta(description="The folder it worked in, which may be gone.")] = None
    work: Annotated[
        dict[str, Any] | None,
        Meta(description="What this attempt ran; a retry can change it. Secret values are hidden."),
    ]
    prechecks: list[dict[str, Any]]
    postchecks: list[dict[str, Any]]
    phases: list[PhaseView]
    turns: Annotated[list[TurnView], Meta(description="What agents did, turn by turn.")]
    subtasks: list[SubtaskView]
    usage: AgentUsage
    failure: Failure | None
    refused: Annotated[list[RefusalView], Meta(description="What the wall kept its programs from.")] = []


class ProcessView(Struct, frozen=True, kw_only=True):
    """A process of a job."""

    pid: int
    parent: int
    name: str
    command: str
    cpu_percent: float | None
    cpu_seconds: float
    rss: int


class LogView(Struct, frozen=True, kw_only=True):
    """A log that there is."""

    attempt: int
    phase: Phase
    path: str
    size: int


class JobDetails(JobView, frozen=True, kw_only=True):
    """Everything about one job: what `orchard job JOB --json` prints."""

    plan: str
    needed_by: Annotated[list[str], Meta(description="The jobs that start from its result.")]
    scheduled_at: Annotated[Moment | None, Meta(description="When the attempt of `started_at` got its slot.")]
    aggregated: Annotated[
        Changes | None, Meta(description="What a last job brings with it: its own changes, and those of all it needs.")
    ]
    commits: Annotated[list[CommitView], Meta(description="Its commits, the oldest first; at most 100.")]
    attempts_detail: list[AttemptView]
    processes: Annotated[list[ProcessView], Meta(description="What runs for it now.")]
    logs: Annotated[list[LogView], Meta(description="Which logs there are: attempt, phase, path and size.")]
    configuration: Annotated[
        dict[str, Any],
        Meta(description="The job as it runs now, also after a retry; values that look secret are hidden."),
    ]
    saved: Annotated[list[SavedRef], Meta(description="What was saved of its folders.")]
    next: Annotated[list[Next], Meta(description="What takes it further.")]
    permissions: Annotated[
        Permissions | None,
        Meta(description="What its agent may use: in its last turn, or before the first by what the plan says."),
    ] = None
    sandbox: Annotated[str | None, Meta(description="The wall around its programs: `bwrap`, `landlock`, `off`.")] = None
    limits: Annotated[list[str], Meta(description="What its programs may use at most, where the user has said.")] = []


class Waiting(Struct, frozen=True, kw_only=True):
    """One thing that needs a person."""

    plan: str
    name: str
    job: str | None
    kind: str
    reason: str
    answer: Annotated[str, Meta(description="The request that answers it.")]
    command: Annotated[str, Meta(description="The same for a terminal.")]
    next: Annotated[list[Next], Meta(description="The same as an operation, for programs; then other answers.")]
    since: Moment | None
    input: Annotated[str | None, Meta(description="What a call would be made with that an agent asks about.")] = None
