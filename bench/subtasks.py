"""Subtasks: how long it takes from asking for one until its agent works, beside a job that gets a warm worktree."""

import asyncio
import time
from statistics import median
from typing import Any
from unittest.mock import patch

from bench.repositories import MEDIUM, QUICK, copy_repository, make_repository
from orchard.agents.protocol import Agent, Result, Task, Watch
from orchard.agents.registry import Agents
from orchard.app import open_app
from orchard.bench.parts import MILLISECONDS
from orchard.bench.place import Bench
from orchard.bench.rounds import Bar, Figures, Measure
from orchard.config.layers import Config
from orchard.engine.server import start
from orchard.engine.server.session import Session
from orchard.model.plan import PlanId, Tier
from orchard.process.stopwatch import Broken
from orchard.surfaces.next_steps import in_commands
from orchard.testing import ScriptedAgent

CHILDREN = 5
JOBS = """
name: bench
max_parallel: 2
land: never
jobs:
  - {id: first, work: '@one Quick'}
  - {id: second, needs: [first], work: '@one Quick'}
  - {id: third, needs: [second], work: '@one Quick'}
  - {id: parent, needs: [third], work: '@one Parent'}
"""


def subtasks(bench: Bench) -> Measure:
    """The agent's own picture is part of it: what it has changed so far is what its helper begins with."""
    shape = QUICK if bench.quick else MEDIUM
    template = make_repository(bench, shape)

    def ours() -> Figures:
        return asyncio.run(_Round(bench, copy_repository(bench, template)).run())

    what = f"a subtask begins, {shape.shown}: a job that gets a warm worktree"
    return Measure((ours,), (Bar(what, "subtask", "warm", most=1.5, unit="ms"),))


class _Table(Agents):
    """The agents of the engine: one, which does what it is told here."""

    def __init__(self, config: Config, agent: ScriptedAgent) -> None:
        super().__init__(config, {})
        self._agent = agent

    @property
    def names(self) -> tuple[str, ...]:
        return (self._agent.name,)

    def find(self, name: str | None) -> Agent:
        return self._agent

    def model_for(self, agent: str, model: str | None, tier: Tier | None) -> str | None:
        return model

    def listed(self) -> list[dict[str, object]]:
        return [{"name": self._agent.name, "usable": True, "default": True, "why_not": None}]


class _Round:
    def __init__(self, bench: Bench, path: Any) -> None:
        self._app = open_app(path, in_commands)
        self._session: Session | None = None
        self._began: dict[str, float] = {}
        self._asked: list[float] = []
        self._helped: list[float] = []

    async def run(self) -> Figures:
        agent = ScriptedAgent("one", [self._turn])
        with patch.object(start, "Agents", lambda config, host: _Table(config, agent)):
            async with self._app.session() as session:
                self._session = session
                asked = self._app.parse_plan(None, JOBS.encode())
                plan = PlanId((await session.request("create_plan", plan=asked))["plan"])
                async for _ in session.follow(plan):
                    pass
        found = self._app.run_of(plan).records
        jobs = {str(job): record for job, record in found.items() if record.attempts}
        if len(self._helped) != CHILDREN or "parent" not in jobs:
            raise Broken("not every subtask began")
        warm = [self._began[job] - jobs[job].attempts[0].started for job in ("second", "third", "parent")]
        # The first of them has to make its worktree, as the first job had.
        helped = [begun - asked for asked, begun in zip(self._asked, self._helped, strict=True)][1:]
        return {"warm": MILLISECONDS * median(warm), "subtask": MILLISECONDS * median(helped)}

    async def _turn(self, task: Task, watch: Watch) -> Result:
        began, env = time.time(), task.env
        if task.instructions.startswith("Help"):
            self._helped.append(began)
            return Result("done", text="Helped.")
        self._began[env["ORCHARD_JOB"]] = began
        (task.folder / f"{env['ORCHARD_JOB']}.txt").write_text("x")
        if env["ORCHARD_JOB"] == "parent":
            scope = {"plan": env["ORCHARD_PLAN"], "job": "parent", "attempt": 1}
            for _ in range(CHILDREN):
                self._asked.append(time.time())
                assert self._session is not None
                await self._session.request("spawn_subtask", **scope, instructions="Help", blocking=True)
        return Result("done", text="Done.")
