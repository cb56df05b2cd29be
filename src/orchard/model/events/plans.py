"""Facts, in the past tense: what happened to a plan and to its jobs.

A run is the replay of these, so what is not here did not happen. An event holds plain values only
(what JSON can hold), because old journals are read by newer programs: a field may be added with a
default, none may change its meaning.

    PlanEvent   happened to the plan as a whole
    JobEvent    moves a job from one state to the next; looked up in `states.TRANSITIONS`
    JobFact     is remembered about a job, or an attempt, phase or turn of it, and changes no state
"""

import json
from collections.abc import Callable, Mapping
from functools import cache

import msgspec
from msgspec import Struct

from orchard.model.events.agents import AgentEnded as AgentEnded
from orchard.model.events.agents import AgentHeard as AgentHeard
from orchard.model.events.agents import AgentNoted as AgentNoted
from orchard.model.events.agents import AgentSession as AgentSession
from orchard.model.events.agents import AgentStarted as AgentStarted
from orchard.model.events.agents import AgentUsed as AgentUsed
from orchard.model.events.agents import ConflictSettled as ConflictSettled
from orchard.model.events.agents import HealTried as HealTried
from orchard.model.events.agents import JobDeployed as JobDeployed
from orchard.model.events.agents import JobMarkedDone as JobMarkedDone
from orchard.model.events.agents import MessagesDelivered as MessagesDelivered
from orchard.model.events.agents import MessageSent as MessageSent
from orchard.model.events.agents import MessagesUnheard as MessagesUnheard
from orchard.model.events.agents import WorkerCompleted as WorkerCompleted
from orchard.model.events.agents import WorkerIdle as WorkerIdle
from orchard.model.events.agents import WorkRepeated as WorkRepeated
from orchard.model.events.event import AttemptFact, PhaseFact
from orchard.model.events.event import Event as Event
from orchard.model.events.event import JobEvent as JobEvent
from orchard.model.events.event import JobFact as JobFact
from orchard.model.events.event import Json as Json
from orchard.model.events.event import PlanEvent as PlanEvent
from orchard.model.events.health import HealthCleared as HealthCleared
from orchard.model.events.health import HealthNoted as HealthNoted
from orchard.model.events.health import UpdateQueued as UpdateQueued
from orchard.model.events.health import UpdatesDelivered as UpdatesDelivered
from orchard.model.events.permissions import CallAnswered as CallAnswered
from orchard.model.events.permissions import CallAsked as CallAsked
from orchard.model.events.sandbox import SandboxAsked as SandboxAsked
from orchard.model.events.sandbox import SandboxRefused as SandboxRefused
from orchard.model.events.sandbox import SandboxSet as SandboxSet
from orchard.model.events.subtasks import ProgressReported as ProgressReported
from orchard.model.events.subtasks import SubtaskCompleted as SubtaskCompleted
from orchard.model.events.subtasks import SubtaskEnded as SubtaskEnded
from orchard.model.events.subtasks import SubtaskFolderGone as SubtaskFolderGone
from orchard.model.events.subtasks import SubtaskIdle as SubtaskIdle
from orchard.model.events.subtasks import SubtaskPlaced as SubtaskPlaced
from orchard.model.events.subtasks import SubtaskPulled as SubtaskPulled
from orchard.model.events.subtasks import SubtaskReleased as SubtaskReleased
from orchard.model.events.subtasks import SubtasksAnswered as SubtasksAnswered
from orchard.model.events.subtasks import SubtasksAwaited as SubtasksAwaited
from orchard.model.events.subtasks import SubtaskSpawned as SubtaskSpawned
from orchard.model.events.subtasks import SubtaskStarted as SubtaskStarted
from orchard.model.events.subtasks import SubtaskTold as SubtaskTold
from orchard.model.phases import Phase
from orchard.model.plan import JobId, PlanId
from orchard.model.sandbox import Level

# ---------------------------------------------------------------------------------------- plans


