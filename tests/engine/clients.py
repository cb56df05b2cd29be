"""Several clients that ask an engine about its plans in the same moment, and whatever else can happen meanwhile.

The requests are the real ones, and so are the runs and the start of a plan. The engine below them is one of paper: it
runs no program, and whatever takes time (looking for agents, asking git, fetching, stopping programs) waits at a gate
until the machine opens it. So between the first look of a request and what it records, anything can happen: each
search tries many orders. What holds in every order is written in `Orders`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from types import SimpleNamespace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orchard.config.layers import Config
from orchard.core.replay import apply, foresee, replay
from orchard.core.run import Run
from orchard.core.scheduler import pick
from orchard.core.states import ACTIVE, JobState
from orchard.engine.plans.runs import Chain, Runs
from orchard.errors import OrchardError
from orchard.forge.requests import Opened
from orchard.model.events import plans as e
from orchard.model.plan import Job, JobId, Plan, PlanId, ShellWork
from orchard.model.plan_codec import plan_json
from orchard.surfaces.next_steps import in_commands
from tests.core.simulation import known_of
from tests.engine.planted import REAL, Asked

Json = dict[str, Any]
SLOTS = 3
LIMIT = 2
AT_ONCE = 4
"""Nobody asks for one thing more while so many requests wait."""
TURNS = 200
DELETED = 3
"""With these bits of a number a plan is deleted and not only canceled: its story is over then."""
ASKED = (
    "pause",
    "resume",
    "cancel",
    "delete",
    "retry",
    "fresh",
    "cancel_jobs",
    "force_fail",
    "add",
    "remove",
    "target",
)

WHEN: ContextVar[int] = ContextVar("WHEN")
"""In which step the request was asked that is being carried out; an engine's own doing has none."""

numbers = st.integers(0, 2**12 - 1)


class Orders:
    """What holds in whatever order requests are carried out, held against each event when it is recorded."""

    def __init__(self) -> None:
        self.step = 0
        self.paused: dict[str, int] = {}
        """In which step the last pause was asked for that was answered."""
        self.canceled: dict[str, int] = {}
        self.jobs: dict[str, set[str]] = {}
        """What a plan must hold: jobs that were added, or have begun."""

    def check(self, run: Run, event: e.Event) -> None:
        """See that a request undoes nothing that was answered after it was asked."""
        if isinstance(event, e.PlanResumed | e.JobRetried | e.PlanReshaped | e.PlanStarted):
            assert not run.deleted, f"{event} of a plan that is deleted"
        if isinstance(event, e.PlanResumed):
            assert WHEN.get() > self.paused.get(run.id, -1), "a pause was answered and undone by an older request"
        elif isinstance(event, e.JobRetried):
            assert WHEN.get() > self.canceled.get(run.id, -1), "a plan was canceled, and an older retry lets it go on"
        elif isinstance(event, e.PlanCanceled):
            self.canceled[run.id] = self.step
        elif isinstance(event, e.PlanStarted):
            assert run.paused is None and run.canceled is None, "a plan starts although somebody stopped it"
            assert event.target_branch == (run.plan.target or "work"), "a plan starts where it was to start before"
        elif isinstance(event, e.JobPicked):
            self.jobs[run.id].add(event.job)

    def note(self, verb: str, args: Json, answer: Json) -> None:
        """Remember what was promised to a client."""
        if verb == "create_plan":
            added = [] if answer["known"] else [job["id"] for job in args["plan"]["jobs"]]
            self.jobs.setdefault(answer["plan"], set()).update(added)
        elif verb == "pause_plan":
            self.paused[args["plan"]] = WHEN.get()
        for change in args.get("changes", ()):
            if change["op"] == "add":
                self.jobs[args["plan"]].add(change["job"]["id"])
            elif change["op"] == "remove":
                self.jobs[args["plan"]].discard(change["id"])

    def hold(self, run: Run) -> None:
        lost = self.jobs.get(run.id, set()) - set(run.plan.jobs)
        assert not lost, f"{run.id} has lost {lost}: added and answered, or begun"


