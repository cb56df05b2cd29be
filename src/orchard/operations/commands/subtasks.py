"""What agents in jobs can ask of the engine: help of other agents, and a word to people about how far they are.

    list_helpers          who could help: the user's agents, and those that the repository describes
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
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import to_builtins
from msgspec.structs import replace

from orchard.agents.definitions.choice import choose
from orchard.agents.permissions import check_handed
from orchard.core.records import Subtask, children_of, depth_of
from orchard.engine.engine import Engine
from orchard.engine.programs import redacted
from orchard.engine.turns.job_tokens import Scope
from orchard.engine.turns.scope import Desk
from orchard.engine.turns.subtask import MOST_DEPTH, RESULT_BYTES, Order, begin, keep_result, pull
from orchard.errors import NotFound, UsageError
from orchard.model.events.plans import Json, ProgressReported, SubtaskCompleted, SubtaskSpawned, SubtaskTold
from orchard.model.permissions import Tools, made, wrong
from orchard.model.plan import JobId, PlanId
from orchard.operations.command import Service
from orchard.operations.operation import Absent, Args, Operation, Tool, says
from orchard.operations.queries.definitions import definition_items, described_here
from orchard.process.failpoint import failpoint
from orchard.text import did_you_mean, quoted

INSTRUCTION_BYTES = 256 * 1024
NAME_LENGTH = 200
MESSAGE = 500
"""Characters of a word about progress."""
MOST_TOLD = 200
"""How often an agent can tell in one turn how far it is."""
MOST_ASKED = 200
"""How often an agent can do something about subtasks in one turn, each of which is recorded."""
SHORT_WAIT = 1.0
"""Seconds: waits that are shorter are counted, because each is recorded as well."""
LONGEST_WAIT = 45.0
"""Seconds: some hosts give up on a call after a minute."""
Seconds = Annotated[float, says("At most 45.", ge=0, le=LONGEST_WAIT)]

_ALPHABET = "abcdefghijklmnopqrstuvwxyz234567"


_TOLD = says("", absent={"tool": "The job token of the agent says it."})


class OfTurn(Args, frozen=True, kw_only=True):
    """For whom an agent asks: the job that it works on, the attempt, and perhaps the subtask."""

    plan: Annotated[str, _TOLD]
    job: Annotated[str, _TOLD]
    attempt: Annotated[int, _TOLD]
    subtask: Annotated[str | None, _TOLD] = None


def desk_of_turn(engine: Engine, args: OfTurn) -> Desk:
    """Where the agent sits that asks; one whose turn is over sits nowhere."""
    found = engine.desks.get(Scope(PlanId(args.plan), JobId(args.job), args.attempt, args.subtask))
    if not isinstance(found, Desk) or not found.seated:
        raise UsageError("Only an agent at work on a job can ask for this, and only while its turn lasts.")
    return found


def count(desk: Desk, hint: str = "End your turn; the next one can go on.") -> None:
    """Refuse what an agent asks for again and again in one turn, so that the journal does not grow without end."""
    if desk.asked >= MOST_ASKED:
        raise UsageError(f"You have asked for things like this {MOST_ASKED} times in this turn.", hint=hint)
    desk.asked += 1


# ------------------------------------------------------------------------------------- who can help


class ListAgents(Args, frozen=True, kw_only=True):
    plan: Annotated[str | None, _TOLD] = None
    job: Annotated[str | None, _TOLD] = None
    attempt: Annotated[int, _TOLD] = 1
    subtask: Annotated[str | None, _TOLD] = None


async def _list_agents(engine: Engine, args: ListAgents) -> Json:
    """The agents that work can be given to; for an agent in a job, those that its own worktree describes as well."""
    world = engine.world
    look = partial(described_here, world.repo, world.agents, world.integration.objects)
    if args.plan is not None and args.job is not None:
        turn = OfTurn(plan=args.plan, job=args.job, attempt=args.attempt, subtask=args.subtask)
        look = partial(world.described_in, desk_of_turn(engine, turn).context.place.folder)
    described = await world.in_thread(look)
    known = await world.in_thread(world.agents.listed)
    return {"agents": known, "definitions": to_builtins(definition_items(described))}


# ------------------------------------------------------------------------------------------ spawning


class SpawnSubtask(OfTurn, frozen=True, kw_only=True):
    instructions: Annotated[
        str,
        says(
            "The whole task: it knows nothing of what you know, and cannot ask.",
            min_length=1,
            max_length=INSTRUCTION_BYTES,
        ),
    ]
    agent: Annotated[str | None, says("From list_agents. Left out: one like you.", min_length=1, max_length=400)] = None
    blocking: Annotated[bool, says("Wait for its end.")] = False
    interactive: Annotated[bool, says("After its turn it waits for steer_subtask.")] = False
    name: Annotated[str, says("For people.", max_length=NAME_LENGTH)] = ""
    tools: Annotated[
        str | list[str] | None, says("What it may use, of what you may: `read-only`, `edit`, `all`, or tools by name.")
    ] = None
    deny_tools: Annotated[list[str] | None, says("Tools that it may not use.")] = None
    timeout_s: Seconds = LONGEST_WAIT


async def _spawn_subtask(engine: Engine, args: SpawnSubtask) -> Json:
    """Hand work to another agent; where it blocks, wait for its end as long as one answer may take."""
    desk = desk_of_turn(engine, args)
    turn = desk.seated
    _check_text(args.instructions)
    permits = _permits(args)
    _check_limits(desk)
    order = replace(await order_of(desk, args.agent, args.instructions), permits=permits)
    world, mine = desk.context.world, desk.settings.tools
    await world.in_thread(check_handed, world.agents, desk.agent, order.agent.name, mine)
    why = f"before {order.id} began"
    async with desk.folder:
        base = await desk.context.workspace.picture(desk.context.base, why)
    _check_limits(desk)  # others may have asked while the picture was taken
    _refuse_if_left(desk, turn)
    context = desk.context
    assert context.phase is not None
    spawned = SubtaskSpawned(
        context.job_id,
        context.number,
        context.phase,
        order.id,
        order.agent.name,
        redacted(args.instructions, context.world.hidden_in, context.run),
        base,
        context.subtask,
        " ".join(args.name.split())[:NAME_LENGTH],
        order.chosen.name,
        args.blocking,
        args.interactive,
        permits,
    )
    context.engine.record(context.run.id, spawned)
    failpoint("subtask.spawned")
    begin(desk, order)
    if args.blocking:
        await _wait(desk, [order.id], args.timeout_s, lambda found: all(_has_news(one) for one in found))
    return told_of(desk, order.id)


def _permits(args: SpawnSubtask) -> Tools:
    given = ((args.tools, True, "tools"), (args.deny_tools, False, "deny_tools"))
    for value, modes, name in given:
        if value is not None and (problem := wrong(value, modes=modes)) is not None:
            raise UsageError(f"'{name}' {problem}.")
    return made(args.tools, args.deny_tools or ())


def _has_news(one: Subtask) -> bool:
    """Whether whoever waits for it can do something about it: it is over, or waits itself."""
    return one.over or one.at_rest


def _refuse_if_left(desk: Desk, turn: int) -> None:
    if desk.seated != turn:
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


async def order_of(desk: Desk, agent: str | None, instructions: str) -> Order:
    """Who does it: an agent of the user's by its name, or one by a definition; the usual one is like who asks."""
    context, world = desk.context, desk.context.world
    id = _new_id(one for record in context.run.records.values() for one in record.subtasks)
    # Only what has a name here: behind `acp:` stands any command, and that is the user's to choose.
    described = partial(world.described_in, context.place.folder)
    name = agent.removeprefix("@") if agent is not None else None
    chosen = await world.in_thread(choose, world.agents, name, described, usual=desk.agent, commands=False)
    for note in chosen.notes:
        context.engine.warn(context.run.id, note)
    return Order(id, chosen, instructions)


