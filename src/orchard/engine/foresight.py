"""What would keep a plan from starting here, all of it, with its place in the file: for those who only ask."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from orchard.core.places import Finding, Path
from orchard.core.plan import AgentWork, Plan
from orchard.core.planworks import Paths, works_of
from orchard.engine.naming import check_base, check_target
from orchard.engine.selection import find_plan
from orchard.engine.world import Agents
from orchard.errors import OrchardError
from orchard.git.repository import Repository
from orchard.store.planlist import PlanRow


def foreseen(repo: Repository, agents: Agents, rows: Sequence[PlanRow], plan: Plan, paths: Paths) -> list[Finding]:
    """What of base, target, the plan before this one, worktrees, agents, models and servers cannot be had."""
    found = [*_of_plan(repo, rows, plan)]
    known: dict[str, str | None] = {}
    for path, work, _ in works_of(plan, paths):
        if not isinstance(work, AgentWork):
            continue
        asked = repr((work.agent, work.model, work.tier, work.mcp_servers))
        if asked not in known:
            known[asked] = _refusal(partial(_check_agent, agents, work))
        if (said := known[asked]) is not None:
            found.append(Finding(path, said))
    return found


def _of_plan(repo: Repository, rows: Sequence[PlanRow], plan: Plan) -> Iterator[Finding]:
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
        if (said := _refusal(check)) is not None:
            path: Path = (field,)
            yield Finding(path, said)


def _check_agent(agents: Agents, work: AgentWork) -> None:
    found = agents.find(work.agent)
    agents.model_for(found.name, work.model, work.tier)
    agents.servers(work.mcp_servers)


def _refusal(check: Callable[[], object]) -> str | None:
    """What a check that raises says, with what to do about it."""
    try:
        check()
    except OrchardError as error:
        return error.message.removeprefix("base: ").rstrip(".") + (f" ({error.hint.rstrip('.')})" if error.hint else "")
    return None
