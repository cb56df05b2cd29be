"""Conflicts resolved by an agent: it is asked in a private folder, and its answer is remembered before it is used.

A merge that meets a conflict is given up, the agent is asked while nobody holds a lock, and then the merge is made
again. What was decided comes from the memory then, and if others were merged meanwhile the conflict may be another one.

Conflicts that were resolved by taking a side, or as they were before, are recorded for the job that they concern.
"""

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from orchard.agents.definitions.choice import Choice
from orchard.agents.environment import agent_environment
from orchard.agents.prompts.work import ResolveContext, Side, resolve_instructions
from orchard.agents.protocol import Agent, Settings
from orchard.core.run import Run
from orchard.core.sides import SIDES, kept_version
from orchard.engine.context import Context
from orchard.engine.engine import Engine
from orchard.engine.merges.authorship import NAMED_JOBS, authors, met_by
from orchard.engine.merges.memory import REMEMBERED, Pick, pick_of
from orchard.engine.outcome import Failed, Held, Outcome
from orchard.engine.turns.permissions import by_choice
from orchard.engine.turns.turn import Asked, run_turn, scratch_prefix
from orchard.engine.turns.work import given_to, helper_of, intent_of, summary_of, with_definition
from orchard.engine.workspace import Workspace
from orchard.engine.world import World
from orchard.errors import OrchardError
from orchard.git.folders import remove_tree
from orchard.git.history import merge_bases, show_path
from orchard.git.merge.conflicts import BadResolution, Merge, Resolution, extract, take_back
from orchard.git.merge.integration import LeafMerge
from orchard.git.merge.memory import remember_all
from orchard.model.events.plans import ConflictSettled
from orchard.model.permissions import all_of
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, JobId
from orchard.process.failpoint import failpoint

LISTED_PATHS = 5


class Sides(Struct, frozen=True):
    """The jobs whose versions met; none on the side of `ours`: the target's."""

    ours: tuple[JobId, ...] = ()
    theirs: tuple[JobId, ...] = ()


class Met(Struct, frozen=True):
    """What was decided between a leaf and those of one kind that it met in the snapshot: other jobs, or the target."""

    pick: Pick
    sides: Sides


def met(world: World, run: Run, leaf: LeafMerge, resolution: Resolution) -> list[Met]:
    """Whom a leaf met where its merge was resolved: the jobs that changed those paths, and the target if it did so too.

    A path that none of them changed, such as one that git made up, counts as everybody's that the leaf met.
    """
    job, paths = JobId(leaf.job), set(resolution.paths)
    if not paths:
        return []
    by_job = met_by(world, run, job, paths)
    of_target = _changed_on_target(world, run, leaf.commit, paths)
    jobs = tuple(by_job)
    if not by_job and not of_target:
        jobs = tuple(name for name in run.snapshot.merged if name != job)
    if resolution.by not in SIDES:
        return [Met(pick_of(resolution, leaf.integration, leaf.commit), Sides(jobs, (job,)))]
    of_jobs = set[bytes]().union(*by_job.values())
    unclear = paths - of_jobs - of_target
    found = [(jobs, of_jobs | unclear)] if jobs else []
    found += [((), of_target | unclear)] if of_target or not jobs else []
    return [
        Met(pick_of(resolution, leaf.integration, leaf.commit, among), Sides(ours, (job,))) for ours, among in found
    ]


def _changed_on_target(world: World, run: Run, commit: str, paths: set[bytes]) -> set[bytes]:
    """Those of the paths that are not on the target as they were where the leaf's work began."""
    objects, line = world.integration.objects, run.snapshot.rewritten or run.snapshot.start
    now = objects.tree_of(line)
    before = [objects.tree_of(base) for base in merge_bases(world.repo, line, commit)]
    return {
        path
        for path in paths
        if any(objects.entry(tree, path) != objects.entry(now, path) for tree in before)
        or (not before and objects.entry(now, path) is not None)
    }


