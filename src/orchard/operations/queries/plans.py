"""Queries about plans."""

from typing import Annotated, Literal

from msgspec import Struct, convert

from orchard.core.run import Run
from orchard.core.views import graph as drawing
from orchard.core.views.documents import JobView, PlanChanges, PlanSummary, PlanView
from orchard.core.views.figures import UsageReport
from orchard.core.views.groups import Group, Groups, group_list, jobs_of_group
from orchard.core.views.plans import job_view
from orchard.git.history import LONGEST_DIFF
from orchard.model.plan import JobId, Plan
from orchard.model.statuses import JobStatus, JobStatusName, PlanStatusName
from orchard.operations.commands.plans import PLAN
from orchard.operations.library import Library
from orchard.operations.operation import Absent, Args, OfPlan, Operation, Route, Tool, Verb, says
from orchard.operations.query import LARGEST_SEQ, Query

MOST = 200
LONGEST_IDLE = 86_400
WAIT_SECONDS = 30.0
LONGEST_WAIT = 45.0
"""Seconds: some hosts give up on a call after a minute."""
QUIET = "The stream ends when nothing has come for so many seconds; `0`: when all was sent."

Next = Annotated[str | None, says("The `cursor` for those that come after these; null: there are no more.")]


_ALL_SHOWN = {"verb": "A terminal shows all of them."}
GOES_ON = {"verb": "The command goes on until it is ended."}
Limit = Annotated[int, says("Show at most this many.", ge=1, le=MOST, absent=_ALL_SHOWN)]
Cursor = Annotated[
    str | None, says("Where to go on: the `next` of the page before.", pattern=r"^[0-9]{1,15}$", absent=_ALL_SHOWN)
]
Stat = Annotated[bool, says("Only how much changed in which file.")]


# ------------------------------------------------------------------------------------------- lists


class ListPlans(Args, frozen=True, kw_only=True):
    limit: Annotated[int, says("Show at most this many.", ge=1, le=MOST)] = 50
    cursor: Cursor = None
    status: Annotated[PlanStatusName | None, says("Only those that show this.")] = None
    deleted: Annotated[bool, says("Also those that were deleted, but not purged.")] = False


class PlanPage(Struct, frozen=True):
    """Some plans, the newest first."""

    plans: list[PlanSummary]
    next: Next


def _read_plans(library: Library, args: ListPlans) -> PlanPage:
    """A cursor is the number of the first event of the last plan that was shown."""
    found: list[PlanSummary] = []
    last, alive = "", library.engine_alive()
    for row in reversed(library.reader.plans()):
        if (args.cursor is not None and row.first_seq >= int(args.cursor)) or (
            not args.deleted and row.summary.deleted
        ):
            continue
        full = len(found) == args.limit
        if full and args.status is None:  # that there is one more is all that is said of it
            return PlanPage(found, last)
        summary = row.summary if row.settled else library.summary(row.id, alive)
        if args.status is not None and summary.status != args.status:
            continue
        if full:
            return PlanPage(found, last)
        found.append(summary)
        last = str(row.first_seq)
    return PlanPage(found, None)


list_plans = Query(
    name="list_plans",
    sentence="List plans, the newest first.",
    args=ListPlans,
    answer=PlanPage,
    example={"status": "running"},
    route=Route("GET", "/plans"),
    tool=Tool("core", "List plans"),
    verb=Verb("list"),
    next=("get_plan",),
    read=_read_plans,
)


class ListJobs(OfPlan, frozen=True, kw_only=True):
    limit: Limit = 50
    cursor: Cursor = None
    status: Annotated[JobStatusName | None, says("Only those that show this.")] = None
    group: Annotated[
        str | None, says("Only those of this group and the groups inside it.", min_length=1, max_length=600)
    ] = None


class JobPage(Struct, frozen=True):
    """Some jobs of a plan, in its order."""

    plan: str
    jobs: list[JobView]
    total: Annotated[int, says("How many jobs fit the filter, on all pages.")]
    next: Next


def _read_jobs(library: Library, args: ListJobs) -> JobPage:
    """A cursor is the number of jobs, of all, that were looked at."""
    run, gone = library.seen(library.find_plan(args.plan))
    jobs = list(run.plan.jobs) if args.group is None else jobs_of_group(run, args.group)
    views = [(number, job_view(run, job, interrupted=gone)) for number, job in enumerate(jobs, 1)]
    fitting = [(number, view) for number, view in views if args.status in (None, view.status)]
    after = [(number, view) for number, view in fitting if number > int(args.cursor or 0)]
    shown = after[: args.limit]
    following = str(shown[-1][0]) if len(after) > args.limit else None
    return JobPage(run.id, [view for _, view in shown], len(fitting), following)


