"""What a run would do: its jobs in their order, who would do them, every command, and where the result would go."""

import os
from collections.abc import Iterator, Mapping

from msgspec import Struct

from orchard.app import App
from orchard.config.trust import AGREE_FIRST, not_agreed
from orchard.core.views.graph import columns
from orchard.engine.plans.refs import target_of
from orchard.errors import EXIT_USAGE, OrchardError
from orchard.git.merge.memory import has_shared_memory
from orchard.model.events.plans import Json, PlanStarted
from orchard.model.plan import VALIDATION, AgentWork, JobId, Plan
from orchard.model.plan_codec import plan_json
from orchard.model.sandbox import Level, stricter
from orchard.surfaces.cli.premises import helper_of, premises
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.render.proposal import proposal_lines
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.next_steps import in_commands

LANDS = {
    "auto": "lands on",
    "ask": "waits for you, then lands on",
    "never": "stays apart from",
    "pr": "opens a pull request for",
}
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
    sandbox: str | None = None
    """The wall that would stand around its programs; None: none can be had."""
    copies: list[str] = []
    """Folders of the checkout that its worktrees would get copies of."""
    resolved: bool = False
    """Whether it may meet conflicts that were resolved before."""
    untrusted: list[str] = []
    """Settings of the repository that a run would ask about first."""

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
            "copies": self.copies,
            "resolved_before": self.resolved,
            "problems": self.problems,
            "sandbox": self.sandbox,
            "untrusted": self.untrusted,
        }

    def lines(self) -> list[Line]:
        start = self.start
        base = start.base_branch or "the present commit"
        new = "" if start.target_commit is not None else " (a new branch)"
        lands = LANDS[self.plan.land]
        place: Line = [
            ("from ", "dim"), (safe(base), "strong"), (f" ({start.base_commit[:10]}), {lands} ", "dim"),
            (safe(start.target_branch), "strong"), (new, "dim"),
        ]  # fmt: skip
        if self.sandbox is not None:
            place += [(", ", "dim"), text.wall(self.sandbox, "dim")]
        ended: Line = [("Nothing was started. ", ""), ("Every job would run; none is reused.", "dim")]
        return [place, *proposal_lines(self.plan, self.agents), [], ended, *self._used_again()]

    def _used_again(self) -> Iterator[Line]:
        """What earlier work spares this run, though every job of it runs."""
        if self.copies:
            named = ", ".join(safe(name, 80) for name in self.copies)
            yield [(f"Each worktree would get a copy of {named} from your checkout.", "dim")]
        if self.resolved:
            yield [("Conflicts like those resolved in plans that landed would be resolved the same way.", "dim")]

    @property
    def _jobs(self) -> list[JobId]:
        return [job for job in self.plan.in_order if job != VALIDATION]


def rehearse(app: App, plan: Plan) -> Rehearsal:
    """Look at everything that a run would look at first."""
    from orchard.agents.registry import Agents
    from orchard.operations.foresight import foreseen
    from orchard.operations.queries.definitions import agent_meant, described_for
    from orchard.planfile.works import named, spoken

    config = app.settings.config
    agents = Agents(config, os.environ)
    start = target_of(app.repo, plan, [])
    described = described_for(app.repo, agents, plan)
    found = foreseen(app.repo, config, agents, app.reader.plans(), plan, named(plan), in_commands)
    usual = next((str(one["name"]) for one in agents.listed() if one["default"]), None)

    def doer(work: AgentWork) -> str:
        return agent_meant(agents, described, work.agent) or usual or NO_AGENT

    doers = {job.id: doer(job.work) for job in plan.jobs.values() if isinstance(job.work, AgentWork)}
    wall, why = _wall(config.sandbox.level, plan)
    problems = [*(f"{spoken(one.path)}: {one.message}" for one in found), *why]
    top = app.repo.main_top or app.repo.top
    copies = [name for name in config.worktree.copy if top is not None and (top / name).is_dir()]
    helper, resolved = helper_of(plan, config), has_shared_memory(app.repo)
    return Rehearsal(
        plan, start, doers, helper, problems, wall, copies, resolved, untrusted=sorted(app.settings.untrusted)
    )


def _wall(level: Level, plan: Plan) -> tuple[str | None, list[str]]:
    """The wall that the plan would have, tried out; or why it would wait for one."""
    wanted = stricter(level, plan.sandbox)
    if wanted == "off":
        return "off", []
    from orchard.process.sandbox.level import choose  # with all that builds walls

    try:
        return choose(wanted), []
    except OrchardError as error:
        return None, [error.message]


def show_rehearsal(terminal: Terminal, app: App, plan: Plan) -> int:
    found = rehearse(app, plan)
    terminal.answer(found.document(), *terminal.fitted(found.lines()))
    terminal.note(*premises(app, plan))
    if found.untrusted:
        first = f"{not_agreed(found.untrusted)} This is the plan without them; a run asks you first."
        terminal.note(text.warning(f"{first} {in_commands(AGREE_FIRST)}"))
    problems: list[Line] = [[("error: ", "bad"), (safe(one, 2000), "")] for one in found.problems]
    terminal.tell(*problems)
    return EXIT_USAGE if found.problems else 0
