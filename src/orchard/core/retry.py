"""Jobs that are tried again: what a crash has cut off, and whether a job begins in a clean worktree or goes on."""

from collections.abc import Iterator

from orchard.core.records import Attempt, JobRecord
from orchard.core.run import Run
from orchard.model.events.plans import JobRetried
from orchard.model.phases import RUNS_PROGRAMS, Phase, at_or_after
from orchard.model.plan import VALIDATION, AgentWork, JobId
from orchard.model.plan_codec import work_from_json


def may_have_run(job_id: JobId, attempt: Attempt) -> bool:
    """Whether a program of the plan's may have been at work where the attempt goes on."""
    programs = {Phase.SETUP, Phase.WORK} if job_id == VALIDATION else RUNS_PROGRAMS
    return attempt.entered and attempt.where in programs


def cut_off(run: Run) -> list[JobId]:
    """Of a run whose engine is gone: jobs whose programs ended with it, and that run again only if a person wants."""
    found = [(job, run.records[job].last) for job in run.active if not run.job(job).retry_on_interrupt]
    return [
        job
        for job, last in found
        if last is not None and last.ended is None and may_have_run(job, last) and not (last.idle or last.completed)
    ]


def begins_clean(run: Run, wanted: JobRetried) -> bool:
    """Whether a command runs again, and only commands have worked in the same worktree before.

    A command begins at its first line and knows nothing of what it did before; an agent goes on with what lies there,
    and so does a person, whose edits count. The validation job sees to this itself.
    """
    record, job = run.records[wanted.job], run.job(wanted.job)
    work = work_from_json(wanted.work) if wanted.work is not None else job.work
    first = wanted.first_phase or record.resume_from or Phase.MERGE_FI
    if wanted.job == VALIDATION or work is None or isinstance(work, AgentWork) or not at_or_after(Phase.WORK, first):
        return False
    attempts = list(_attempts_there(record))
    return not record.edited and any(map(has_worked, attempts)) and all(map(_is_by_commands, attempts))


def _attempts_there(record: JobRecord) -> Iterator[Attempt]:
    """Those that worked in the worktree that the job has, the last one first."""
    if record.worktree is None:
        return
    for attempt in reversed(record.attempts):
        if attempt.worktree != record.worktree.path:
            return
        yield attempt
        if attempt.fresh:
            return


def has_worked(attempt: Attempt) -> bool:
    return any(one.phase is Phase.WORK and one.outcome != "skipped" for one in attempt.phases)


def _is_by_commands(attempt: Attempt) -> bool:
    by_agent = attempt.job is not None and isinstance(attempt.job.work, AgentWork)
    # Who resolves a conflict works elsewhere.
    return not by_agent and all(turn.purpose == "resolve" for turn in attempt.turns)
