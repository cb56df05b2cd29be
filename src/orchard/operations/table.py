"""Every operation, by name."""

from collections.abc import Mapping

from orchard.operations import query as queries
from orchard.operations.commands import (
    changes,
    completion,
    conflicts,
    conversation,
    drafts,
    goals,
    jobs,
    permissions,
    plans,
    proposals,
    removal,
    resume,
    retry,
    subtask_commands,
    subtasks,
    system,
    workers,
)
from orchard.operations.operation import Operation
from orchard.operations.queries import jobs as job_queries
from orchard.operations.queries import plans as plan_queries
from orchard.operations.queries import subtasks as subtask_queries
from orchard.operations.queries import system as system_queries
from orchard.operations.queries import workers as worker_queries

_ALL: tuple[Operation, ...] = (
    plans.create_plan,
    plans.clone_plan,
    plans.finalize_plan,
    plans.pause_plan,
    resume.resume_plan,
    plans.cancel_plan,
    removal.delete_plan,
    removal.purge_plan,
    *drafts.OPERATIONS,
    goals.draft_plan,
    changes.reshape_plan,
    changes.update_plan,
    changes.update_job,
    changes.land_plan,
    changes.undo_plan,
    proposals.propose_plan,
    retry.retry_plan,
    retry.retry_job,
    retry.retry_task,
    jobs.cancel_jobs,
    jobs.cancel_job,
    jobs.cancel_group,
    jobs.force_fail_job,
    jobs.approve_job,
    jobs.reject_job,
    conflicts.resolve_conflict,
    *permissions.OPERATIONS,
    workers.deploy_jobs,
    workers.deploy_task,
    *conversation.OPERATIONS,
    completion.complete_task,
    *plan_queries.OPERATIONS,
    *job_queries.OPERATIONS,
    *subtask_queries.OPERATIONS,
    *worker_queries.OPERATIONS,
    *system_queries.OPERATIONS,
    queries.list_events,
    *subtasks.OPERATIONS,
    *subtask_commands.OPERATIONS,
    system.ping,
    system.see_folder,
)

OPERATIONS: Mapping[str, Operation] = {operation.name: operation for operation in _ALL}