class PlanSubmitted(PlanEvent, frozen=True):
    """A plan was accepted, with everything the configuration decides filled in."""

    plan: Json
    scaffolding: bool = False
    file: str | None = None
    key: Json | None = None
    """By which the same request, made again, is known: the key, and a digest of what was asked for."""
    sandbox: Level | None = None
    """The wall that its creator asks for; None: written when the engine's settings decided."""


class PlanFinalized(PlanEvent, frozen=True):
    """A scaffolding plan was declared complete."""


class PlanStarted(PlanEvent, frozen=True):
    """Base and target were pinned to commits; from here on jobs may run."""

    base_branch: str | None
    base_commit: str
    target_branch: str
    target_commit: str | None
    """None: the branch does not exist yet and is made by landing."""
    sandbox: str | None = None
    """The wall around its programs: `bwrap`, `landlock` or `off`; None: written before there were walls."""
    limits: tuple[str, ...] = ()
    """What its programs may use at most, in sentences; only the limits that were asked for."""


class PlanPaused(PlanEvent, frozen=True):
    """Running jobs finish, nothing new starts. `waiting` says that a person is needed, and why."""

    reason: str = ""
    waiting: bool = False


class PlanResumed(PlanEvent, frozen=True):
    """A paused plan goes on."""

    budget: Json | None = None
    """What it may use from now on, where a person said so."""
    alone: bool = False
    """Whether it begins although the plan that it comes after has not succeeded."""


class PlanCanceled(PlanEvent, frozen=True):
    """Everything of the plan stops; what it holds is kept."""

    reason: str = ""


class PlanReshaped(PlanEvent, frozen=True):
    """The graph was changed; `plan` is the whole of it afterwards."""

    changes: tuple[Json, ...]
    plan: Json


class BudgetWarned(PlanEvent, frozen=True):
    """Most of a budget is used."""

    kind: str
    used: float
    limit: float


class SnapshotStarted(PlanEvent, frozen=True):
    """The snapshot begins (again) at this commit of the target."""

    generation: int
    commit: str
    integration: str | None = None
    """Where the line of true merges begins, if not there: at a commit in place of what was taken off the target."""


class BranchMove(PlanEvent, frozen=True):
    landing: str
    branch: str
    old: str | None
    new: str


class LandingIntended(BranchMove, frozen=True):
    """The target is about to be moved; recovery asks git whether it was."""


class LandingVoided(PlanEvent, frozen=True):
    """The intended landing did not happen and will not."""

    landing: str
    reason: str


class Landed(BranchMove, frozen=True):
    """The target is at the validated commit, read back from git."""

    checkout: str | None = None
    """The checkout that was fast-forwarded with it."""
    found: bool = False  # after a crash, or landed by the user


class NothingToLand(PlanEvent, frozen=True):
    """The target holds the result already, or `land: never` left it on a branch."""

    branch: str | None = None
    commit: str | None = None


class UndoIntended(BranchMove, frozen=True):
    """A landing is about to be taken back."""

    revert: bool = False
    """By a new commit on top of the branch: `old` is where the branch is, and `new` that commit."""


class UndoVoided(PlanEvent, frozen=True):
    """The intended undo did not happen and will not."""

    landing: str
    reason: str


class LandingUndone(PlanEvent, frozen=True):
    """The target is back where it was before the landing, or has a commit that takes the landing back."""

    landing: str
    branch: str
    commit: str | None
    """None: the landing had made the branch, so the undo removed it."""
    revert: bool = False
    """Whether a commit on top of the branch takes the landing back; its history keeps it."""


class Pushed(PlanEvent, frozen=True):
    """The target was pushed, or could not be; the landing stands either way."""

    branch: str
    ok: bool
    message: str = ""


class PullRequestAsked(PlanEvent, frozen=True):
    """A person wants the result to become a pull request, or (not `wanted`) not to, whatever the plan says."""

    draft: bool = False
    wanted: bool = True


class PullRequestIntended(PlanEvent, frozen=True):
    """A branch of a remote is about to be put at this commit: what is found there later may be ours."""

    remote: str
    branch: str
    commit: str


