"""What a run would do: its jobs in their order, who would do them, every command, and where the result would go."""

import os
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

from orchard.app import App
from orchard.config.reach import may_ask_agents
from orchard.core.views.graph import columns
from orchard.engine.plans.refs import target_of
from orchard.errors import EXIT_USAGE
from orchard.git.command import Git, GitError
from orchard.model.events.plans import Json, PlanStarted
from orchard.model.plan import VALIDATION, AgentWork, JobId, Plan
from orchard.model.plan_codec import plan_json
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.render.proposal import proposal_lines
from orchard.surfaces.cli.terminal import Terminal

NO_AGENT = "? (no agent can be used here)"


class Rehearsal(Struct, frozen=True):
    """A plan that was not started, and what is known of how it would go."""

    plan: Plan
    start: PlanStarted
    agents: Mapping[JobId, str]
    """By job: who would do its work."""
    helper: str | None
    """Who would be asked where a check fails or a merge conflicts."""
    problems: list[str]
    """What would stop it."""

    def document(self) -> Json:
        step = columns(self.plan)
        steps: list[list[str]] = [[] for _ in range(max(step[job] for job in self._jobs) + 1)]
        for job in self._jobs:
            steps[step[job]].append(job)
        start = self.start
        return {
            "dry_run": True,
            "plan": plan_json(self.plan),
            "steps": steps,
            "agents": dict(self.agents),
            "heals": self.helper,
            "base": {"branch": start.base_branch, "commit": start.base_commit},
            "target": {"branch": start.target_branch, "exists": start.target_commit is not None},
            "reused": [],
            "problems": self.problems,
        }

    def lines(self) -> list[Line]:
        start = self.start
        base = start.base_branch or "the present commit"
        new = "" if start.target_commit is not None else " (a new branch)"
        lands = {"auto": "lands on", "ask": "waits for you, then lands on", "never": "stays apart from"}[self.plan.land]
        place: Line = [
            ("from ", "dim"), (safe(base), "strong"), (f" ({start.base_commit[:10]}), {lands} ", "dim"),
            (safe(start.target_branch), "strong"), (new, "dim"),
        ]  # fmt: skip
        after: list[Line] = []
        if self.helper is not None:
            after.append([("  if a check fails or a merge conflicts: ", "dim"), (safe(self.helper), "busy")])
        ended: Line = [("Nothing was started. ", ""), ("Every job would run; none is reused.", "dim")]
        return [place, *proposal_lines(self.plan, self.agents), *after, [], ended]

    @property
    def _jobs(self) -> list[JobId]:
        return [job for job in self.plan.in_order if job != VALIDATION]


def rehearse(app: App, plan: Plan) -> Rehearsal:
    """Look at everything that a run would look at first."""
    from orchard.agents.registry import Agents
    from orchard.operations.foresight import foreseen
    from orchard.operations.queries.definitions import agent_meant, described_for
    from orchard.planfile.works import named, spoken
    from orchard.surfaces.next_steps import in_commands

    config = app.settings.config
    agents = Agents(config, os.environ)
    start = target_of(app.repo, plan, [])
    described = described_for(app.repo, agents, plan)
    found = foreseen(app.repo, config, agents, app.reader.plans(), plan, named(plan), in_commands)
    usual = next((str(one["name"]) for one in agents.listed() if one["default"]), None)

    def doer(work: AgentWork) -> str:
        return agent_meant(agents, described, work.agent) or usual or NO_AGENT

    doers = {job.id: doer(job.work) for job in plan.jobs.values() if isinstance(job.work, AgentWork)}
    helper = config.heal.agent or usual if may_ask_agents(plan, config) and agents.any_usable() else None
    return Rehearsal(plan, start, doers, helper, [f"{spoken(one.path)}: {one.message}" for one in found])


def show_rehearsal(terminal: Terminal, app: App, plan: Plan) -> int:
    found = rehearse(app, plan)
    terminal.answer(found.document(), *found.lines())
    if (count := uncommitted(app)) and plan.base is None:
        terminal.note(text.warning(left_out(count)))
    problems: list[Line] = [[("error: ", "bad"), (safe(one, 2000), "")] for one in found.problems]
    terminal.tell(*problems)
    return EXIT_USAGE if found.problems else 0


def uncommitted(app: App) -> int:
    """How many files of the user's checkout differ from its commit: a run does not see them."""
    repo = app.repo
    if repo.top is None:
        return 0
    git = Git(repo.common_dir, repo.git_dir, cwd=repo.top, work_tree=repo.top)
    with suppress(GitError):
        return len(git("status", "--porcelain", "-z", "--no-renames", "--untracked-files=no").fields)
    return 0


def left_out(count: int) -> str:
    return f"{text.many(count, 'uncommitted file')} {'is' if count == 1 else 'are'} not part of this run."
