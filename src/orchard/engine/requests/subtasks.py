"""What agents in jobs can ask of the engine: help of other agents, and a word to people about how far they are.

    list_agents           who could help: the user's agents, and those that the repository describes
    spawn_subtask         hand work to one of them, in a folder that begins as a copy of the asker's
    await_subtasks        wait for them, a while
    complete_subtask      tell one's own result, as the agent of a subtask
    pull_subtask_changes  merge what a subtask changed into one's own folder
    report_progress       tell people how far one is

Every request says for whom it is made: a job, its attempt, and perhaps a subtask of it. Whoever has no turn right now
is refused, so nothing comes after the end of a job.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from orchard.agents.definitions import Definition, definitions
from orchard.core.subtask_records import Subtask, children_of, depth_of
from orchard.engine.engine import Engine
from orchard.engine.programs import redacted
from orchard.engine.turns.job_tokens import Scope
from orchard.engine.turns.scope import Desk
from orchard.engine.turns.subtask import MOST_DEPTH, SUMMARY, Order, run_subtask
from orchard.engine.turns.transfer import pull
from orchard.errors import NotFound, OrchardError, UsageError
from orchard.model.events.plans import Json, ProgressReported, SubtaskCompleted, SubtaskSpawned
from orchard.model.plan import JobId, PlanId
from orchard.process.failpoint import failpoint
from orchard.text import did_you_mean, quoted, shortened

INSTRUCTION_BYTES = 256 * 1024
NAME_LENGTH = 200
MESSAGE = 500
"""Characters of a word about progress."""
MOST_TOLD = 200
"""How often an agent can tell in one turn how far it is."""
LONGEST_WAIT = 45.0
"""Seconds: some hosts give up on a call after a minute."""

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


class Asked(Protocol):
    """What these requests need of whoever takes them: `requests.Requests` is the one."""

    @property
    def engine(self) -> Engine:
        """The engine that they are asked of."""
        ...


def _desk(asked: Asked, plan: str, job: str, attempt: int, subtask: str | None) -> Desk:
    """Where the agent sits that asks; one whose turn is over sits nowhere."""
    found = asked.engine.desks.get(Scope(PlanId(plan), JobId(job), attempt, subtask))
    if not isinstance(found, Desk) or found.left:
        raise UsageError("Only an agent at work on a job can ask for this, and only while its turn lasts.")
    return found


# ------------------------------------------------------------------------------------- who can help


async def list_agents(
    asked: Asked, plan: str | None = None, job: str | None = None, attempt: int = 1, subtask: str | None = None
) -> Json:
    """The agents that work can be given to; for an agent in a job, those that its own folder describes as well."""
    world = asked.engine.world
    folder = world.repo.top or world.repo.main_top
    if plan is not None and job is not None:
        folder = _desk(asked, plan, job, attempt, subtask).context.place.folder
    described = await world.in_thread(definitions, folder) if folder is not None else {}
    known = await world.in_thread(world.agents.listed)
    names = {one["name"] for one in known}
    return {
        "agents": known,
        "definitions": [
            {
                "name": one.name,
                "description": one.description,
                "model": one.model,
                "tools": list(one.tools),
                "file": one.file,
            }
            for one in described.values()
            if one.name not in names
        ],
    }


# ------------------------------------------------------------------------------------------ spawning


async def spawn_subtask(
    asked: Asked,
    plan: str,
    job: str,
    attempt: int,
    instructions: str,
    subtask: str | None = None,
    agent: str | None = None,
    blocking: bool = False,
    name: str = "",
    timeout_s: float = LONGEST_WAIT,
) -> Json:
    """Hand work to another agent; where it blocks, wait for its end as long as one answer may take."""
    desk = _desk(asked, plan, job, attempt, subtask)
    _check_text(instructions)
    _check_limits(desk)
    order, definition = await _order(desk, agent, instructions)
    why = f"before {order.id} began"
    async with desk.folder:
        base = await desk.context.workspace.picture(desk.context.base, why)
    _check_limits(desk)  # others may have asked while the picture was taken
    _refuse_if_left(desk)
    context = desk.context
    assert context.phase is not None
    spawned = SubtaskSpawned(
        context.job_id,
        context.number,
        context.phase,
        order.id,
        order.agent.name,
        redacted(instructions, context.world.hidden_in, context.plan),
        base,
        context.subtask,
        " ".join(name.split())[:NAME_LENGTH],
        definition.name if definition is not None else None,
        blocking,
    )
    context.engine.record(context.run.id, spawned)
    failpoint("subtask.spawned")
    desk.children[order.id] = context.engine.spawn(run_subtask(desk, order))
    if blocking:
        await _wait(desk, [order.id], timeout_s, lambda found: all(one.over for one in found))
    return _told(desk, order.id)


def _refuse_if_left(desk: Desk) -> None:
    if desk.left:
        raise UsageError("The turn of the agent that asked is over.")


def _check_text(instructions: str) -> None:
    if not instructions.strip():
        raise UsageError("A subtask needs 'instructions': what is to be done, and what a good result is.")
    if len(instructions.encode(errors="replace")) > INSTRUCTION_BYTES:
        raise UsageError(f"'instructions' are longer than {INSTRUCTION_BYTES // 1024} KiB.")


def _check_limits(desk: Desk) -> None:
    context = desk.context
    limits, subtasks = context.world.config.limits, context.state.subtasks
    if depth_of(subtasks, context.subtask) >= MOST_DEPTH:
        raise UsageError(f"A subtask at depth {MOST_DEPTH} cannot hand out more work.", hint="Do it yourself.")
    mine = sum(one.attempt == context.number for one in subtasks.values())
    if mine >= limits.subtasks_per_job:
        raise UsageError(
            f"This job has had its {limits.subtasks_per_job} subtasks ('limits.subtasks_per_job').",
            hint="Do the rest yourself.",
        )
    if sum(len(record.subtasks) for record in context.run.records.values()) >= limits.subtasks_per_plan:
        raise UsageError(
            f"This plan has had its {limits.subtasks_per_plan} subtasks ('limits.subtasks_per_plan').",
            hint="Do the rest yourself.",
        )
    why = context.engine.budgets.used_up(context.run)
    if why is not None:
        raise UsageError(f"No agent may begin any more: {why}")


async def _order(desk: Desk, agent: str | None, instructions: str) -> tuple[Order, Definition | None]:
    """Who does it: an agent of the user's by its name, or the usual one by a definition of the repository's."""
    context, world = desk.context, desk.context.world
    id = _new_id(one for record in context.run.records.values() for one in record.subtasks)
    names = [one["name"] for one in await world.in_thread(world.agents.listed)]
    if agent is None or agent in names:
        # Only what has a name here: behind `acp:` stands any command, and that is the user's to choose.
        return Order(id, world.agents.find(agent or desk.agent), instructions), None
    described = await world.in_thread(definitions, context.place.folder)
    definition = described.get(agent)
    if definition is None:
        guess = did_you_mean(agent, [*names, *described])
        raise NotFound(f"There is no agent {quoted(agent)}{guess or '.'}", hint="list_agents says which there are.")
    found = world.agents.find(desk.agent)
    model = await world.in_thread(_model, desk, found.name, definition.model)
    return Order(id, found, instructions, definition.instructions, definition.tools, model), definition


def _model(desk: Desk, agent: str, model: str | None) -> str | None:
    """The model that a definition names, where the agent knows it; definitions are written for other programs too."""
    if model is None:
        return None
    try:
        return desk.context.world.agents.model_for(agent, model, None)
    except OrchardError:
        return None


def _new_id(taken: Iterable[str]) -> str:
    used = set(taken)
    while True:
        id = "subtask-" + "".join(secrets.choice(_ALPHABET) for _ in range(5))
        if id not in used:
            return id


# ------------------------------------------------------------------------------------------- waiting


async def await_subtasks(
    asked: Asked,
    plan: str,
    job: str,
    attempt: int,
    subtask: str | None = None,
    ids: list[str] | None = None,
    timeout_s: float = LONGEST_WAIT,
    until: str = "all",
    cursor: int = 0,
) -> Json:
    """Wait until these subtasks have ended (`until: any`: one more of them), at most for a while.

    Answers with those that ended after `cursor`, an earlier answer's, and with those that still run.
    """
    desk = _desk(asked, plan, job, attempt, subtask)
    if until not in ("all", "any"):
        raise UsageError("'until' is 'all' or 'any'.")
    mine = [one.id for one in children_of(desk.context.state.subtasks, desk.context.number, desk.context.subtask)]
    chosen = list(dict.fromkeys(ids)) if ids else mine
    for id in chosen:
        _mine(desk, id)
    if not chosen:
        raise UsageError("There is no subtask to wait for.", hint="spawn_subtask hands work to another agent.")

    def enough(found: list[Subtask]) -> bool:
        over = [one.over for one in found]
        return all(over) or (until == "any" and any(one.ended_seq > cursor for one in found if one.over))

    await _wait(desk, chosen, timeout_s, enough)
    found = [desk.context.state.subtasks[id] for id in chosen]
    return {
        "ended": [_result(one) for one in found if one.over and one.ended_seq > cursor],
        "running": [one.id for one in found if not one.over],
        "cursor": max((one.ended_seq for one in found), default=cursor),
    }


async def _wait(desk: Desk, ids: list[str], seconds: float, enough: Callable[[list[Subtask]], bool]) -> None:
    """Wait for subtasks, at most for a while; the slot of whoever waits is lent meanwhile."""
    subtasks = desk.context.state.subtasks
    found = [subtasks[id] for id in ids]
    if enough(found) or desk.left:
        return
    with desk.waiting():
        try:
            async with asyncio.timeout(max(0.0, min(seconds, LONGEST_WAIT))):
                while not enough(found) and not desk.left:
                    await desk.news()
        except TimeoutError:
            return


def _mine(desk: Desk, id: str) -> Subtask:
    """A subtask that this agent asked for; those of others are not there for it."""
    context = desk.context
    found = context.state.subtasks.get(id)
    if found is None or found.parent != context.subtask or found.attempt != context.number:
        known = [one.id for one in children_of(context.state.subtasks, context.number, context.subtask)]
        listed = f"Yours are: {', '.join(known)}" if known else "You have none yet."
        raise NotFound(f"You have no subtask {quoted(id)}{did_you_mean(id, known)}", hint=listed)
    return found


def _told(desk: Desk, id: str) -> Json:
    return _result(desk.context.state.subtasks[id])


def _result(one: Subtask) -> Json:
    return {
        "id": one.id,
        "name": one.name or one.id,
        "agent": one.agent,
        "status": one.status,
        "summary": one.summary,
        "message": one.message,
        "commit": one.commit,
        "changes": {name: one.counts.get(name, 0) for name in ("added", "modified", "deleted")},
        "files": list(one.paths),
        "pulled": one.pulled is not None,
    }


# ------------------------------------------------------------------------------- results and progress


async def complete_subtask(
    asked: Asked, plan: str, job: str, attempt: int, result: str, subtask: str | None = None, succeeded: bool = True
) -> Json:
    """Take down what the agent of a subtask says it came to; the last word counts."""
    desk = _desk(asked, plan, job, attempt, subtask)
    context = desk.context
    if context.subtask is None:
        raise UsageError("This is for the agent of a subtask.", hint="A job's own agent is done when its turn ends.")
    if not result.strip():
        raise UsageError("'result' is empty: say in a few sentences what came of it.")
    said = redacted(shortened(result, SUMMARY), context.world.hidden_in, context.plan)
    context.engine.record(
        context.run.id, SubtaskCompleted(context.job_id, context.number, context.subtask, said, succeeded)
    )
    return {"subtask": context.subtask}


async def pull_subtask_changes(
    asked: Asked, plan: str, job: str, attempt: int, id: str, subtask: str | None = None
) -> Json:
    """Merge what a subtask changed into the folder of the agent that asked for it; a conflict changes nothing."""
    desk = _desk(asked, plan, job, attempt, subtask)
    found = _mine(desk, id)
    if not found.over:
        raise UsageError(f"Subtask '{id}' is {found.status}.", hint="await_subtasks waits for it.")
    if found.commit is None:
        return {"id": id, "status": "nothing", "files": [], "conflicts": []}
    async with desk.folder:
        _refuse_if_left(desk)  # the turn may have ended while others had the folder
        return await pull(desk.context, found)


async def report_progress(
    asked: Asked,
    plan: str,
    job: str,
    attempt: int,
    message: str,
    subtask: str | None = None,
    percent: float | None = None,
) -> Json:
    """Tell people how far an agent is; who tells too often is heard no more."""
    desk = _desk(asked, plan, job, attempt, subtask)
    context = desk.context
    if not message.strip():
        raise UsageError("'message' is empty.")
    if percent is not None and not 0 <= percent <= 100:
        raise UsageError("'percent' is from 0 to 100.")
    desk.told += 1
    if desk.told > MOST_TOLD:
        return {"recorded": False}
    said = redacted(" ".join(message.split())[:MESSAGE], context.world.hidden_in, context.plan)
    context.engine.record(
        context.run.id, ProgressReported(context.job_id, context.number, said, percent, context.subtask)
    )
    return {"recorded": True}


VERBS: dict[str, Callable[..., Awaitable[Json]]] = {
    "list_agents": list_agents,
    "spawn_subtask": spawn_subtask,
    "await_subtasks": await_subtasks,
    "complete_subtask": complete_subtask,
    "pull_subtask_changes": pull_subtask_changes,
    "report_progress": report_progress,
}
