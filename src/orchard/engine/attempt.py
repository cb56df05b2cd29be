"""One attempt at a job: its phases in their order, from the first that has to run.

An attempt ends in exactly one of four ways, each an event: it succeeded, failed, was canceled, or is
held until a person decides. The only other end is the death of the engine, which the next engine
finds in the journal.
"""

import asyncio
import traceback

from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.engine.context import Context, folder_state
from orchard.engine.engine import Engine
from orchard.engine.merges.by_hand import end_conflict
from orchard.engine.outcome import Failed, Held, Outcome
from orchard.engine.phases import JOB_PHASES, edits_count, run_phases
from orchard.engine.programs import redacted
from orchard.engine.turns.news import note_unheard, warn_of_unpulled
from orchard.engine.validation import run_validation
from orchard.engine.workspace import release_unneeded
from orchard.errors import OrchardError, plain_hint
from orchard.model.events.plans import JobCanceled, JobFailed, JobHeld, JobStarted, JobSucceeded
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, JobId
from orchard.process.failpoint import failpoint
from orchard.store.journal import JournalFailed


async def run_attempt(engine: Engine, run: Run, job_id: JobId, number: int, hurry: asyncio.Event) -> None:
    record = run.records[job_id]
    first = record.resume_from or Phase.MERGE_FI
    context = Context(engine, run, job_id, number, first, hurry, fresh=record.fresh, approved=record.released)
    engine.record(run.id, JobStarted(job_id, number, first))
    failpoint("attempt.started")
    try:
        outcome = await _guarded(context)
    except asyncio.CancelledError:
        await _stopped(context)
        raise
    failpoint("attempt.before-end")
    _end(context, outcome)
    failpoint("attempt.after-end")
    await _tidy(context)


async def _guarded(context: Context) -> Outcome:
    """The phases, with every error turned into a failed job; only a journal that cannot record is let through."""
    try:
        if context.job_id == VALIDATION:
            return await run_validation(context)
        outcome = await run_phases(context, JOB_PHASES)
        if isinstance(outcome, Failed) and context.job.allow_failure:
            context.stand_in = context.base or None  # None: what it needs does not fit together
        return outcome
    except JournalFailed:
        raise
    except OrchardError as error:
        return Failed("error", error.message, hint=error.hint)
    except Exception as error:  # the one place where a bug or a failing disk becomes a failed job
        return Failed("error", f"{type(error).__name__}: {error}", tail=traceback.format_exc(limit=20)[-4000:])


def _end(context: Context, outcome: Outcome) -> None:
    engine, plan, job, number = context.engine, context.run.id, context.job_id, context.number
    if isinstance(outcome, Failed):
        _record_failure(context, outcome)
    elif isinstance(outcome, Held):
        reason = engine.world.say(outcome.reason)
        engine.record(plan, JobHeld(job, number, outcome.kind, reason, outcome.resume_from, left=outcome.left))
        engine.idling.watch(context.run, job)
        engine.activity.watch_idle(context.run, job)
    else:
        assert context.commit is not None
        note_unheard(engine, context.run, job, number)
        warn_of_unpulled(engine, context.run, job, number)
        engine.record(plan, JobSucceeded(job, number, context.commit))


def _record_failure(context: Context, failed: Failed) -> None:
    event = JobFailed(
        context.job_id,
        context.number,
        context.phase,
        failed.reason,
        redacted(failed.message, context.world.hidden_in, context.run),
        context.world.say(failed.hint) if failed.hint else None,
        failed.exit_code,
        failed.signal,
        failed.tail,
        failed.resume_from,
        failed.left,
        advice=plain_hint(failed.hint),
        stand_in=context.stand_in,
        merge=(failed.merge.ours, failed.merge.theirs) if failed.merge is not None else (),
        sides=failed.sides,
    )
    context.record(event)


async def _stopped(context: Context) -> None:
    """Record the end of an attempt that was stopped on purpose; its worktree is saved and kept."""
    live = context.engine.live.get((context.run.id, context.job_id))
    if live is None or live.stop is None:
        return
    if context.workspace.is_open:
        await context.workspace.try_to_save(f"{live.stop.kind} of job {context.job_id}", " Its folder is kept.")
    left = await folder_state(context) if edits_count(context) else ""
    if live.stop.kind == "cancel":
        context.record(JobCanceled(context.job_id, live.stop.reason, context.phase, left=left))
    else:
        _record_failure(context, Failed("forced", live.stop.reason, left=left))
    await _tidy(context)


async def _tidy(context: Context) -> None:
    over = context.job_id == VALIDATION
    if context.state.state is JobState.SUCCEEDED:
        await end_conflict(context.engine, context.run, context.job_id, "left open when the job had succeeded")
    await release_unneeded(context.engine, context.run, list(context.run.records) if over else [context.job_id])