def record_pick(engine: Engine, run: Run, job: JobId, phase: Phase, pick: Pick, sides: Sides) -> str:
    """Record what was decided in a merge, once; the sentence that the phase's note gets, empty if it is known."""
    if not pick.paths or any(_is_told(one, job, phase, pick, sides) for one in run.resolutions):
        return ""
    last, by = run.records[job].last, _decider(run, pick)
    number = last.number if last is not None else 1
    engine.record(
        run.id,
        ConflictSettled(
            job, number, phase, by, pick.paths, pick.ours, pick.theirs, pick.tree, sides.ours, sides.theirs
        ),
    )
    more = f" and {len(pick.paths) - LISTED_PATHS} more" if len(pick.paths) > LISTED_PATHS else ""
    whose = kept_version(by, sides.ours, sides.theirs, run.pinned.target_branch)
    told = f"conflict in {', '.join(pick.paths[:LISTED_PATHS])}{more} resolved by '{by}'"
    return f"{told}: {whose}" if whose else told


def _is_told(one: ConflictSettled, job: JobId, phase: Phase, pick: Pick, sides: Sides) -> bool:
    """Whether a resolution tells of this decision: of this very merge, or of the answer that an agent gave to it."""
    if one.paths != pick.paths or (one.by in SIDES) != (pick.by in SIDES):
        return False
    if pick.by in SIDES:
        told = (one.job, one.phase, one.by, one.ours, one.theirs, one.ours_jobs)
        return told == (job, phase, pick.by, pick.ours, pick.theirs, sides.ours)
    if phase is Phase.MERGE_FI:
        return (one.job, one.phase) == (job, phase)
    # An agent is asked for the validation job as well, when it merges the leaves again.
    return one.phase is not Phase.MERGE_FI and one.theirs == pick.theirs


def _decider(run: Run, pick: Pick) -> str:
    """Who decided: for what is remembered, the agent that said so when this leaf was merged before."""
    if pick.by != REMEMBERED:
        return pick.by
    asked = (one for one in reversed(run.superseded) if one.by not in SIDES)
    return next((one.by for one in asked if (one.theirs, one.paths) == (pick.theirs, pick.paths)), pick.by)


ROUNDS = 20
"""Conflicts in a row that one phase has resolved; more mean that something else is wrong."""
TRIES = 2
"""How often an agent may answer one conflict: a second time when its first answer was not accepted."""


async def merge_with_resolver(context: Context, merge: Callable[[], Awaitable[Outcome]]) -> Outcome:
    """Make a merge, and have an agent resolve the conflicts it meets, where the plan says so."""
    asks = (context.plan.resolver or context.world.config.resolver) == "agent"
    for _ in range(ROUNDS):
        outcome = await merge()
        if not isinstance(outcome, Failed) or outcome.merge is None or not asks:
            return outcome
        problem = await _ask_resolver(context, outcome.merge)
        if isinstance(problem, Held):
            return problem
        if problem is not None:
            context.notes.append(problem)
            return outcome
    return await merge()


async def _ask_resolver(context: Context, merge: Merge) -> str | Held | None:
    """Ask an agent and remember what it decides; what stands in the way otherwise."""
    world = context.world
    try:
        chosen = await helper_of(context, world.config.resolver_agent)
    except OrchardError as error:
        return f"the conflict was not given to an agent: none is usable ({error.message})"
    tools = all_of(by_choice(world.config, chosen))
    if not (tools.may_edit or tools.may_run):
        return f"the conflict was not given to agent '{chosen.agent.name}': it may not edit files ({tools.words})"
    folder = Path(tempfile.mkdtemp(prefix=scratch_prefix(world.repo.state)))
    try:
        async with _project(context, merge) as project:
            return await _ask(context, chosen, merge, Place(folder / "conflict", project))
    except BadResolution as bad:
        return bad.message
    finally:
        remove_tree(folder)


class Place(Struct, frozen=True):
    """Where an agent resolves a conflict: the versions of the files, and a folder to read the rest in."""

    files: Path
    project: Path


