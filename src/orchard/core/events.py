"""Facts, in the past tense: what happened to a plan and to its jobs.

A run is the replay of these, so what is not here did not happen. An event holds plain values only
(what JSON can hold), because old journals are read by newer programs: a field may be added with a
default, none may change its meaning.

    PlanEvent   happened to the plan as a whole
    JobEvent    moves a job from one state to the next; looked up in `states.TRANSITIONS`
    JobFact     is remembered about a job and changes no state
"""

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, ClassVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

from orchard.core.phases import Phase
from orchard.core.plan import JobId, PlanId

Json = dict[str, Any]


@dataclass_transform(frozen_default=True)
class Event:
    """Something that happened.

    A kind of event is written like a frozen dataclass, but no code is generated for it: there are
    forty kinds, and every command that shows a plan would pay for all of them when it starts.
    """

    _fields: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[Mapping[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        own = inspect.get_annotations(cls)
        cls._fields = (*cls._fields, *own)
        cls._defaults = {**cls._defaults, **{name: cls.__dict__[name] for name in own if name in cls.__dict__}}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        given = dict(zip(self._fields, args, strict=False))
        if not kwargs and len(args) == len(self._fields):
            self.__dict__.update(given)  # nearly always; twice as fast
            return
        given |= kwargs
        values = {**self._defaults, **given}
        if len(given) != len(args) + len(kwargs) or values.keys() != set(self._fields):
            missing = [name for name in self._fields if name not in values]
            raise TypeError(
                f"{type(self).__name__} takes {', '.join(self._fields)}; missing: {missing}, given: {given}"
            )
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"an event cannot be changed: {name}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    def __hash__(self) -> int:
        return hash((type(self), *(str(value) for value in self.__dict__.values())))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self._fields)})"


# ---------------------------------------------------------------------------------------- plans


class PlanEvent(Event):
    """Something that happened to a plan as a whole."""


class PlanSubmitted(PlanEvent):
    """A plan was accepted, with everything the configuration decides filled in."""

    plan: Json
    scaffolding: bool = False
    file: str | None = None


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
    """The jobs changed nothing, or `land: never` left the result on a branch."""

    branch: str | None = None
    commit: str | None = None


class UndoIntended(PlanEvent):
    """A landing is about to be taken back."""

    landing: str
    branch: str
    old: str | None
    new: str


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


class PlanDeleted(PlanEvent):
    """The plan is out of the way; its commits are kept under refs until it is purged."""


class PlanPurged(PlanEvent):
    """The plan's refs and logs were removed, because the user said so."""


# ----------------------------------------------------------------------------------------- jobs


class JobEvent(Event):
    """Something that moves a job from one state to the next."""

    job: JobId


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


class JobCanceled(JobEvent):
    """The job was stopped, or will not start."""

    reason: str = ""
    phase: Phase | None = None


class JobHeld(JobEvent):
    """The attempt needs a person and gives its slot back; it goes on at `resume_from`."""

    attempt: int
    kind: str
    """`approval` of a diff, or `landing` that was asked for or refused."""
    reason: str
    resume_from: Phase


class JobContinued(JobEvent):
    """The engine died in a phase that is safe to repeat: the same attempt goes on there."""

    attempt: int
    resume_from: Phase


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


class JobFact(Event):
    """Something remembered about a job that changes no state."""

    job: JobId


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


class AgentStarted(JobFact):
    """An agent was given a turn: for the job's work, or to mend or settle something."""

    attempt: int
    phase: Phase
    agent: str
    purpose: str
    """`work`, `check`, `heal` or `resolve`."""
    model: str | None = None
    session: str | None = None
    """The session that it goes on with."""
    number: int = 1
    """Counts the tries: of healing, or of the same turn after an error that passes."""


class AgentSession(JobFact):
    """The session by which a later turn of this agent can go on."""

    attempt: int
    phase: Phase
    agent: str
    purpose: str
    session: str


class AgentUsed(JobFact):
    """What an agent used of a model since the last one of these."""

    attempt: int
    phase: Phase
    agent: str
    purpose: str
    usage: Json


class AgentNoted(JobFact):
    """Something about an agent's turn that a person should know: a setting without effect, a retry, a lost session."""

    attempt: int
    phase: Phase
    agent: str
    kind: str
    message: str


class AgentEnded(JobFact):
    """A turn of an agent ended; `reason` is `done` or a word of `agents.agent.Reason`."""

    attempt: int
    phase: Phase
    agent: str
    purpose: str
    reason: str
    message: str = ""
    text: str = ""
    """The agent's last words."""


class HealTried(JobFact):
    """An agent tried to mend a failed phase, which was run again unless nothing was changed."""

    attempt: int
    phase: Phase
    number: int
    outcome: str
    """`passed`, `failed`, or `unchanged`."""
    message: str = ""


class ConflictSettled(JobFact):
    """Conflicting paths were settled by an agent, or as they were settled before."""

    attempt: int
    phase: Phase
    by: str
    """The agent's name, or `remembered`."""
    paths: tuple[str, ...]
    ours: str
    theirs: str
    tree: str


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


def encode(event: Event) -> tuple[str, str]:
    """An event as the journal keeps it: its name and a JSON object."""
    body = {name: getattr(event, name) for name in event._fields}
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
