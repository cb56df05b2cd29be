"""The health monitor: what each worker does now, which conditions it is in, and what is done about them.

Whoever runs a turn has it watched (`watching`) and passes on what its agent tells. That costs a few assignments; the
rules (`core.health`) are asked when a call was made, and by one timer a worker, set to when the next condition can
hold. Nothing polls: while nothing is silent for long, nothing is looked at. CPU is read only when a timer says so.

The clock stands still while the machine sleeps. A timer that comes much too late means that nobody was there to watch:
that time does not count either.

What workers do now is published as a small file, written with the engine's pulse and only where something changed:
readers in other processes have it without asking the engine.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct, field

from orchard.agents.protocol import Called, Noted, Said, Telling, Used
from orchard.core.health import Activity, Call, Found, conditions, due, idle_evidence, wants_cpu
from orchard.core.run import Run
from orchard.core.views.documents import ActivityView, time_text
from orchard.core.views.health import Key
from orchard.engine.interruption import Interruptible
from orchard.engine.programs import redacted
from orchard.engine.turns.idle import WORKER
from orchard.engine.turns.job_tokens import Scope
from orchard.engine.turns.updates import Recording, queue_update
from orchard.engine.world import World
from orchard.errors import Next, plain_hint
from orchard.files import read_own, replace_whole
from orchard.model.events.plans import HealthCleared, HealthNoted, JobFailed
from orchard.model.health import ALARMS, UPDATES
from orchard.model.phases import Phase
from orchard.model.plan import JobId, PlanId
from orchard.model.secrets import secrets_in
from orchard.process.families.family import cpu_of_families
from orchard.store.redact import redact_text

FILE = "activity.json"
MOST_BYTES = 4 * 1024 * 1024
TOGETHER = 1 / 30
"""The part of `stuck` by which a look at processes may come later, so that one look serves several workers."""
LATE = 10.0
"""Seconds that a timer may come late; more means that the engine, or the machine, was stopped."""
RECORDED_NOTES = 100
"""Conditions of one turn that are recorded; a worker that changes between them for ever says nothing new."""
_ASKS = {
    "idle": "You have waited for a while. Say in a few sentences what you have done, and what you wait for.",
    "slow": "Your last turn took long. Say in a few sentences how far you are, and what is left to do.",
    "stuck": "For a while nothing was seen of you. Say in a few sentences what you were doing, and what held you up.",
    "looping": "You have made the same calls again and again. Say what you wanted of them, and try another way.",
    "failing": "Most of your last calls failed. Say why, and what would let you go on.",
}


class Later(Protocol):
    def __call__(self, seconds: float, then: Callable[[], None], /) -> asyncio.TimerHandle: ...


class Watched(Struct, eq=False):
    """A worker in its turn."""

    scope: Scope
    run: Run
    token: str
    part: Interruptible
    """The turn itself, which the monitor can end."""
    activity: Activity
    told: dict[str, Found] = field(default_factory=dict)
    notes: int = 0
    verdict: str | None = None
    """Why the monitor has ended the turn."""
    timer: asyncio.TimerHandle | None = None
    due: float = 0.0
    published: tuple[float, str] = (0.0, "")


class Doing(Struct, frozen=True):
    """What a worker does now, as it is published."""

    plan: PlanId
    job: JobId
    attempt: int
    subtask: str | None
    at: float
    """When something was seen of it last."""
    doing: str


class Monitor:
    def __init__(
        self,
        world: World,
        engine: Recording,
        spawn: Callable[[Awaitable[None]], object],
        interrupt: Callable[[Scope], Interruptible | None],
        clock: Callable[[], float] = time.monotonic,
        later: Later | None = None,
    ) -> None:
        """`interrupt` finds the turn that people can interrupt, after which its worker is idle; None: there is none."""
        self._world, self._engine, self._spawn, self._interrupt = world, engine, spawn, interrupt
        self._clock, self._set_timer = clock, later
        self._settings = world.config.health
        self._workers: dict[Scope, Watched] = {}
        self._silent: list[Watched] = []
        self._idle: dict[Scope, asyncio.TimerHandle] = {}
        self._wakers: dict[Scope, Callable[[], None]] = {}
        self._file = world.repo.state / FILE
        self._dirty = False
        self._rows: dict[Scope, Doing] = {}

    # -------------------------------------------------------------------------------- what is seen

    @contextmanager
    def watching(self, run: Run, scope: Scope, token: str, part: Interruptible) -> Iterator[Watched]:
        """Watch a turn for the time of the block."""
        self._stop_idle(scope)
        now = self._clock()
        worker = self._workers[scope] = Watched(scope, run, token, part, Activity(now, now))
        self._dirty = True
        self._arm(worker)
        try:
            yield worker
        finally:
            if worker.timer is not None:
                worker.timer.cancel()
            if self._workers.get(scope) is worker:
                del self._workers[scope]
                self._rows.pop(scope, None)
                self._dirty = True

    def touch(self, scope: Scope, kind: str, about: str = "") -> None:
        """Something was seen of a worker: `output`, or `traffic` of its model."""
        worker = self._workers.get(scope)
        if worker is not None:
            starting = not worker.activity.answered
            worker.activity.touch(self._clock(), kind, about)
            self._after(worker, starting)

    def told(self, scope: Scope, telling: Telling) -> None:
        """Take in what the agent of a worker tells."""
        worker = self._workers.get(scope)
        if worker is None:
            return
        now, activity = self._clock(), worker.activity
        starting = not activity.answered
        if isinstance(telling, Called):
            if telling.failed:
                activity.failed(now, telling.tool, telling.about)
            else:
                activity.called(now, Call(telling.tool, telling.about, telling.input))
            self._judge(worker)
            if starting:
                self._arm(worker)
            return
        if isinstance(telling, Said):
            lines = [line for line in telling.text.splitlines() if line.strip()]
            activity.touch(now, "output", lines[-1].strip() if lines else "")
        elif isinstance(telling, Noted):
            activity.touch(now, "retry" if telling.kind == "retry" else "note", telling.message)
        else:
            activity.touch(now, "answer" if isinstance(telling, Used) else "note")
        self._after(worker, starting)

    def _after(self, worker: Watched, starting: bool) -> None:
        """Something was seen: what held may have passed, and from the first answer on silence counts sooner."""
        if worker.told:
            self._judge(worker)
        if starting and worker.activity.answered:
            self._arm(worker)

    @contextmanager
    def resting(self, scope: Scope) -> Iterator[None]:
        """The worker waits for somebody else during the block: no time of it counts."""
        worker = self._workers.get(scope)
        if worker is not None:
            worker.activity.rest(self._clock())
        try:
            yield
        finally:
            if worker is not None:
                worker.activity.go_on(self._clock())
                if self._workers.get(scope) is worker:
                    self._arm(worker)

    # -------------------------------------------------------------------------------- what it means

    def _arm(self, worker: Watched) -> None:
        """Set the worker's one timer to when a condition can hold next; touches only make that later."""
        if worker.timer is not None:
            worker.timer.cancel()
            worker.timer = None
        now = self._clock()
        at = due(worker.activity, self._settings, now)
        if at is not None and worker.verdict is None:
            if wants_cpu(worker.activity, self._settings, at):  # together with others, as far as a moment allows
                step = (self._settings.stuck or 0.0) * TOGETHER
                at = math.ceil(at / step) * step
            worker.due = at
            worker.timer = self._later(at - now, lambda: self._look_at(worker))

    def _later(self, seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        return (self._set_timer or asyncio.get_running_loop().call_later)(max(0.0, seconds), then)

    def _look_at(self, worker: Watched) -> None:
        worker.timer = None
        now = self._clock()
        if now - worker.due > LATE:
            worker.activity.forgive(now - worker.due)
        if wants_cpu(worker.activity, self._settings, now):
            if not self._silent:
                self._spawn(self._look_at_processes())
            self._silent.append(worker)
            return
        self._judge(worker)
        self._arm(worker)

    async def _look_at_processes(self) -> None:
        """One look for all whose time has come: it costs the same for one and for a hundred."""
        silent, self._silent = self._silent, []
        used = await self._world.in_thread(cpu_of_families, [worker.token for worker in silent])
        for worker in silent:
            if self._workers.get(worker.scope) is worker and worker.timer is None:
                worker.activity.look(self._clock(), used[worker.token])
                self._judge(worker)
                self._arm(worker)

    def _judge(self, worker: Watched) -> None:
        found = {one.condition: one for one in conditions(worker.activity, self._settings, self._clock())}
        for condition in [name for name in worker.told if name not in found]:
            del worker.told[condition]
            self._clear(worker, condition)
        for condition, one in found.items():
            if condition not in worker.told and worker.verdict is None:
                worker.told[condition] = one
                self._note(worker, one)

    # -------------------------------------------------------------------------------- what is done

    def _note(self, worker: Watched, found: Found) -> None:
        scope, run, action = worker.scope, worker.run, self._settings.action(found.condition)
        worker.notes += 1
        if worker.notes > RECORDED_NOTES:
            return
        evidence = self._clean(run, found.evidence)
        self._record(scope, HealthNoted(scope.job, scope.attempt, found.condition, evidence, action, scope.subtask))
        self._tell_parent(run, scope, UPDATES[found.condition], f"{found.condition}: {evidence}", found.condition)
        if action == "ask":
            queue_update(self._engine, run, scope.job, "progress", _ASKS[found.condition], to=scope.subtask)
        elif action in ("interrupt", "fail"):
            self._spawn(self._end(worker, found.condition, evidence, action))

    async def _end(self, worker: Watched, condition: str, evidence: str, action: str) -> None:
        part = self._interrupt(worker.scope) if action == "interrupt" else None
        if part is None:
            part = worker.part
            worker.verdict = f"Its turn was ended, because the worker is {condition}. {evidence}"
        await part.interrupt()

    def _clear(self, worker: Watched, condition: str) -> None:
        if worker.notes > RECORDED_NOTES:
            return
        scope = worker.scope
        self._record(scope, HealthCleared(scope.job, scope.attempt, condition, scope.subtask))
        if condition in ALARMS:
            self._tell_parent(worker.run, scope, "progress", f"It is not {condition} any more.", "")

    def _tell_parent(self, run: Run, scope: Scope, kind: str, text: str, condition: str) -> None:
        """Tell the agent that asked for a subtask; the parent of a job's own worker is a person, who reads it."""
        subtask = run.records[scope.job].subtasks.get(scope.subtask) if scope.subtask is not None else None
        if subtask is not None:
            wakes = condition in ALARMS
            queue_update(self._engine, run, scope.job, kind, text, about=subtask.id, to=subtask.parent, wakes=wakes)
            if wakes:
                self._wake(Scope(scope.plan, scope.job, scope.attempt, subtask.parent))

    def _record(self, scope: Scope, event: HealthNoted | HealthCleared) -> None:
        self._engine.record(scope.plan, event)

    def _clean(self, run: Run, text: str) -> str:
        return redacted(text, self._world.hidden_in, run)

    # -------------------------------------------------------------------------------- idle workers

    def watch_idle(self, run: Run, job_id: JobId) -> None:
        """The same for the worker of a job, which is held while it is idle."""
        record = run.records[job_id]
        hold = record.hold
        if hold is None or hold.kind != WORKER or record.is_paused:
            return

        def still() -> bool:
            return run.records.get(job_id) is record and record.hold is hold and run.canceled is None

        def fail(why: str) -> None:
            as_it_is = Next("retry_job", run.id, job_id, {"from_phase": "commit"})
            hint = ("What it did is kept. Take it as it is: ", as_it_is)
            told, advice = self._world.say(hint), plain_hint(hint)
            failed = JobFailed(job_id, hold.attempt, Phase.WORK, "health", f"work: {why}", told, advice=advice)
            self._engine.record(run.id, failed, listed=True)

        self.idle(run, Scope(run.id, job_id, hold.attempt), still, fail)

    def idle(
        self,
        run: Run,
        scope: Scope,
        still: Callable[[], bool],
        fail: Callable[[str], None],
        wake: Callable[[], None] | None = None,
    ) -> None:
        """A worker has ended its turn and waits; `still` says whether it does when its time is over.

        `wake` gives it a turn, where an update alone does not.
        """
        self._stop_idle(scope)
        if wake is not None and still():
            self._wakers[scope] = lambda: wake() if still() else None
        if self._settings.idle and still():
            self._idle[scope] = self._later(self._settings.idle, lambda: self._waited(run, scope, still, fail))

    def _waited(self, run: Run, scope: Scope, still: Callable[[], bool], fail: Callable[[str], None]) -> None:
        self._idle.pop(scope, None)
        attempt = run.records[scope.job].last if scope.job in run.records else None
        turn = attempt.turn_of(scope.subtask) if attempt is not None else None
        if attempt is None or turn is None or not still() or turn.conditions:
            return
        action = self._settings.on_idle
        messages = run.records[scope.job].messages_to(scope.subtask)
        marks = [mark for one in attempt.turns if one.subtask == scope.subtask for mark in one.marks]
        if any((mark.condition, mark.action, mark.messages) == ("idle", "ask", messages) for mark in marks):
            action = "tell"  # it was asked already, and nobody has said anything since
        evidence = self._clean(run, idle_evidence(self._settings, turn.text))
        self._record(scope, HealthNoted(scope.job, scope.attempt, "idle", evidence, action, scope.subtask))
        self._tell_parent(run, scope, UPDATES["idle"], evidence, "idle")
        if action == "ask":
            queue_update(self._engine, run, scope.job, "progress", _ASKS["idle"], to=scope.subtask, wakes=True)
            self._wake(scope)
        elif action == "fail":
            fail(f"Its worker was idle. {evidence}")

    def _wake(self, scope: Scope) -> None:
        """Give the agent of a subtask that is idle a turn."""
        if (wake := self._wakers.get(scope)) is not None:
            wake()

    def _stop_idle(self, scope: Scope) -> None:
        self._wakers.pop(scope, None)
        timer = self._idle.pop(scope, None)
        if timer is not None:
            timer.cancel()

    # -------------------------------------------------------------------------------- what is shown

    def publish(self) -> None:
        """Write what the workers do now, where it has changed; called with the engine's pulse."""
        ahead, secrets = time.time() - self._clock(), dict[PlanId, list[str]]()
        for scope, worker in self._workers.items():
            seen = (worker.activity.active, worker.activity.doing)
            if seen != worker.published:
                run = worker.run
                if run.id not in secrets:
                    secrets[run.id] = secrets_in(self._world.hidden_in, run.plan, run.past_secrets)
                doing = redact_text(seen[1], secrets[run.id])
                self._rows[scope] = Doing(scope.plan, scope.job, scope.attempt, scope.subtask, seen[0] + ahead, doing)
                worker.published, self._dirty = seen, True
        if self._dirty:
            self._dirty = False
            with suppress(OSError):  # without it nobody sees what workers do now, and nothing else is lost
                replace_whole(self._file, msgspec.json.encode(list(self._rows.values())))

    def close(self) -> None:
        for timer in self._idle.values():
            timer.cancel()
        self._idle.clear()
        with suppress(OSError):
            self._file.unlink()


def published(state: Path) -> Mapping[Key, ActivityView]:
    """What the workers of the engine that is at work do now."""
    try:
        rows = msgspec.json.decode(read_own(state / FILE, MOST_BYTES), type=list[Doing])
    except (OSError, msgspec.MsgspecError):
        return {}
    return {(row.plan, row.job, row.attempt, row.subtask): ActivityView(time_text(row.at), row.doing) for row in rows}
