"""A trace of each plan, made from its events as they are recorded.

    Tracing   hears events and what agents tell; knows what is under way, and hands on what has ended
    Part      a piece of work: plan, job, phase, agent, tool; `tracingspans` makes a span of one that has ended

Nothing here knows OpenTelemetry. A part is named by the event that began it, so its id follows from the journal: an
engine that goes on with a plan reads the journal first, and then knows the same parts, under the same ids, that the
engine before it knew. What was under way when that one died belongs to the same trace, and is told when it ends.

What goes into a trace is names, numbers and words of our own. No instruction, command, output or message does.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from typing import Any, Protocol

from msgspec import Struct, field

from orchard.agents.protocol import Called, Said, Telling
from orchard.core.replay import apply
from orchard.core.run import Run
from orchard.engine.trace import names
from orchard.model.events import plans as events
from orchard.model.plan import JobId, PlanId
from orchard.model.statuses import PlanStatus
from orchard.model.usage import usage_from_json
from orchard.store.reader import JournalReader

LONGEST_NAME = 120
"""Characters of a tool's name, which is a model's to invent."""
SIDE_BY_SIDE = 0.2
"""Tools that are called within so many seconds of each other are taken to run beside each other."""
MOST_TOOLS = 64
"""Calls of one turn that are under way at once; with more of them, the oldest counts as ended."""

_BLAMELESS = frozenset({"done", "stopped", "budget"})
"""Ends of an agent's turn that are no error."""
_ENDS: Mapping[type[events.Event], str] = {
    events.JobSucceeded: "succeeded",
    events.JobFailed: "failed",
    events.JobCanceled: "canceled",
    events.JobHeld: "held",
    events.JobContinued: "interrupted",
}


class Part(Struct):
    trace: int
    id: int
    parent: int | None
    name: str
    started: float
    attributes: dict[str, str | int]
    ended: float = 0.0
    error: str | None = None
    """A word for why it failed; None: it did not."""

    def count(self, name: str, more: int) -> None:
        before = self.attributes.get(name)
        self.attributes[name] = more + (before if isinstance(before, int) else 0)


class Exporting(Protocol):
    """Whoever takes parts: `tracingspans.Spans` is the one."""

    def samples(self, trace: int) -> bool:
        """Whether this trace is one of those that are wanted."""

    def take(self, part: Part) -> None: ...

    def current(self, part: Part) -> AbstractContextManager[object]:
        """For the time of the block, what libraries of ours trace belongs to this part."""


class _Turn(Struct):
    part: Part
    tools: list[tuple[str, Part]] = field(default_factory=list)
    called: int = 0


class _Job(Struct):
    part: Part
    phase: Part | None = None
    turns: dict[str | None, _Turn] = field(default_factory=dict)
    """By subtask; None: the job's own."""
    parents: dict[str, str | None] = field(default_factory=dict)
    """For each subtask, the one whose agent asked for it."""

    def turn(self, subtask: str | None) -> _Turn | None:
        """The turn that is under way for a subtask, else that of who asked for it, up to the job's own."""
        while subtask is not None and subtask not in self.turns:
            subtask = self.parents.get(subtask)
        return self.turns.get(subtask)

    def innermost(self, subtask: str | None) -> Part:
        """What somebody who starts something now works on."""
        turn = self.turn(subtask)
        return turn.part if turn is not None else self.phase or self.part


class _Plan(Struct):
    id: PlanId
    trace: int
    sampled: bool
    part: Part | None = None
    """None: nothing happens by itself."""
    jobs: dict[JobId, _Job] = field(default_factory=dict)
    sandbox: str | None = None

    def note_wall(self, part: Part) -> None:
        if self.sandbox is not None:
            part.attributes[names.SANDBOX] = self.sandbox