def _new_id(taken: Iterable[str]) -> str:
    used = set(taken)
    while True:
        id = "subtask-" + "".join(secrets.choice(_ALPHABET) for _ in range(5))
        if id not in used:
            return id


# ------------------------------------------------------------------------------------------- waiting


class AwaitSubtasks(OfTurn, frozen=True, kw_only=True):
    ids: Annotated[list[str] | None, says("Left out: all of yours.")] = None
    timeout_s: Seconds = LONGEST_WAIT
    until: Annotated[Literal["all", "any"], says("`any`: until one more has ended.")] = "all"
    cursor: Annotated[int, says("Of an earlier answer.", ge=0)] = 0


async def _await_subtasks(engine: Engine, args: AwaitSubtasks) -> Json:
    """Wait until these subtasks have ended (`until: any`: one more of them), at most for a while.

    Answers with those that ended after `cursor`, an earlier answer's, and with those that still run.
    """
    desk = desk_of_turn(engine, args)
    if args.until not in ("all", "any"):
        raise UsageError("'until' is 'all' or 'any'.")
    mine = [one.id for one in children_of(desk.context.state.subtasks, desk.context.number, desk.context.subtask)]
    chosen = list(dict.fromkeys(args.ids)) if args.ids else mine
    for id in chosen:
        own_subtask(desk, id)
    if not chosen:
        raise UsageError("There is no subtask to wait for.", hint="spawn_subtask hands work to another agent.")

    def enough(found: list[Subtask]) -> bool:
        news = [one for one in found if _has_news(one)]
        return len(news) == len(found) or (args.until == "any" and any(one.ended_seq > args.cursor for one in news))

    await _wait(desk, chosen, args.timeout_s, enough)
    found = [desk.context.state.subtasks[id] for id in chosen]
    return {
        "ended": [told_of(desk, one.id) for one in found if one.over and one.ended_seq > args.cursor],
        "idle": [told_of(desk, one.id) for one in found if one.at_rest],
        "running": [one.id for one in found if not _has_news(one)],
        "cursor": max((one.ended_seq for one in found), default=args.cursor),
    }


