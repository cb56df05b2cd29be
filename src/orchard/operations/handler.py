"""How the engine answers what is asked of it: each operation is looked up, checked, decided, recorded and answered.

Requests come from the same process or through the control socket; either way plans and jobs are named by their whole
ids, and the answer is plain values, given when what was decided is durable. Everything about one plan is decided by one
request at a time; see the package for what may wait, and what may not.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import Any

from msgspec.structs import replace

from orchard import own_log
from orchard.core.run import Run
from orchard.engine.engine import Engine
from orchard.engine.plans.refs import new_plan_id
from orchard.engine.recovery import recover_plan
from orchard.errors import Next, NotFound, OrchardError, UsageError
from orchard.model.events.plans import Json, PlanSubmitted, SandboxAsked
from orchard.model.plan import Plan, PlanId
from orchard.model.sandbox import Level, stricter
from orchard.operations.arguments import read_arguments
from orchard.operations.command import Command, Decision, Outdated, Service
from orchard.operations.commands.plans import create_plan
from orchard.operations.idempotency import plan_with
from orchard.operations.operation import Operation
from orchard.operations.plan_locks import PlanLocks
from orchard.operations.selection import find_plan
from orchard.process.failpoint import failpoint
from orchard.store.reader import JournalReader

MOST_LOOKS = 10
"""How often a command looks at a plan that other requests keep changing, before it is refused."""


def _tell(name: str, plan: object, how: str, began: float) -> None:
    about = f" {plan}" if isinstance(plan, str) else ""
    own_log.info("operations", f"{name[:60]}{about[:80]}: {how} after {(time.monotonic() - began) * 1000:.1f} ms")


def _operation(name: str) -> Operation | None:
    """The operation of this name. Most engines live for one plan and are asked for nothing but that."""
    if name == create_plan.name:
        return create_plan
    from orchard.operations.table import OPERATIONS  # brings every command and every query

    return OPERATIONS.get(name)


class Handler:
    """Answers what is asked of an engine."""

    def __init__(self, engine: Engine, reader: JournalReader) -> None:
        self._engine, self._reader = engine, reader
        self.came = asyncio.Event()
        """Set whenever a request comes."""
        self._locks = PlanLocks()
        self._resuming: Counter[PlanId] = Counter()

    @property
    def engine(self) -> Engine:
        return self._engine

    async def handle(self, name: str, args: Mapping[str, Any], sandbox: Level | None = None) -> Json:
        """Carry out one request; what a person did wrong is an OrchardError. `sandbox`: the wall that who asks wants
        around programs; None: nobody who could say so asks."""
        self.came.set()
        self.engine.asked += 1
        plan = args.get("plan")
        began = time.monotonic()
        try:
            with self.engine.runs.holding(PlanId(plan)) if isinstance(plan, str) else nullcontext():
                answer = await self._carry_out(name, args, sandbox)
            _tell(name, plan, "done", began)
            return answer
        except OrchardError as error:
            _tell(name, plan, f"refused ({type(error).__name__})", began)
            raise
        finally:
            self.engine.asked -= 1
            self.engine.wake()

    async def _carry_out(self, name: str, args: Mapping[str, Any], sandbox: Level | None) -> Json:
        operation = _operation(name)
        if not isinstance(operation, Command | Service):
            raise UsageError(f"There is no request '{name}'.")
        given, plan = read_arguments(operation, args), args.get("plan")
        failpoint("request.before")
        if isinstance(operation, Service):
            answer = await operation.serve(self.engine, given)
        elif isinstance(plan, str):
            with self._letting_go_on(PlanId(plan)) if operation.lets_go_on else nullcontext():
                answer = await self._command(operation, PlanId(plan), given, sandbox)
        else:
            answer = await self._creation(operation, given, sandbox)
        await self.engine.abandoned_ended()
        await self.engine.durable()
        failpoint("request.after-durable")
        return answer

    # -------------------------------------------------------------------------------------- commands

    async def _command(self, command: Command, plan: PlanId, args: Any, sandbox: Level | None) -> Json:
        """Prepare and decide until what was prepared still holds; then do what follows."""
        for _ in range(MOST_LOOKS):
            ready = None
            if command.prepare is not None:
                ready = await command.prepare(self, await self._run(plan), args)
            try:
                async with self._deciding(plan) as run:
                    decided = command.decide(run, args, ready, self)
                    if (wall := self._other_wall(command, run, sandbox)) is not None:
                        decided = replace(decided, events=(SandboxAsked(wall), *decided.events))
                    self._record(run.id, decided)
                    answer = decided.answer
                    if command.perform is not None and not decided.again:
                        answer = await command.perform(self, run, args, decided)
            except Outdated:
                continue
            if decided.stops is not None:
                await self._stop(run, decided)
            if not decided.again:
                break  # otherwise its jobs have ended now, and the command looks at the plan once more
        else:
            raise _overtaken(plan)
        if command.after is not None:
            answer = await command.after(self, run, args, decided)
        elif command.finish is not None:
            answer = command.finish(run, args, decided)
        return {"plan": plan, "status": str(run.status), **answer}

    def _other_wall(self, command: Command, run: Run, asked: Level | None) -> Level | None:
        """The wall that the plan gets by a command, where it has another one."""
        if asked is None or asked == run.sandbox:
            return None
        if command.sets_wall:
            return asked
        has = run.sandbox or self.engine.world.config.sandbox.level
        return asked if command.adds_work and stricter(has, asked) != has else None

    def _record(self, plan: PlanId, decided: Decision) -> None:
        if decided.events:
            self.engine.record_together(plan, *decided.events, listed=decided.listed)
            failpoint("command.recorded")

    async def _stop(self, run: Run, decided: Decision) -> None:
        assert decided.stops is not None
        stop, jobs = decided.stops
        failpoint("cancel.before-stop")
        await self.engine.stop(run, list(jobs), stop)
        failpoint("cancel.after-stop")

    async def _creation(self, command: Command, args: Any, sandbox: Level | None) -> Json:
        """The same for a plan that is not there yet; nothing is made unless all of it can be."""
        nothing = Run(PlanId(""))
        ready = await command.prepare(self, nothing, args) if command.prepare is not None else None
        decided = command.decide(nothing, args, ready, self)
        if decided.creates is not None:
            self.engine.runs.add(Run(decided.creates), known=False)
            try:
                wall = sandbox or stricter(self.engine.world.config.sandbox.level, "auto")
                made = (replace(one, sandbox=wall) if isinstance(one, PlanSubmitted) else one for one in decided.events)
                self.engine.record_together(decided.creates, *made)
            except BaseException:
                self.engine.runs.drop(decided.creates)  # a plan of which nothing is recorded is none
                raise
            failpoint("plan.submitted")
        return decided.answer

    @asynccontextmanager
    async def _deciding(self, plan: PlanId) -> AsyncIterator[Run]:
        """The run, for the one request that decides about the plan now; also of a plan that was over long ago."""
        async with self._locks.alone(plan):
            run = self.engine.runs.get(plan)
            if run is None:
                if self._reader.plan(plan) is None:
                    raise NotFound(f"There is no plan '{plan}'.", hint=Next("list_plans"))
                run = await recover_plan(self.engine, self._reader, plan)
            yield run

    async def _run(self, plan: PlanId) -> Run:
        async with self._deciding(plan) as run:
            return run

    @contextmanager
    def _letting_go_on(self, plan: PlanId) -> Iterator[None]:
        self._resuming[plan] += 1
        try:
            yield
        finally:
            self._resuming[plan] -= 1
            self._resuming += Counter()  # drops what is zero

    # ------------------------------------------------------------------------------------- the scene

    def resuming(self, plan: PlanId) -> bool:
        return self._resuming[plan] > 0

    def plan_with(self, key: Json) -> PlanId | None:
        return plan_with(key, self.engine.runs.values(), self._reader.mentioning(key["key"]))

    def new_id(self, name: str) -> PlanId:
        return new_plan_id(name, self._is_taken)

    def _is_taken(self, plan: PlanId) -> bool:
        return plan in self.engine.runs or self._reader.plan(plan) is not None

    def first(self, plan: Plan, own: PlanId | None = None) -> PlanId | None:
        if plan.after is None:
            return None
        first = find_plan(self._reader.plans(), plan.after)
        waits: str | None = first
        while waits is not None:
            if waits == own:
                raise UsageError(f"Plan '{own}' cannot wait for '{first}': that one waits for it.")
            run, row = self.engine.runs.get(PlanId(waits)), self._reader.plan(PlanId(waits))
            waits = run.plan.after if run is not None else row.summary.after if row is not None else None
        return first


def _overtaken(plan: PlanId) -> OrchardError:
    return OrchardError(
        f"Other requests changed plan '{plan}' {MOST_LOOKS} times while this one looked at it, so this one gave up.",
        hint=("See what the others did ('", Next("get_plan", plan), "'), and ask again when they have ended."),
    )
