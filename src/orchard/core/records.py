"""What is remembered of the jobs of a run, and of their subtasks; `replay` alone writes these."""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from orchard.core.states import JobState
from orchard.model.events import plans as events
from orchard.model.permissions import ALL, Source, Tools
from orchard.model.phases import PHASES, Phase
from orchard.model.plan import Job, JobId
from orchard.model.statuses import JobStatus
from orchard.model.usage import Usage

SUBTASK_OVER = frozenset({"completed", "failed", "stopped", "interrupted"})
"""What a subtask can have come to; before that it is `waiting` for a slot, `running`, `idle` or `paused`."""
SUBTASK_AT_REST = frozenset({"idle", "paused"})
"""A subtask that has neither a slot nor a turn, only a folder, and waits to be told more."""
DEAD = frozenset({JobState.FAILED, JobState.CANCELED})
_SHOWN = {state: JobStatus(state.value) for state in JobState}


class PhaseRecord(Struct):
    phase: Phase
    started: float
    ended: float | None = None
    outcome: str | None = None
    note: str = ""


class Mark(Struct):
    """A condition that a worker was in, in a turn or after it."""

    condition: str
    evidence: str
    action: str
    since: float
    ended: float | None = None
    messages: int = 0
    """How many messages the worker had got by then."""


class Turn(Struct):
    agent: str
    purpose: str
    phase: Phase
    started: float
    number: int = 1
    model: str | None = None
    resumed: str | None = None
    """The session it went on with."""
    session: str | None = None
    ended: float | None = None
    reason: str | None = None
    message: str = ""
    text: str = ""
    messages: int = 0
    updates: int = 0
    heard: bool = False
    """Whether the agent is known to have taken in what the turn tells it."""
    healed: str | None = None
    """For healing, how the failed phase ended afterwards: `passed`, `failed`, or `unchanged`: it was not run again."""
    check: str = ""
    """For healing that did not pass: what the failed phase said afterwards."""
    notes: list[tuple[str, str]] = field(default_factory=list)
    used: dict[str, Usage] = field(default_factory=dict)
    """By model."""
    subtask: str | None = None
    definition: str | None = None
    tools: tuple[Source, ...] = ()
    """Who says what the agent may use."""
    questions: dict[int, tuple[events.CallAsked, float]] = field(default_factory=dict)
    """Calls that a person is asked about and that nobody has answered, with when they were asked about."""
    marks: list[Mark] = field(default_factory=list)

    @property
    def conditions(self) -> list[Mark]:
        """Those that hold: an agent can only be idle after its turn, and only in its turn be anything else."""
        over = self.ended is not None
        return [mark for mark in self.marks if mark.ended is None and (mark.condition == "idle") is over]


