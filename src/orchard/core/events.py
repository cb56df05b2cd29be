"""Facts, in the past tense: what happened to a plan and to its jobs.

A run is the replay of these, so what is not here did not happen. An event holds plain values only
(what JSON can hold), because old journals are read by newer programs: a field may be added with a
default, none may change its meaning.

    PlanEvent   happened to the plan as a whole
    JobEvent    moves a job from one state to the next; looked up in `states.TRANSITIONS`
    JobFact     is remembered about a job and changes no state
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from orchard.core.agentevents import AgentEnded as AgentEnded
from orchard.core.agentevents import AgentHeard as AgentHeard
from orchard.core.agentevents import AgentNoted as AgentNoted
from orchard.core.agentevents import AgentSession as AgentSession
from orchard.core.agentevents import AgentStarted as AgentStarted
from orchard.core.agentevents import AgentUsed as AgentUsed
from orchard.core.agentevents import ConflictSettled as ConflictSettled
from orchard.core.agentevents import HealTried as HealTried
from orchard.core.event import Event as Event
from orchard.core.event import JobEvent as JobEvent
from orchard.core.event import JobFact as JobFact
from orchard.core.event import Json as Json
from orchard.core.event import PlanEvent as PlanEvent
from orchard.core.phases import Phase
from orchard.core.plan import JobId, PlanId
from orchard.core.subtaskevents import ProgressReported as ProgressReported
from orchard.core.subtaskevents import SubtaskCompleted as SubtaskCompleted
from orchard.core.subtaskevents import SubtaskEnded as SubtaskEnded
from orchard.core.subtaskevents import SubtaskFolderGone as SubtaskFolderGone
from orchard.core.subtaskevents import SubtaskPlaced as SubtaskPlaced
from orchard.core.subtaskevents import SubtaskPulled as SubtaskPulled
from orchard.core.subtaskevents import SubtasksAnswered as SubtasksAnswered
from orchard.core.subtaskevents import SubtasksAwaited as SubtasksAwaited
from orchard.core.subtaskevents import SubtaskSpawned as SubtaskSpawned
from orchard.core.subtaskevents import SubtaskStarted as SubtaskStarted
from orchard.core.workerevents import JobDeployed as JobDeployed
from orchard.core.workerevents import MessagesDelivered as MessagesDelivered
from orchard.core.workerevents import MessageSent as MessageSent
from orchard.core.workerevents import WorkerCompleted as WorkerCompleted
from orchard.core.workerevents import WorkerIdle as WorkerIdle

# ---------------------------------------------------------------------------------------- plans


class PlanSubmitted(PlanEvent):
    """A plan was accepted, with everything the configuration decides filled in."""

    plan: Json
    scaffolding: bool = False
    file: str | None = None
    key: Json | None = None
    """By which the same request, made again, is known: the key, and a digest of what was asked for."""


class PlanFinalized(PlanEvent):
    """A scaffolding plan was declared complete."""


class PlanStarted(PlanEvent):
    """Base and target were pinned to commits; from here on jobs may run."""

    base_branch: str | None
    base_commit: str
    target_branch: str
    target_commit: str | None
    """None: the branch does not exist yet and is made by landing."""


class PlanPaused(PlanEvent):
    """Running jobs finish, nothing new starts. `waiting` says that a person is needed, and why."""

    reason: str = ""
    waiting: bool = False


class PlanResumed(PlanEvent):
    """A paused plan goes on."""

    budget: Json | None = None
    """What it may use from now on, where a person said so."""
    alone: bool = False
    """Whether it begins although the plan that it comes after has not succeeded."""


class PlanCanceled(PlanEvent):
    """Everything of the plan stops; what it holds is kept."""

    reason: str = ""


class PlanReshaped(PlanEvent):
    """The graph was changed; `plan` is the whole of it afterwards."""

    changes: tuple[Json, ...]
    plan: Json


class BudgetWarned(PlanEvent):
    """Most of a budget is used."""

    kind: str
    used: float
    limit: float


class SnapshotStarted(PlanEvent):
    """The snapshot begins (again) at this commit of the target."""

    generation: int
    commit: str
    integration: str | None = None
    """Where the line of true merges begins, if not there: at a commit in place of what was taken off the target."""


class LandingIntended(PlanEvent):
    """The target is about to be moved; recovery asks git whether it was."""

    landing: str
    branch: str
    old: str | None
    new: str


class LandingVoided(PlanEvent):
    """The intended landing did not happen and will not."""

    landing: str
    reason: str


class Landed(PlanEvent):
    """The target is at the validated commit, read back from git."""

    landing: str
    branch: str
    old: str | None
    new: str
    checkout: str | None = None
    """The checkout that was fast-forwarded with it."""
    found: bool = False
    """It was found landed after a crash, or landed by the user."""


class NothingToLand(PlanEvent):
    """The target holds the result already, or `land: never` left it on a branch."""

    branch: str | None = None
    commit: str | None = None


class UndoIntended(PlanEvent):
    """A landing is about to be taken back."""

    landing: str
    branch: str
    old: str | None
    new: str


class UndoVoided(PlanEvent):
    """The intended undo did not happen and will not."""

    landing: str
    reason: str


class LandingUndone(PlanEvent):
    """The target is back where it was before the landing."""

    landing: str
    branch: str
    commit: str | None
    """None: the landing had made the branch, so the undo removed it."""


class Pushed(PlanEvent):
    """The target was pushed, or could not be; the landing stands either way."""

    branch: str
    ok: bool
    message: str = ""


class Warned(PlanEvent):
    """Something a person should know that stops nothing."""

    message: str
    job: JobId | None = None
    until_moved: bool = False
    """Whether it is about files in the way, which the next landing or undo looks at anew."""


class PlanDeleted(PlanEvent):
    """The plan is out of the way; its commits are kept under refs until it is purged."""


class PlanPurged(PlanEvent):
    """The plan's refs and logs were removed, because the user said so."""