class PaperEngine:
    """Everything that requests want of an engine."""

    def __init__(self, orders: Orders) -> None:
        self.orders, self.runs, self.chain = orders, Runs(in_commands), Chain(in_commands)
        self.world = SimpleNamespace(
            config=Config(),
            in_thread=self.in_thread,
            integration=SimpleNamespace(start=None),
            repo=None,
            say=in_commands,
            changed_settings=tuple,
            hidden_in={},
            environment={},
            described_at=lambda commit, name: None,
        )
        self.journal: list[e.Recorded] = []
        self.gates: list[asyncio.Future[None]] = []
        self.notes: list[str] = []
        self.found: set[PlanId] = set()
        self.asked = self.opened_at = 0

    def record(self, plan: PlanId, event: e.Event, *, listed: bool = False) -> None:
        run, number = self.runs[plan], len(self.journal) + 1
        self.orders.check(run, event)
        recorded = e.Recorded(number, float(number), plan, event)
        apply(run, recorded)
        self.journal.append(recorded)

    def record_together(self, plan: PlanId, *events: e.Event, listed: bool = False) -> None:
        foresee(self.runs[plan], events)
        for event in events:
            self.record(plan, event)

    async def gate(self) -> None:
        """Wait until the machine says so."""
        self.gates.append(asyncio.get_running_loop().create_future())
        await self.gates[-1]

    async def abandoned_ended(self) -> None:
        """On paper no subtask runs."""

    async def in_thread(self, work: Callable[..., object], *args: Any, **more: Any) -> object:
        name = getattr(work, "__name__", "")
        answer: object = [] if name in ("reach_warnings", "unproposable", "look") else None
        if name == "_pin":
            answer = e.PlanStarted("main", "base", args[1].plan.target or "work", "base")
        if name == "open_way":
            answer = SimpleNamespace(remote="origin", project=None, source=None, channel=None)
        if name == "open_or_update":
            answer = Opened(1, "https://forge.example/1", created=True)
        await self.gate()
        return answer

    async def stop(self, run: Run, jobs: list[JobId], why: Any) -> None:
        """Attempts that are under way end when their programs have, or have come to an end of their own before."""
        under_way = [(job, run.records[job].number) for job in jobs if run.records[job].state in ACTIVE]
        if under_way:
            await self.gate()
        for job, number in under_way:
            if run.records[job].state in ACTIVE and run.records[job].number == number:
                forced = e.JobFailed(job, number, None, "forced", why.reason)
                self.record(run.id, e.JobCanceled(job, why.reason) if why.kind == "cancel" else forced)

    async def durable(self) -> None:
        """Paper is patient."""

    def wake(self) -> None:
        """The machine says when the engine looks."""


class PaperReader:
    """A journal that knows no plan but those in memory."""

    def plan(self, plan: PlanId) -> None:
        return None

    def plans(self) -> list[Any]:
        return []

    def mentioning(self, text: str) -> list[Any]:
        return []