class Attempt(Struct):
    number: int
    started: float
    first_phase: Phase
    job: Job | None = None
    """The job as it was when the attempt began: the works that it ran."""
    fresh: bool = False
    """Whether it began in a new worktree although there was an earlier one."""
    ended: float | None = None
    idle_seconds: float = 0.0
    """For how long it was held, or without an engine, before it went on."""
    outcome: str = "running"
    phases: list[PhaseRecord] = field(default_factory=list)
    failure: events.JobFailed | None = None
    left: str = ""
    """A fingerprint of the worktree at its end, by which edits are known; "": there is none."""
    program: events.ProgramStarted | None = None
    """The program that was started last; it may be gone."""
    turns: list[Turn] = field(default_factory=list)
    resumed: Phase | None = None
    """Where it was to begin when it was started again, and how many phases it had been through by then."""
    resumed_after: int = 0
    idle: events.WorkerIdle | None = None
    """Its agent waits to be told more; no turn has begun since."""
    progress: events.ProgressReported | None = None
    commits: list[tuple[Phase, events.WorkCommitted]] = field(default_factory=list)
    """What it committed, and in which phase: what is healed after the commit is committed again."""
    awaits: bool = False
    """Its agent only waits for subtasks, or for a person's answer, and has given the slot back."""
    always: set[tuple[str | None, str]] = field(default_factory=set)
    """Tools that a worker of it may use without a question: the subtask, or None, and the tool."""
    base: str | None = None
    worktree: str | None = None
    """The path of the folder that it worked in; the folder may be gone."""
    picked: float | None = None
    """When the scheduler gave it a slot."""
    completed: events.WorkerCompleted | None = None
    """Somebody said that its work is done."""
    refused: dict[tuple[str, str, str, str | None], events.SandboxRefused] = field(default_factory=dict)
    """What the wall kept its programs from: the kind, the name, the reason and the subtask, with what was told last."""

    def turn_of(self, subtask: str | None) -> Turn | None:
        """The turn that is under way, or was last, of the attempt's own agent or of a subtask's."""
        return next((turn for turn in reversed(self.turns) if turn.subtask == subtask), None)

    @property
    def phase(self) -> Phase | None:
        last = self.phases[-1] if self.phases else None
        return last.phase if last is not None and last.outcome is None else None

    @property
    def where(self) -> Phase:
        """Where it goes on if the engine dies now; gathering comes before that in any case."""
        phases = self.phases[self.resumed_after :]
        if not phases or phases[-1].phase is Phase.MERGE_FI:
            return self.resumed or self.first_phase
        last = phases[-1]
        if last.outcome not in ("passed", "skipped"):
            return last.phase
        return PHASES[min(PHASES.index(last.phase) + 1, len(PHASES) - 1)]

    @property
    def entered(self) -> bool:
        """Whether it has been in the phase where it goes on, so that a program may have run there."""
        return len(self.phases) > self.resumed_after and self.phases[-1].phase is self.where


class Subtask(Struct):
    id: str
    attempt: int
    agent: str
    instructions: str
    base: str
    spawned: float
    parent: str | None = None
    name: str = ""
    definition: str | None = None
    blocking: bool = False
    interactive: bool = False
    status: str = "waiting"
    started: float | None = None
    worktree: str | None = None
    """The name of its worktree, as long as it has one."""
    path: str | None = None
    program: tuple[int, float, str] | None = None
    """The identity of the program that was started last for it."""
    result: str | None = None
    """What its agent said when it called itself done."""
    succeeded: bool = True
    progress: events.ProgressReported | None = None
    awaits: bool = False
    """Its agent only waits, for subtasks of its own."""
    ended: float | None = None
    ended_seq: int = 0
    """The number of the event that ended it: who has seen that one knows how it ended."""
    message: str = ""
    summary: str = ""
    commit: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    pulled: str | None = None
    """The commit that its parent has taken over."""
    size: int = 0
    """Bytes of its whole result."""
    idle: str | None = None
    """Why no turn of its agent is under way, although it is not over: as in `WorkerIdle`."""
    completed_by: str | None = None
    session: str | None = None
    """Where its next turn goes on."""
    messages: list[events.MessageSent] = field(default_factory=list)
    delivered: int = 0
    """The number of the last message that its agent is known to have, or will not hear any more."""
    tools: Tools = ALL
    """What whoever asked for it lets it use."""
    told: bool = False
    """Whether the agent that asked for it was answered how it ended, or an update about that was queued."""

    @property
    def over(self) -> bool:
        return self.status in SUBTASK_OVER

    @property
    def at_rest(self) -> bool:
        return self.status in SUBTASK_AT_REST

    @property
    def queued(self) -> list[events.MessageSent]:
        return [message for message in self.messages if message.number > self.delivered]