list_jobs = Query(
    name="list_jobs",
    sentence="List the jobs of a plan, by status or group.",
    args=ListJobs,
    answer=JobPage,
    example={"plan": "add-login", "status": "failed"},
    route=Route("GET", f"{PLAN}/jobs"),
    tool=Tool("jobs", "List jobs"),
    verb=Absent("`status` shows them."),
    next=("get_job", "get_job_failure"),
    read=_read_jobs,
)

list_groups = Query(
    name="list_groups",
    sentence="List the groups of a plan with what their jobs are doing.",
    args=OfPlan,
    answer=Groups,
    example={"plan": "add-login"},
    route=Route("GET", f"{PLAN}/groups"),
    tool=Tool("groups", "List groups"),
    verb=Absent("`status` shows each job with its group."),
    next=("get_group",),
    read=lambda library, args: group_list(library.run_of(library.find_plan(args.plan))),
)


class GetGroup(OfPlan, frozen=True, kw_only=True):
    group: Annotated[str, says("The group's path, such as `backend/api`.", min_length=1, max_length=600)]


def _read_group(library: Library, args: GetGroup) -> Group:
    run = library.run_of(library.find_plan(args.plan))
    jobs_of_group(run, args.group)
    return next(one for one in group_list(run).groups if one.path == args.group)


get_group = Query(
    name="get_group",
    sentence="Look at one group and its jobs.",
    details="A `/` in a group is written `%2F`.",
    args=GetGroup,
    answer=Group,
    example={"plan": "add-login", "group": "backend/api"},
    route=Route("GET", f"{PLAN}/groups/{{group}}"),
    tool=Tool("groups", "Look at a group", details=""),
    verb=Absent("`status` shows each job with its group."),
    next=("get_job", "cancel_group"),
    read=_read_group,
)

# --------------------------------------------------------------------------------------- one plan


class GetPlan(OfPlan, frozen=True, kw_only=True):
    since: Annotated[
        int | None, says("Only what is another than after this event: its jobs that changed.", ge=0, le=LARGEST_SEQ)
    ] = None


def plan_document(library: Library, run: Run, gone: bool, since: int | None) -> PlanView | PlanChanges:
    """A plan that was just `seen`: the whole of it, or what changed after an event."""
    return library.document(run, gone) if since is None else library.changes(run, gone, since)


get_plan = Query(
    name="get_plan",
    sentence="Look at a plan and its jobs; with `since` only at jobs that changed.",
    details="The whole document; with `since`, only the jobs that changed after that event. The header `Orchard-Seq` "
    "is the number of an event: the document holds everything up to it. Ask with `since=` that number, or the "
    "document's own `seq`, for what changed later.",
    args=GetPlan,
    answer=PlanView,
    example={"plan": "add-login", "since": 120},
    route=Route("GET", PLAN),
    tool=Tool("core", "Look at a plan", details=""),
    verb=Verb("status"),
    next=("get_job", "get_job_failure"),
    read=lambda library, args: plan_document(library, *library.seen(library.find_plan(args.plan)), args.since),
)


class FollowPlan(OfPlan, frozen=True, kw_only=True):
    since: Annotated[
        int | None,
        says("The event up to which the plan is known; left out: nothing is.", ge=0, le=LARGEST_SEQ, absent=GOES_ON),
    ] = None
    idle: Annotated[float | None, says(QUIET, ge=0, le=LONGEST_IDLE, absent=GOES_ON)] = None


follow_plan = Operation(
    name="follow_plan",
    sentence="Follow what changes in a plan, as it changes.",
    details="Server-sent events, each named `changes`: `data` is what `GET /plans/{plan}?since=` answers for the event "
    "before, and `id` its `seq`. Without `since` the first one holds the whole plan. What changes while a client takes "
    "nothing comes as one. `purged` ends the stream of a plan that is gone for good.",
    args=FollowPlan,
    example={"plan": "add-login", "since": 120},
    route=Route("GET", f"{PLAN}/changes"),
    tool=Absent("`wait_plan` waits for the next change."),
    verb=Verb("watch"),
    next=("get_plan",),
    repeatable=True,
    reads=True,
)


_WAITS = {"verb": "The command waits until nothing more happens by itself."}


class WaitPlan(OfPlan, frozen=True, kw_only=True):
    cursor: Annotated[int | None, says("Of an earlier answer. Left out: from now on.", ge=0, absent=_WAITS)] = None
    timeout_s: Annotated[float, says("At most 45.", ge=0, le=LONGEST_WAIT, also=("timeout",))] = WAIT_SECONDS
    until: Annotated[
        Literal["change", "end"],
        says("`change`: a job starts, ends or waits; `end`: nothing more happens by itself.", absent=_WAITS),
    ] = "change"


