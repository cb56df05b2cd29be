"""Deploying jobs by hand, and the states of workers."""

from typing import Annotated, Literal

from orchard.core.run import Run
from orchard.core.states import JobState
from orchard.core.views.workers import STATES
from orchard.errors import Next, UsageError
from orchard.model.events.plans import (
    Event,
    JobDeployed,
    PlanFinalized,
)
from orchard.model.plan import VALIDATION, JobId
from orchard.operations.command import Command, Decision, Scene
from orchard.operations.commands.plans import PLAN, job_of, refuse_if_over
from orchard.operations.operation import (
    Absent,
    Alias,
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

JOB = f"{PLAN}/jobs/{{job}}"

# --------------------------------------------------------------------------------------- looking

WorkerState = Literal["created", "running", "idle", "paused", "completed", "error"]
assert set(WorkerState.__args__) == set(STATES)  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------- deploying


class DeployJobs(OfPlan, frozen=True, kw_only=True):
    jobs: Annotated[list[str], says("These jobs.", form="jobs")]
    finalize: Annotated[bool, says("Also finalize a plan that is still being built.")] = False


def _decide_deployment(run: Run, args: DeployJobs, _: object, scene: Scene) -> Decision:
    """Each job starts when what it needs has succeeded; those that were deployed before are left alone."""
    refuse_if_over(run, "deployed")
    if run.plan.deploy != "manual":
        raise UsageError(
            f"Plan '{run.id}' starts its jobs by itself; only one with 'deploy: manual' has jobs to deploy.",
            hint=Next("get_plan", run.id),
        )
    if run.scaffolding and not args.finalize:
        raise UsageError(f"Plan '{run.id}' is still being scaffolded.", hint=Next("finalize_plan", run.id))
    chosen = list(dict.fromkeys(job_of(run, job) for job in args.jobs))
    for job_id in chosen:
        _refuse_if_not_deployable(run, job_id)
    waiting = [job_id for job_id in chosen if run.records[job_id].undeployed]
    if not waiting:
        raise UsageError(
            "Every one of these jobs is deployed already." if chosen else "No job is named.",
            hint=Next("get_plan", run.id),
        )
    final: list[Event] = [PlanFinalized()] if run.scaffolding else []
    return Decision([*final, *(JobDeployed(job_id) for job_id in waiting)], {"jobs": waiting}, listed=True)


def _refuse_if_not_deployable(run: Run, job_id: JobId) -> None:
    state = run.records[job_id].state
    if job_id == VALIDATION:
        raise UsageError("The validation job starts by itself when all others have succeeded.")
    if state in (JobState.FAILED, JobState.CANCELED) and run.records[job_id].undeployed:
        raise UsageError(
            f"Job '{job_id}' is {state}; it has to be retried before it can be deployed.",
            hint=Next("retry_job", run.id, job_id),
        )


deploy_jobs = Command(
    name="deploy_jobs",
    sentence="Let jobs of a plan with `deploy: manual` run.",
    args=DeployJobs,
    answer=DoneJobs,
    example={"plan": "add-login", "jobs": ["api"]},
    route=Route("POST", f"{PLAN}/deploy"),
    tool=Absent("`deploy_task` does it for one of them."),
    verb=Verb("deploy", follows=True),
    next=("wait_plan",),
    fit=Fit(lambda plan: any(step.operation == "deploy_task" for step in plan.next), "waits to be deployed"),
    decide=_decide_deployment,
    adds_work=True,
)

deploy_task = Alias(
    name="deploy_task",
    sentence="Let a task of a saved plan run.",
    details="It starts when the tasks it needs have succeeded; those have to be deployed as well. When all tasks of "
    "the plan have succeeded, the plan is checked and lands, so add tasks before you deploy the last one.",
    args=OfJob,
    answer=DoneJobs,
    example={"plan": "add-login", "job": "models"},
    route=Route("POST", f"{JOB}/deploy"),
    tool=Tool("workers", "Deploy a task"),
    verb=Absent("`deploy` takes jobs."),
    next=("wait_plan", "list_workers"),
    becomes=lambda args: ("deploy_jobs", {**of_one_job(args), "finalize": True}),
)
