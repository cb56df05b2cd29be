"""The engine: the one task group, which performs what the scheduler decides and records what happened.

Its loop is: start what may start, wait until something happens, again. Nothing polls. Every change
goes through `record`: the event is applied to the run (an illegal one raises and changes nothing),
and queued for the journal in the same order. Whoever is about to do something that cannot be taken
back (start a program, move a ref, tell a person) first awaits `durable`.

The engine knows no listener. Surfaces follow the journal.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct, field

from orchard import own_log
from orchard.core.replay import apply, foresee
from orchard.core.run import Run
from orchard.core.scheduler import StartJob, free_slots, next_turns, pick
from orchard.core.states import ACTIVE
from orchard.engine.interruption import Interruptible
from orchard.engine.machine.leases import Leases, SubtaskSlots
from orchard.engine.machine.pool import Pool
from orchard.engine.machine.sandbox import Sandboxes
from orchard.engine.machine.vigil import Vigil
from orchard.engine.plans.budget import Budgets
from orchard.engine.plans.runs import Chain, Runs
from orchard.engine.trace.trace import Tracing
from orchard.engine.turns.health import Monitor
from orchard.engine.turns.idle import Idling
from orchard.engine.turns.job_tokens import JobTokens, Scope
from orchard.engine.world import World
from orchard.errors import OrchardError, SystemRefused
from orchard.git.worktree.worktrees import Worktrees
from orchard.model.events import plans as events
from orchard.model.plan import VALIDATION, JobId, PlanId
from orchard.model.statuses import JobStatus
from orchard.process.families.orphans import become_subreaper, children, end_adopted
from orchard.store.journal import Journal, JournalFailed
from orchard.store.plan_list import PlanRow
from orchard.store.ports import Ports
from orchard.store.slots import Slots

SWEEP_AFTER = 2.0
"""Seconds of rest after which orphans without an origin are ended."""


class Stop(Struct):
    """Why an attempt is being stopped, for the attempt itself to record."""

    kind: str
    """`cancel` or `force-fail`."""
    reason: str


TOLD = ("job", "attempt", "phase", "outcome", "status", "subtask", "agent", "purpose", "condition", "number")
"""What of an event the own log names: numbers and names, no texts."""


class Live(Struct):
    task: "asyncio.Task[None]"
    stop: Stop | None = None
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    turn: Interruptible | None = None
    listens: bool = True
    """Whether its agent has turns to come; it hears nothing after its last one."""


Attempting = Callable[["Engine", Run, JobId, int, asyncio.Event], Awaitable[None]]
"""What runs an attempt (`attempt.run_attempt`); given from outside so that this module knows no phases."""

Ending = Callable[["Engine", Run, JobId], Awaitable[None]]
"""What ends the subtasks of attempts that are over (`subtask.end_abandoned`)."""

Starting = Callable[["Engine", Run], Awaitable[None]]
"""What pins a plan's base and target and starts its snapshot (`snapshot.start_plan`)."""


