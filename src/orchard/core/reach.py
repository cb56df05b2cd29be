"""What a plan lets its agents reach beside their worktree, and which of it a person should see before it runs."""

from collections.abc import Iterator
from posixpath import normpath

from orchard.core.config import Config
from orchard.core.plan import AgentWork, Job, Plan

RIGHTS = "Agents run with your rights: there is no wall around them yet, so they can read and write whatever you can."

_WHOLE = frozenset({"/", "~", "/home", "/root", "/Users", "/etc", "/var", "/usr", "/proc", "/sys", "/dev"})
_SECRET = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".config/orchard", ".netrc",
    ".claude", ".codex", ".gemini", ".qwen", ".copilot", ".local/share/opencode", ".local/state/orchard",
    ".password-store",
)  # fmt: skip


def reach_of(plan: Plan) -> Iterator[tuple[str, str]]:
    """Every folder that an agent may write to, with where the plan says so."""
    for job in plan.jobs.values():
        for word, work in _works(plan, job):
            yield from ((f"job '{job.id}'.{word}", folder) for folder in work.allowed_folders)


def asks_agents(plan: Plan) -> bool:
    """Whether an agent is given work by the plan itself: by a job, a check, a setup or `verify`."""
    works = [plan.verify, *(plan.setup or ())]
    for job in plan.jobs.values():
        works += [job.work, *(job.setup or ()), *job.prechecks, *job.postchecks]
    return any(isinstance(work, AgentWork) for work in works)


def may_ask_agents(plan: Plan, config: Config) -> bool:
    """Whether an agent that can be had would heal a job of the plan, or resolve a conflict of it."""
    heals = any(config.heal.enabled if job.heal is None else job.heal for job in plan.jobs.values())
    return bool(heals) or (plan.resolver or config.resolver) == "agent"


def reach_warnings(plan: Plan) -> list[str]:
    """What a person should know of a plan before it runs: agents that may write to a whole disk, or beside secrets."""
    found: dict[str, None] = {}
    for place, folder in reach_of(plan):
        plain = normpath(folder).replace("//", "/")
        if plain in _WHOLE:
            found[f"{place}: 'allowed_folders' lets the agent write to all of '{folder}'"] = None
        elif any(f"{plain}/".endswith(f"/{name}/") or f"/{name}/" in f"{plain}/" for name in _SECRET):
            found[f"{place}: 'allowed_folders' names '{folder}', where secrets are kept"] = None
    return list(found)


def _works(plan: Plan, job: Job) -> Iterator[tuple[str, AgentWork]]:
    rows = (("work", (job.work,)), ("prechecks", job.prechecks), ("postchecks", job.postchecks))
    for word, works in rows:
        yield from ((word, work) for work in works if isinstance(work, AgentWork))