class PullRequestOpened(PlanEvent, frozen=True):
    """The result is on a branch of a remote, and an open pull request asks to merge that branch."""

    url: str
    number: int
    branch: str
    target: str
    commit: str
    created: bool = True
    """False: it was open before, and was updated."""


class Warned(PlanEvent, frozen=True):
    """Something a person should know that stops nothing."""

    message: str
    job: JobId | None = None
    until_moved: bool = False
    """Whether it is about files in the way, which the next landing or undo looks at anew."""


class PlanDeleted(PlanEvent, frozen=True):
    """The plan is out of the way; its commits are kept under refs until it is purged."""


class PlanPurged(PlanEvent, frozen=True):
    """The plan's refs and logs were removed, because the user said so."""


# ----------------------------------------------------------------------------------------- jobs


class JobPicked(JobEvent, frozen=True):
    """The scheduler gave the job a slot."""

    attempt: int


class JobStarted(JobEvent, frozen=True):
    """An attempt began, or goes on after it was held or continued."""

    attempt: int
    first_phase: Phase = Phase.MERGE_FI


class JobSucceeded(JobEvent, frozen=True):
    """The job's result is this commit; a ref of ours has held it since before this event."""

    attempt: int
    commit: str


class JobFailed(JobEvent, frozen=True):
    """An attempt failed: where, why, and the last it said."""

    attempt: int
    phase: Phase | None
    reason: str
    """`exit`, `signal`, `timeout`, `idle`, `output-limit`, `spawn-failed`, `conflict`, `interrupted`,
    `no-changes`, `unexpected-changes`, `refused`, `forced`, `rejected`, `error`, `agent`, `health`."""
    message: str
    hint: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    tail: str = ""
    resume_from: Phase | None = None
    """Where a retry begins, when the work's `on_failure` says so."""
    left: str = ""
    """A fingerprint of the worktree, to tell whether a person edits it after this; "": not taken."""
    since: float = 0.0
    """When the engine that worked on it was last known to be at work, where the next one found this; 0: not known."""
    advice: tuple[str | Json, ...] = ()
    """The hint as words and steps, for programs and for other surfaces than a terminal; (): it names no step."""
    stand_in: str | None = None
    """Where the plan allows the failure: the commit that the jobs which need it start from instead of a result."""
    merge: tuple[str, ...] = ()
    """For a conflict: the two commits whose merge met it, ours and theirs; `sides` is what people call them."""
    sides: tuple[str, ...] = ()


class JobCanceled(JobEvent, frozen=True):
    """The job was stopped, or will not start."""

    reason: str = ""
    phase: Phase | None = None
    found: bool = False
    """Whether an engine found it so when it began: nobody had worked on the job since the last one ended."""
    since: float = 0.0
    left: str = ""


class JobHeld(JobEvent, frozen=True):
    """The attempt needs a person and gives its slot back; it goes on at `resume_from`."""

    attempt: int
    kind: str
    """`approval` of a diff, `landing` asked for or refused, `budget` used up, or `worker`: an agent that waits."""
    reason: str
    resume_from: Phase
    found: bool = False
    since: float = 0.0
    left: str = ""


class JobContinued(JobEvent, frozen=True):
    """The engine died in a phase that is safe to repeat: the same attempt goes on there."""

    attempt: int
    resume_from: Phase
    since: float = 0.0


class JobRetried(JobEvent, frozen=True):
    """The job is to be tried again, from this phase (None: where it failed), with these works instead of its own."""

    first_phase: Phase | None = None
    fresh: bool = False
    work: Json | None = None
    prechecks: tuple[Json, ...] | None = None
    postchecks: tuple[Json, ...] | None = None
    why: str = ""
    fresh_session: bool = False
    """Agents do not go on in the session of the attempt before."""
    edited: bool = False
    """A person edited its worktree after the attempt before had ended: it goes on with that."""


class HoldReleased(JobFact, frozen=True):
    """A person decided: the held attempt goes on."""


