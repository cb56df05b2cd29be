"""Plans that are made bit by bit, in tasks that are deployed by hand, or from one job: a chat's ways to submit a plan.

Each is said with the fields of a plan file and becomes `create_plan` or `reshape_plan`.
"""

from typing import Annotated, Any

from orchard.operations.commands.plans import Key, Made
from orchard.operations.operation import Absent, Args, DoneJobs, OfPlan, Operation, Tool, says

_MADE = Absent("`submitPlan` takes whole plans, and with `scaffolding` those that are not complete.")
_SHAPED = Absent("`reshape_plan` adds jobs.")
_FILE = Absent("`run` takes a plan file.")
_RESHAPE = Absent("`reshape` adds jobs.")


class Draft(Args, frozen=True, kw_only=True):
    fields: Annotated[dict[str, Any], says("Fields as in a plan file.", form="plan")]
    idempotency_key: Key = None


class NewJob(OfPlan, frozen=True, kw_only=True):
    fields: Annotated[dict[str, Any], says("Fields of a job, as in a plan file.", form="job")]


class NewJobs(OfPlan, frozen=True, kw_only=True):
    jobs: Annotated[
        list[dict[str, Any]], says("Jobs as in create_plan; they may need each other, in any order. All or none.")
    ]


scaffold_plan = Operation(
    name="scaffold_plan",
    sentence="Begin a plan without jobs; nothing runs before finalize_plan.",
    details="Takes every field of create_plan but jobs and groups.",
    args=Draft,
    answer=Made,
    example={"name": "Add login", "target": "feature/login", "verify": "make test"},
    route=_MADE,
    tool=Tool("core", "Begin a plan"),
    verb=_FILE,
    next=("add_job", "finalize_plan"),
)
save_plan = Operation(
    name="save_plan",
    sentence="Save a plan of which nothing runs by itself: each task runs only after deploy_task (`deploy: manual`).",
    details="Fields as of create_plan; `jobs` are its tasks, and add_plan_task adds more.",
    args=Draft,
    answer=Made,
    example={
        "name": "Add login",
        "target": "feature/login",
        "jobs": [
            {"id": "models", "work": "@agent Add a User model"},
            {"id": "api", "needs": ["models"], "work": {"instructions": "Add POST /login", "interactive": True}},
        ],
    },
    route=_MADE,
    tool=Tool("workers", "Save a plan"),
    verb=_FILE,
    next=("add_plan_task", "deploy_task"),
)
create_job = Operation(
    name="create_job",
    sentence="Create a plan of one job and start it.",
    details="Fields are those of the job, and of the plan, as in create_plan.",
    args=Draft,
    answer=Made,
    example={"id": "fix-typo", "work": "@agent Fix the typos in README.md", "target": "fix/typos"},
    route=_MADE,
    tool=Tool("jobs", "Create one job"),
    verb=_FILE,
    next=("wait_plan",),
)
add_job = Operation(
    name="add_job",
    sentence="Add a job to a plan that is being scaffolded, or to one that runs.",
    details="The jobs it needs must exist already. Takes every field of a job in create_plan.",
    args=NewJob,
    answer=DoneJobs,
    example={
        "plan": "add-login",
        "id": "api",
        "needs": ["models"],
        "work": "@agent Add POST /login",
        "postchecks": "pytest -q tests/api",
    },
    route=_SHAPED,
    tool=Tool("core", "Add a job"),
    verb=_RESHAPE,
    next=("finalize_plan",),
)
add_plan_task = Operation(
    name="add_plan_task",
    sentence="Add one task to a plan, before or after others were deployed.",
    details="Fields as of a job in create_plan.",
    args=NewJob,
    answer=DoneJobs,
    example={"plan": "add-login", "id": "docs", "needs": ["api"], "work": "@agent Document the login"},
    route=_SHAPED,
    tool=Tool("workers", "Add a task"),
    verb=_RESHAPE,
    next=("deploy_task",),
)
add_jobs = Operation(
    name="add_jobs",
    sentence="Add several jobs to a plan, all or none; they may need each other, in any order.",
    details="Each is as a job of create_plan.",
    args=NewJobs,
    answer=DoneJobs,
    example={"plan": "add-login", "jobs": [{"id": "a", "work": "make a"}, {"id": "b", "needs": ["a"], "work": "b"}]},
    route=_SHAPED,
    tool=Tool("plans", "Add jobs"),
    verb=_RESHAPE,
    next=("finalize_plan",),
)

OPERATIONS = (scaffold_plan, save_plan, create_job, add_job, add_plan_task, add_jobs)