# ----------------------------------------------------------------------------------------- jobs


class JobPicked(JobEvent):
    """The scheduler gave the job a slot."""

    attempt: int


class JobStarted(JobEvent):
    """An attempt began, or goes on after it was held or continued."""

    attempt: int
    first_phase: Phase = Phase.MERGE_FI


class JobSucceeded(JobEvent):
    """The job's result is this commit; a ref of ours has held it since before this event."""

    attempt: int
    commit: str


class JobFailed(JobEvent):
    """An attempt failed: where, why, and the last it said."""

    attempt: int
    phase: Phase | None
    reason: str
    """`exit`, `signal`, `timeout`, `idle`, `output-limit`, `spawn-failed`, `conflict`, `interrupted`,
    `no-changes`, `unexpected-changes`, `refused`, `forced`, `error`, `agent`."""
    message: str
    hint: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    tail: str = ""
    resume_from: Phase | None = None
    """Where a retry begins, when the work's `on_failure` says so."""
    left: str = ""
    """For a check of committed work: a fingerprint of the folder, to tell whether somebody edits it after this."""
    since: float = 0.0
    """When the engine that worked on it was last known to be at work, where the next one found this; 0: not known."""


class JobCanceled(JobEvent):
    """The job was stopped, or will not start."""

    reason: str = ""
    phase: Phase | None = None
    found: bool = False
    """Whether an engine found it so when it began: nobody had worked on the job since the last one ended."""
    since: float = 0.0
    """When the engine that worked on it was last known to be at work, where the next one found this; 0: not known."""


class JobHeld(JobEvent):
    """The attempt needs a person and gives its slot back; it goes on at `resume_from`."""

    attempt: int
    kind: str
    """`approval` of a diff, `landing` that was asked for or refused, `budget` that is used up, or `worker`: an agent
    that waits for a message."""
    reason: str
    resume_from: Phase
    found: bool = False
    """Whether an engine found it so when it began."""
    since: float = 0.0
    """When the engine that worked on it was last known to be at work, where the next one found this; 0: not known."""


