"""Queries about jobs."""

from typing import Annotated

from msgspec import Struct

from orchard.core.views.attempts import attempt_view, failure_view
from orchard.core.views.documents import AttemptView, Failure, JobDetails
from orchard.core.views.plans import job_steps, job_view
from orchard.errors import Next, UsageError
from orchard.git.history import LONGEST_DIFF
from orchard.model.statuses import JobStatus
from orchard.operations.arguments import phase_of
from orchard.operations.commands.jobs import JOB
from orchard.operations.library import Library
from orchard.operations.operation import Absent, OfJob, OfWorker, Route, Tool, Verb, says
from orchard.operations.queries.log_pages import PAGE, LogPage, Wanted, page
from orchard.operations.queries.plans import LONGEST_IDLE, Stat
from orchard.operations.query import Query

LONGEST_PAGE = 1024 * 1024
SHORTEST_PAGE = 64
LARGEST_OFFSET = 2**50

get_job = Query(
    name="get_job",
    sentence="Look at one job: status, configuration, result, usage, logs.",
    args=OfJob,
    answer=JobDetails,
    example={"plan": "add-login", "job": "api"},
    route=Route("GET", JOB),
    tool=Tool("core", "Look at a job"),
    verb=Verb("job"),
    next=("get_job_logs", "get_job_diff"),
    read=lambda library, args: library.job(args.job, args.plan),
)


class Attempts(Struct, frozen=True):
    """Every try at a job."""

    plan: str
    job: str
    attempts: list[AttemptView]


def _read_attempts(library: Library, args: OfJob) -> Attempts:
    alive = library.engine_alive()
    run, job = library.job_of(args.job, args.plan)
    return Attempts(run.id, job, attempt_view(run, job, interrupted=not alive))


get_job_attempts = Query(
    name="get_job_attempts",
    sentence="Show how each attempt at a job went, phase by phase.",
    args=OfJob,
    answer=Attempts,
    example={"plan": "add-login", "job": "api"},
    route=Route("GET", f"{JOB}/attempts", id="get_attempts"),
    tool=Tool("jobs", "Attempts at a job"),
    verb=Verb("attempts"),
    next=("get_job_logs",),
    read=_read_attempts,
)


class JobFailure(Struct, frozen=True):
    """Why a job is not done."""

    plan: str
    job: str
    status: JobStatus
    attempt: int | None
    failure: Annotated[Failure | None, says("How the last attempt failed; null: it did not.")]
    log: Annotated[str | None, says("Where the log of the failed phase can be read.")]
    hint: str | None
    next: Annotated[list[Next], says("What takes it further.")]


def _read_failure(library: Library, args: OfJob) -> JobFailure:
    alive = library.engine_alive()
    run, job = library.job_of(args.job, args.plan)
    tries, view = attempt_view(run, job, interrupted=not alive), job_view(run, job, interrupted=not alive)
    last = tries[-1] if tries else None
    found = last.failure if last else None
    if found is None and (failed := run.records[job].failure) is not None:  # failed before it was tried
        found = failure_view(failed)
    phase = found.phase if found else None
    log = library.logs.path(run.id, job, last.number, phase) if last and phase else None
    where = str(log) if log is not None and log.is_file() else None
    steps = job_steps(run, job, library.say, engine=alive)
    number = last.number if last else None
    return JobFailure(run.id, job, JobStatus(view.status), number, found, where, view.hint, steps)


get_job_failure = Query(
    name="get_job_failure",
    sentence="Say why a job failed, was canceled or is blocked: phase, reason, message, the end of its output.",
    args=OfJob,
    answer=JobFailure,
    example={"plan": "add-login", "job": "api"},
    route=Route("GET", f"{JOB}/failure", id="get_failure"),
    tool=Tool("core", "Why a job failed"),
    verb=Absent("`job` shows it."),
    next=("retry_job",),
    read=_read_failure,
)


class GetJobDiff(OfWorker, frozen=True, kw_only=True):
    stat: Stat = False


get_job_diff = Query(
    name="get_job_diff",
    sentence="Show what a job changed, as a patch or a table of files.",
    details="Exactly what git prints; files that are too long to be held are cut, and the answer says so. That of the "
    "validation job, `__snapshot-validation__`, is what the whole plan changes.",
    args=GetJobDiff,
    example={"plan": "add-login", "job": "api", "stat": True},
    route=Route("GET", f"{JOB}/diff"),
    tool=Tool("core", "What a job changed", details="That of the whole plan: job `__snapshot-validation__`."),
    verb=Verb("diff"),
    next=("approve_job", "retry_job"),
    of_subtasks=True,
    read=lambda library, args: library.diff(args.job, args.plan, stat=args.stat, most=LONGEST_DIFF),
)


_WHOLE = {"verb": "A terminal shows all of it, or with `--tail` its end."}
_ONCE = {"tool": "A call is answered once; `wait_plan` waits."}


class GetJobLogs(OfWorker, frozen=True, kw_only=True):
    attempt: Annotated[int | None, says("This attempt; else the last.", ge=1, le=1_000_000)] = None
    phase: Annotated[str | None, says("This phase; else the one that was written last.", form="phase")] = None
    offset: Annotated[
        int, says("The byte to begin at: the `next_offset` of the page before.", ge=0, le=LARGEST_OFFSET, absent=_WHOLE)
    ] = 0
    limit: Annotated[
        int,
        says(
            "About how many bytes of the log at most.",
            ge=SHORTEST_PAGE,
            le=LONGEST_PAGE,
            absent={**_WHOLE, "tool": "`max_bytes` and `tail` say how much a model reads."},
        ),
    ] = PAGE
    follow: Annotated[
        bool,
        says(
            "As server-sent events, as it grows: `log` with a page as data, then `end`. Without a phase, one phase "
            "after the other from the first on.",
            absent=_ONCE,
        ),
    ] = False
    idle: Annotated[
        float | None,
        says(
            "Following ends when nothing has come for so many seconds.",
            ge=0,
            le=LONGEST_IDLE,
            absent={**_ONCE, "verb": "Following ends with the job, or when you end it."},
        ),
    ] = None


def wanted_logs(library: Library, args: GetJobLogs) -> Wanted:
    run, job, subtask = library.worker_of(args.job, args.plan)
    if subtask is not None and (args.attempt is not None or args.phase is not None):
        raise UsageError("A subtask has one log: 'attempt' and 'phase' are for jobs.")
    return Wanted(run.id, job, args.attempt, phase_of(args.phase), args.offset, args.limit, subtask)


def _read_logs(library: Library, args: GetJobLogs) -> LogPage:
    return page(library, wanted_logs(library, args))


get_job_logs = Query(
    name="get_job_logs",
    sentence="Read what a job printed, in pieces, with secrets hidden.",
    details="A page never cuts a character; the unfinished last line of a log that still grows is held back.",
    args=GetJobLogs,
    answer=LogPage,
    example={"plan": "add-login", "job": "api", "phase": "postchecks"},
    route=Route("GET", f"{JOB}/logs", id="get_logs"),
    tool=Tool("core", "Read logs", details=""),
    verb=Verb("logs"),
    next=("retry_job",),
    of_subtasks=True,
    read=_read_logs,
)

OPERATIONS = (get_job, get_job_attempts, get_job_failure, get_job_diff, get_job_logs)