async def _ask(context: Context, chosen: Choice, merge: Merge, place: Place) -> str | Held | None:
    world, agent, problem = context.world, chosen.agent, ""
    for number in range(1, TRIES + 1):
        remove_tree(place.files)
        await world.in_thread(extract, world.integration.objects, merge, place.files)
        page = await world.in_thread(_page, context, merge, place, problem)
        told = resolve_instructions(replace(page, role=chosen.role))
        result = await run_turn(context, _asked(context, chosen, told, place.files, number))
        if result.reason == "budget":
            return Held("budget", result.message, context.phase)
        if not result.ok:
            return f"agent '{agent.name}' did not settle the conflict: {result.message or result.reason}"
        try:
            taken = await world.in_thread(take_back, world.repo, world.integration.objects, merge, place.files)
        except BadResolution as bad:
            problem = bad.message
            context.notes.append(f"an answer of agent '{agent.name}' was not accepted: {problem}")
            continue
        await world.in_thread(remember_all, world.repo, world.integration.objects, context.run.id, merge, taken)
        failpoint("resolve.remembered")
        _record(context, agent, merge, taken)
        return None
    return f"agent '{agent.name}' did not settle the conflict"


@asynccontextmanager
async def _project(context: Context, merge: Merge) -> AsyncIterator[Path]:
    """A folder with the project as one side has it: the job's own, or one that is taken for this."""
    if context.workspace.is_open:
        yield context.workspace.folder
        return
    whose = f"{context.job_id}, to settle a conflict"
    borrowed = Workspace(context.engine, context.run, context.job_id, context.number, whose)
    await borrowed.prepare(merge.ours)
    try:
        yield borrowed.folder
    finally:
        await borrowed.end("left in a folder that was only to be read")


def _asked(context: Context, chosen: Choice, told: str, folder: Path, number: int) -> Asked:
    world, agent, sources = context.world, chosen.agent, by_choice(context.world.config, chosen)
    host = agent_environment(world.environment, (*agent.variables, *world.config.pass_env))
    return Asked(
        agent=agent,
        purpose="resolve",
        instructions=told,
        folder=folder,
        env={**host, **given_to(world.config, agent, context.plan.env), "PWD": str(folder)},
        limits=world.config.limits,
        settings=replace(with_definition(Settings(), chosen), tools=all_of(sources)),
        number=number,
        definition=chosen.name,
        sources=sources,
    )


def _page(context: Context, merge: Merge, place: Place, problem: str) -> ResolveContext:
    ours, theirs = _sides(context, merge)
    return ResolveContext(
        folder=place.files,
        plan=context.plan.name,
        ours=ours,
        theirs=theirs,
        conflicts=merge.conflicts,
        tree=place.project,
        problem=problem,
    )


def _sides(context: Context, merge: Merge) -> tuple[Side, Side]:
    """The jobs behind both sides: those whose work is in one and not in the other, and touched what is in conflict."""
    paths = {conflict.path for conflict in merge.conflicts}
    if context.phase is Phase.MERGE_RI and context.job_id != VALIDATION:
        ours, theirs = list(met_by(context.world, context.run, context.job_id, paths))[:NAMED_JOBS], [context.job_id]
    else:
        pairs = (merge.ours, merge.theirs), (merge.theirs, merge.ours)
        ours, theirs = (authors(context.world, context.run, pair, paths) for pair in pairs)
    return _side(context, ours, merge.ours), _side(context, theirs, merge.theirs)


def _side(context: Context, jobs: list[JobId], commit: str) -> Side:
    if not jobs:
        return Side("the target branch", "What is on the branch already; keep what it does.", commit=commit)
    intents = "\n\n".join(intent_of(context.run.job(job)) for job in jobs)
    said = "\n\n".join(text for job in jobs if (text := summary_of(context.run.records[job])))
    return Side(", ".join(jobs), intents, said, commit)


def _record(context: Context, agent: Agent, merge: Merge, taken: Resolution) -> None:
    paths = tuple(show_path(path) for path in taken.paths)
    context.record(ConflictSettled(*context.now, agent.name, paths, merge.ours, merge.theirs, taken.tree))
    listed = ", ".join(paths[:5])
    context.notes.append(f"agent '{agent.name}' settled the conflict in {listed}")
