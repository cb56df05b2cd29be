"""The health monitor: what it takes of the processor while a hundred workers are silent."""

import asyncio
import json
import time
from collections.abc import Awaitable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from orchard.bench.place import Bench
from orchard.bench.rounds import Bar, Figures, Measure
from orchard.config.layers import Config
from orchard.core.replay import replay
from orchard.engine.interruption import Interruptible
from orchard.engine.machine.vigil import PULSE_SECONDS
from orchard.engine.turns.health import Monitor
from orchard.engine.turns.job_tokens import Scope
from orchard.engine.world import World
from orchard.model.events.plans import PlanSubmitted, Recorded
from orchard.model.health import Health
from orchard.model.plan import JobId, PlanId
from orchard.model.plan_codec import plan_json
from orchard.planfile.parse import parse
from orchard.process.stopwatch import Broken, started

SPEED = 10
"""Silence counts ten times as fast as by default, so that a round holds a whole period with all of its looks."""


def health(bench: Bench) -> Measure:
    """The monitor alone, beside the programs of a hundred agents that say nothing and do nothing."""
    many = bench.size(100, 2)
    settings = Health(slow=None, stuck=(Health().stuck or 300.0) / (SPEED if not bench.quick else 1000))

    def ours() -> Figures:
        return {"ours": asyncio.run(_share(bench.fresh("state"), settings, many))}

    what = f"processor of the monitor, {many} silent workers, {SPEED} times as often as by default"
    return Measure((ours,), (Bar(what, "ours", most=1.0, unit="%"),))


class _Recorded:
    """Whoever hears what the monitor finds: the workers are stuck, and that is told once."""

    def __init__(self) -> None:
        self.events: list[object] = []

    def record(self, plan: PlanId, event: object, *, listed: bool = False) -> int:
        self.events.append(event)
        return len(self.events)


async def _share(state: Path, settings: Health, many: int) -> float:
    """Per cent of one core over one period of silence and a little more."""
    state.mkdir()
    recorded, tasks = _Recorded(), set[Any]()
    world = SimpleNamespace(
        config=Config(health=settings), repo=SimpleNamespace(state=state), hidden_in={}, in_thread=asyncio.to_thread
    )

    def spawn(work: Awaitable[None]) -> None:
        tasks.add(asyncio.ensure_future(work))

    monitor = Monitor(cast(World, world), recorded, spawn, lambda scope: None)
    jobs = [{"id": f"j{number}", "work": "@agent x"} for number in range(many)]
    plan = parse(json.dumps({"name": "bench", "jobs": jobs}).encode(), "plan.json")
    run = replay([Recorded(1, 0.0, PlanId("bench"), PlanSubmitted(plan_json(plan)))])
    scopes = [Scope(run.id, JobId(job["id"]), 1) for job in jobs]
    period = settings.stuck or 0.0
    with ExitStack() as stack:
        for scope in scopes:
            stack.enter_context(started(["sleep", "600"], state))
            stack.enter_context(monitor.watching(run, scope, f"bench:{scope.job}", Interruptible()))
        for scope in scopes:  # the last word of each at another moment, or one look would serve all of them
            monitor.touch(scope, "output", "the last words")
            await asyncio.sleep(period / many)
        used, begin = time.process_time(), time.perf_counter()
        while time.perf_counter() < begin + 1.1 * period:
            monitor.publish()
            await asyncio.sleep(min(PULSE_SECONDS, period))
        if not recorded.events:
            raise Broken("no worker was found to be stuck")
        return 100 * (time.process_time() - used) / (time.perf_counter() - begin)