class ClientsMachine(RuleBasedStateMachine):
    """Clients, an engine that works on their plans, and gates between one look and the next."""

    modules: Asked = REAL

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.orders = Orders()
        self.engine = PaperEngine(self.orders)
        self.requests = self.modules.handler.Handler(self.engine, PaperReader())
        self.tasks: list[asyncio.Task[None]] = []
        self.preparing: set[PlanId] = set()
        self.keys: dict[str, str] = {}
        self.made = 0
        self.sound = True
        """Whether the last step was seen to its end."""

    # --------------------------------------------------------------------------------------- asking

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        self.sound = False
        self.orders.step += 1
        self.tasks.append(self.loop.create_task(work))
        self.settle()

    def settle(self) -> None:
        """Let everything go on as far as it can; what ended with an error that is no answer fails the search."""
        self.loop.run_until_complete(_turns())
        for task in [task for task in self.tasks if task.done()]:
            self.tasks.remove(task)
            task.result()

    async def ask(self, verb: str, **args: Any) -> None:
        """Carry a request out; a refusal is an answer like any other."""
        WHEN.set(self.orders.step)
        try:
            answer = await self.requests.handle(verb, args)
        except OrchardError as refused:
            assert refused.message
            return
        self.orders.note(verb, args, answer)
        if args.get("key"):
            assert self.keys.setdefault(args["key"], answer["plan"]) == answer["plan"], "one key made two plans"

    def plan(self, n: int) -> PlanId:
        plans = [run.id for run in self.engine.runs.values()]
        return plans[n % len(plans)]

    def job(self, plan: PlanId, n: int) -> str:
        jobs = [job for job in self.engine.runs[plan].plan.jobs if not job.startswith("_")]
        return str(jobs[n % len(jobs)]) if jobs else "none"

    @initialize(paused=st.booleans())
    def first(self, paused: bool) -> None:
        self.submit(0, paused, keyed=False)
        self.open_all()

    @rule(n=numbers, paused=st.booleans(), keyed=st.booleans())
    def submit(self, n: int, paused: bool, keyed: bool) -> None:
        """The same key comes with the same plan."""
        if len(self.engine.runs) > 1 and not keyed:
            return self.open_one(n)
        work = ShellWork(command="true")
        jobs = [
            Job(id=JobId("a"), name="a", work=work),
            Job(id=JobId("b"), name="b", work=work, needs=(JobId("a"),)),
        ]
        plan = Plan(name="k" if keyed else "p", jobs={job.id: job for job in jobs}, start_paused=paused and not keyed)
        key = {"key": "k"} if keyed else {}
        return self.begin(self.ask("create_plan", plan=plan_json(plan), **key))

    @rule(n=numbers, m=numbers, what=st.sampled_from(ASKED))
    def request(self, n: int, m: int, what: str) -> None:
        """One request, which may wait inside for as long as the machine likes."""
        if len(self.tasks) < AT_ONCE:
            self.begin(self.asked(self.plan(n), m, what))

    @rule(n=numbers, m=numbers, both=st.tuples(st.sampled_from(ASKED), st.sampled_from(ASKED)), between=numbers)
    def race(self, n: int, m: int, both: tuple[str, str], between: int) -> None:
        """Two requests about one plan, while the engine works on it; the first is answered first, or last."""
        plan = self.plan(n)
        if both[1] == "delete":
            m |= DELETED
        if between & 48 == 48:  # a plan that both could let go on
            self.begin(self.asked(plan, m, "force_fail"))
            self.begin(self.asked(plan, m, "pause"))
            self.open_all()
        self.begin(self.asked(plan, m, both[0]))
        if between & 1:
            self.turn()
        self.begin(self.asked(plan, m, both[1]))
        if between & 2:
            self.finish(between, ok=not between & 4)
        self.open_all(last=bool(between & 8))

    def asked(self, plan: PlanId, m: int, what: str) -> Coroutine[Any, Any, None]:
        job = self.job(plan, m)
        if what in ("retry", "fresh"):
            return self.ask("retry_plan", plan=plan, jobs=[job] if m & 1 else None, fresh=what == "fresh")
        if what == "force_fail":
            return self.ask("force_fail_job", plan=plan, job=job)
        if what == "cancel_jobs":
            return self.ask(what, plan=plan, jobs=[job])
        if what not in ("add", "remove", "target"):
            return self.ask(f"{what if what != 'delete' or m & DELETED == DELETED else 'cancel'}_plan", plan=plan)
        self.made += 1
        change: Json = {"op": "remove", "id": job}
        if what == "add":
            needs = [job] if m & 1 else []
            change = {"op": "add", "job": {"id": f"n{self.made}", "work": "true", "needs": needs}}
        elif what == "target":
            change = {"op": "update_plan", "set": {"target": f"t{self.made}"}}
        return self.ask("reshape_plan", plan=plan, changes=[change])

    # ----------------------------------------------------------------------------------- the engine

    @rule(n=numbers)
    def open_one(self, n: int) -> None:
        """One of those who wait goes on."""
        self.sound = False
        gates = [gate for gate in self.engine.gates if not gate.done()]
        self.engine.gates = gates
        if gates:
            gates.pop(n % len(gates)).set_result(None)
            self.settle()

    def open_all(self, *, last: bool = False) -> None:
        for _ in range(TURNS):
            if not self.tasks:
                return
            self.open_one(len(self.engine.gates) - 1 if last else 0)
        raise AssertionError("a request is never answered")

    @rule()
    def turn(self) -> None:
        """The engine starts plans and jobs."""
        self.sound = False
        for run in list(self.engine.runs.values()):
            stopped = run.scaffolding or run.paused is not None or run.canceled is not None or run.deleted
            if run.started is None and not stopped and run.id not in self.preparing:
                self.preparing.add(run.id)
                self.begin(self.start(run))
        runs = [run for run in self.engine.runs.values() if run.may_start and run.has_ready()]
        for start in pick(runs, SLOTS - sum(run.slots_used for run in self.engine.runs.values()), LIMIT):
            number = self.engine.runs[start.plan].records[start.job].number
            self.engine.record(start.plan, e.JobPicked(start.job, number))
            self.engine.record(start.plan, e.JobStarted(start.job, number))

    async def start(self, run: Run) -> None:
        try:
            await self.modules.snapshot.start_plan(self.engine, run)
        finally:
            self.preparing.discard(run.id)

    @rule(n=numbers, ok=st.sampled_from([True, True, False]))
    def finish(self, n: int, ok: bool) -> None:
        """A job comes to its end."""
        self.sound = False
        running = [
            (run.id, job, record.number)
            for run in self.engine.runs.values()
            for job, record in run.records.items()
            if record.state is JobState.RUNNING
        ]
        if not running:
            return self.turn()
        plan, job, number = running[n % len(running)]
        failed = e.JobFailed(job, number, None, "exit", "it failed")
        self.engine.record(plan, e.JobSucceeded(job, number, f"commit-{job}") if ok else failed)
        return None

    # ------------------------------------------------------------------------------------ what holds

    @invariant()
    def nothing_that_was_answered_is_lost(self) -> None:
        for run in self.engine.runs.values():
            self.orders.hold(run)
        self.sound = True

    def teardown(self) -> None:
        """Every request is answered, every plan comes to its end, and the journal tells the same."""
        try:
            if not self.sound:
                return
            self.open_all()
            for run in [run for run in self.engine.runs.values() if not run.deleted]:
                for _ in range(TURNS):
                    if run.status == "succeeded":
                        break
                    self.help(run)
                assert run.status == "succeeded" and run.slots_used == 0, f"{run.id} hangs: {run.status}, {run.counts}"
            self.nothing_that_was_answered_is_lost()
            for plan, run in self.engine.runs.items():
                assert known_of(replay(one for one in self.engine.journal if one.plan == plan)) == known_of(run)
        finally:
            for task in self.tasks:
                task.cancel()
            self.loop.run_until_complete(_turns())
            self.loop.close()

    def help(self, run: Run) -> None:
        """What a person does for a plan that should go on."""
        if run.settled:
            self.begin(self.ask("retry_plan", plan=run.id))
        elif run.paused is not None:
            self.begin(self.ask("resume_plan", plan=run.id))
        self.turn()
        self.finish(0, ok=True)
        self.open_all()


async def _turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)