class JobRecord(Struct):
    state: JobState = JobState.PENDING
    unmet: int = 0
    dead: int = 0
    """How many of its needs can no longer succeed unless they are retried."""
    attempts: list[Attempt] = field(default_factory=list)
    commit: str | None = None
    stand_in: str | None = None
    """Of a job that was allowed to fail: the commit that stands for its result."""
    base: str | None = None
    work_commit: events.WorkCommitted | None = None
    worktree: events.WorktreeTaken | None = None
    conflict: events.ConflictOpened | None = None
    """The worktree in which somebody resolves its conflict by hand, as long as it has one."""
    consumed: tuple[JobId, ...] = ()
    hold: events.JobHeld | None = None
    picked: float | None = None
    """When the scheduler last gave it a slot."""
    released: str | None = None
    """The kind of hold that a person released last: what was asked for is granted."""
    continues: bool = False
    """The next start goes on with the last attempt instead of making a new one."""
    resume_from: Phase | None = None
    fresh: bool = False
    edited: bool = False
    """Whether a person edited the worktree that it has before it was tried again."""
    job: Job | None = None
    """The job with the works a retry gave it."""
    saved: list[events.WorkSaved] = field(default_factory=list)
    sessions: dict[str, str] = field(default_factory=dict)
    """By agent and purpose: where a retry goes on."""
    done: events.JobMarkedDone | None = None
    """Somebody said that it is done without work: it runs nothing."""
    deployed: bool = False
    """Whether somebody let it run."""
    undeployed: bool = False
    """Whether it may not run before somebody deploys it: follows from the plan and from `deployed`."""
    messages: list[events.MessageSent] = field(default_factory=list)
    delivered: int = 0
    """The number of the last message that the agent is known to have, or will not hear any more."""
    asked: int = 0
    """How many calls a person was asked about, of all attempts."""
    subtasks: dict[str, Subtask] = field(default_factory=dict)
    """By id, those of all attempts in the order in which they were asked for."""
    updates: list[events.UpdateQueued] = field(default_factory=list)
    updates_delivered: dict[str | None, int] = field(default_factory=dict)
    """By the subtask whose agent was told, or None: the number of the last update that it is known to have."""

    def messages_to(self, subtask: str | None) -> int:
        """How many messages the job's own agent has got, or that of a subtask."""
        return len(self.messages if subtask is None else self.subtasks[subtask].messages)

    @property
    def queued(self) -> list[events.MessageSent]:
        return [message for message in self.messages if message.number > self.delivered]

    def updates_for(self, subtask: str | None) -> list[events.UpdateQueued]:
        """What an agent of the attempt under way has still to be told, errors first; of progress only the latest.

        What the job's own agent was not told in an earlier attempt is told in this one; who waited then waits no more.
        """
        known = self.updates_delivered.get(subtask, 0)
        new = [one for one in self.updates if one.to == subtask and one.number > known and self._is_news(one)]
        latest = {one.about: one.number for one in new if one.kind == "progress"}
        told = [one for one in new if one.kind != "progress" or latest[one.about] == one.number]
        return sorted(told, key=lambda one: (one.kind != "error", one.number))

    @property
    def has_news(self) -> bool:
        """Whether the job's own agent gets a turn if it is idle: somebody said something, or an update wakes it."""
        wakes = (one.wakes and one.attempt == self.number for one in self.updates_for(None))
        return not self.is_paused and (bool(self.queued) or any(wakes))

    def _is_news(self, one: events.UpdateQueued) -> bool:
        return one.attempt == self.number or (one.to is None and one.kind != "idle_response")

    @property
    def questions(self) -> list[tuple[events.CallAsked, float]]:
        """Calls that wait for a person's word, with when they were asked about: those of turns that are under way."""
        last = self.last
        if last is None or last.ended is not None or self.state is not JobState.RUNNING:
            return []
        latest = {turn.subtask: turn for turn in last.turns}.values()
        return [one for turn in latest if turn.ended is None for one in turn.questions.values()]

    @property
    def called_done(self) -> bool:
        """Whether a person or a parent said that its work is done."""
        return self.done is not None or (self.last is not None and self.last.completed is not None)

    @property
    def result(self) -> str:
        """What it came to, in the words of whoever said that it is done."""
        if self.done is not None:
            return self.done.result
        return self.last.completed.result if self.last is not None and self.last.completed is not None else ""

    @property
    def heals(self) -> list[Turn]:
        """The turns of agents that tried to heal it, and whose changes may be in its result."""
        found: list[Turn] = []
        for attempt in self.attempts:
            found = [] if attempt.fresh else found
            found += [turn for turn in attempt.turns if turn.purpose == "heal" and turn.healed != "unchanged"]
        return found

    def told_before(self, number: int, subtask: str | None = None) -> bool:
        """Whether a turn has begun that was to tell this message to the job's agent, or to that of a subtask."""
        turns = (turn for attempt in self.attempts for turn in attempt.turns if turn.subtask == subtask)
        return any(turn.messages >= number for turn in turns)

    @property
    def is_paused(self) -> bool:
        """Whether somebody paused its agent, so that it waits until it is resumed, whatever is said to it."""
        held = self.hold is not None and self.hold.kind == "worker"
        return held and self.last is not None and self.last.idle is not None and self.last.idle.why == "paused"

    @property
    def open_subtasks(self) -> list[Subtask]:
        return [one for one in self.subtasks.values() if not one.over]

    @property
    def abandoned(self) -> list[Subtask]:
        """The subtasks that are not over although the attempt is that they belong to."""
        return [one for one in self.open_subtasks if one.attempt != self.number]

    @property
    def used(self) -> Iterator[Usage]:
        return (usage for attempt in self.attempts for turn in attempt.turns for usage in turn.used.values())

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    @property
    def scheduled(self) -> float | None:
        """When the last attempt got its slot; one that was held and goes on has got another since."""
        return self.last.picked if self.last is not None else self.picked

    @property
    def number(self) -> int:
        """The number of the attempt that is under way, goes on, or comes next."""
        if self.last is None:
            return 1
        return self.last.number if self.continues or self.last.ended is None else self.last.number + 1

    @property
    def failure(self) -> events.JobFailed | None:
        last = self.last
        return last.failure if last is not None and self.state is JobState.FAILED else None

    @property
    def status(self) -> JobStatus:
        if self.state is not JobState.PENDING:
            return _SHOWN[self.state]
        if self.dead:
            return JobStatus.BLOCKED
        waits = self.hold is not None or self.undeployed
        return JobStatus.READY if self.unmet == 0 and not waits else JobStatus.PENDING

    @property
    def is_met(self) -> bool:
        """Whether the jobs that need it may start: it succeeded, or was allowed to fail and has."""
        return self.state is JobState.SUCCEEDED or (self.state is JobState.FAILED and self.stand_in is not None)

    @property
    def passed_on(self) -> str | None:
        """The commit that the jobs which need it start from."""
        return self.stand_in if self.state is JobState.FAILED else self.commit

    @property
    def is_dead(self) -> bool:
        if self.state in DEAD:
            return not self.is_met
        return self.state is JobState.PENDING and self.dead > 0

    @property
    def started(self) -> bool:
        """Whether anything was ever done for the job: such a job keeps its place in the graph."""
        return self.state is not JobState.PENDING or bool(self.attempts)


class Snapshot(Struct):
    """The plan's own line of commits, where leaves are merged before anything lands."""

    generation: int
    """0: the plan has not started."""
    start: str
    integration: str
    tip: str
    merged: dict[JobId, events.LeafMerged] = field(default_factory=dict)
    inside: set[JobId] = field(default_factory=set)
    """The jobs whose work is in it: the merged leaves and all that they need."""
    rewritten: str | None = None
    """The commit that stands for the target's new history, where a person said to go on with it."""


def depth_of(subtasks: Mapping[str, Subtask], subtask: str | None) -> int:
    """How many agents stand between the job's own agent and this one; 0: it is the job's own."""
    depth = 0
    while subtask is not None:
        depth, subtask = depth + 1, subtasks[subtask].parent
    return depth


def children_of(subtasks: Mapping[str, Subtask], attempt: int, parent: str | None) -> Iterator[Subtask]:
    """The subtasks that one agent asked for in one attempt, in that order."""
    return (one for one in subtasks.values() if one.attempt == attempt and one.parent == parent)
