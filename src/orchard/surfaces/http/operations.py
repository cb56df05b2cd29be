"""The one table of everything that the API can be asked for: routes, checks and the document are made from it."""

from orchard.core.views import documents, figures
from orchard.operations import plans as plan_commands
from orchard.operations.command import Command
from orchard.operations.operation import Alias, DoneJobs, Route
from orchard.operations.queries import Query
from orchard.operations.table import OPERATIONS
from orchard.surfaces.http import jobs, models, plans, system, system_models
from orchard.surfaces.http.commands import derived
from orchard.surfaces.http.operation import EVENTS, JSON, SVG, TEXT, Nothing, Operation

PLAN = "/plans/{plan}"
JOB = f"{PLAN}/jobs/{{job}}"
DERIVED = (Command, Alias, Query)
BY_HAND = ("create_plan", "delete_plan", "purge_plan", "cancel_jobs")
"""Commands whose bodies are plans, or that are asked for in another way here."""


ROUTES: tuple[Operation, ...] = (
    # plans
    Operation(
        "listPlans",
        "GET",
        "/plans",
        "The plans, the newest first",
        plans.list_plans,
        models.PlanPage,
        query=plans.PlansQuery,
    ),
    Operation(
        "submitPlan",
        "POST",
        "/plans",
        "Submit a plan",
        plans.submit_plan,
        plan_commands.Made,
        query=plans.SubmitQuery,
        body=plans.PLAN,
        body_required=True,
        status=201,
        headers=plans.KEY,
        description="The body is a plan as in a plan file, as JSON. It begins at once, unless it says `start_paused` "
        "or is being scaffolded. All that is wrong with it is told at once, with the line of the body; then nothing "
        "is made.",
    ),
    Operation(
        "validatePlan",
        "POST",
        "/plans/validate",
        "Check a plan without submitting it",
        plans.validate_plan,
        models.Valid,
        body=plans.PLAN,
        body_required=True,
    ),
    Operation(
        "getPlan",
        "GET",
        PLAN,
        "A plan with all its jobs, or what changed in it",
        plans.get_plan,
        documents.PlanView,
        query=plans.PlanDocumentQuery,
        told=plans.SEQ,
        also=documents.PlanChanges,
        description="The document of `orchard status PLAN --json`; with `since`, only the jobs that changed after that "
        "event. The header `Orchard-Seq` is the number of an event: the document holds everything up to it. Ask with "
        "`since=` that number, or the document's own `seq`, for what changed later.",
    ),
    Operation(
        "followPlan",
        "GET",
        f"{PLAN}/changes",
        "What changes in a plan, as it changes",
        plans.follow_plan,
        None,
        query=plans.FollowPlanQuery,
        media=(EVENTS,),
        headers=system.LAST_EVENT_ID,
        description="Server-sent events, each named `changes`: `data` is what `GET /plans/{plan}?since=` answers for "
        "the event before, and `id` its `seq`. Without `since` the first one holds the whole plan. What changes while "
        "a client takes nothing comes as one. `purged` ends the stream of a plan that is gone for good.",
    ),
    Operation(
        "updatePlan",
        "PATCH",
        PLAN,
        "Change fields of a plan",
        plans.update_plan,
        DoneJobs,
        body=plans.UPDATE,
        body_required=True,
        description="At any time: `max_parallel env verify land push budget resolver cleanup`; before it has started "
        "also `name base target setup after worktree_root merge deploy`.",
    ),
    Operation(
        "deletePlan",
        "DELETE",
        PLAN,
        "Take a plan out of the way",
        plans.delete_plan,
        plan_commands.Deleted,
        query=plans.DeleteQuery,
        description="Stops what it runs, saves what its worktrees hold, and removes them. Its commits are kept under "
        "`refs/orchard` until it is purged.",
    ),
    Operation(
        "listJobs", "GET", f"{PLAN}/jobs", "The jobs of a plan", plans.list_jobs, models.JobPage, query=plans.JobsQuery
    ),
    Operation(
        "getGraph",
        "GET",
        f"{PLAN}/graph",
        "A plan as a graph",
        plans.get_graph,
        models.Graph,
        query=plans.GraphQuery,
        media=(JSON, TEXT, SVG),
    ),
    Operation("getUsage", "GET", f"{PLAN}/usage", "What its agents used", plans.get_usage, figures.UsageReport),
    Operation(
        "getPlanDiff",
        "GET",
        f"{PLAN}/diff",
        "What a plan changes",
        plans.get_plan_diff,
        None,
        query=plans.DiffQuery,
        media=(TEXT,),
    ),
    Operation(
        "clonePlan",
        "POST",
        f"{PLAN}/clone",
        "Submit the same plan again",
        plans.clone_plan,
        plan_commands.Made,
        body=plans.CLONE,
        status=201,
        headers=plans.KEY,
    ),
    Operation("listGroups", "GET", f"{PLAN}/groups", "The groups of a plan", plans.list_groups, models.Groups),
    Operation(
        "cancelGroup",
        "POST",
        f"{PLAN}/groups/{{group}}/cancel",
        "Stop the jobs of a group",
        plans.cancel_group,
        DoneJobs,
        body=plans.Reason,
        description="Also of the groups inside it. A `/` in a group is written `%2F`.",
    ),
    # jobs
    Operation("getJob", "GET", JOB, "Everything about one job", jobs.get_job, documents.JobDetails),
    Operation(
        "updateJob",
        "PATCH",
        JOB,
        "Change fields of a job that has not started",
        jobs.update_job,
        DoneJobs,
        body=jobs.UPDATE,
        body_required=True,
    ),
    Operation(
        "getAttempts",
        "GET",
        f"{JOB}/attempts",
        "Every try at a job, phase by phase",
        jobs.get_attempts,
        models.Attempts,
    ),
    Operation("getFailure", "GET", f"{JOB}/failure", "Why a job is not done", jobs.get_failure, models.JobFailure),
    Operation(
        "getJobDiff",
        "GET",
        f"{JOB}/diff",
        "What a job changed",
        jobs.get_job_diff,
        None,
        query=plans.DiffQuery,
        media=(TEXT,),
    ),
    Operation(
        "getLogs",
        "GET",
        f"{JOB}/logs",
        "What a job's programs printed",
        jobs.get_logs,
        models.LogPage,
        query=jobs.LogQuery,
        media=(JSON, EVENTS),
        headers=jobs.LAST_LOG_ID,
        description="Redacted. A page never cuts a character; the unfinished last line of a log that still grows is "
        "held back.",
    ),
    *(
        derived(one)
        for one in OPERATIONS.values()
        if isinstance(one, DERIVED) and isinstance(one.route, Route) and one.name not in BY_HAND
    ),
    # what is around them
    Operation(
        "listRepos",
        "GET",
        "/repos",
        "The repositories that are served here",
        system.list_repos,
        system_models.Repositories,
        query=Nothing,
    ),
    Operation("listWaiting", "GET", "/waiting", "What needs a person", system.list_waiting, system_models.WaitingList),
    Operation(
        "listSavedWork",
        "GET",
        "/saved-work",
        "What was saved of folders before they were removed",
        system.list_saved,
        system_models.SavedList,
        query=system.PlanQuery,
    ),
    Operation(
        "followEvents",
        "GET",
        "/events",
        "Everything that happens, as it happens",
        system.follow_events,
        None,
        query=system.EventsQuery,
        media=(EVENTS,),
        headers=system.LAST_EVENT_ID,
        description="Server-sent events. `id` is the event's number in the journal, `event` its name, and `data` an "
        "object with `seq`, `at`, `plan`, `type` and what the event tells. Nothing is missing and nothing comes twice. "
        "A client that takes nothing for 30 seconds is cut off; it comes back with `Last-Event-ID`.",
    ),
    Operation(
        "listAgents",
        "GET",
        "/agents",
        "The agents: which are installed and logged in",
        system.list_agents,
        system_models.AgentList,
    ),
    Operation(
        "listModels",
        "GET",
        "/models",
        "The models of the agents",
        system.list_models,
        system_models.ModelList,
        query=system.ModelsQuery,
    ),
    Operation(
        "getConfig",
        "GET",
        "/config",
        "The settings, and where they come from",
        system.get_config,
        system_models.SettingList,
    ),
    Operation("getDoctor", "GET", "/doctor", "What could go wrong here", system.get_doctor, system_models.Health),
    Operation(
        "getCapacity",
        "GET",
        "/capacity",
        "How many jobs may run at once, and how many do",
        system.get_capacity,
        system_models.Capacity,
    ),
    Operation(
        "getDocument",
        "GET",
        "/openapi.json",
        "This document",
        system.get_document,
        system_models.Document,
        query=Nothing,
    ),
)


def matching(parts: tuple[str, ...]) -> list[Operation]:
    """The operations with this path; a word in a path counts more than a name that anything could have."""
    found = [one for one in ROUTES if one.fits(parts)]
    words = max((_words(one) for one in found), default=0)
    return [one for one in found if _words(one) == words]


def _words(operation: Operation) -> int:
    return sum(not part.startswith("{") for part in operation.parts)
