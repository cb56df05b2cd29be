"""Queries about subtasks."""

from typing import Annotated

from msgspec import Struct

from orchard.core.records import Subtask
from orchard.core.run import Run
from orchard.core.views.attempts import subtasks_view
from orchard.core.views.documents import SubtaskView
from orchard.errors import UsageError
from orchard.model.plan import JobId
from orchard.operations.commands.jobs import JOB
from orchard.operations.library import Library
from orchard.operations.operation import OfWorker, Operation, Route, Tool, Verb, says
from orchard.operations.queries.log_pages import PAGE, read_page
from orchard.operations.query import Query
from orchard.store.redact import Redactor

LONGEST_PAGE = 1024 * 1024
SHORTEST_PAGE = 64
_WHOLE = {"verb": "A terminal shows all of it."}


class GetSubtask(OfWorker, frozen=True, kw_only=True):
    offset: Annotated[
        int, says("The byte of its result to begin at: `next_offset` of the page before.", ge=0, absent=_WHOLE)
    ] = 0
    limit: Annotated[
        int, says("About how many bytes of it at most.", ge=SHORTEST_PAGE, le=LONGEST_PAGE, absent=_WHOLE)
    ] = PAGE


class SubtaskDetails(Struct, frozen=True, kw_only=True):
    """A subtask, and a part of its result."""

    plan: str
    job: str
    subtask: SubtaskView
    result: Annotated[str, says("What its agent came to, from `offset` on.")]
    offset: int
    next_offset: Annotated[int, says("The `offset` of the next part.")]
    size: Annotated[int, says("Bytes of the whole result: who has come to it is done.")]


def _read_subtask(library: Library, args: GetSubtask) -> SubtaskDetails:
    run, job, subtask = library.worker_of(args.job, args.plan)
    if subtask is None:
        raise UsageError(f"'{args.job}' is a job, and this is about a subtask of one.", hint="Name JOB/subtask-xxxxx.")
    record = run.records[job]
    one = record.subtasks[subtask]
    attempt = next((tried for tried in record.attempts if tried.number == one.attempt), None)
    views = subtasks_view(record, attempt, stopped=not library.engine_alive())
    text, (offset, after, size) = _part(library, run, job, one, args)
    return SubtaskDetails(
        plan=run.id,
        job=job,
        subtask=next(view for view in views if view.id == subtask),
        result=text,
        offset=offset,
        next_offset=after,
        size=size,
    )


def _part(library: Library, run: Run, job: JobId, one: Subtask, args: GetSubtask) -> tuple[str, tuple[int, int, int]]:
    """A part of what it came to; a result that was told at once has no file of its own."""
    path = library.logs.result_path(run.id, job, one.attempt, one.id)
    told = one.summary if one.over else (one.result or "")
    if one.size > len(told.encode(errors="replace")) and path.is_file():
        return read_page(path, args.offset, args.limit, Redactor(library.secrets(run)), ended=True)
    data = told.encode(errors="replace")
    low = min(args.offset, len(data))
    text = data[low : low + args.limit].decode(errors="ignore")
    return text, (low, low + len(text.encode()), len(data))


get_subtask = Query(
    name="get_subtask",
    sentence="Look at a subtask, and read its whole result in pieces.",
    args=GetSubtask,
    answer=SubtaskDetails,
    example={"plan": "add-login", "job": "api/subtask-k3x9p"},
    route=Route("GET", f"{JOB}/result"),
    tool=Tool("workers", "Look at a subtask"),
    verb=Verb("subtask"),
    next=("get_job_logs", "get_job_diff"),
    of_subtasks=True,
    read=_read_subtask,
)

OPERATIONS: tuple[Operation, ...] = (get_subtask,)