wait_plan = Operation(
    name="wait_plan",
    sentence="Wait until something happens to a plan, for at most 45 seconds.",
    details="With a shell, prefer `watch_command` of create_plan, which waits for the end.",
    args=WaitPlan,
    answer=None,
    example={"plan": "add-login", "cursor": 120, "until": "end"},
    route=Absent("`follow_plan` tells what changes, as it changes."),
    tool=Tool("core", "Wait for a plan"),
    verb=Verb("wait"),
    next=("wait_plan", "get_job_failure"),
    repeatable=True,
    reads=True,
)


class GetGraph(OfPlan, frozen=True, kw_only=True):
    format: Annotated[
        Literal["mermaid", "dot", "svg", "json"],
        says("`json`: jobs and edges as data.", absent={"tool": "The answer holds both: a drawing, and the jobs."}),
    ] = "mermaid"


class Node(Struct, frozen=True):
    """A job in a graph."""

    id: str
    name: str
    group: str | None
    status: JobStatus
    validation: bool


class Graph(Struct, frozen=True):
    """Which job needs which."""

    plan: str
    jobs: list[Node]
    edges: Annotated[list[tuple[JobId, JobId]], says("Pairs: what is needed, and who needs it.")]


def _read_graph(library: Library, args: GetGraph) -> Graph | str:
    run, gone = library.seen(library.find_plan(args.plan))
    if args.format == "json":
        views = [job_view(run, job, interrupted=gone) for job in run.plan.jobs]
        nodes = convert(views, list[Node], from_attributes=True)
        return Graph(run.id, nodes, list(drawing.edges(run.plan)))
    statuses = {job: str(JobStatus(record.status)) for job, record in run.records.items()}
    draw = {"mermaid": drawing.mermaid, "dot": drawing.dot, "svg": drawing.svg}[args.format]
    return draw(run.plan, statuses)


get_plan_graph = Query(
    name="get_plan_graph",
    sentence="Show how the jobs of a plan depend on each other.",
    args=GetGraph,
    answer=Graph,
    example={"plan": "add-login"},
    route=Route("GET", f"{PLAN}/graph", id="get_graph"),
    tool=Tool("plans", "Draw a plan"),
    verb=Verb("graph"),
    next=("reshape_plan",),
    read=_read_graph,
)

get_usage = Query(
    name="get_usage",
    sentence="Show what the agents of a plan used: tokens, cost and time.",
    args=OfPlan,
    answer=UsageReport,
    example={"plan": "add-login"},
    route=Route("GET", f"{PLAN}/usage"),
    tool=Absent("`get_job` shows what each job used."),
    verb=Verb("usage"),
    next=("get_plan",),
    read=lambda library, args: library.usage(args.plan),
)


class GetPlanDiff(OfPlan, frozen=True, kw_only=True):
    stat: Stat = False


get_plan_diff = Query(
    name="get_plan_diff",
    sentence="Show what a plan changes.",
    details="Exactly what git prints; files that are too long to be held are cut, and the answer says so.",
    args=GetPlanDiff,
    example={"plan": "add-login", "stat": True},
    route=Route("GET", f"{PLAN}/diff"),
    tool=Absent("`get_job_diff` of the validation job shows it."),
    verb=Verb("diff"),
    next=("land_plan",),
    read=lambda library, args: library.diff(None, args.plan, stat=args.stat, most=LONGEST_DIFF),
)


class ValidatePlan(Args, frozen=True, kw_only=True):
    plan: Annotated[Plan, says("The plan, as in a plan file.", form="plan")]


class Valid(Struct, frozen=True):
    """A plan in which nothing is wrong."""

    valid: Literal[True]
    name: str
    jobs: int
    groups: int
    leaves: list[str]


def _read_validity(_: Library, args: ValidatePlan) -> Valid:
    """Reading the plan has told everything that is wrong with it."""
    plan = args.plan
    groups = {job.group for job in plan.jobs.values() if job.group}
    return Valid(True, plan.name, len(plan.jobs) - 1, len(groups), list(plan.leaves))


validate_plan = Query(
    name="validate_plan",
    sentence="Check a plan without submitting it.",
    args=ValidatePlan,
    answer=Valid,
    example={"plan": {"name": "Add login", "jobs": [{"id": "api", "work": "make api"}]}},
    route=Route("POST", "/plans/validate"),
    tool=Absent("`create_plan` tells everything that is wrong with a plan, and makes nothing then."),
    verb=Verb("validate"),
    next=("create_plan",),
    read=_read_validity,
)

OPERATIONS = (
    list_plans,
    validate_plan,
    get_plan,
    follow_plan,
    list_jobs,
    list_groups,
    get_group,
    wait_plan,
    get_plan_graph,
    get_usage,
    get_plan_diff,
)
