"""What a run starts from, and what a user might not expect of it: told before its first job starts."""

import os
from contextlib import suppress

from orchard.agents.registry import Agents
from orchard.app import App
from orchard.config.layers import Config
from orchard.config.reach import RIGHTS, asks_agents, may_heal
from orchard.git.command import Git, GitError
from orchard.git.hazards import hook_names
from orchard.model.plan import AgentWork, Plan
from orchard.model.sandbox import stricter
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe


def premises(app: App, plan: Plan) -> list[Line]:
    """What is left out of the run, under whose name it commits, what does not run, and which agent may step in."""
    config = app.settings.config
    found: list[Line] = []
    changed, new = uncommitted(app) if plan.base is None else (0, 0)
    if changed or new:
        named = [text.many(changed, "uncommitted file")] if changed else []
        named += [f"{new:,} untracked" if changed else text.many(new, "untracked file")] if new else []
        are = "is" if changed + new == 1 else "are"
        found.append(text.warning(f"{' and '.join(named)} {are} not part of this run."))
    name, email = app.repo.identity()
    said = [f"Orchard commits as {safe(name)} <{safe(email)}>."]
    if hooks := hook_names(app.repo):
        said.append(f"Git hooks do not run ({safe(', '.join(hooks))}).")
    helper = helper_of(plan, config)
    if helper is not None:
        what = " or ".join(_reasons(plan, config))
        said.append(f"If {what}, Orchard may ask {safe(helper)} to help.")
    found.append([(" ".join(said), "dim")])
    if helper is None and _asks_for_healing(plan, config):
        asked = config.heal.agent or config.agent
        who = "No agent can" if asked is None else f"Agent '{safe(asked)}' cannot"
        found.append(text.warning(f"{who} be used here, so Orchard heals nothing: orchard agents"))
    if stricter(config.sandbox.level, plan.sandbox) == "off" and (helper is not None or asks_agents(plan)):
        found.append(text.warning(RIGHTS))
    return found


def helper_of(plan: Plan, config: Config) -> str | None:
    """The agent that a run may ask though no work of the plan names it; None: there is none, or it never is asked."""
    if not _reasons(plan, config):
        return None
    agents = Agents(config, os.environ)
    named = config.heal.agent or config.agent
    return agents.default() if named is None else named if agents.missing(named) is None else None


def _asks_for_healing(plan: Plan, config: Config) -> bool:
    """Whether somebody said that a job is to be healed which no agent of its own works on."""
    own = config.heal.agent is None
    return config.heal.attempts > 0 and any(
        job.heal and not (own and isinstance(job.work, AgentWork)) for job in plan.jobs.values()
    )


def uncommitted(app: App) -> tuple[int, int]:
    """How many files of the user's checkout differ from its commit, and how many are new (a new folder counts once): a
    run does not see them."""
    repo = app.repo
    if repo.top is None:
        return 0, 0
    git = Git(repo.common_dir, repo.git_dir, cwd=repo.top, work_tree=repo.top)
    with suppress(GitError):
        rows = git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=normal").fields
        new = sum(row.startswith(b"??") for row in rows)
        return len(rows) - new, new
    return 0, 0


def _reasons(plan: Plan, config: Config) -> list[str]:
    found = ["a check fails"] if may_heal(plan, config) else []
    if (plan.resolver or config.resolver) == "agent":
        found.append("a merge conflicts")
    return found
