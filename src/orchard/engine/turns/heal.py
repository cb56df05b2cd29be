"""Healing: an agent fixes what failed in the job's own worktree, and the failed phase, run again, decides."""

from collections.abc import Awaitable, Callable

from msgspec.structs import replace

from orchard.agents.definitions.choice import Choice
from orchard.agents.prompts.work import Failure, Try, heal_instructions
from orchard.agents.protocol import Result, Settings
from orchard.config.reach import heals_by_default
from orchard.engine.context import Context, folder_state
from orchard.engine.outcome import Failed, Held, Outcome
from orchard.engine.turns.permissions import for_job
from orchard.engine.turns.scope import offered_name
from orchard.engine.turns.turn import Asked, run_turn
from orchard.engine.turns.work import (
    environment_for,
    helper_of,
    intent_of,
    limits_for,
    with_definition,
    worker_context,
)
from orchard.errors import OrchardError
from orchard.model.events.plans import HealTried
from orchard.model.permissions import all_of
from orchard.model.phases import Phase
from orchard.model.plan import ShellWork

DIFF_BYTES = 64 * 1024


async def healed(context: Context, failed: Failed, again: Callable[[], Awaitable[Outcome]]) -> Outcome:
    """Let an agent try to fix what failed, as often as the plan allows; `again` runs the failed phase."""
    tries = _tries(context)
    if not failed.may_heal or tries == 0 or not context.workspace.is_open:
        return failed
    try:
        chosen = await helper_of(context, context.world.config.heal.agent)
    except OrchardError as error:
        context.notes.append(f"healing was skipped: no agent is usable ({error.message})")
        return failed
    sources = for_job(context.world.config, chosen, context.job, context.job.work)
    if not (all_of(sources).may_edit or all_of(sources).may_run):
        context.notes.append(f"healing was skipped: an agent may not change anything here ({all_of(sources).words})")
        return failed
    outcome: Outcome = failed
    earlier = _earlier(context)
    for number in range(len(earlier) + 1, tries + 1):
        assert isinstance(outcome, Failed)
        before = await folder_state(context)
        result = await _turn(context, chosen, outcome, earlier, number)
        if result.reason == "budget":
            return Held("budget", result.message, context.phase)
        if before == await folder_state(context):
            _record(context, number, "unchanged", result.message)
            said = f" ({result.message})" if result.message else ""
            context.notes.append(f"healing ended: the agent changed nothing{said}")
            return outcome
        context.healed = True
        outcome = await again()
        if not isinstance(outcome, Failed):
            _record(context, number, "passed", "")
            context.notes.append(f"healed by {chosen.agent.name} at try {number}")
            return outcome
        _record(context, number, "failed", outcome.message, outcome.tail)
        if not outcome.may_heal:
            return outcome
        earlier.append(Try(result.text, f"{outcome.message}\n{outcome.tail}"))
    context.notes.append(f"healing ended: {tries} tries did not fix it")
    return outcome


def _earlier(context: Context) -> list[Try]:
    """What was tried at this failure before: a pause, or another engine, does not make them fewer.

    A try that made the phase pass is over: what fails after it in the same phase is another failure.
    """
    found: list[Try] = []
    for turn in context.state.last.turns if context.state.last is not None else ():
        if turn.purpose == "heal" and turn.phase is context.phase and turn.healed is not None:
            found = [] if turn.healed == "passed" else [*found, Try(turn.text, turn.check)]
    return found


async def _turn(context: Context, chosen: Choice, failed: Failed, earlier: list[Try], number: int) -> Result:
    job, agent, settings = context.job, chosen.agent, with_definition(Settings(), chosen)
    failure = Failure(
        phase=str(context.phase),
        message=failed.message,
        command=failed.command,
        exit_code=failed.exit_code,
        output=failed.tail,
        log=context.log if context.log.exists() else None,
    )
    server = offered_name(context, agent, "heal", settings)
    sources = for_job(context.world.config, chosen, job, job.work)
    worker = await worker_context(context, intent_of(job), job.work, server, all_of(sources))
    worker = replace(worker, role=chosen.role)
    diff = await context.workspace.diff(context.base, DIFF_BYTES)
    work = job.work or ShellWork(command="true")
    asked = Asked(
        agent=agent,
        purpose="heal",
        instructions=heal_instructions(worker, failure, diff=diff, tries=earlier, message=failed.advice),
        folder=context.workspace.folder,
        env=environment_for(context, agent, work),
        limits=limits_for(context, work),
        settings=settings,
        number=number,
        sources=sources,
        work=work,
        definition=chosen.name,
    )
    return await run_turn(context, asked)


def _tries(context: Context) -> int:
    heal, config = context.job.heal, context.world.config
    if heal is None:
        heal = heals_by_default(context.plan, config)
    if heal is True:
        return config.heal.attempts
    return 0 if heal is False else heal


async def edited_since(context: Context, phase: Phase = Phase.POSTCHECKS) -> bool:
    """Whether the worktree of a job that goes on with its checks, in this phase, holds work that no commit has.

    An agent was healing it when the engine died, or a person did after the check had failed. What the check itself
    left there is none.
    """
    if not context.workspace.is_open or context.workspace.is_new:
        return False
    attempts = context.state.attempts[-2:]
    turns = [turn for attempt in attempts for turn in attempt.turns if turn.purpose == "heal"]
    if turns and turns[-1].phase is phase and turns[-1].healed is None:
        return True
    failure = attempts[0].failure if len(attempts) > 1 else None
    if failure is None or failure.phase is not phase or not failure.left:
        return False
    return failure.left != await folder_state(context)


def healed_trailers(context: Context) -> tuple[tuple[str, str], ...]:
    """Which agents' changes are in a commit because something had failed: `Orchard-Healed: postchecks by builtin`."""
    rows = dict.fromkeys(f"{turn.phase} by {turn.agent}" for turn in context.state.heals)
    return tuple(("Orchard-Healed", row) for row in rows)


def _record(context: Context, number: int, outcome: str, message: str, tail: str = "") -> None:
    context.record(HealTried(*context.now, number, outcome, message, tail))