class PhaseStarted(PhaseFact, frozen=True):
    """A phase of the attempt began."""


class PhaseEnded(PhaseFact, frozen=True):
    """A phase of the attempt ended: `passed`, `failed`, `skipped` or `held`."""

    outcome: str
    note: str = ""


class WorktreeTaken(AttemptFact, frozen=True):
    """The attempt works in this worktree at `base`; `settings`: a digest of those by which it was set up."""

    worktree: str
    path: str
    base: str
    settings: str = ""


class WorktreeGone(JobFact, frozen=True):
    """The job's worktree was given back or removed; what it held was saved before."""

    worktree: str


class ConflictOpened(AttemptFact, frozen=True):
    """Somebody resolves the conflict of this attempt by hand, in this worktree, which stands at `base`."""

    worktree: str
    path: str
    base: str
    """A commit of both sides that has their merge with its conflict markers."""
    ours: str
    theirs: str


class ConflictClosed(JobFact, frozen=True):
    """The worktree of a conflict was given back or removed; what it held was saved before."""

    worktree: str


class NeedsConsumed(JobFact, frozen=True):
    """The job has taken what it needs from these jobs; their worktrees are no longer wanted by it."""

    needs: tuple[JobId, ...]


class ProgramStarted(PhaseFact, frozen=True):
    """A program of the attempt was started; these three numbers are its identity."""

    pid: int
    started: float
    boot: str
    subtask: str | None = None
    """The subtask that it works for; None: the job itself."""


class WorkCommitted(AttemptFact, frozen=True):
    """The attempt's work is this commit, held by a ref of ours."""

    base: str
    commit: str
    summary: Mapping[str, int] = {}
    evidence: Json | None = None


MOVED_SINCE = "the target moved since the merged result was edited"
"""Why what lies in a validation job's worktree is saved, and is no part of the next merged result."""


class WorkSaved(JobFact, frozen=True):
    """What lay in the job's worktree was saved under this ref and read back."""

    ref: str
    commit: str
    why: str


class LeafMerged(JobFact, frozen=True):
    """The leaf is in the snapshot."""

    generation: int
    commit: str
    integration: str
    snapshot: str
    resolved: tuple[str, ...] = ()
    """Paths that were in conflict, and were resolved."""
    resolver: str | None = None


# ---------------------------------------------------------------------------------------- codec


class Recorded(Struct, frozen=True):
    """An event with its place in the journal."""

    seq: int
    at: float  # seconds since the epoch; for people, never for arithmetic on durations of work
    plan: PlanId
    event: Event


_KINDS: tuple[type[Event], ...] = (Event, PlanEvent, BranchMove, JobEvent, JobFact, AttemptFact, PhaseFact)
_ENCODER = msgspec.json.Encoder()


@cache
def event_types() -> Mapping[str, type[Event]]:
    """Every event by the name it has in the journal."""
    found = {name: cls for name, cls in globals().items() if isinstance(cls, type) and issubclass(cls, Event)}
    return {name: cls for name, cls in found.items() if cls not in _KINDS}


def encode(event: Event) -> tuple[str, str]:
    """An event as the journal keeps it: its name and a JSON object."""
    try:
        return type(event).__name__, _ENCODER.encode(event).decode()
    except UnicodeEncodeError:  # half of a pair of characters, which only escapes can write
        return type(event).__name__, json.dumps(msgspec.to_builtins(event))


def decode(name: str, body: str) -> Event:
    """The event that was encoded so; a name that is not known is from a newer program."""
    try:
        return _DECODERS[name](body)
    except msgspec.DecodeError:
        if "\\ud" not in body.lower():
            raise
        return msgspec.convert(json.loads(body), event_types()[name])  # half of a pair of characters


class _Decoders(dict[str, Callable[[str], Event]]):
    """What reads each kind of event, made when the first of its kind is read; a whole journal is read through this."""

    def __missing__(self, name: str) -> Callable[[str], Event]:
        self[name] = msgspec.json.Decoder(event_types()[name]).decode
        return self[name]


_DECODERS = _Decoders()