class Engine:
    def __init__(
        self,
        world: World,
        journal: Journal,
        slots: Slots,
        *,
        attempting: Attempting,
        starting: Starting,
        ending: Ending | None = None,
    ) -> None:
        self.world = world
        self.journal = journal
        self.found: set[PlanId] = set()
        """Plans that were under way when this engine was opened: they go on by themselves."""
        self._leases = Leases(slots)
        self._ports = Ports(world.ports_folder)
        self.runs = Runs(world.say)
        self.live: dict[tuple[PlanId, JobId], Live] = {}
        self.starts_work = True
        self.asked = 0
        """Requests that are being carried out; while there are any, the engine is not idle."""
        self.job_tokens = JobTokens()
        self.sandboxes = Sandboxes(world)
        self._network: Any = None
        self.desks: dict[Scope, Any] = {}
        """Where agents sit (`scope.Desk`), each with the subtasks that it handed out."""
        self.questions: dict[tuple[PlanId, JobId, int], asyncio.Future[events.CallAnswered]] = {}
        """Calls of agents at work that wait for a person's word."""
        self.tracing: Tracing | None = None
        """Who makes traces of what is recorded here; None: nobody asked for any."""
        self.notes: list[str] = []
        """What a person should know that belongs to no plan."""
        self.chain = Chain(world.say)
        self._attempting, self._starting, self._ending = attempting, starting, ending
        self._endings: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self.activity = Monitor(world, self, self.spawn, self.interruptible)
        self.vigil = Vigil(world, self._idle, self.runs.at_work, self.warn, self.activity.publish)
        self.closing = False
        self._preparing: set[PlanId] = set()
        self.check_place: Callable[[], None] = lambda: None
        """Raises where another repository, or none, is where this engine's own was."""
        self.budgets = Budgets(self.record, world.clock)
        self.idling = Idling(self.record, world.clock, world.say, world.config.limits.interactive)
        self._pools: dict[str, Pool] = {}
        self.subtask_slots = SubtaskSlots(self._leases, world.config.max_parallel, self.spawn, self.wake)
        self._sweeping: asyncio.TimerHandle | None = None
        self.known_children = children()
        self.giving_back: set[tuple[PlanId, str]] = set()
        """Folders that are being saved and returned right now."""
        self._beside: set[asyncio.Task[None]] = set()

    # --------------------------------------------------------------------------------- recording

    def record(self, plan: PlanId, event: events.Event, *, listed: bool = False) -> int:
        """Returns its number; `listed`: what lists show of the plan changes although its status does not."""
        run, at = self.runs[plan], self.world.clock()
        heard: list[events.Recorded] = []

        def take_in(recorded: events.Recorded) -> PlanRow | None:
            apply(run, recorded)
            heard.append(recorded)
            return self.runs.row_after(run, event, listed=listed)

        # The journal first says that it has a place for it: memory never believes what no journal holds.
        seq = self.journal.append(plan, event, at, take_in=take_in)
        if own_log.wants(own_log.INFO, "engine"):
            own_log.info("engine", f"{plan}: {type(event).__name__} {own_log.facts(TOLD, event)}".rstrip())
        if self.tracing is not None:
            self.tracing.hear(run, heard[0])
        if isinstance(event, events.JobEvent) and run.records[event.job].abandoned:
            self._end_abandoned(run, event.job)
        self._wake.set()
        return seq

    def record_together(self, plan: PlanId, *happened: events.Event, listed: bool = False) -> None:
        """Record several events as a whole; where one of them cannot happen or has no place, none does."""
        foresee(self.runs[plan], happened)
        with self.journal.together():
            self.journal.check_room(len(happened), sum(len(events.encode(event)[1]) for event in happened))
            for event in happened:
                self.record(plan, event, listed=listed and event is happened[-1])

    def _end_abandoned(self, run: Run, job: JobId) -> None:
        """A job that was held is over now: nobody else is there to end its subtasks."""
        if self._ending is not None and not self.closing:
            task = self.spawn(self._ending(self, run, job))
            self._endings.add(task)
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._endings.discard(task)
        self.wake()

    async def abandoned_ended(self) -> None:
        """Wait until the subtasks of jobs that are over have ended as well."""
        while self._endings:
            await asyncio.wait(tuple(self._endings))

    async def durable(self) -> None:
        """Wait until everything recorded so far has reached the disk, of the repository that is there."""
        await self.journal.durable()
        self.check_place()

    def warn(self, plan: PlanId, message: str, job: JobId | None = None) -> None:
        """Tell a person something that stops nothing; the same thing is told once."""
        warning = events.Warned(message, job)
        if warning not in self.runs[plan].warnings:
            self.record(plan, warning)

    def drop_run(self, plan: PlanId) -> None:
        self.runs.drop(plan)
        self._forget(plan)

    def _forget(self, plan: PlanId) -> None:
        self.budgets.forget(plan)
        if self.tracing is not None:
            self.tracing.forget(plan)

    def _is_in_use(self, run: Run) -> bool:
        if run.id in self._preparing or run.seq > self.journal.durable_seq:
            return True
        if any(scope.plan == run.id and desk.children for scope, desk in self.desks.items()):
            return True
        return any(plan == run.id for plan, _ in (*self.live, *self.giving_back))

    def pool(self, run: Run) -> Pool:
        setting = run.plan.worktree_root or self.world.config.worktree_root
        if setting not in self._pools:
            root = self.world.repo.worktree_root(setting)
            self._pools[setting] = Pool(self.world, Worktrees(self.world.repo, root), self.notes)
        return self._pools[setting]

    # ----------------------------------------------------------------------------------- driving

    async def drive(self) -> None:
        while not self.closing:
            self.check_place()
            self._wake.clear()
            self.subtask_slots.serve()
            if self.starts_work:
                self._start_plans()
                while starts := self._pick():
                    for start in starts:
                        self._start(start)
                    await asyncio.sleep(0)
                self.budgets.watch(self.runs.values())
            for plan in self.runs.let_go(self._is_in_use):
                self._forget(plan)
            self._note_idle()
            await self._wake.wait()

    def wake(self) -> None:
        self._wake.set()

    def spawn(self, work: Awaitable[None]) -> "asyncio.Task[None]":
        """Run something beside the jobs, such as emptying the trash; it ends with the engine."""
        assert self._group is not None
        task = self._group.create_task(_finish(work))
        task.add_done_callback(lambda _: _let_go(work))
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)
        return task

    def _start_plans(self) -> None:
        for run in list(self.runs.values()):
            if run.id not in self._preparing and self._may_begin(run):
                self._preparing.add(run.id)
                self.spawn(self._begin(run))

    def _may_begin(self, run: Run) -> bool:
        if run.started is not None or run.scaffolding or run.paused is not None or run.canceled or run.deleted:
            return False
        if run.plan.after is None:
            return True
        asked = self.chain.question(self.runs, run)
        if asked is not None:
            self.record(run.id, asked)
        return asked is None and self.chain.may_begin(self.runs, run)

    async def _begin(self, run: Run) -> None:
        try:
            await self._starting(self, run)
        except JournalFailed:
            raise
        except (OrchardError, OSError) as error:
            why = error if isinstance(error, OrchardError) else SystemRefused(error)
            said = f"The plan cannot start: {why.message} {self.world.say(why.hint or '')}".rstrip()
            self.record(run.id, events.PlanPaused(said, waiting=True))
        finally:
            self._preparing.discard(run.id)
            self.wake()

    def _pick(self) -> list[StartJob]:
        """What starts now, within the plans' limits and the leases this user's engines share."""
        runs = [run for plan in self.runs.turns if (run := self.runs[plan]).may_start and run.has_ready()]
        if not runs:
            self._leases.unwanted()
            return []
        limit = self.world.config.max_parallel
        wanted = sum(min(free_slots(run, limit), run.counts[JobStatus.READY]) for run in runs)
        leased = self._leases.take(wanted)
        starts = pick(runs, leased, limit)
        used = sum(start.takes_slot for start in starts)
        self._leases.give_back(leased - used)
        if leased < wanted and not used:
            self.subtask_slots.wait_for_lease()
        self.runs.turns = next_turns(self.runs.turns, starts)
        return starts

    def _start(self, start: StartJob) -> None:
        assert self._group is not None
        run = self.runs[start.plan]
        number = run.records[start.job].number
        self.record(run.id, events.JobPicked(start.job, number))
        if self._is_trivial(run, start.job):
            self._pass_on(run, start.job, number)
            return
        hurry = asyncio.Event()
        work = self._attempting(self, run, start.job, number, hurry)
        task = self._group.create_task(_finish(work), name=f"{run.id}:{start.job}")
        task.add_done_callback(lambda _: _let_go(work))
        live = self.live[run.id, start.job] = Live(task, hurry=hurry)
        # A task that is canceled before its first step runs none of its own code, so this is not left to it.
        task.add_done_callback(lambda _: self._attempt_is_over(start, live))
        self.vigil.begin(run)
        if self._leases.warning is not None:
            self.warn(run.id, self._leases.warning)

    def _is_trivial(self, run: Run, job_id: JobId) -> bool:
        """Whether the job only hands on one commit that it finds: no merge, no program, no person."""
        job = run.job(job_id)
        if run.records[job_id].worktree is not None:  # of work that came before somebody called it done
            return False
        if not job.runs_nothing or job.approve or job_id == VALIDATION or job_id in run.plan.leaf_set:
            return False
        return len({run.records[need].commit for need in job.needs}) <= 1

    def _pass_on(self, run: Run, job_id: JobId, number: int) -> None:
        needs = run.job(job_id).needs
        commit = run.records[needs[0]].commit if needs else run.pinned.base_commit
        assert commit is not None
        self.record(run.id, events.JobStarted(job_id, number))
        self.record(run.id, events.JobSucceeded(job_id, number, commit))

    def _attempt_is_over(self, start: StartJob, live: Live) -> None:
        if self.live.get((start.plan, start.job)) is live:
            del self.live[start.plan, start.job]
        self._ports.give_back((start.plan, start.job))
        if start.takes_slot:
            self._leases.give_back(1)
        if not self.live and self._sweeping is None and not self.closing:
            self._sweeping = asyncio.get_running_loop().call_later(SWEEP_AFTER, self._sweep)
        self.wake()

    def port_of(self, plan: PlanId, job: JobId) -> int | None:
        """The first port of a running job's own range."""
        return self._ports.of((plan, job)) if (plan, job) in self.live else None

    def _sweep(self) -> None:
        """With no attempt under way, an orphan that came to us belongs to one that is over."""
        self._sweeping = None
        if not self.live:
            end_adopted(self.known_children)

    # ---------------------------------------------------------------------------------- stopping

    async def stop(self, run: Run, jobs: list[JobId], why: Stop) -> None:
        tasks = []
        for job in jobs:
            live = self.live.get((run.id, job))
            if live is None:
                continue
            if live.stop is None:
                live.stop = why
            else:  # another client has decided already, and was told so; asking again ends the job's grace
                self._hurry(run.id, job, live)
            live.task.cancel()
            tasks.append(live.task)
        if tasks:
            await asyncio.wait(tasks)
        for job in jobs:
            # One that was retried meanwhile may be under way again: that attempt is another, and nobody stopped it.
            if run.records[job].state in ACTIVE and (run.id, job) not in self.live:
                self._record_stop(run, job, why)

    def _record_stop(self, run: Run, job: JobId, why: Stop) -> None:
        if why.kind == "cancel":
            self.record(run.id, events.JobCanceled(job, why.reason))
        else:
            self.record(run.id, events.JobFailed(job, run.records[job].number, None, "forced", why.reason))

    def interruptible(self, scope: Scope) -> Interruptible | None:
        """The turn of a worker that is idle when it is interrupted."""
        if scope.subtask is None:
            live = self.live.get((scope.plan, scope.job))
            return live.turn if live is not None else None
        desk = self.desks.get(scope)
        found: Interruptible | None = desk.turn if desk is not None else None
        return found

    def hurry(self) -> None:
        """Skip the grace of everything that is being stopped."""
        for (plan, job), live in self.live.items():
            if live.stop is not None:
                self._hurry(plan, job, live)

    def _hurry(self, plan: PlanId, job: JobId, live: Live) -> None:
        live.hurry.set()
        for scope, desk in self.desks.items():
            if (scope.plan, scope.job) == (plan, job):
                desk.hurry.set()

    # ------------------------------------------------------------------------------------ waiting

    @property
    def is_idle(self) -> bool:
        if self.live or self._preparing or self.asked or self._endings:
            return False
        if any(desk.children for desk in self.desks.values()):
            return False
        return not self.starts_work or not any(run.may_start and run.has_ready() for run in self.runs.values())

    def _note_idle(self) -> None:
        if self.is_idle:
            self._idle.set()
        else:
            self._idle.clear()

    async def wait_idle(self) -> None:
        """Wait until there is nothing that this engine could do, and what it did can be read by all."""
        while True:
            self._idle.clear()
            self.wake()
            await self._idle.wait()
            await self.durable()
            if self.is_idle:
                return

    # -------------------------------------------------------------------------------- life and end

    async def close(self) -> None:
        """Stop everything that still runs, without recording an end: the next engine finds it interrupted."""
        self.closing = True
        self.budgets.close()
        self.idling.close()
        self.activity.close()
        self.vigil.close()
        self._leases.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        tasks = {live.task for live in self.live.values()} | self._beside
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        end_adopted(self.known_children)
        self._ports.close()
        for pool in self._pools.values():
            await pool.close()
        self.wake()

    def committed(self, _: int) -> None:
        """Let go of plans that are over, now that the journal may hold all of them."""
        if self.runs.too_many:
            self.wake()

    @property
    def network(self) -> Any:
        """The way out of programs behind walls (`machine.network.Network`): imported and made for the first of them."""
        if self._network is None:
            from orchard.engine.machine.network import Network

            self._network = Network()
        return self._network

    async def close_network(self) -> None:
        if self._network is not None:
            await self._network.close()

    def bind(self, group: asyncio.TaskGroup) -> None:
        self._group = group


async def _finish(work: Awaitable[None]) -> None:
    await work


def _let_go(work: Awaitable[None]) -> None:
    """Of a task that was canceled before its first step the work was never begun; Python would complain aloud."""
    if asyncio.iscoroutine(work):
        work.close()


@asynccontextmanager
async def running(engine: Engine) -> AsyncIterator[Engine]:
    """Run an engine for the time of the block; nothing it started outlives it."""
    become_subreaper()
    try:
        async with asyncio.TaskGroup() as group:
            engine.bind(group)
            engine.journal.on_commit(engine.committed, asyncio.get_running_loop())
            drive = group.create_task(engine.drive())
            awake = group.create_task(engine.vigil.keep())
            try:
                yield engine
            finally:
                awake.cancel()
                await engine.close()
                await asyncio.wait([drive, awake])
                await engine.close_network()
    except BaseExceptionGroup as several:
        # Whoever holds the block knows the error by its own name, not as one of a group.
        if len(several.exceptions) == 1:
            raise several.exceptions[0] from several
        raise
