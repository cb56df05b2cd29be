"""What a plan lets its agents reach beside their worktree."""

from collections.abc import Iterator

from orchard.config.layers import Config
from orchard.model.plan import AgentWork, Plan
from orchard.planfile.places import Path
from orchard.planfile.works import Paths, works_of

RIGHTS = "Agents run with your rights while there is no wall around them: they can read and write whatever you can."


def reach_of(plan: Plan, paths: Paths) -> Iterator[tuple[Path, str]]:
    """Every folder that an agent may write to, with where the plan says so."""
    for path, work, _ in works_of(plan, paths):
        if isinstance(work, AgentWork):
            yield from (((*path, "allowed_folders", n), folder) for n, folder in enumerate(work.allowed_folders))


def asks_agents(plan: Plan) -> bool:
    """Whether an agent is given work by the plan itself: by a job, a check, a setup or `verify`."""
    return any(isinstance(work, AgentWork) for _, work, _ in works_of(plan, {}))


def may_ask_agents(plan: Plan, config: Config) -> bool:
    """Whether an agent that can be had would heal a job of the plan, or resolve a conflict of it."""
    return may_heal(plan, config) or (plan.resolver or config.resolver) == "agent"


def may_heal(plan: Plan, config: Config) -> bool:
    usual = heals_by_default(plan, config)
    return config.heal.attempts > 0 and any(usual if job.heal is None else job.heal for job in plan.jobs.values())


def heals_by_default(plan: Plan, config: Config) -> bool:
    """Whether an agent heals jobs that do not say: one that nobody has named spends nobody's tokens."""
    asked = config.heal.enabled
    return (config.heal.agent is not None or asks_agents(plan)) if asked is None else asked