async def _wait(desk: Desk, ids: list[str], seconds: float, enough: Callable[[list[Subtask]], bool]) -> None:
    """Wait for subtasks, at most for a while; the slot of whoever waits is lent meanwhile."""
    subtasks = desk.context.state.subtasks
    found = [subtasks[id] for id in ids]
    turn = desk.seated
    if enough(found) or not turn:
        return
    if seconds < SHORT_WAIT:
        count(desk, "Wait longer: 'timeout_s' can be 45.")
    with desk.waiting():
        try:
            async with asyncio.timeout(max(0.0, min(seconds, LONGEST_WAIT))):
                while not enough(found) and desk.seated == turn:
                    await desk.news()
        except TimeoutError:
            return


def own_subtask(desk: Desk, id: str) -> Subtask:
    """A subtask that this agent asked for; those of others are not there for it."""
    context = desk.context
    found = context.state.subtasks.get(id)
    if found is None or found.parent != context.subtask or found.attempt != context.number:
        known = [one.id for one in children_of(context.state.subtasks, context.number, context.subtask)]
        listed = f"Yours are: {', '.join(known)}" if known else "You have none yet."
        raise NotFound(f"You have no subtask {quoted(id)}{did_you_mean(id, known)}", hint=listed)
    return found


def told_of(desk: Desk, id: str) -> Json:
    """A subtask as the agent that asked for it is told of it; of one that is over it knows then."""
    one = desk.context.state.subtasks[id]
    if one.over and not one.told:
        desk.context.record(SubtaskTold(desk.context.job_id, desk.context.number, id))
    return {
        "id": one.id,
        "name": one.name or one.id,
        "agent": one.agent,
        "status": one.status,
        "summary": one.summary if one.over else _last_words(desk, one),
        "cut": cut_words(one),
        "message": one.message,
        "commit": one.commit,
        "changes": {name: one.counts.get(name, 0) for name in ("added", "modified", "deleted")},
        "files": list(one.paths),
        "pulled": one.pulled is not None,
    }


def _last_words(desk: Desk, one: Subtask) -> str:
    """What one that is idle said last."""
    last = desk.context.state.last
    turns = last.turns if last is not None and one.at_rest else []
    return next((turn.text for turn in reversed(turns) if turn.subtask == one.id), "")


def cut_words(one: Subtask) -> str | None:
    """That the summary is a part of the result, if it is, and how to read the whole."""
    if one.size <= len(one.summary.encode(errors="replace")):
        return None
    return f"The result has {one.size:,} bytes, of which 'summary' is a part; get_subtask reads all of it, in pages."


# ------------------------------------------------------------------------------- results and progress


class CompleteSubtask(OfTurn, frozen=True, kw_only=True):
    result: Annotated[str, says("What you did or found, and what is not done.", min_length=1, max_length=RESULT_BYTES)]
    succeeded: Annotated[bool, says("False: you could not do it.")] = True


async def _complete_subtask(engine: Engine, args: CompleteSubtask) -> Json:
    """Take down what the agent of a subtask says it came to; the last word counts."""
    desk = desk_of_turn(engine, args)
    context = desk.context
    if context.subtask is None:
        raise UsageError("This is for the agent of a subtask.", hint="A job's own agent is done when its turn ends.")
    if not args.result.strip():
        raise UsageError("'result' is empty: say in a few sentences what came of it.")
    count(desk)
    said, size = await context.world.in_thread(keep_result, context, args.result)
    about = (context.job_id, context.number, context.subtask)
    context.engine.record(context.run.id, SubtaskCompleted(*about, said, args.succeeded, size))
    return {"subtask": context.subtask}


class PullSubtaskChanges(OfTurn, frozen=True, kw_only=True):
    id: Annotated[str, says("As spawn_subtask gave it.", min_length=1, max_length=400)]


