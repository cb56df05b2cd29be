"""Commands that try jobs again: where a new attempt begins, with which works, and in which worktree."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

from msgspec import UNSET, Struct, UnsetType, to_builtins
from msgspec.structs import replace

from orchard.core.retry import begins_clean
from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.core.views.documents import PlanSummary
from orchard.engine.context import state_left
from orchard.errors import Next, UsageError
from orchard.git.worktree.status import PARTIAL
from orchard.model.events.plans import Event, JobRetried, PlanResumed
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, JobId
from orchard.operations.arguments import phase_of, work_of
from orchard.operations.command import Command, Decision, Scene
from orchard.operations.commands.jobs import JOB
from orchard.operations.commands.plans import PLAN, job_of, new_warnings
from orchard.operations.operation import (
    JOB_NAME,
    Absent,
    Alias,
    DoneJobs,
    Fit,
    OfPlan,
    Route,
    Tool,
    Verb,
    of_one_job,
    says,
)
from orchard.operations.preparation import check_works, fetched, refuse_interactive
from orchard.operations.queries.definitions import described_to


class _Retry(OfPlan, frozen=True, kw_only=True):
    from_phase: Annotated[
        str | None, says("Where to begin (default: where it failed).", form="phase", also=("phase",))
    ] = None
    fresh: Annotated[bool, says("Use a new worktree; the old one is saved.")] = False
    keep: Annotated[bool, says("Keep what the last attempt left.")] = False
    fresh_session: Annotated[bool, says("Agents begin a new session.")] = False
    work: Annotated[dict[str, Any] | None, says("Replace the job's work.", form="work")] = None
    prechecks: Annotated[list[dict[str, Any]] | None, says("Instead of its own; [] for none.", form="works")] = None
    postchecks: Annotated[list[dict[str, Any]] | None, says("Instead of its own; [] for none.", form="works")] = None


class RetryPlan(_Retry, frozen=True, kw_only=True):
    jobs: Annotated[list[str] | None, says("Default: all failed or canceled.", form="jobs")] = None


class RetryJob(_Retry, frozen=True, kw_only=True):
    job: Annotated[str, says(JOB_NAME)]


class Beginning(Struct, frozen=True):
    """Where a job begins that is tried again."""

    job: str
    attempt: Annotated[int, says("The attempt before; 0: there was none.")]
    worktree: Annotated[
        Literal["clean", "kept", "new"],
        says("`clean`: what lies in the old one is saved; `kept`: goes on with it; `new`: there is no old one."),
    ]
    edited: Annotated[bool, says("Whether a person edited the worktree, so that the job goes on with that.")] = False


class Retried(DoneJobs, frozen=True, kw_only=True):
    """These jobs are tried again."""

    begins: Annotated[
        list[Beginning] | UnsetType,
        says("Where each begins; `verify` begins clean, unless the result was edited."),
    ] = UNSET


class _Ready(Struct, frozen=True):
    """How the plan stood when the retry was prepared, and what a fresh look at the remotes came to."""

    paused: object | None
    canceled: object | None
    warning: str | None
    edited: Mapping[tuple[JobId, int], bool]


async def _prepare_retry(scene: Scene, run: Run, args: RetryPlan) -> _Ready:
    phase_of(args.from_phase)
    if args.fresh and args.keep:
        raise UsageError("'fresh' and 'keep' say the opposite of each other.", hint="Leave one of them out.")
    checks = [work_of(one) for one in [*(args.prechecks or ()), *(args.postchecks or ())]]
    given = [*([work_of(args.work)] if args.work is not None else []), *checks]
    refuse_interactive("The retry", checks)
    chosen = _with_canceled(run, _chosen(run, args.jobs))
    paused, canceled = run.paused, run.canceled
    world = scene.engine.world
    await check_works(world, [("The new work", given)], described_to(world, run.plan, run))
    edited = await edits_of(scene, run, chosen)
    return _Ready(paused, canceled, await fetched(scene.engine.world) if args.fresh else None, edited)


async def edits_of(scene: Scene, run: Run, jobs: Iterable[JobId]) -> Mapping[tuple[JobId, int], bool]:
    """By job and attempt: whether a person has edited its worktree since that attempt ended."""
    found = {}
    for job in jobs:
        if (record := run.records.get(job)) is not None:  # else a client has removed it meanwhile
            found[job, record.number] = await _is_edited(scene, run, job)
    return found


async def _is_edited(scene: Scene, run: Run, job: JobId) -> bool:
    """Whether the worktree of a job is another one than its last attempt left: only a person works there then.

    One that has too many ignored files to look at counts as edited.
    """
    last = run.records[job].last
    if last is None or not last.left or job == VALIDATION:
        return False
    if last.left.startswith(PARTIAL):
        return True
    return await state_left(scene.engine, run, job) not in (last.left, "")


def _decide_retry(run: Run, args: RetryPlan, ready: _Ready, scene: Scene) -> Decision:
    chosen = _chosen(run, args.jobs)
    if run.canceled is not None and run.canceled is not ready.canceled:
        raise UsageError(f"Plan '{run.id}' was canceled while its retry was prepared.", hint=Next("retry_plan", run.id))
    first = phase_of(args.from_phase)
    if first is None and (args.fresh or args.work is not None or args.prechecks is not None):
        # What ran before says nothing about other work, or about another worktree.
        first = Phase.MERGE_FI if args.fresh else Phase.PRECHECKS
    before, after = (tuple(one) if one is not None else None for one in (args.prechecks, args.postchecks))
    session = args.fresh or args.fresh_session
    asked = {job: JobRetried(job, first, args.fresh, args.work, before, after, fresh_session=session) for job in chosen}
    again = [
        placed(run, asked.get(job) or JobRetried(job), ready.edited, args.keep) for job in _with_canceled(run, chosen)
    ]
    events: list[Event] = [] if ready.warning is None else new_warnings(run, ready.warning)
    events += again
    # A pause that came while the remotes were fetched is younger than this request, and holds.
    if run.paused is not None and run.paused is ready.paused and not run.paused.waiting:
        events.append(PlanResumed())
    begins = [beginning(run, one) for one in again if one.job in asked and one.job != VALIDATION]
    return Decision(events, {"jobs": chosen, **({"begins": to_builtins(begins)} if begins else {})})


def placed(run: Run, wanted: JobRetried, edits: Mapping[tuple[JobId, int], bool], keep: bool = False) -> JobRetried:
    """The same with where it works: in a clean worktree, or on with what lies in the one it has."""
    record = run.records[wanted.job]
    edited = edits.get((wanted.job, record.number))
    if edited is None:  # not looked at once more: a pause that came meanwhile would be older than that look, and end
        raise UsageError(f"Job '{wanted.job}' has ended while the retry was prepared.", hint=Next("retry_plan", run.id))
    if wanted.fresh:
        return wanted
    if not edited and not keep and begins_clean(run, wanted):
        return replace(wanted, fresh=True)
    return replace(wanted, edited=edited)


def beginning(run: Run, wanted: JobRetried) -> Beginning:
    record = run.records[wanted.job]
    last = record.last.number if record.last is not None else 0
    if record.worktree is None:
        return Beginning(wanted.job, last, "new")
    edited = not wanted.fresh and (wanted.edited or record.edited)
    return Beginning(wanted.job, last, "clean" if wanted.fresh else "kept", edited)


def retrying(run: Run, job: JobId, scene: Scene) -> list[Event]:
    """What is recorded to try one job again where it failed, as a client asks for it now."""
    wanted = _with_canceled(run, _chosen(run, [job]))
    ready = _Ready(run.paused, run.canceled, None, {(one, run.records[one].number): False for one in wanted})
    return list(_decide_retry(run, RetryPlan(plan=run.id, jobs=[job]), ready, scene).events)


def _chosen(run: Run, jobs: list[str] | None) -> list[JobId]:
    """The jobs that are meant, all of which can be retried now."""
    if run.deleted:
        raise UsageError(f"Plan '{run.id}' was deleted.", hint=Next("list_saved_work", run.id))
    chosen = [job_of(run, job) for job in jobs] if jobs else _retriable(run)
    for job in chosen:
        if run.records[job].state not in (JobState.FAILED, JobState.CANCELED):
            raise UsageError(
                f"Job '{job}' is {run.records[job].status}; only a failed or canceled job can be retried.",
                hint=Next("get_plan", run.id),
            )
        if _went_on_without(run, job):
            raise UsageError(
                f"Job '{job}' was allowed to fail, and the plan went on without it.",
                hint=("It can be part of another plan: ", Next("create_plan")),
            )
    if not chosen:
        raise UsageError(f"Plan '{run.id}' has no failed or canceled job.", hint=Next("get_plan", run.id))
    return chosen


def _retriable(run: Run) -> list[JobId]:
    ended = (JobState.FAILED, JobState.CANCELED)
    return [job for job, record in run.records.items() if record.state in ended and not _went_on_without(run, job)]


def _went_on_without(run: Run, job: JobId) -> bool:
    """Whether a job was allowed to fail, and what comes after it has what stands for its result already."""
    if run.records[job].stand_in is None:
        return False
    return job in run.snapshot.merged or any(run.records[after].started for after in run.plan.needed_by[job])


def _with_canceled(run: Run, chosen: list[JobId]) -> list[JobId]:
    """These jobs, and every canceled job before or after them: without those they would lead nowhere."""
    needs = {job.id: job.needs for job in run.plan.jobs.values()}
    found = dict.fromkeys([*chosen, *_canceled(run, needs, chosen), *_canceled(run, run.plan.needed_by, chosen)])
    if run.records[VALIDATION].state is JobState.CANCELED:
        found[VALIDATION] = None
    return list(found)


def _canceled(run: Run, edges: Mapping[JobId, tuple[JobId, ...]], chosen: list[JobId]) -> list[JobId]:
    waiting, found = list(chosen), dict.fromkeys(chosen)
    while waiting:
        for other in edges[waiting.pop()]:
            if other not in found and run.records[other].state is JobState.CANCELED:
                found[other] = None
                waiting.append(other)
    return list(found)


def _has_failed(plan: PlanSummary) -> bool:
    return bool(plan.counts.get("failed") or plan.counts.get("canceled"))


retry_plan = Command(
    name="retry_plan",
    sentence="Try failed or canceled jobs again, all or some; what they blocked goes on.",
    details="A failed command begins clean unless a person edited its worktree; an agent goes on.",
    args=RetryPlan,
    answer=Retried,
    example={"plan": "add-login", "jobs": ["api"], "work": "@agent Fix the failing test"},
    route=Route("POST", f"{PLAN}/retry"),
    tool=Tool("core", "Retry failed jobs"),
    verb=Verb("retry", follows=True),
    next=("wait_plan",),
    fit=Fit(_has_failed, "has a failed or canceled job", last_first=True),
    prepare=_prepare_retry,
    decide=_decide_retry,
    sets_wall=True,
    lets_go_on=True,
)


retry_job = Alias(
    name="retry_job",
    sentence="Try a failed or canceled job again, also with other work or checks.",
    args=RetryJob,
    answer=Retried,
    example={"plan": "add-login", "job": "api", "work": "@agent Fix the import error in api.py"},
    route=Route("POST", f"{JOB}/retry"),
    tool=Tool("core", "Retry a job"),
    verb=Absent("`retry` takes jobs as well."),
    next=("wait_plan",),
    becomes=lambda args: ("retry_plan", of_one_job(args)),
)

retry_task = replace(
    retry_job,
    name="retry_task",
    sentence="Try a failed or canceled task again, where it failed, or with other work or checks.",
    details="A task that was deployed stays so.",
    route=Absent("`retry_job` does the same."),
    tool=Tool("workers", "Retry a task"),
)
