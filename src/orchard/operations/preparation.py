"""What a request finds out before it decides: whether agents can be had, whether a plan could start, what remotes hold.

All of it may take long, so it is done before anybody decides about the plan, and whoever asked looks again afterwards.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from orchard.agents.definitions.ignored import ignored_notes
from orchard.config.layers import Config
from orchard.core.run import Run
from orchard.engine.plans.refs import check_start, target_of
from orchard.engine.world import World
from orchard.errors import InvalidInput, Next, OrchardError, Problem, Say, UsageError
from orchard.git.repository import Repository
from orchard.model.plan import VALIDATION, AgentWork, Job, Plan, Work
from orchard.operations.foresight import agent_findings, check_agent, idle_notes, permission_notes, refusals
from orchard.operations.queries.definitions import Described, agents_of, definition_notes, described_to
from orchard.planfile.works import named, refusal, spoken
from orchard.process.failpoint import failpoint

SHOWN = 20
"""How many refusals are told at once."""


async def check_agents(world: World, plan: Plan, run: Run | None = None) -> None:
    """See that every agent and model that the plan names can be had, before anything is made."""
    described = described_to(world, plan, run)
    problems = await world.in_thread(_problems, world, plan, described)
    if problems:
        raise InvalidInput("plan", problems)
    works = [(f"Job '{job.id}'", _works(plan, job)) for job in plan.jobs.values()]
    for job in plan.jobs.values():
        talks = job.work if job.id != VALIDATION else None
        refuse_interactive(f"Job '{job.id}'", [one for one in _works(plan, job) if one is not talks])
    await check_works(world, works, described)


async def agent_warnings(world: World, plan: Plan) -> list[str]:
    """What a person should know of the definitions that a plan names, and of what its agents will not find."""
    described = described_to(world, plan)

    def look() -> list[str]:
        names = agents_of(world.agents, described, plan)
        ignored = ignored_notes(world.repo, world.config, names) if names else []
        held = permission_notes(world.config, world.agents, described, plan)
        return [*definition_notes(world.agents, described, plan), *held, *idle_notes(plan), *ignored]

    return await world.in_thread(look)


async def settings_warnings(world: World) -> list[str]:
    """That the engine works with other settings than those that the files have now."""
    changed = await world.in_thread(world.changed_settings)
    if not changed:
        return []
    was = "was" if len(changed) == 1 else "were"
    told = f"{' and '.join(changed)} {was} changed after the engine of this repository started."
    then = (Next("stop_daemon"), ", then ", Next("serve"))
    return [f"{told} It keeps the settings it began with until it starts again: {world.say(then)}"]


async def proposal_warnings(world: World, plan: Plan) -> list[str]:
    """That the pull request which a plan ends with could not be opened now: told before its jobs run, not after."""
    if plan.land != "pr":
        return []
    return await world.in_thread(unproposable, world.repo, world.config, world.environment, plan, world.say)


def unproposable(repo: Repository, config: Config, env: Mapping[str, str], plan: Plan, say: Say) -> list[str]:
    """The same, where no engine has to be asked."""
    if plan.land != "pr":
        return []
    from orchard.engine.pull_requests import Proposal, open_way  # few plans end so

    try:
        start = target_of(repo, plan, [])
    except OrchardError:
        return []  # what it starts from is still to come
    try:
        open_way(repo, config.forge, env, Proposal("", "", start.target_branch))
    except OrchardError as error:
        hint = f" {say(error.hint)}" if error.hint is not None else ""
        return [f"As things are, no pull request can be opened when this plan is done. {error.message}{hint}"]
    return []


def _problems(world: World, plan: Plan, described: Described) -> list[Problem]:
    """What a plan asks for its agents and may not have."""
    found = agent_findings(world.repo, world.config, world.agents, plan, named(plan), described)
    return [Problem(one.message, spoken(one.path)) for one in found]


async def check_works(world: World, works: Sequence[tuple[str, Sequence[Work]]], described: Described) -> None:
    """See that the agents, models and servers of these works can be had; each with whose works they are."""
    await world.in_thread(_check_works, world, works, described)


def _check_works(world: World, works: Sequence[tuple[str, Sequence[Work]]], described: Described) -> None:
    failpoint("request.checking")
    refused: list[OrchardError] = []
    for who, own in works:
        refused += _refused_of(world, who, own, described)
    if len(refused) > 1:
        said = list(dict.fromkeys(error.message for error in refused))
        more = f"\n... and {len(said) - SHOWN} more" if len(said) > SHOWN else ""
        raise UsageError("\n".join(said[:SHOWN]) + more, hint=refused[0].hint)
    if refused:
        raise refused[0]


def _refused_of(world: World, who: str, works: Sequence[Work], described: Described) -> Iterator[OrchardError]:
    agents, refuses = world.agents, refusals(world.config, world.agents, described)
    for work in works:
        if not isinstance(work, AgentWork):
            continue
        try:
            check_agent(agents, described, work)
            if steering := next((name for name in work.env if refuses(work.agent, name)), None):
                raise UsageError(f"{refusal(steering, work.agent)}.")
        except OrchardError as error:
            yield type(error)(f"{who} is work for an agent: {error.message}", hint=error.hint)


async def check_place(world: World, plan: Plan) -> None:
    """Refuse a plan whose base, target or folder cannot be had."""
    await world.in_thread(_check_place, world, plan)


def _check_place(world: World, plan: Plan) -> None:
    failpoint("request.checking")
    check_start(world.repo, plan)
    world.repo.worktree_root(plan.worktree_root or world.config.worktree_root)


async def fetched(world: World) -> str | None:
    """Bring remotes up to date before a fresh start; a failed fetch is only a warning, which this gives."""
    return await world.in_thread(_fetched, world)


def _fetched(world: World) -> str | None:
    failpoint("request.checking")
    git = world.repo.remote_git
    if not git("remote").stdout.strip():
        return None
    if changed := world.repo.changed_remotes():
        return f"The remotes were not fetched: {', '.join(changed[:3])} changed meanwhile, perhaps by a job."
    done = git("fetch", "--all", "--quiet", "--no-write-fetch-head", ok=range(256), timeout=120.0)
    if done.status == 0:
        return None
    said = done.stderr.decode(errors="replace").strip().splitlines()
    return f"The remotes could not be fetched: {_reason(said)}"


def _reason(said: Sequence[str]) -> str:
    """The line in which git says what went wrong; what follows it is advice."""
    wrong = [line for line in said if line.startswith(("fatal:", "error:", "ssh:"))]
    return (wrong or list(said) or ["git gave no reason"])[0]


def _works(plan: Plan, job: Job) -> list[Work]:
    works = [*job.prechecks, *job.postchecks, *(job.setup or ()), *(plan.setup or ())]
    return [*works, job.work] if job.work is not None else works


def refuse_interactive(who: str, works: Iterable[Work]) -> None:
    """Refuse works that nobody can talk to: what is not the job's own work decides by itself."""
    if any(isinstance(work, AgentWork) and work.interactive for work in works):
        raise UsageError(
            f"{who} has a check or a setup that is interactive; only the work of a job can be.",
            hint="Remove 'interactive' there.",
        )
