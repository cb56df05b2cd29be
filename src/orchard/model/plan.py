"""A plan: jobs, what each does, and which jobs it waits for.

These are values: made by `planfile.parse` from what a person wrote, stored in the journal, never
changed. The graph that follows from `needs` (dependents, roots, leaves, an order) is computed once,
in `Plan.build`, in three passes: ids and groups, dependencies, reverse edges.

    Work      what runs: ShellWork, ProcessWork, AgentWork
    Job       one unit of work and how to tell that it went well
    Plan      jobs by full id, in the order they were written, the validation job last
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.errors import Problem
from orchard.model.names import JobId as JobId
from orchard.model.names import PlanId as PlanId
from orchard.model.names import Resolver as Resolver
from orchard.model.permissions import ALL, Tools
from orchard.model.phases import Phase
from orchard.model.sandbox import Level, Network

VALIDATION = JobId("__snapshot-validation__")

STRAYS = PlanId("strays")
"""In place of a plan, for work found in folders that no plan knows."""

Shell = Literal["sh", "bash", "zsh", "pwsh"]
Tier = Literal["fast", "standard", "premium"]
Effort = Literal["low", "medium", "high", "xhigh"]
Changes = Literal["required", "optional", "forbidden"]


class OnFailure(Struct, frozen=True):
    """What to do, and to say, when this work fails."""

    heal: bool | None = None
    message: str | None = None
    resume_from: Phase | None = None


class Work(Struct, frozen=True, kw_only=True, tag_field="type"):
    """What every kind of work has."""

    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    """Inside the worktree; None is its top."""
    timeout: float | None = None
    """Seconds of wall-clock time, not counting a suspended machine."""
    on_failure: OnFailure = OnFailure()


class ShellWork(Work, frozen=True, kw_only=True, tag="shell"):
    """A command line, given to a shell."""

    command: str
    shell: Shell = "sh"


class ProcessWork(Work, frozen=True, kw_only=True, tag="process"):
    """A program, started directly."""

    executable: str
    args: tuple[str, ...] = ()


class AgentWork(Work, frozen=True, kw_only=True, tag="agent"):
    """A task for a coding agent."""

    instructions: str | None = None
    instructions_file: str | None = None
    agent: str | None = None
    model: str | None = None
    tier: Tier | None = None
    effort: Effort | None = None
    max_turns: int | None = None
    context_files: tuple[str, ...] = ()
    allowed_folders: tuple[str, ...] = ()
    allowed_urls: tuple[str, ...] = ()
    resume_session: bool | None = None
    interactive: bool = False
    mcp_servers: tuple[str, ...] = ()
    tools: Tools = ALL
    """On top of what the job says."""


class Job(Struct, frozen=True, kw_only=True):
    """One unit of work: what to run, after which jobs, and how to tell it went well."""

    id: JobId
    name: str
    task: str = ""
    group: str | None = None
    needs: tuple[JobId, ...] = ()
    work: Work | None = None
    prechecks: tuple[Work, ...] = ()
    postchecks: tuple[Work, ...] = ()
    setup: tuple[Work, ...] | None = None
    """None: what the plan says."""
    changes: Changes | None = None
    """Whether it has to change files; None: an agent has to, a program may."""
    retries: int = 0
    """How often failed work that is no agent's is run again before it is healed."""
    allow_failure: bool = False
    """Whether others go on, as if it had changed nothing, when it has failed."""
    heal: bool | int | None = None
    """None: what the configuration says; a number is heal attempts per phase."""
    env: Mapping[str, str] = field(default_factory=dict)
    timeout: float | None = None
    """For each of the job's works that names none of its own."""
    priority: int = 0
    retry_on_interrupt: bool = False
    approve: bool = False
    tools: Tools = ALL
    """Of every agent that works on the job: its work, its checks, its subtasks, and whoever heals it."""
    network: Network | None = None
    """None: what the plan says."""
    unprotected: tuple[str, ...] | None = None

    @property
    def may_change(self) -> Changes:
        """Whether it has to change files: what it says itself, else what its kind of work is for."""
        return self.changes or ("required" if isinstance(self.work, AgentWork) else "optional")

    @property
    def runs_nothing(self) -> bool:
        """Whether the job only gathers what it needs, so that no worktree is made for it."""
        return self.work is None and not self.prechecks and not self.postchecks


class Budget(Struct, frozen=True):
    """What a plan may use before it pauses."""

    tokens: int | None = None
    cost: float | None = None
    minutes: float | None = None


