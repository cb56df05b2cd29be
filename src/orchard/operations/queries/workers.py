"""Queries about workers: which there are, with the tasks that wait for one; and what was said to and by each."""

from contextlib import suppress
from typing import Annotated

from orchard.core.views.talk import Listener, TalkEntry, TalkPage
from orchard.core.views.worker_list import PlanRow, WorkerList, WorkerRow, plan_row, worker_rows
from orchard.errors import OrchardError, UsageError
from orchard.model.plan import PlanId
from orchard.operations.commands.workers import JOB, WorkerState
from orchard.operations.library import Library
from orchard.operations.operation import Args, OfWorker, Operation, Route, Tool, Verb, says
from orchard.operations.query import LARGEST_SEQ, Query
from orchard.store.redact import redact_text

MOST_ENTRIES = 200
PAGE_CHARACTERS = 256 * 1024
_ONE_REPOSITORY = {"tool": "A chat is about one repository."}
_ALL_SHOWN = {"verb": "A terminal shows all of it."}


class ListWorkers(Args, frozen=True, kw_only=True):
    plan: Annotated[str | None, says("Only those of this plan. Left out: of every plan that is not over.")] = None
    state: Annotated[WorkerState | None, says("Show only workers in this state, and no tasks.")] = None
    all: Annotated[bool, says("Include your other repositories.", absent=_ONE_REPOSITORY)] = False


def _read_workers(library: Library, args: ListWorkers) -> WorkerList:
    if args.all and args.plan is not None:
        raise UsageError("'all' and 'plan' exclude each other: a plan is in one repository.")
    found = [_of_repository(library, args)]
    for other in library.others() if args.all else ():
        with suppress(OrchardError):  # one that a newer Orchard wrote, say: the rest can be read all the same
            found.append(_of_repository(other, args))
    plans = [one for rows, _ in found for one in rows]
    workers = [one for _, rows in found for one in rows]
    return WorkerList(plans=plans, workers=workers, total=len(workers))


def _of_repository(library: Library, args: ListWorkers) -> tuple[list[PlanRow], list[WorkerRow]]:
    plans, workers = list[PlanRow](), list[WorkerRow]()
    folder = str(library.repo.top or library.repo.common_dir) if args.all else None
    for plan in _plans(library, args.plan):
        found, rows = _of_plan(library, plan, args, folder)
        workers += rows
        plans += [found] if rows or args.state is None else []
    return plans, workers


def _plans(library: Library, plan: str | None) -> list[PlanId]:
    if plan is not None:
        return [library.find_plan(plan)]
    return [row.id for row in library.reader.plans() if not row.settled and not row.summary.deleted]


def _of_plan(
    library: Library, plan: PlanId, args: ListWorkers, repository: str | None
) -> tuple[PlanRow, list[WorkerRow]]:
    from orchard.core.views.plans import job_view, plan_summary

    run, gone = library.seen(plan)
    jobs = library.with_activity(run, [job_view(run, job, interrupted=gone) for job in run.plan.jobs])
    rows = worker_rows(run, jobs, args.state, repository)
    summary = plan_summary(run, library.say, interrupted=gone)
    return plan_row(run, summary, jobs, tasks=args.state is None, repository=repository), rows


list_workers = Query(
    name="list_workers",
    sentence="List plans, the tasks in them that wait, the agents at work on the others, and their subtasks.",
    details="A worker is created, running, idle, paused, completed or in error. The turn of an idle one is over; it "
    "waits for a message or for complete_task. One with `asks` waits for a person's word about a call. Tasks are jobs "
    "without a worker: not begun, or programs.",
    args=ListWorkers,
    answer=WorkerList,
    example={"plan": "add-login", "state": "idle"},
    route=Route("GET", "/workers"),
    tool=Tool("workers", "List workers"),
    verb=Verb("workers"),
    next=("deploy_task", "send_message", "complete_task", "allow_call"),
    read=_read_workers,
)


class GetJobTalk(OfWorker, frozen=True, kw_only=True):
    since: Annotated[
        int | None,
        says("Show only what was said after this event (default: the newest).", ge=0, le=LARGEST_SEQ),
    ] = None
    limit: Annotated[int, says("How many entries at most.", ge=1, le=MOST_ENTRIES, absent=_ALL_SHOWN)] = 50


def _read_talk(library: Library, args: GetJobTalk) -> TalkPage:
    """What is long is cut: a page holds so many entries, and so many characters."""
    run, job, subtask = library.worker_of(args.job, args.plan)
    library.check_since(run, args.since or 0)
    secrets = library.secrets(run)
    listener = Listener(run, job, subtask, lambda text: redact_text(text, secrets))
    every = [entry for one in library.reader.events(run.id) if (entry := listener.hear(one)) is not None]
    entries = [one for one in every if one.seq > (args.since or 0)]
    shown = entries[-args.limit :] if args.since is None else entries[: args.limit]
    shown = _bounded(shown[::-1])[::-1] if args.since is None else _bounded(shown)
    ended = not entries or (bool(shown) and shown[-1].seq == entries[-1].seq)
    following = run.seq if ended else shown[-1].seq
    return TalkPage(
        plan=run.id, job=args.job if subtask is None else f"{job}/{subtask}", entries=shown, total=len(entries),
        next=following,
    )  # fmt: skip


def _bounded(entries: list[TalkEntry]) -> list[TalkEntry]:
    taken, characters = list[TalkEntry](), 0
    for one in entries:
        characters += len(one.text)
        if taken and characters > PAGE_CHARACTERS:
            break
        taken.append(one)
    return taken


get_job_talk = Query(
    name="get_job_talk",
    sentence="Read what people and agents said to each other about a job or a subtask, in order.",
    details="The task, messages, updates, the agent's last words after each turn, and results. To go on, give the "
    "`next` of an answer as `since`.",
    args=GetJobTalk,
    answer=TalkPage,
    example={"plan": "add-login", "job": "api"},
    route=Route("GET", f"{JOB}/talk"),
    tool=Tool("workers", "Read a conversation"),
    verb=Verb("talk"),
    next=("send_message", "get_job_logs"),
    of_subtasks=True,
    read=_read_talk,
)

OPERATIONS: tuple[Operation, ...] = (list_workers, get_job_talk)
