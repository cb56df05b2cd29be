"""Attempts at a job and their subtasks, as surfaces show them."""

from collections.abc import Iterable

from msgspec import convert
from msgspec.structs import replace

from orchard.core.records import Attempt, JobRecord, Subtask, Turn
from orchard.core.run import Run
from orchard.core.views import documents
from orchard.core.views.health import conditions_view, marks_view
from orchard.core.views.sandbox import RefusalView
from orchard.core.views.usage import agents_usage
from orchard.model.events.plans import JobFailed, ProgressReported
from orchard.model.permissions import ALL, Source, all_of
from orchard.model.plan import AgentWork, JobId
from orchard.model.plan_codec import work_json
from orchard.model.secrets import masked

UNDER_WAY = ("waiting", "running")
INSTRUCTIONS = 2000
"""Characters of what a subtask was asked to do that are shown."""


def attempt_view(run: Run, job_id: JobId, *, interrupted: bool = False) -> list[documents.AttemptView]:
    """Every attempt at a job, phase by phase; `interrupted`: no engine works on what is under way."""
    record = run.records[job_id]
    found = [_attempt(record, attempt) for attempt in record.attempts]
    return [_as_interrupted(one, run) if interrupted and one.ended_at is None else one for one in found]


def _as_interrupted(attempt: documents.AttemptView, run: Run) -> documents.AttemptView:
    """An attempt whose engine is gone: nothing of it runs, and it ended with its engine."""
    at, outcome = documents.time_text(run.alive_at), "interrupted"
    return replace(
        attempt,
        ended_at=at,
        outcome=outcome,
        phases=[replace(one, ended_at=at, outcome=outcome) if one.ended_at is None else one for one in attempt.phases],
        turns=[replace(one, ended_at=at, outcome=outcome) if one.ended_at is None else one for one in attempt.turns],
    )


def _attempt(record: JobRecord, attempt: Attempt) -> documents.AttemptView:
    job, failure = attempt.job, attempt.failure
    return documents.AttemptView(
        number=attempt.number,
        outcome=attempt.outcome,
        first_phase=attempt.first_phase,
        started_at=documents.time_text(attempt.started),
        ended_at=documents.time_text(attempt.ended),
        idle_seconds=round(attempt.idle_seconds, 3),
        scheduled_at=documents.time_text(attempt.picked),
        base_commit=attempt.base,
        commit=attempt.commits[-1][1].commit if attempt.commits else None,
        worktree=attempt.worktree,
        work=None if job is None or job.work is None else masked(work_json(job.work)),
        prechecks=[masked(work_json(one)) for one in (job.prechecks if job is not None else ())],
        postchecks=[masked(work_json(one)) for one in (job.postchecks if job is not None else ())],
        phases=[
            documents.PhaseView(
                phase=phase.phase,
                outcome=phase.outcome,
                started_at=documents.time_text(phase.started),
                ended_at=documents.time_text(phase.ended),
                note=phase.note,
            )
            for phase in attempt.phases
        ],
        turns=[_turn(turn) for turn in attempt.turns],
        subtasks=subtasks_view(record, attempt),
        usage=agents_usage(one for turn in attempt.turns for one in turn.used.values()),
        failure=None if failure is None else failure_view(failure),
        refused=_refusals(attempt),
    )


def _turn(turn: Turn) -> documents.TurnView:
    return documents.TurnView(
        agent=turn.agent,
        trigger=turn.purpose,
        subtask=turn.subtask,
        phase=str(turn.phase),
        number=turn.number,
        model=turn.model,
        session=turn.session or turn.resumed,
        resumed=turn.resumed is not None,
        started_at=documents.time_text(turn.started),
        ended_at=documents.time_text(turn.ended),
        outcome=turn.reason,
        message=turn.message,
        text=turn.text,
        healed=turn.healed,
        notes=[documents.Note(kind, message) for kind, message in turn.notes],
        usage=agents_usage(turn.used.values()),
        definition=turn.definition,
        health=marks_view(turn),
        permissions=permissions(turn.tools),
    )


def permissions(sources: Iterable[Source]) -> documents.Permissions:
    said = tuple(sources)
    tools = all_of(said)
    told = [documents.Said(one.origin, one.tools.words) for one in said]
    return documents.Permissions(tools.words, tools.mode, told)


def job_permissions(run: Run, job_id: JobId) -> documents.Permissions | None:
    """What a job's agent may use: in its last turn, else by what the plan says; None: it has none."""
    record, job = run.records[job_id], run.job(job_id)
    turns = [turn for attempt in record.attempts for turn in attempt.turns if turn.subtask is None]
    if turns:
        return permissions(turns[-1].tools)
    own = job.work.tools if isinstance(job.work, AgentWork) else ALL
    if not isinstance(job.work, AgentWork) and job.tools == ALL:
        return None
    return permissions(one for one in (Source("the job", job.tools), Source("the work", own)) if one.tools != ALL)


def failure_view(failure: JobFailed) -> documents.Failure:
    return convert(failure, documents.Failure, from_attributes=True)


def subtasks_view(record: JobRecord, attempt: Attempt | None, *, stopped: bool = False) -> list[documents.SubtaskView]:
    """The subtasks of one attempt, in the order in which they were asked for; `stopped`: no engine works on them."""
    if attempt is None or not record.subtasks:
        return []
    found = [one for one in record.subtasks.values() if one.attempt == attempt.number]
    shown = [_subtask(one, attempt) for one in found]
    gone = [one.id for one in shown if stopped and one.status in UNDER_WAY]
    return [replace(one, status="interrupted", health=[]) if one.id in gone else one for one in shown]


def _subtask(one: Subtask, attempt: Attempt) -> documents.SubtaskView:
    return documents.SubtaskView(
        id=one.id,
        name=one.name or one.id,
        parent=one.parent,
        agent=one.agent,
        definition=one.definition,
        instructions=one.instructions[:INSTRUCTIONS],
        blocking=one.blocking,
        interactive=one.interactive,
        status=one.status,
        queued=len(one.queued),
        result_bytes=one.size,
        message=one.message or None,
        summary=one.summary or None,
        base_commit=one.base,
        commit=one.commit,
        changes=documents.FileCounts(**{name: one.counts.get(name, 0) for name in ("added", "modified", "deleted")}),
        files=list(one.paths),
        pulled=one.pulled is not None,
        worktree=one.path,
        progress=progress_view(one.progress),
        usage=agents_usage(usage for turn in attempt.turns if turn.subtask == one.id for usage in turn.used.values()),
        spawned_at=documents.time_text(one.spawned),
        started_at=documents.time_text(one.started),
        ended_at=documents.time_text(one.ended),
        health=conditions_view(attempt.turn_of(one.id)) if not one.over else [],
    )


def progress_view(told: ProgressReported | None) -> documents.Progress | None:
    return None if told is None else documents.Progress(told.message, told.percent)


def _refusals(attempt: Attempt) -> list[RefusalView]:
    return [
        RefusalView(
            kind=one.kind,
            name=one.name,
            reason=one.reason,
            setting=one.setting,
            count=one.count,
            phase=one.phase.value,
            subtask=one.subtask,
            program=one.program,
            how=one.how,
        )
        for one in attempt.refused.values()
    ]
