"""What would keep a plan from starting here, all of it, with its place in the file: for those who only ask."""

import os
import posixpath
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial

from orchard.agents.definitions.choice import choose
from orchard.agents.permissions import unheld
from orchard.config.layers import Config, allowed_env
from orchard.config.reach import reach_of
from orchard.engine.machine.reach import folder_meant
from orchard.engine.plans.refs import base_commit, check_base, check_target
from orchard.engine.turns.permissions import for_job
from orchard.engine.world import Agents
from orchard.errors import OrchardError, Say
from orchard.git.repository import Repository
from orchard.model.permissions import ALL, KINDS, Tools, all_of, canonical, unknown_names
from orchard.model.plan import VALIDATION, AgentWork, Job, Plan
from orchard.operations.queries.definitions import Described, agent_meant, described_for
from orchard.operations.selection import find_plan
from orchard.planfile.places import Finding
from orchard.planfile.works import Paths, Refuses, reserved, reserved_findings, works_of
from orchard.store.plan_list import PlanRow
from orchard.text import did_you_mean


def foreseen(
    repo: Repository, config: Config, agents: Agents, rows: Sequence[PlanRow], plan: Plan, paths: Paths, say: Say
) -> list[Finding]:
    """What of base, target, the plan before this one, worktrees, agents, models and servers cannot be had.

    And what agents may not be given: variables that steer them, folders that are not there.
    """
    described = described_for(repo, agents, plan)
    found = [*_of_plan(repo, rows, plan, say), *agent_findings(repo, config, agents, plan, paths, described)]
    found += _without_instructions(repo, plan, paths)
    known: dict[str, str | None] = {}
    for path, work, _ in works_of(plan, paths):
        if not isinstance(work, AgentWork):
            continue
        asked = repr((work.agent, work.model, work.tier, work.mcp_servers))
        if asked not in known:
            known[asked] = _refusal(partial(check_agent, agents, described, work), say)
        if (said := known[asked]) is not None:
            found.append(Finding(path, said))
    return found


def _without_instructions(repo: Repository, plan: Plan, paths: Paths) -> Iterator[Finding]:
    """Files with tasks that are not in what their jobs start from. What a job starts from that needs others is not
    known yet, and neither is that of a plan which begins after another."""
    named = {
        job.id: posixpath.normpath(job.work.instructions_file)
        for job in plan.jobs.values()
        if isinstance(job.work, AgentWork) and job.work.instructions_file is not None and not job.needs
    }
    start = base_commit(repo, plan) if named and plan.after is None and not plan.submodules else None
    for job, file in named.items() if start is not None else ():
        path = (*paths.get(job, ()), "work", "instructions_file")
        if file.startswith(("/", "../")):
            yield Finding(path, f"'{file}' lies outside of the repository")
        elif repo.git("cat-file", "-e", f"{start}:{file}", ok=range(256)).status != 0:
            there = repo.top is not None and (repo.top / file).is_file()
            first = "it is not committed; commit it first" if there else "there is no such file"
            yield Finding(path, f"'{file}' is not in commit {start:.10}, which the job starts from: {first}")


def agent_findings(
    repo: Repository, config: Config, agents: Agents, plan: Plan, paths: Paths, described: Described
) -> list[Finding]:
    """What a plan asks for its agents and may not have."""
    missing = [
        Finding(path, f"there is no folder '{folder}'")
        for path, folder in reach_of(plan, paths)
        if not os.path.isdir(folder_meant(repo, folder))  # noqa: PTH112  (one that cannot be looked at is not there)
    ]
    return [*reserved_findings(plan, refusals(config, agents, described), paths), *missing]