class JobContinued(JobEvent):
    """The engine died in a phase that is safe to repeat: the same attempt goes on there."""

    attempt: int
    resume_from: Phase
    since: float = 0.0
    """When the engine that worked on it was last known to be at work, where the next one found this; 0: not known."""


class JobRetried(JobEvent):
    """The job is to be tried again, from this phase, with these works instead of its own."""

    first_phase: Phase | None = None
    """None: where it failed."""
    fresh: bool = False
    work: Json | None = None
    prechecks: tuple[Json, ...] | None = None
    postchecks: tuple[Json, ...] | None = None
    why: str = ""
    fresh_session: bool = False
    """Agents do not go on in the session of the attempt before."""


class HoldReleased(JobFact):
    """A person decided: the held attempt goes on."""


class PhaseStarted(JobFact):
    """A phase of the attempt began."""

    attempt: int
    phase: Phase


class PhaseEnded(JobFact):
    """A phase of the attempt ended: `passed`, `failed`, `skipped` or `held`."""

    attempt: int
    phase: Phase
    outcome: str
    note: str = ""


class WorktreeTaken(JobFact):
    """The attempt works in this folder, which stands at `base`."""

    attempt: int
    worktree: str
    path: str
    base: str


class WorktreeGone(JobFact):
    """The job's folder was given back or removed; what it held was saved before."""

    worktree: str


class NeedsConsumed(JobFact):
    """The job has taken what it needs from these jobs; their folders are no longer wanted by it."""

    needs: tuple[JobId, ...]


class ProgramStarted(JobFact):
    """A program of the attempt was started; these three numbers are its identity."""

    attempt: int
    phase: Phase
    pid: int
    started: float
    boot: str
    subtask: str | None = None
    """The subtask that it works for; None: the job itself."""


class WorkCommitted(JobFact):
    """The attempt's work is this commit, held by a ref of ours."""

    attempt: int
    base: str
    commit: str
    summary: Mapping[str, int] = {}
    evidence: Json | None = None


class WorkSaved(JobFact):
    """What lay in the job's folder was saved under this ref and read back."""

    ref: str
    commit: str
    why: str


class LeafMerged(JobFact):
    """The leaf is in the snapshot."""

    generation: int
    commit: str
    integration: str
    snapshot: str
    resolved: tuple[str, ...] = ()
    """Paths that were in conflict, and were resolved."""
    resolver: str | None = None


# ---------------------------------------------------------------------------------------- codec


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event with its place in the journal."""

    seq: int
    at: float
    """Seconds since the epoch; for people, never for arithmetic on durations of work."""
    plan: PlanId
    event: Event


_KINDS: tuple[type[Event], ...] = (Event, PlanEvent, JobEvent, JobFact)


@cache
def event_types() -> Mapping[str, type[Event]]:
    """Every event by the name it has in the journal."""
    found = {name: cls for name, cls in globals().items() if isinstance(cls, type) and issubclass(cls, Event)}
    return {name: cls for name, cls in found.items() if cls not in _KINDS}


_to_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def encode(event: Event) -> tuple[str, str]:
    """An event as the journal keeps it: its name and a JSON object."""
    body = {name: getattr(event, name) for name in event._fields}
    return type(event).__name__, _to_json(body)


def decode(name: str, body: str) -> Event:
    """The event that was encoded so; a name that is not known is from a newer program."""
    cls = event_types()[name]
    values = json.loads(body)
    for key, convert in _converters(name).items():
        if values.get(key) is not None:
            values[key] = convert(values[key])
    return cls.of(values)


@cache
def _converters(event: str) -> Mapping[str, Callable[[Any], Any]]:
    """The fields whose JSON form is not their Python form: phases and tuples."""
    found: dict[str, Callable[[Any], Any]] = {}
    for name, hint in get_type_hints(event_types()[event]).items():
        options = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if Phase in options:
            found[name] = Phase
        elif any(get_origin(option) is tuple for option in options):
            found[name] = tuple
    return found
