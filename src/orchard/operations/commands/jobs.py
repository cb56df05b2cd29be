"""Commands about jobs: trying them again, stopping, failing and approving them."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Struct
from msgspec.structs import replace

from orchard.core.run import Run
from orchard.core.states import ACTIVE, JobState
from orchard.core.views.documents import PlanSummary
from orchard.core.views.groups import jobs_of_group
from orchard.engine.engine import Stop
from orchard.engine.turns.idle import WORKER
from orchard.errors import Next, UsageError
from orchard.model.events.plans import Event, HoldReleased, JobCanceled, JobFailed, JobRetried, Json, PlanResumed
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, AgentWork, JobId
from orchard.operations.arguments import phase_of, work_of
from orchard.operations.command import Command, Decision, Scene
from orchard.operations.commands.plans import (
    PLAN,
    REASON,
    OfPlanWithReason,
    job_of,
    new_warnings,
    refuse_if_landed,
    refuse_if_over,
)
from orchard.operations.operation import (
    JOB_NAME,
    Absent,
    Alias,
    DoneJob,
    DoneJobs,
    Fit,
    OfJob,
    OfPlan,
    Route,
    Tool,
    Verb,
    of_one_job,
    says,
)
from orchard.operations.preparation import check_works, fetched, refuse_interactive
from orchard.operations.queries.definitions import described_to

JOB = f"{PLAN}/jobs/{{job}}"

# ---------------------------------------------------------------------------------------------- retrying


class _Retry(OfPlan, frozen=True, kw_only=True):
    from_phase: Annotated[str | None, says("Where to begin; else where it failed.", form="phase", also=("phase",))] = (
        None
    )
    fresh: Annotated[bool, says("In a new worktree; what lies in the old one is saved.")] = False
    fresh_session: Annotated[bool, says("Agents begin a new session instead of going on.")] = False
    work: Annotated[dict[str, Any] | None, says("Replace the job's work.", form="work")] = None
    prechecks: Annotated[
        list[dict[str, Any]] | None, says("Check this before, instead of its own; [] for none.", form="works")
    ] = None
    postchecks: Annotated[
        list[dict[str, Any]] | None, says("Check this after, instead of its own; [] for none.", form="works")
    ] = None


class RetryPlan(_Retry, frozen=True, kw_only=True):
    jobs: Annotated[list[str] | None, says("These jobs; else all that failed or were canceled.", form="jobs")] = None


class RetryJob(_Retry, frozen=True, kw_only=True):
    job: Annotated[str, says(JOB_NAME)]


class _Ready(Struct, frozen=True):
    """How the plan stood when the retry was prepared, and what a fresh look at the remotes came to."""

    paused: object | None
    canceled: object | None
    warning: str | None


async def _prepare_retry(scene: Scene, run: Run, args: RetryPlan) -> _Ready:
    phase_of(args.from_phase)
    checks = [work_of(one) for one in [*(args.prechecks or ()), *(args.postchecks or ())]]
    given = [*([work_of(args.work)] if args.work is not None else []), *checks]
    refuse_interactive("The retry", checks)
    _chosen(run, args.jobs)
    paused, canceled = run.paused, run.canceled
    world = scene.engine.world
    await check_works(world, [("The new work", given)], described_to(world, run.plan, run))
    return _Ready(paused, canceled, await fetched(scene.engine.world) if args.fresh else None)


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
    wanted = {
        job: JobRetried(job, first, args.fresh, args.work, before, after, fresh_session=session) for job in chosen
    }
    events: list[Event] = [] if ready.warning is None else new_warnings(run, ready.warning)
    events += [wanted.get(job) or JobRetried(job) for job in _with_canceled(run, chosen)]
    # A pause that came while the remotes were fetched is younger than this request, and holds.
    if run.paused is not None and run.paused is ready.paused and not run.paused.waiting:
        events.append(PlanResumed())
    return Decision(events, {"jobs": chosen})


def retrying(run: Run, job: JobId, scene: Scene) -> list[Event]:
    """What is recorded to try one job again where it failed, as somebody asks for it now."""
    ready = _Ready(run.paused, run.canceled, None)
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
    sentence="Try failed or canceled jobs again, all or some; what they blocked goes on by itself.",
    details="New work or checks count for every job that is retried.",
    args=RetryPlan,
    answer=DoneJobs,
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
    sentence="Try a failed or canceled job again, where it failed, or with other work or checks.",
    args=RetryJob,
    answer=DoneJobs,
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

# ---------------------------------------------------------------------------------------------- stopping


_NAMES = {"verb": "Each name is looked up, as a job's or as a group's."}


class CancelJobs(OfPlan, frozen=True, kw_only=True):
    jobs: Annotated[list[str] | None, says("These jobs.", form="jobs", absent=_NAMES)] = None
    group: Annotated[str | None, says("Those of this group and the groups inside it.", absent=_NAMES)] = None
    reason: Annotated[str, says(REASON, max_length=2000)] = ""


def _decide_cancel(run: Run, args: CancelJobs, _: object, scene: Scene) -> Decision:
    refuse_if_over(run, "changed")
    why = args.reason or "canceled by the user"
    grouped = jobs_of_group(run, args.group) if args.group is not None else []
    chosen = list(dict.fromkeys([*grouped, *(job_of(run, job) for job in args.jobs or ())]))
    if VALIDATION in chosen:
        raise UsageError("The validation job cannot be canceled by itself.", hint=Next("cancel_plan", run.id))
    states = {job: run.records[job].state for job in chosen}
    active = [job for job in chosen if states[job] in ACTIVE]
    events = [JobCanceled(job, why) for job in chosen if states[job] is JobState.PENDING]
    stopped = [job for job in chosen if states[job] in (*ACTIVE, JobState.PENDING)]
    return Decision(events, {"jobs": stopped}, listed=True, stops=(Stop("cancel", why), active))


def _finish_cancel(run: Run, args: CancelJobs, decided: Decision) -> Json:
    """One of them may have come to its own end before it could be stopped."""
    ended = [job for job in decided.answer["jobs"] if not _came_to_its_end(run, job)]
    if not ended:
        raise UsageError("None of these jobs is running or still to come.", hint=Next("get_plan", run.id))
    return {"jobs": ended}


def _came_to_its_end(run: Run, job: JobId) -> bool:
    return run.records[job].state in (JobState.SUCCEEDED, JobState.FAILED)


cancel_jobs = Command(
    name="cancel_jobs",
    sentence="Stop some jobs of a plan, or keep them from starting; what needs them is blocked.",
    args=CancelJobs,
    answer=DoneJobs,
    example={"plan": "add-login", "jobs": ["api"]},
    route=Absent("`cancel_job` and `cancel_group` name them in the path."),
    tool=Absent("`cancel_group` does it for a group."),
    verb=Verb("cancel"),
    next=("retry_plan",),
    whole_names=True,
    destructive=True,
    decide=_decide_cancel,
    finish=_finish_cancel,
)


class OfGroupWithReason(OfPlanWithReason, frozen=True, kw_only=True):
    group: Annotated[str, says("The group, such as `backend/api`.", form="group", min_length=1, max_length=600)]


cancel_group = Alias(
    name="cancel_group",
    sentence="Stop the jobs of a group, and keep the others of it from starting; what needs them is blocked.",
    details="Also of the groups inside it. A `/` in a group is written `%2F`.",
    args=OfGroupWithReason,
    answer=DoneJobs,
    example={"plan": "add-login", "group": "backend/api"},
    route=Route("POST", f"{PLAN}/groups/{{group}}/cancel"),
    tool=Tool("groups", "Cancel a group", details="Also of the groups inside it."),
    verb=Absent("`cancel` takes groups as well."),
    next=("retry_plan",),
    whole_names=True,
    destructive=True,
    becomes=lambda args: ("cancel_jobs", args),
)


class OfJobWithReason(OfJob, frozen=True, kw_only=True):
    reason: Annotated[str, says(REASON, max_length=2000)] = ""


cancel_job = Alias(
    name="cancel_job",
    sentence="Stop a job, or keep it from starting; what it wrote is kept, and what needs it is blocked.",
    args=OfJobWithReason,
    answer=DoneJobs,
    example={"plan": "add-login", "job": "api"},
    route=Route("POST", f"{JOB}/cancel"),
    tool=Tool("workers", "Cancel a task", name="cancel_task"),
    verb=Absent("`cancel` takes jobs as well."),
    next=("retry_job",),
    whole_names=True,
    destructive=True,
    becomes=lambda args: ("cancel_jobs", of_one_job(args)),
)


def _decide_failure(run: Run, args: OfJobWithReason, _: object, scene: Scene) -> Decision:
    why = args.reason or "failed by the user"
    job = job_of(run, args.job)
    record = run.records[job]
    if record.state is JobState.PENDING:
        return Decision([JobFailed(job, record.number, None, "forced", why)], {"job": job}, listed=True)
    if record.state not in ACTIVE:
        raise UsageError(f"Job '{args.job}' is {record.status} already.")
    return Decision(answer={"job": job}, stops=(Stop("force-fail", why), [job]))


def _finish_failure(run: Run, args: OfJobWithReason, decided: Decision) -> Json:
    record = run.records[decided.answer["job"]]
    if record.state in (JobState.SUCCEEDED, JobState.CANCELED):
        refuse_if_landed(run)
        raise UsageError(f"Job '{args.job}' is {record.status} already.")
    return decided.answer


force_fail_job = Command(
    name="force_fail_job",
    sentence="Stop a job and count it as failed; what needs it is blocked.",
    args=OfJobWithReason,
    answer=DoneJob,
    example={"plan": "add-login", "job": "api", "reason": "it loops"},
    route=Route("POST", f"{JOB}/force-fail"),
    tool=Tool("jobs", "Fail a job"),
    verb=Verb("force-fail"),
    next=("retry_job",),
    whole_names=True,
    destructive=True,
    decide=_decide_failure,
    finish=_finish_failure,
)

# ---------------------------------------------------------------------------------------------- approving


def _decide_approval(run: Run, args: OfJob, _: object, scene: Scene) -> Decision:
    job = job_of(run, args.job)
    _refuse_approval(run, job)
    return Decision([HoldReleased(job)], {"job": job})


def _refuse_approval(run: Run, name: str) -> None:
    job = JobId(name)
    hold = run.records[job].hold
    if hold is not None and hold.kind == WORKER:
        raise UsageError(
            f"Job '{job}' does not wait for approval; {hold.reason}", hint=Next("complete_task", run.id, job)
        )
    if hold is None:
        raise UsageError(f"Job '{job}' does not wait for approval; its status is {run.records[job].status}.")


approve_job = Command(
    name="approve_job",
    sentence="Let a job that waits for approval go on.",
    details="Look at what it changed first. A person may be asked first.",
    args=OfJob,
    answer=DoneJob,
    example={"plan": "add-login", "job": "api"},
    route=Route("POST", f"{JOB}/approve"),
    tool=Tool("jobs", "Approve a job", asks=True),
    verb=Verb("approve", asks=True, follows=True),
    next=("wait_plan",),
    whole_names=True,
    refuses=_refuse_approval,
    decide=_decide_approval,
    adds_work=True,
)


class RejectJob(OfJob, frozen=True, kw_only=True):
    reason: Annotated[str, says("What is wrong with it: the agent is told, and it is kept.", max_length=2000)]


def _decide_rejection(run: Run, args: RejectJob, _: object, scene: Scene) -> Decision:
    job = job_of(run, args.job)
    _refuse_rejection(run, job)
    if not args.reason.strip():
        raise UsageError("A rejection needs a reason, which the agent is told.")
    record = run.records[job]
    said = f"A person looked at the changes and rejected them: {args.reason.strip()}"
    hint = Next("retry_job", run.id, job)
    failed = JobFailed(job, record.number, Phase.POSTCHECKS, "rejected", said, hint=scene.engine.world.say(hint))
    again = [JobRetried(job, Phase.WORK)] if isinstance(run.job(job).work, AgentWork) else []
    return Decision([failed, *again], {"job": job, "again": bool(again)}, listed=True)


def _refuse_rejection(run: Run, name: str) -> None:
    _refuse_approval(run, name)
    hold = run.records[JobId(name)].hold
    if hold is not None and hold.kind != "approval":
        raise UsageError(f"Job '{name}' does not wait for approval; {hold.reason}")


class Rejected(DoneJob, frozen=True, kw_only=True):
    """A job whose changes were rejected."""

    again: Annotated[bool, says("Whether its agent was sent back to work.")]


reject_job = Command(
    name="reject_job",
    sentence="Reject the changes of a job that waits for approval, and say why.",
    details="An agent goes back to work and is told the reason; other work has failed. What was rejected is kept.",
    args=RejectJob,
    answer=Rejected,
    example={"plan": "add-login", "job": "api", "reason": "The session must end after an hour"},
    route=Route("POST", f"{JOB}/reject"),
    tool=Tool("jobs", "Reject a job"),
    verb=Verb("reject", follows=True),
    next=("wait_plan",),
    whole_names=True,
    refuses=_refuse_rejection,
    decide=_decide_rejection,
    adds_work=True,
)