async def _pull_subtask_changes(engine: Engine, args: PullSubtaskChanges) -> Json:
    """Merge what a subtask changed into the folder of the agent that asked for it; a conflict changes nothing."""
    desk = desk_of_turn(engine, args)
    turn, found, tools = desk.seated, own_subtask(desk, args.id), desk.settings.tools
    if not (tools.may_edit or tools.may_run):
        raise UsageError(f"You may not change files here, so you can pull no changes ({tools.words}).")
    if not found.over:
        raise UsageError(f"Subtask '{args.id}' is {found.status}.", hint="await_subtasks waits for it.")
    if found.commit is None:
        return {"id": args.id, "status": "nothing", "files": [], "conflicts": []}
    count(desk)
    async with desk.folder:
        _refuse_if_left(desk, turn)  # the turn may have ended while others had the folder
        return await pull(desk.context, found)


class ReportProgress(OfTurn, frozen=True, kw_only=True):
    message: Annotated[str, says("One sentence.", min_length=1, max_length=MESSAGE)]
    percent: Annotated[float | None, says("0 to 100.", ge=0, le=100)] = None


async def _report_progress(engine: Engine, args: ReportProgress) -> Json:
    """Tell people how far an agent is; who tells too often is heard no more."""
    desk = desk_of_turn(engine, args)
    context = desk.context
    if not args.message.strip():
        raise UsageError("'message' is empty.")
    if args.percent is not None and not 0 <= args.percent <= 100:
        raise UsageError("'percent' is from 0 to 100.")
    desk.told += 1
    if desk.told > MOST_TOLD:
        return {"recorded": False}
    said = redacted(" ".join(args.message.split())[:MESSAGE], context.world.hidden_in, context.run)
    context.engine.record(
        context.run.id, ProgressReported(context.job_id, context.number, said, args.percent, context.subtask)
    )
    return {"recorded": True}


_NOT_FOR_PEOPLE = Absent("Only an agent at work on a job has subtasks.")


def service(
    name: str,
    title: str,
    sentence: str,
    args: type[Args],
    serve: Callable[[Engine, Any], Awaitable[Json]],
    *next: str,
    **example: Any,
) -> Service:
    async def held(engine: Engine, given: Any) -> Json:
        """Our own tools are ours to refuse, whichever agent asks and whatever its program can be held to."""
        if isinstance(given, OfTurn) and not desk_of_turn(engine, given).settings.tools.permits_own(name):
            raise UsageError(f"You may not use {name} here ('deny_tools').", hint="Do without it.")
        return await serve(engine, given)

    return Service(
        name=name,
        sentence=sentence,
        args=args,
        example=example,
        route=_NOT_FOR_PEOPLE,
        tool=Tool("subtasks", title, name="list_agents" if name == "list_helpers" else ""),
        verb=_NOT_FOR_PEOPLE,
        next=next,
        repeatable=name in ("list_helpers", "await_subtasks", "complete_subtask"),
        reads=name == "list_helpers",  # who awaits subtasks lends its slot to other work meanwhile
        serve=held,
    )


OPERATIONS: tuple[Operation, ...] = (
    service(
        "list_helpers",
        "List agents",
        "List the agents that work can be given to: the user's, and those that the repository describes.",
        ListAgents,
        _list_agents,
        "spawn_subtask",
    ),
    service(
        "spawn_subtask",
        "Hand out a subtask",
        "Hand a large, independent part of your work to another agent, which works in its own copy of your folder.",
        SpawnSubtask,
        _spawn_subtask,
        "await_subtasks",
        instructions="Write tests for src/login.py in tests/test_login.py. Run them.",
    ),
    service(
        "await_subtasks",
        "Wait for subtasks",
        "Wait for your subtasks, for at most 45 seconds; then call again with the cursor.",
        AwaitSubtasks,
        _await_subtasks,
        "pull_subtask_changes",
        ids=["subtask-k3x9p"],
    ),
    service(
        "complete_subtask",
        "Complete a subtask",
        "As the agent of a subtask: tell your result to the agent that handed it to you, then end your turn.",
        CompleteSubtask,
        _complete_subtask,
        result="Wrote 12 tests; all pass.",
    ),
    service(
        "pull_subtask_changes",
        "Pull a subtask's changes",
        "Merge what a subtask changed into your folder; on a conflict nothing is written.",
        PullSubtaskChanges,
        _pull_subtask_changes,
        id="subtask-k3x9p",
    ),
    service(
        "report_progress",
        "Report progress",
        "Tell people how far you are, in the status of your job.",
        ReportProgress,
        _report_progress,
        message="Parser done, now the tests",
        percent=60,
    ),
)