class Tracing:
    def __init__(self, exporting: Exporting, reader: JournalReader, clock: Callable[[], float]) -> None:
        self._exporting, self._reader, self._clock = exporting, reader, clock
        self._plans: dict[PlanId, _Plan] = {}
        self._replaying = False

    # -------------------------------------------------------------------------------------- hearing

    def hear(self, run: Run, recorded: events.Recorded) -> None:
        plan = self._plans.get(run.id)
        if plan is None:
            plan = self._plans[run.id] = self._known(run, recorded.seq)
        self._take(plan, run, recorded)
        if isinstance(recorded.event, events.PlanPurged):
            del self._plans[run.id]

    def forget(self, plan: PlanId) -> None:
        """Drop what is known of a plan that is over; should it go on, that is found in its run again."""
        self._plans.pop(plan, None)

    def told(self, run: PlanId, job: JobId, telling: Telling, subtask: str | None = None) -> None:
        """Take in what an agent tells in its turn: agents do not tell when a tool has ended.

        So it ends when its failure is told, or when the agent is heard of again: it says something, or calls another
        one later.
        """
        plan = self._plans.get(run)
        under_way = plan.jobs.get(job) if plan is not None else None
        turn = under_way.turns.get(subtask) if under_way is not None else None
        if plan is None or turn is None:
            return
        now = self._clock()
        if isinstance(telling, Called):
            self._called(plan, turn, telling, now)
        elif isinstance(telling, Said) and telling.text.strip():
            self._end_tools(plan, turn, now)

    # -------------------------------------------------------------------------------------- handing on

    def environment(
        self, run: PlanId, job: JobId, env: Mapping[str, str], subtask: str | None = None
    ) -> Mapping[str, str]:
        """The variables of a program or agent, with those by which it can put its own spans under ours."""
        found = self._innermost(run, job, subtask)
        if found is None:
            return env
        plan, part = found
        kept = {name: value for name, value in env.items() if name != names.TRACESTATE}
        return {**kept, names.TRACEPARENT: f"00-{part.trace:032x}-{part.id:016x}-{int(plan.sampled):02x}"}

    def current(self, run: PlanId, job: JobId, subtask: str | None = None) -> AbstractContextManager[object]:
        """For the time of the block, what libraries of ours trace belongs to what the job does now."""
        found = self._innermost(run, job, subtask)
        return self._exporting.current(found[1]) if found is not None and found[0].sampled else nullcontext()

    def _innermost(self, run: PlanId, job: JobId, subtask: str | None) -> tuple[_Plan, Part] | None:
        plan = self._plans.get(run)
        under_way = plan.jobs.get(job) if plan is not None else None
        return (plan, under_way.innermost(subtask)) if plan is not None and under_way is not None else None

    # --------------------------------------------------------------------------------- plans and jobs

    def _known(self, run: Run, seq: int) -> _Plan:
        """What was under way before event `seq`: nothing of a new plan, else what the journal tells.

        Plans are found by their ids in one repository only; the moment in which one was submitted makes it another
        plan than one of the same id elsewhere.
        """
        trace = _number(16, run.id, repr(run.created))
        plan = _Plan(run.id, trace, self._exporting.samples(trace))
        before = Run(run.id)
        self._replaying = True
        try:
            for recorded in self._reader.events(run.id):
                if recorded.seq >= seq:
                    break
                apply(before, recorded)
                self._take(plan, before, recorded)
        finally:
            self._replaying = False
        return plan

    def _take(self, plan: _Plan, run: Run, recorded: events.Recorded) -> None:
        event, at = recorded.event, recorded.at
        over = run.settled
        if plan.part is None and run.started is not None and not over:
            about = {names.OPERATION: names.OPERATION_WORKFLOW, names.WORKFLOW: run.plan.name}
            plan.part = self._begin(plan, recorded, names.INVOKE_WORKFLOW, None, about)
        take = _TAKE.get(type(event))
        if take is not None:
            take(self, plan, event, recorded)
        plan.sandbox = run.walls[0]
        if plan.part is not None and over and not plan.jobs:
            plan.note_wall(plan.part)
            error = "failed" if run.status is PlanStatus.FAILED else None
            self._end(plan, plan.part, at, str(run.status), error)
            plan.part = None

    def _job_started(self, plan: _Plan, event: events.JobStarted, recorded: events.Recorded) -> None:
        self._close(plan, event.job, recorded.at, "interrupted", None)
        plan.jobs[event.job] = self._new_job(plan, event.job, event.attempt, recorded)

    def _new_job(self, plan: _Plan, job: JobId, attempt: int, recorded: events.Recorded) -> _Job:
        about: dict[str, str | int] = {names.JOB_ID: job, names.ATTEMPT: attempt}
        return _Job(self._begin(plan, recorded, names.JOB.format(job=job), plan.part, about))

    def _job_ended(self, plan: _Plan, event: Any, recorded: events.Recorded) -> None:
        failed = event if isinstance(event, events.JobFailed) else None
        if failed is not None and failed.job not in plan.jobs:  # it was failed by force before it had begun
            plan.jobs[failed.job] = self._new_job(plan, failed.job, failed.attempt, recorded)
        under_way = plan.jobs.get(event.job)
        if under_way is None:
            return
        if failed is not None and failed.exit_code is not None:
            under_way.part.attributes[names.EXIT_CODE] = failed.exit_code
        if isinstance(event, events.JobHeld):
            under_way.part.attributes[names.REASON] = event.kind
        error = failed.reason if failed is not None else None
        self._close(plan, event.job, recorded.at, _ENDS[type(event)], error)

    def _close(self, plan: _Plan, job: JobId, at: float, outcome: str, error: str | None) -> None:
        under_way = plan.jobs.pop(job, None)
        if under_way is None:
            return
        for turn in under_way.turns.values():
            self._end_turn(plan, turn, at, outcome, error)
        if under_way.phase is not None:
            self._end(plan, under_way.phase, at, outcome, error)
        plan.note_wall(under_way.part)
        self._end(plan, under_way.part, at, outcome, error)

    # ------------------------------------------------------------------------------------- within jobs

    def _phase_started(self, plan: _Plan, event: events.PhaseStarted, recorded: events.Recorded) -> None:
        job = plan.jobs.get(event.job)
        if job is not None:
            about = {**_of(job), names.PHASE_NAME: str(event.phase)}
            job.phase = self._begin(plan, recorded, names.PHASE.format(phase=event.phase), job.part, about)

    def _phase_ended(self, plan: _Plan, event: events.PhaseEnded, recorded: events.Recorded) -> None:
        job = plan.jobs.get(event.job)
        if job is not None and job.phase is not None:
            if event.outcome != "skipped":  # nothing was done, and there are several of these in most jobs
                error = "failed" if event.outcome == "failed" else None
                self._end(plan, job.phase, recorded.at, event.outcome, error)
            job.phase = None

    def _agent_started(self, plan: _Plan, event: events.AgentStarted, recorded: events.Recorded) -> None:
        job = plan.jobs.get(event.job)
        if job is None:
            return
        earlier = job.turns.pop(event.subtask, None)
        if earlier is not None:
            self._end_turn(plan, earlier, recorded.at, "stopped", None)
        about = {
            **_of(job),
            names.OPERATION: names.OPERATION_AGENT,
            names.AGENT: event.agent,
            names.PHASE_NAME: str(event.phase),
            names.PURPOSE: event.purpose,
            names.TURN: event.number,
        }
        told = {names.MODEL: event.model, names.CONVERSATION: event.session, names.SUBTASK: event.subtask}
        about |= {name: value for name, value in told.items() if value is not None}
        name = names.INVOKE_AGENT.format(agent=event.agent)
        job.turns[event.subtask] = _Turn(self._begin(plan, recorded, name, job.innermost(event.subtask), about))

    def _agent_session(self, plan: _Plan, event: events.AgentSession, recorded: events.Recorded) -> None:
        if (turn := _turn(plan, event.job, event.subtask)) is not None:
            turn.part.attributes[names.CONVERSATION] = event.session

    def _agent_used(self, plan: _Plan, event: events.AgentUsed, recorded: events.Recorded) -> None:
        if (turn := _turn(plan, event.job, event.subtask)) is None:
            return
        used = usage_from_json(event.usage)
        turn.part.count(names.INPUT_TOKENS, used.input + used.cached + used.cache_writes)
        turn.part.count(names.OUTPUT_TOKENS, used.output)
        for name, tokens in ((names.CACHE_READ_TOKENS, used.cached), (names.CACHE_WRITE_TOKENS, used.cache_writes)):
            if tokens:
                turn.part.count(name, tokens)

    def _health_noted(self, plan: _Plan, event: events.HealthNoted, recorded: events.Recorded) -> None:
        if (turn := _turn(plan, event.job, event.subtask)) is not None:
            known = str(turn.part.attributes.get(names.HEALTH, ""))
            seen = dict.fromkeys([*filter(None, known.split(",")), event.condition])
            turn.part.attributes[names.HEALTH] = ",".join(seen)

    def _agent_ended(self, plan: _Plan, event: events.AgentEnded, recorded: events.Recorded) -> None:
        job = plan.jobs.get(event.job)
        turn = job.turns.pop(event.subtask, None) if job is not None else None
        if turn is not None:
            error = None if event.reason in _BLAMELESS else event.reason
            self._end_turn(plan, turn, recorded.at, event.reason, error)

    def _subtask_spawned(self, plan: _Plan, event: events.SubtaskSpawned, recorded: events.Recorded) -> None:
        if event.job in plan.jobs:
            plan.jobs[event.job].parents[event.subtask] = event.parent

    def _end_turn(self, plan: _Plan, turn: _Turn, at: float, outcome: str, error: str | None) -> None:
        self._end_tools(plan, turn, at)
        self._end(plan, turn.part, at, outcome, error)

    # ------------------------------------------------------------------------------------------- tools

    def _called(self, plan: _Plan, turn: _Turn, call: Called, now: float) -> None:
        if not call.failed:
            beside = turn.tools and now - turn.tools[-1][1].started < SIDE_BY_SIDE
            if not beside:
                self._end_tools(plan, turn, now)
            turn.tools.append((call.tool, self._new_call(plan, turn, call.tool, now)))
            if len(turn.tools) > MOST_TOOLS:
                self._end(plan, turn.tools.pop(0)[1], now, "ended", None)
            return
        place = next((place for place, (tool, _) in enumerate(turn.tools) if tool == call.tool), None)
        part = turn.tools.pop(place)[1] if place is not None else self._new_call(plan, turn, call.tool, now)
        self._end(plan, part, now, "failed", "failed")

    def _new_call(self, plan: _Plan, turn: _Turn, tool: str, now: float) -> Part:
        turn.called += 1
        shown = tool[:LONGEST_NAME]
        kept = (names.PLAN_ID, names.JOB_ID, names.ATTEMPT, names.PHASE_NAME, names.AGENT, names.SUBTASK)
        about = {name: value for name, value in turn.part.attributes.items() if name in kept}
        about |= {names.OPERATION: names.OPERATION_TOOL, names.TOOL: shown}
        own = _number(8, f"{turn.part.trace:032x}", f"{turn.part.id:016x}", str(turn.called))
        return Part(plan.trace, own, turn.part.id, names.EXECUTE_TOOL.format(tool=shown), now, about)

    def _end_tools(self, plan: _Plan, turn: _Turn, at: float) -> None:
        while turn.tools:
            self._end(plan, turn.tools.pop()[1], at, "ended", None)

    # ------------------------------------------------------------------------------------------- parts

    def _begin(
        self, plan: _Plan, recorded: events.Recorded, name: str, parent: Part | None, about: Mapping[str, str | int]
    ) -> Part:
        own = _number(8, f"{plan.trace:032x}", str(recorded.seq), name)
        attributes = {names.PLAN_ID: plan.id, **about}
        return Part(plan.trace, own, parent.id if parent is not None else None, name, recorded.at, attributes)

    def _end(self, plan: _Plan, part: Part, at: float, outcome: str, error: str | None) -> None:
        if self._replaying or not plan.sampled:
            return  # the engine before us has told it, or nobody wants it
        part.attributes[names.OUTCOME] = outcome
        if error is not None:
            part.attributes[names.REASON] = part.attributes[names.ERROR] = part.error = error
        part.ended = max(part.started, at)
        self._exporting.take(part)


def _turn(plan: _Plan, job: JobId, subtask: str | None) -> _Turn | None:
    return plan.jobs[job].turns.get(subtask) if job in plan.jobs else None


def _of(job: _Job) -> dict[str, str | int]:
    return {name: job.part.attributes[name] for name in (names.JOB_ID, names.ATTEMPT)}


def _number(size: int, *words: str) -> int:
    """An id of so many bytes that follows from the words; 0 would mean that there is none."""
    return int.from_bytes(sha256("\0".join(words).encode()).digest()[:size], "big") or 1


_TAKE: Mapping[type[events.Event], Callable[[Tracing, _Plan, Any, events.Recorded], None]] = {
    events.JobStarted: Tracing._job_started,
    **dict.fromkeys(_ENDS, Tracing._job_ended),
    events.PhaseStarted: Tracing._phase_started,
    events.PhaseEnded: Tracing._phase_ended,
    events.AgentStarted: Tracing._agent_started,
    events.AgentSession: Tracing._agent_session,
    events.AgentUsed: Tracing._agent_used,
    events.AgentEnded: Tracing._agent_ended,
    events.HealthNoted: Tracing._health_noted,
    events.SubtaskSpawned: Tracing._subtask_spawned,
}
