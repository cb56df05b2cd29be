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
from dataclasses import dataclass, field, fields
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from orchard.core.phases import Phase
from orchard.core.plan import JobId, PlanId

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""


# ---------------------------------------------------------------------------------------- plans


@dataclass(frozen=True, slots=True)
class PlanEvent(Event):
    """Something that happened to a plan as a whole."""


@dataclass(frozen=True, slots=True)
class PlanSubmitted(PlanEvent):
    """A plan was accepted, with everything the configuration decides filled in."""

    plan: Json
    scaffolding: bool = False
    file: str | None = None


@dataclass(frozen=True, slots=True)
class PlanFinalized(PlanEvent):
    """A scaffolding plan was declared complete."""


@dataclass(frozen=True, slots=True)
class PlanStarted(PlanEvent):
    """Base and target were pinned to commits; from here on jobs may run."""

    base_branch: str | None
    base_commit: str
    target_branch: str
    target_commit: str | None
    """None: the branch does not exist yet and is made by landing."""


@dataclass(frozen=True, slots=True)
class PlanPaused(PlanEvent):
    """Running jobs finish, nothing new starts. `waiting` says that a person is needed, and why."""

    reason: str = ""
    waiting: bool = False


@dataclass(frozen=True, slots=True)
class PlanResumed(PlanEvent):
    """A paused plan goes on."""


@dataclass(frozen=True, slots=True)
class PlanCanceled(PlanEvent):
    """Everything of the plan stops; what it holds is kept."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class PlanReshaped(PlanEvent):
    """The graph was changed; `plan` is the whole of it afterwards."""

    changes: tuple[Json, ...]
    plan: Json


@dataclass(frozen=True, slots=True)
class BudgetWarned(PlanEvent):
    """Most of a budget is used."""

    kind: str
    used: float
    limit: float


@dataclass(frozen=True, slots=True)
class SnapshotStarted(PlanEvent):
    """The snapshot begins (again) at this commit of the target."""

    generation: int
    commit: str


@dataclass(frozen=True, slots=True)
class LandingIntended(PlanEvent):
    """The target is about to be moved; recovery asks git whether it was."""

    landing: str
    branch: str
    old: str | None
    new: str


@dataclass(frozen=True, slots=True)
class LandingVoided(PlanEvent):
    """The intended landing did not happen and will not."""

    landing: str
    reason: str


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class NothingToLand(PlanEvent):
    """The jobs changed nothing, or `land: never` left the result on a branch."""

    branch: str | None = None
    commit: str | None = None


@dataclass(frozen=True, slots=True)
class UndoIntended(PlanEvent):
    """A landing is about to be taken back."""

    landing: str
    branch: str
    old: str | None
    new: str


@dataclass(frozen=True, slots=True)
class LandingUndone(PlanEvent):
    """The target is back where it was before the landing."""

    landing: str
    branch: str
    commit: str | None
    """None: the landing had made the branch, so the undo removed it."""


@dataclass(frozen=True, slots=True)
class Pushed(PlanEvent):
    """The target was pushed, or could not be; the landing stands either way."""

    branch: str
    ok: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class Warned(PlanEvent):
    """Something a person should know that stops nothing."""

    message: str
    job: JobId | None = None


@dataclass(frozen=True, slots=True)
class PlanDeleted(PlanEvent):
    """The plan is out of the way; its commits are kept under refs until it is purged."""


@dataclass(frozen=True, slots=True)
class PlanPurged(PlanEvent):
    """The plan's refs and logs were removed, because the user said so."""


# ----------------------------------------------------------------------------------------- jobs


@dataclass(frozen=True, slots=True)
class JobEvent(Event):
    """Something that moves a job from one state to the next."""

    job: JobId


@dataclass(frozen=True, slots=True)
class JobPicked(JobEvent):
    """The scheduler gave the job a slot."""

    attempt: int


@dataclass(frozen=True, slots=True)
class JobStarted(JobEvent):
    """An attempt began, or goes on after it was held or continued."""

    attempt: int
    first_phase: Phase = Phase.MERGE_FI


@dataclass(frozen=True, slots=True)
class JobSucceeded(JobEvent):
    """The job's result is this commit; a ref of ours has held it since before this event."""

    attempt: int
    commit: str


