"""An attempt under way, as its phases see it."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path

from msgspec import Struct, field

from orchard.agents.droppings import droppings_of, is_dropping
from orchard.core.records import JobRecord
from orchard.core.run import Run
from orchard.engine.engine import Engine
from orchard.engine.programs import Place
from orchard.engine.workspace import Workspace, workspace_of
from orchard.engine.world import World
from orchard.errors import OrchardError
from orchard.model.events.event import Event
from orchard.model.phases import Phase
from orchard.model.plan import Job, JobId, Plan
from orchard.model.sandbox import Network


class Context(Struct, dict=True):
    engine: Engine
    run: Run
    job_id: JobId
    number: int
    first_phase: Phase
    hurry: asyncio.Event
    fresh: bool = False
    starts_over: bool = False
    """What the job needs has changed since the attempt began, so nothing that was done in it counts."""
    approved: str | None = None
    """The kind of hold that a person released before this start."""
    base: str = ""
    stand_in: str | None = None
    """What others start from where the attempt failed and was allowed to."""
    commit: str | None = None
    target_tip: str | None = None
    """Where the target was when the validation job last looked; None: the landing makes the branch."""
    phase: Phase = Phase.MERGE_FI
    healed: bool = False
    """Whether an agent has healed something since the last commit."""
    edited: bool | None = None
    """Whether the worktree was edited after the check that failed; None: not looked at."""
    notes: list[str] = field(default_factory=list)
    subtask: str | None = None
    """The subtask whose worktree and turns these are; None: the attempt's own."""

    @cached_property
    def workspace(self) -> Workspace:
        return workspace_of(self.engine, self.run, self.job_id, self.subtask, attempt=self.number)

    def record(self, event: Event) -> None:
        self.engine.record(self.run.id, event)

    @property
    def world(self) -> World:
        return self.engine.world

    @property
    def now(self) -> tuple[JobId, int, Phase]:
        """What events about the phase under way begin with."""
        return self.job_id, self.number, self.phase

    @property
    def job(self) -> Job:
        return self.run.job(self.job_id)

    @property
    def plan(self) -> Plan:
        return self.run.plan

    @property
    def state(self) -> JobRecord:
        return self.run.records[self.job_id]

    @property
    def network(self) -> Network | None:
        return self.job.network or self.plan.network

    def traced(self, env: Mapping[str, str]) -> Mapping[str, str]:
        """The variables of a program, and where plans are traced those by which it can join the trace."""
        tracing = self.engine.tracing
        return env if tracing is None else tracing.environment(self.run.id, self.job_id, env, self.subtask)

    def in_trace(self) -> AbstractContextManager[object]:
        """For the time of the block, what libraries of ours trace belongs to what is done here."""
        tracing = self.engine.tracing
        return nullcontext() if tracing is None else tracing.current(self.run.id, self.job_id, self.subtask)

    @property
    def log(self) -> Path:
        if self.subtask is not None:
            return self.world.logs.subtask_path(self.run.id, self.job_id, self.number, self.subtask)
        return self.world.logs.path(self.run.id, self.job_id, self.number, self.phase)

    def make_log(self) -> Path:
        """The same, there to be appended to."""
        return self.world.logs.make(self.log)

    @property
    def droppings(self) -> Callable[[str], bool]:
        return _droppings(self.world, self.state, self.subtask)

    @property
    def place(self) -> Place:
        evidence = self.world.logs.evidence_path(self.run.id, self.job_id, self.number)
        if self.workspace.launcher.wall is not None:
            evidence = self.workspace.enclosure.folders.out / f"evidence-{self.number}.json"
        target = self.run.pinned.target_branch
        known = (self.workspace.folder, self.run.id, self.job_id, self.number, self.base, target, evidence)
        return Place(*known, self.engine.port_of(self.run.id, self.job_id))


def _droppings(world: World, record: JobRecord, subtask: str | None = None) -> Callable[[str], bool]:
    """Which files agents left for themselves."""
    names = {turn.agent for attempt in record.attempts for turn in attempt.turns}
    if subtask is not None:
        names.add(record.subtasks[subtask].agent)
    patterns = droppings_of(world.config, sorted(names))
    return lambda path: is_dropping(path, patterns)


async def folder_state(context: Context) -> str:
    """A fingerprint of the worktree that an attempt works in; "" where it has none."""
    return await _state(context.workspace, context.droppings) if context.workspace.is_open else ""


async def state_left(engine: Engine, run: Run, job_id: JobId) -> str:
    """The same of the worktree that a job has, where no attempt is under way."""
    workspace = workspace_of(engine, run, job_id)
    held = workspace.held
    if held is None or not held.worktree.path.is_dir():
        return ""
    return await _state(workspace, _droppings(engine.world, run.records[job_id]))


async def _state(workspace: Workspace, droppings: Callable[[str], bool]) -> str:
    try:
        return await workspace.state(droppings)
    except OrchardError as error:
        return f"unreadable: {error}"
