"""Conflicts settled by an agent: it is asked in a private folder, and its answer is remembered before it is used.

A merge that meets a conflict is given up, the agent is asked while nobody holds a lock, and then the merge is made
again. What was decided comes from the memory then, and if others were merged meanwhile the conflict may be another one.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from orchard.agents.environment import agent_environment
from orchard.agents.prompts.work import ResolveContext, Side, resolve_instructions
from orchard.agents.protocol import Agent
from orchard.engine.context import Context
from orchard.engine.merges.authorship import NAMED_JOBS, authors, met_by
from orchard.engine.outcome import Failed, Held, Outcome
from orchard.engine.turns.turn import Asked, run_turn, scratch_prefix
from orchard.engine.turns.work import given_to, intent_of, summary_of
from orchard.engine.workspace import Workspace
from orchard.errors import OrchardError
from orchard.git.history import show_path
from orchard.git.merge.conflicts import BadResolution, Merge, Resolution, extract, remember_all, take_back
from orchard.model.events.plans import ConflictSettled
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, AgentWork, JobId
from orchard.process.failpoint import failpoint

ROUNDS = 20
"""Conflicts in a row that one phase has settled; more mean that something else is wrong."""
TRIES = 2
"""How often an agent may answer one conflict: a second time when its first answer was not accepted."""


async def settling(context: Context, merge: Callable[[], Awaitable[Outcome]]) -> Outcome:
    """Make a merge, and have an agent settle the conflicts it meets, where the plan says so."""
    for _ in range(ROUNDS):
        outcome = await merge()
        if not isinstance(outcome, Failed) or outcome.merge is None:
            return outcome
        problem = await _settle(context, outcome.merge)
        if isinstance(problem, Held):
            return problem
        if problem is not None:
            context.notes.append(problem)
            return outcome
    return await merge()


async def _settle(context: Context, merge: Merge) -> str | Held | None:
    """Ask an agent and remember what it decides; what stands in the way otherwise."""
    assert context.phase is not None
    world = context.world
    try:
        agent = world.agents.find(_resolver(context))
    except OrchardError as error:
        return f"the conflict was not given to an agent: none is usable ({error.message})"
    folder = Path(tempfile.mkdtemp(prefix=scratch_prefix(world.repo.state)))
    try:
        async with _project(context, merge) as project:
            return await _ask(context, agent, merge, Place(folder / "conflict", project))
    except BadResolution as bad:
        return bad.message
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Place(Struct, frozen=True):
    """Where an agent settles a conflict: the versions of the files, and a folder to read the rest in."""

    files: Path
    project: Path


async def _ask(context: Context, agent: Agent, merge: Merge, place: Place) -> str | Held | None:
    assert context.phase is not None
    world, problem = context.world, ""
    for number in range(1, TRIES + 1):
        shutil.rmtree(place.files, ignore_errors=True)
        await world.in_thread(extract, world.integration.objects, merge, place.files)
        told = await world.in_thread(_instructions, context, merge, place, problem)
        result = await run_turn(context, _asked(context, agent, told, place.files, number))
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


def _resolver(context: Context) -> str | None:
    """Who settles: the one that the configuration names for it, else the one that did the work, else the default."""
    named, work = context.world.config.resolver_agent, context.job.work
    if named is None and isinstance(work, AgentWork):
        return work.agent
    return named


def _asked(context: Context, agent: Agent, told: str, folder: Path, number: int) -> Asked:
    world = context.world
    host = agent_environment(world.environment, (*agent.variables, *world.config.pass_env))
    return Asked(
        agent=agent,
        purpose="resolve",
        instructions=told,
        folder=folder,
        env={**host, **given_to(world.config, agent, context.plan.env), "PWD": str(folder)},
        limits=world.config.limits,
        number=number,
    )


def _instructions(context: Context, merge: Merge, place: Place, problem: str) -> str:
    ours, theirs = _sides(context, merge)
    return resolve_instructions(
        ResolveContext(
            folder=place.files,
            plan=context.plan.name,
            ours=ours,
            theirs=theirs,
            conflicts=merge.conflicts,
            tree=place.project,
            problem=problem,
        )
    )


def _sides(context: Context, merge: Merge) -> tuple[Side, Side]:
    """The jobs behind both sides: those whose work is in one and not in the other, and touched what is in conflict."""
    paths = {conflict.path for conflict in merge.conflicts}
    if context.phase is Phase.MERGE_RI and context.job_id != VALIDATION:
        ours, theirs = list(met_by(context.world, context.run, context.job_id, paths))[:NAMED_JOBS], [context.job_id]
    else:
        ours, theirs = (authors(context.world, context.run, pair, paths) for pair in _pairs(merge))
    return _side(context, ours, merge.ours), _side(context, theirs, merge.theirs)


def _pairs(merge: Merge) -> tuple[tuple[str, str], tuple[str, str]]:
    return (merge.ours, merge.theirs), (merge.theirs, merge.ours)


def _side(context: Context, jobs: list[JobId], commit: str) -> Side:
    if not jobs:
        return Side("the target branch", "What is on the branch already; keep what it does.", commit=commit)
    intents = "\n\n".join(intent_of(context.run.job(job)) for job in jobs)
    said = "\n\n".join(text for job in jobs if (text := summary_of(context.run.records[job])))
    return Side(", ".join(jobs), intents, said, commit)


def _record(context: Context, agent: Agent, merge: Merge, taken: Resolution) -> None:
    assert context.phase is not None
    paths = tuple(show_path(path) for path in taken.paths)
    settled = ConflictSettled(
        context.job_id, context.number, context.phase, agent.name, paths, merge.ours, merge.theirs, taken.tree
    )
    context.engine.record(context.run.id, settled)
    listed = ", ".join(paths[:5])
    context.notes.append(f"agent '{agent.name}' settled the conflict in {listed}")