@dataclass(frozen=True, slots=True)
class JobFailed(JobEvent):
    """An attempt failed: where, why, and the last it said."""

    attempt: int
    phase: Phase | None
    reason: str
    """`exit`, `signal`, `timeout`, `idle`, `output-limit`, `spawn-failed`, `conflict`, `interrupted`,
    `no-changes`, `unexpected-changes`, `refused`, `forced`, `error`."""
    message: str
    hint: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    tail: str = ""
    resume_from: Phase | None = None
    """Where a retry begins, when the work's `on_failure` says so."""


@dataclass(frozen=True, slots=True)
class JobCanceled(JobEvent):
    """The job was stopped, or will not start."""

    reason: str = ""
    phase: Phase | None = None


@dataclass(frozen=True, slots=True)
class JobHeld(JobEvent):
    """The attempt needs a person and gives its slot back; it goes on at `resume_from`."""

    attempt: int
    kind: str
    """`approval` of a diff, or `landing` that was asked for or refused."""
    reason: str
    resume_from: Phase


@dataclass(frozen=True, slots=True)
class JobContinued(JobEvent):
    """The engine died in a phase that is safe to repeat: the same attempt goes on there."""

    attempt: int
    resume_from: Phase


@dataclass(frozen=True, slots=True)
class JobRetried(JobEvent):
    """The job is to be tried again, from this phase, with these works instead of its own."""

    first_phase: Phase | None = None
    """None: where it failed."""
    fresh: bool = False
    work: Json | None = None
    prechecks: tuple[Json, ...] | None = None
    postchecks: tuple[Json, ...] | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class JobFact(Event):
    """Something remembered about a job that changes no state."""

    job: JobId


@dataclass(frozen=True, slots=True)
class HoldReleased(JobFact):
    """A person decided: the held attempt goes on."""


@dataclass(frozen=True, slots=True)
class PhaseStarted(JobFact):
    """A phase of the attempt began."""

    attempt: int
    phase: Phase


@dataclass(frozen=True, slots=True)
class PhaseEnded(JobFact):
    """A phase of the attempt ended: `passed`, `failed` or `skipped`."""

    attempt: int
    phase: Phase
    outcome: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class WorktreeTaken(JobFact):
    """The attempt works in this folder, which stands at `base`."""

    attempt: int
    worktree: str
    path: str
    base: str


@dataclass(frozen=True, slots=True)
class WorktreeGone(JobFact):
    """The job's folder was given back or removed; what it held was saved before."""

    worktree: str


@dataclass(frozen=True, slots=True)
class NeedsConsumed(JobFact):
    """The job has taken what it needs from these jobs; their folders are no longer wanted by it."""

    needs: tuple[JobId, ...]


@dataclass(frozen=True, slots=True)
class ProgramStarted(JobFact):
    """A program of the attempt was started; these three numbers are its identity."""

    attempt: int
    phase: Phase
    pid: int
    started: float
    boot: str


@dataclass(frozen=True, slots=True)
class WorkCommitted(JobFact):
    """The attempt's work is this commit, held by a ref of ours."""

    attempt: int
    base: str
    commit: str
    summary: Mapping[str, int] = field(default_factory=dict)
    evidence: Json | None = None


@dataclass(frozen=True, slots=True)
class WorkSaved(JobFact):
    """What lay in the job's folder was saved under this ref and read back."""

    ref: str
    commit: str
    why: str


@dataclass(frozen=True, slots=True)
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
    # Not by __subclasses__: a dataclass with slots is a second class, and the first is still listed there.
    found = {name: cls for name, cls in globals().items() if isinstance(cls, type) and issubclass(cls, Event)}
    return {name: cls for name, cls in found.items() if cls not in _KINDS}


def encode(event: Event) -> tuple[str, str]:
    """An event as the journal keeps it: its name and a JSON object."""
    body = {spec.name: getattr(event, spec.name) for spec in fields(event)}
    return type(event).__name__, json.dumps(body, ensure_ascii=False, separators=(",", ":"))


def decode(name: str, body: str) -> Event:
    """The event that was encoded so; a name that is not known is from a newer program."""
    cls = event_types()[name]
    values = json.loads(body)
    for key, convert in _converters(name).items():
        if values.get(key) is not None:
            values[key] = convert(values[key])
    return cls(**values)


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