def refusals(config: Config, agents: Agents, described: Described) -> Refuses:
    """Which variables plans may not set for which agents: what steers any, and what one's own program goes by."""

    @cache
    def own(name: str | None) -> tuple[Collection[str], Collection[str]]:
        agent = agent_meant(agents, described, name)
        row = config.agents.get(agent or "")
        try:
            found = agents.find(agent).variables
        except OrchardError:  # it cannot be had, which is said elsewhere
            found = ()
        return _allowed(config, agents, agent), {*found} - {*(row.pass_env if row is not None else ())}

    def refuses(agent: str | None, name: str) -> bool:
        allowed, steering = own(agent)
        return name not in allowed and (reserved(name) or name in steering)

    return refuses


def _allowed(config: Config, agents: Agents, agent: str | None) -> tuple[str, ...]:
    """What plans may set for an agent; who names none gets the default one, which only the table of agents knows."""
    if agent is None and config.agent is None:
        default = next((one["name"] for one in agents.listed() if one["default"]), None)
        agent = str(default) if default is not None else None
    return allowed_env(config, agent)


def _of_plan(repo: Repository, rows: Sequence[PlanRow], plan: Plan, say: Say) -> Iterator[Finding]:
    checks: dict[str, Callable[[], object]] = {"target": lambda: check_target(repo, plan)}
    if plan.after is None:
        checks["base"] = lambda: check_base(repo, plan)
    else:
        after = plan.after
        checks["after"] = lambda: find_plan(rows, after)
    if plan.worktree_root is not None:
        root = plan.worktree_root
        checks["worktree_root"] = lambda: repo.worktree_root(root)
    for field, check in checks.items():
        if (said := _refusal(check, say)) is not None:
            yield Finding((field,), said)


def permission_notes(config: Config, agents: Agents, described: Described, plan: Plan) -> list[str]:
    """What of the tools that a plan gives its agents has no effect with them, or names nothing that is known."""
    found: dict[str, None] = {}
    for job in plan.jobs.values():
        found |= dict.fromkeys(_unknown_tools(f"job '{job.id}'", job.tools))
        works = [job.work, *job.prechecks, *job.postchecks, *(job.setup or plan.setup or ())]
        for work in works:
            if isinstance(work, AgentWork):
                found |= dict.fromkeys(_unknown_tools(f"job '{job.id}'", work.tools))
                found |= dict.fromkeys(_unheld(config, agents, described, job, work))
    return list(found)


def _unknown_tools(where: str, tools: Tools) -> Iterator[str]:
    """Names that mean no tool that is known: a slip in what is denied lets a call through that was not wanted."""
    for field, name in unknown_names(tools):
        near = did_you_mean(canonical(name), KINDS)
        near = near or "; the agent's program may have one of that name"
        yield f"{where}: '{field}: {name}' names no tool that is known here{near}"


def idle_notes(plan: Plan) -> list[str]:
    """Jobs that say what is to be done, and have no work that does it."""
    return [
        f"job '{job.id}' has a 'task' but neither 'agent' nor 'work', so no agent does it."
        for job in plan.jobs.values()
        if job.task.strip() and job.runs_nothing and job.id != VALIDATION
    ]


def _unheld(config: Config, agents: Agents, described: Described, job: Job, work: AgentWork) -> tuple[str, ...]:
    try:
        chosen = choose(agents, work.agent, described, has_model=True)
    except OrchardError:  # it cannot be had, which is said elsewhere
        return ()
    tools = all_of(for_job(config, chosen, job, work))
    return unheld(chosen.agent.name, chosen.agent.holds, tools) if tools != ALL else ()


def check_agent(agents: Agents, described: Described, work: AgentWork) -> None:
    """Refuse a work whose agent, definition, model or servers cannot be had."""
    found = choose(agents, work.agent, described, has_model=work.model is not None or work.tier is not None).agent
    agents.model_for(found.name, work.model, work.tier)
    agents.servers(work.mcp_servers)


def _refusal(check: Callable[[], object], say: Say) -> str | None:
    """What a check that raises says, with what to do about it."""
    try:
        check()
    except OrchardError as error:
        hint = f" ({say(error.hint).rstrip('.')})" if error.hint else ""
        return error.message.removeprefix("base: ").rstrip(".") + hint
    return None
