"""Running phases in their order, each between its two events, and healing what fails."""

from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from orchard.engine.context import Context
from orchard.engine.outcome import Failed, Held, Outcome, Passed, Skipped
from orchard.engine.turns.heal import folder_state, healed
from orchard.errors import SystemRefused
from orchard.model.events.plans import PhaseEnded, PhaseStarted
from orchard.model.phases import PHASES, Phase, at_or_after

WORDS: Mapping[type[Outcome], str] = {Failed: "failed", Skipped: "skipped", Held: "held"}

PhaseFunction = Callable[[Context], Awaitable[Outcome]]


async def run_phases(context: Context, functions: Mapping[Phase, PhaseFunction]) -> Outcome:
    """Run what has to run, in order; the first phase that does not pass ends it."""
    for phase in PHASES:
        # Gathering is never skipped: what the job needs may have changed since the last attempt.
        if phase is not Phase.MERGE_FI and not at_or_after(phase, context.first_phase):
            continue
        outcome = await run_phase(context, phase, functions[phase])
        if isinstance(outcome, Failed | Held):
            return outcome
    return Passed()


async def run_phase(context: Context, phase: Phase, function: PhaseFunction) -> Outcome:
    context.phase = phase
    context.notes = []
    context.engine.record(context.run.id, PhaseStarted(context.job_id, context.number, phase))
    outcome = await _tried(context, function)
    if isinstance(outcome, Failed):
        outcome = await healed(context, outcome, lambda: _tried(context, function))
    if isinstance(outcome, Failed) and phase is Phase.POSTCHECKS:
        outcome = replace(outcome, left=await folder_state(context))
    notes = [*context.notes, *([outcome.note] if isinstance(outcome, Passed | Skipped) and outcome.note else [])]
    word = WORDS.get(type(outcome), "passed")
    context.engine.record(context.run.id, PhaseEnded(context.job_id, context.number, phase, word, "; ".join(notes)))
    return outcome


async def _tried(context: Context, function: PhaseFunction) -> Outcome:
    """Run a phase; what a disk or the system refuses has failed, and is told without a traceback."""
    try:
        return await function(context)
    except OSError as error:
        refused = SystemRefused(error)
        return Failed("error", refused.message, hint=refused.hint)
