"""Commands about jobs: stopping, failing and approving them."""

from typing import Annotated

from orchard.core.run import Run
from orchard.core.states import ACTIVE, JobState
from orchard.core.views.groups import jobs_of_group
from orchard.engine.context import state_left
from orchard.engine.engine import Stop
from orchard.engine.turns.idle import WORKER
from orchard.errors import Next, UsageError, plain_hint
from orchard.model.events.plans import HoldReleased, JobCanceled, JobFailed, JobRetried, Json
from orchard.model.phases import Phase
from orchard.model.plan import VALIDATION, AgentWork, JobId
from orchard.operations.command import Command, Decision, Scene
from orchard.operations.commands.plans import (
    PLAN,
    REASON,
    OfPlanWithReason,
    job_of,
    refuse_if_landed,
    refuse_if_over,
)
from orchard.operations.operation import (
    Absent,
    Alias,
    DoneJob,
    DoneJobs,
    OfJob,
    OfPlan,
    Route,
    Tool,
    Verb,
    of_one_job,
    says,
)

JOB = f"{PLAN}/jobs/{{job}}"

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


async def _prepare_approval(scene: Scene, run: Run, args: OfJob) -> None:
    """Refuse to let go on without an edit of a person's what they are about to approve."""
    job = job_of(run, args.job)
    hold = run.records[job].hold
    if hold is None or not hold.left or await state_left(scene.engine, run, job) in (hold.left, ""):
        return
    taken = run.records[job].worktree
    where = f" in {taken.path}" if taken is not None else ""
    raise UsageError(
        f"A person edited the worktree of job '{job}'{where} while it waited, and what you approve lacks that edit.",
        hint=(
            "To take the edit in: '",
            Next("force_fail_job", run.id, job),
            "', then '",
            Next("retry_job", run.id, job, {"from_phase": str(Phase.COMMIT), "keep": True}),
            "'. To approve without it, undo it there.",
        ),
    )


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
    prepare=_prepare_approval,
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
    other = Next("retry_job", run.id, job, {"work": "COMMAND"})
    hint = ("With other work: ", other, "; with the same: ", Next("retry_job", run.id, job, {"from_phase": "work"}))
    failed = JobFailed(
        job, record.number, Phase.POSTCHECKS, "rejected", said, hint=scene.engine.world.say(hint),
        resume_from=Phase.WORK, left=record.hold.left if record.hold is not None else "", advice=plain_hint(hint),
    )  # fmt: skip
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
