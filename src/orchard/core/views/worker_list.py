"""All workers as one list: plans, the jobs in them that have no worker, and each worker with its subtasks."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import asdict

from orchard.core.job_names import worker_name
from orchard.core.records import Attempt
from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.core.views.documents import (
    ActivityView,
    ConditionView,
    JobView,
    Moment,
    PlanSummary,
    Progress,
    SubtaskView,
    WorkerState,
    WorkerView,
)
from orchard.core.views.figures import AgentUsage, JobUsage, PlanUsage
from orchard.core.views.plans import call_answers
from orchard.core.views.workers import last_words, model_of, subtask_state
from orchard.errors import Next
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, AgentWork, JobId
from orchard.model.statuses import JobStatus, PlanStatus

FAILED = ("failed", "stopped", "interrupted")
"""How a subtask ended that was not completed."""

Repository = Annotated[str | None, Meta(description="Its folder, where all repositories were asked for.")]


class QuestionRow(Struct, frozen=True, kw_only=True):
    """A call that a worker wants to make, and with which it waits for a person's word."""

    number: Annotated[int, Meta(description="Counts the questions of its job.")]
    tool: str
    about: Annotated[str, Meta(description="What the call is about, as the agent says it.")]
    next: Annotated[list[Next], Meta(description="What answers it.")]


Asks = Annotated[list[QuestionRow], Meta(description="Calls about which it asks a person, and with which it waits.")]


class TaskRow(Struct, frozen=True, kw_only=True):
    """A job that has no worker: nobody has begun it, or it runs a program."""

    job: str
    name: str
    status: JobStatus
    phase: Phase | None
    deployed: Annotated[bool, Meta(description="False: it waits until a person deploys it.")]
    agent: Annotated[str | None, Meta(description="Who is to do it; null: the default agent, or a program.")]
    is_for_agent: bool
    waits_for: Annotated[list[str], Meta(description="What it needs and has not succeeded yet.")]


class SubtaskRow(Struct, frozen=True, kw_only=True):
    """The worker of a subtask."""

    job: Annotated[str, Meta(description="Its name in requests: `JOB/subtask-xxxxx`.")]
    subtask: str
    name: str
    parent: Annotated[str | None, Meta(description="The subtask whose agent asked for it; null: the job's own.")]
    state: WorkerState
    status: str
    agent: str
    definition: str | None
    model: str | None
    interactive: bool
    turns: int
    queued: int
    said: str
    progress: Progress | None
    usage: AgentUsage
    health: list[ConditionView]
    activity: ActivityView | None
    error: Annotated[str | None, Meta(description="Why it failed, or was stopped.")] = None
    asks: Asks


class WorkerRow(WorkerView, frozen=True, kw_only=True):
    """The worker of a job, with its subtasks in the order in which they were asked for."""

    repository: Repository = None
    plan: str
    job: str
    name: str
    status: JobStatus
    phase: Phase | None
    attempt: int
    progress: Progress | None
    usage: JobUsage
    started_at: Moment | None
    error: Annotated[str | None, Meta(description="Why the job failed.")] = None
    asks: Asks
    subtasks: list[SubtaskRow]


class PlanRow(Struct, frozen=True, kw_only=True):
    """A plan with the jobs that have no worker."""

    repository: Repository = None
    plan: str
    name: str
    status: PlanStatus
    counts: dict[str, int]
    validation: JobStatus | None = None
    usage: PlanUsage
    tasks: list[TaskRow]


class WorkerList(Struct, frozen=True, kw_only=True):
    """Plans, tasks, workers and their subtasks."""

    plans: list[PlanRow]
    workers: list[WorkerRow]
    total: Annotated[int, Meta(description="How many workers of jobs there are.")]


def worker_rows(
    run: Run, jobs: Iterable[JobView], state: WorkerState | None = None, repository: str | None = None
) -> list[WorkerRow]:
    """The workers of a plan; with `state` those that are in it, or have a subtask that is."""
    rows = [_worker(run, job, job.worker, repository) for job in jobs if job.worker is not None]
    return [one for one in rows if state in (None, one.state, *(sub.state for sub in one.subtasks))]


def plan_row(
    run: Run, summary: PlanSummary, jobs: Iterable[JobView], *, tasks: bool, repository: str | None = None
) -> PlanRow:
    shown = [_task(run, job) for job in jobs if tasks and job.worker is None and not job.validation]
    return PlanRow(
        repository=repository,
        plan=run.id,
        name=run.plan.name,
        status=summary.status,
        counts=summary.counts,
        validation=summary.validation,
        usage=summary.usage,
        tasks=shown,
    )


def _task(run: Run, job: JobView) -> TaskRow:
    work = run.described(JobId(job.id)).work
    return TaskRow(
        job=job.id,
        name=job.name,
        status=job.status,
        phase=job.phase,
        deployed=job.deployed,
        agent=work.agent if isinstance(work, AgentWork) else None,
        is_for_agent=isinstance(work, AgentWork),
        waits_for=[need for need in job.needs if need != VALIDATION and not _succeeded(run, JobId(need))],
    )


def _succeeded(run: Run, job_id: JobId) -> bool:
    return run.records[job_id].state is JobState.SUCCEEDED


def _worker(run: Run, job: JobView, worker: WorkerView, repository: str | None) -> WorkerRow:
    record = run.records[JobId(job.id)]
    last = record.last
    own = [turn for attempt in record.attempts for turn in attempt.turns if turn.purpose == "work"]
    return WorkerRow(
        **{**asdict(worker), "said": worker.said or last_words(own)},
        repository=repository,
        plan=run.id,
        job=job.id,
        name=job.name,
        status=job.status,
        phase=job.phase,
        attempt=job.attempts,
        progress=job.progress,
        usage=job.usage,
        started_at=job.started_at,
        error=job.error,
        asks=_asks(run, job, None),
        subtasks=_subtasks(run, job, job.subtasks, last),
    )


def _subtasks(run: Run, job: JobView, views: Sequence[SubtaskView], last: Attempt | None) -> list[SubtaskRow]:
    records = run.records[JobId(job.id)].subtasks
    found = []
    for view in views:
        turns = [turn for turn in last.turns if turn.subtask == view.id] if last is not None else []
        gone = view.status == "interrupted"
        found.append(
            SubtaskRow(
                job=worker_name(job.id, view.id),
                subtask=view.id,
                name=view.name,
                parent=view.parent,
                state="error" if gone else subtask_state(records[view.id]),
                status=view.status,
                agent=view.agent,
                definition=view.definition,
                error=(view.message or None) if view.status in FAILED else None,
                model=model_of(turns),
                interactive=view.interactive,
                turns=len(turns),
                queued=view.queued,
                said=view.summary or last_words(turns),
                progress=view.progress,
                usage=view.usage,
                health=view.health,
                activity=view.activity,
                asks=_asks(run, job, view.id),
            )
        )
    return found


def _asks(run: Run, job: JobView, subtask: str | None) -> list[QuestionRow]:
    """What a worker asks; one whose engine is gone waits for no answer."""
    if job.worker is not None and job.worker.state == "error":
        return []
    return [
        QuestionRow(number=call.number, tool=call.tool, about=call.about, next=list(call_answers(run.id, call)))
        for call, _ in run.records[JobId(job.id)].questions
        if call.subtask == subtask
    ]