class Plan(Struct, frozen=True, kw_only=True, dict=True):
    """What is asked: jobs, how they depend on each other, and where their result goes."""

    name: str
    jobs: Mapping[JobId, Job]
    """By full id; the validation job is the last one."""
    description: str = ""
    """What it is for, as people and agents are told."""
    base: str | None = None
    target: str | None = None
    max_parallel: int | None = None
    """None: from the configuration; 0: no limit of its own."""
    verify: Work | None = None
    setup: tuple[Work, ...] | None = None
    params: Mapping[str, str] = field(default_factory=dict)
    """What its parameters stood for: every text of the plan has them put in already."""
    env: Mapping[str, str] = field(default_factory=dict)
    start_paused: bool = False
    after: str | None = None
    cleanup: bool = True
    worktree_root: str | None = None
    merge: Literal["squash", "merge"] = "squash"
    resolver: Resolver | None = None
    land: Literal["auto", "ask", "never", "pr"] = "auto"
    push: bool | None = None
    """None: from the configuration."""
    submodules: bool | None = None
    """Whether worktrees have them checked out, and jobs may move them; None: from the configuration."""
    deploy: Literal["auto", "manual"] = "auto"
    budget: Budget = Budget()
    sandbox: Level | None = None
    """Never weaker than what the configuration says, which is meant by None."""
    network: Network | None = None
    unprotected: tuple[str, ...] = ()
    """Protected names at the top of worktrees that jobs may change."""

    @cached_property
    def needed_by(self) -> Mapping[JobId, tuple[JobId, ...]]:
        found: dict[JobId, list[JobId]] = {job: [] for job in self.jobs}
        for job in self.jobs.values():
            for need in job.needs:
                found[need].append(job.id)
        return {job: tuple(dependents) for job, dependents in found.items()}

    @cached_property
    def roots(self) -> tuple[JobId, ...]:
        """The jobs that need no other; the validation job is never one of them."""
        return tuple(job.id for job in self.jobs.values() if not job.needs and job.id != VALIDATION)

    @cached_property
    def leaves(self) -> tuple[JobId, ...]:
        """The jobs that only the validation job needs: their results are what is landed."""
        return self.jobs[VALIDATION].needs

    @cached_property
    def leaf_set(self) -> frozenset[JobId]:
        return frozenset(self.leaves)

    @cached_property
    def in_order(self) -> tuple[JobId, ...]:
        """Every job after all that it needs; otherwise in the order of the plan."""
        order, cycle = topological_order({job.id: job.needs for job in self.jobs.values()})
        assert cycle is None, cycle
        return order

    @cached_property
    def position(self) -> Mapping[JobId, int]:
        return {job: number for number, job in enumerate(self.jobs)}

    @cached_property
    def remaining_path(self) -> Mapping[JobId, int]:
        """How many jobs the longest chain from here to the end holds, this one included."""
        longest: dict[JobId, int] = {}
        for job in reversed(self.in_order):
            longest[job] = 1 + max((longest[after] for after in self.needed_by[job]), default=0)
        return longest


def topological_order(needs: Mapping[JobId, Iterable[JobId]]) -> tuple[tuple[JobId, ...], tuple[JobId, ...] | None]:
    """Order jobs after what they need; where that is impossible, also name one cycle, as a closed path.

    `needs` must name only jobs that are among its keys.
    """
    waiting = {job: len(set(wanted)) for job, wanted in needs.items()}
    unlocks: dict[JobId, list[JobId]] = {job: [] for job in needs}
    for job, wanted in needs.items():
        for need in set(wanted):
            unlocks[need].append(job)
    order = [job for job, count in waiting.items() if count == 0]
    for job in order:
        for after in unlocks[job]:
            waiting[after] -= 1
            if waiting[after] == 0:
                order.append(after)
    if len(order) == len(waiting):
        return tuple(order), None
    return tuple(order), _a_cycle({job: tuple(wanted) for job, wanted in needs.items()}, set(order))


def _a_cycle(needs: Mapping[JobId, tuple[JobId, ...]], placed: set[JobId]) -> tuple[JobId, ...]:
    """One cycle among the jobs that could not be placed: each of them needs another such job."""
    job = next(job for job in needs if job not in placed)
    path: dict[JobId, int] = {}
    while job not in path:
        path[job] = len(path)
        job = next(need for need in needs[job] if need not in placed)
    walked = list(path)
    return (*walked[path[job] :], job)


def with_validation(plan: Plan) -> Plan:
    """The plan with its validation job made to follow the jobs as they are now."""
    jobs = {job.id: job for job in plan.jobs.values() if job.id != VALIDATION}
    needed = {need for job in jobs.values() for need in job.needs}
    leaves = tuple(job for job in jobs if job not in needed)
    old = plan.jobs.get(VALIDATION)
    validation = Job(
        id=VALIDATION,
        name="Snapshot validation",
        task="Check the merged result and land it.",
        needs=leaves,
        work=plan.verify if old is None else old.work,
        changes="forbidden",
        setup=old.setup if old is not None else None,
    )
    return replace(plan, jobs={**jobs, VALIDATION: validation})


def part_of(plan: Plan, wanted: Iterable[JobId]) -> Plan:
    """The plan with only these jobs, and with what they need."""
    kept: set[JobId] = set()
    todo = list(wanted)
    while todo:
        if (job := todo.pop()) not in kept:
            kept.add(job)
            todo += plan.jobs[job].needs
    return with_validation(replace(plan, jobs={job: one for job, one in plan.jobs.items() if job in kept}))


def graph_problems(jobs: Iterable[Job]) -> list[Problem]:
    """What is wrong with the graph as a whole: only cycles are left to find once every name is known."""
    _, cycle = topological_order({job.id: job.needs for job in jobs})
    if cycle is None:
        return []
    return [Problem(f"circular dependency: {' -> '.join(cycle)}", path="")]
