"""Every operation, by name."""

from collections.abc import Mapping

from orchard.operations import (
    changes,
    drafts,
    job_queries,
    jobs,
    permissions,
    plan_queries,
    plans,
    queries,
    removal,
    steering,
    subtask_queries,
    subtasks,
    system,
    system_queries,
    talking,
    workers,
)
from orchard.operations.operation import Operation

_ALL: tuple[Operation, ...] = (
    plans.create_plan,
    plans.clone_plan,
    plans.finalize_plan,
    plans.pause_plan,
    plans.resume_plan,
    plans.cancel_plan,
    removal.delete_plan,
    removal.purge_plan,
    *drafts.OPERATIONS,
    changes.reshape_plan,
    changes.update_plan,
    changes.update_job,
    changes.land_plan,
    changes.undo_plan,
    jobs.retry_plan,
    jobs.retry_job,
    jobs.retry_task,
    jobs.cancel_jobs,
    jobs.cancel_job,
    jobs.cancel_group,
    jobs.force_fail_job,
    jobs.approve_job,
    *permissions.OPERATIONS,
    workers.list_workers,
    workers.deploy_jobs,
    workers.deploy_task,
    *talking.OPERATIONS,
    *plan_queries.OPERATIONS,
    *job_queries.OPERATIONS,
    *subtask_queries.OPERATIONS,
    *system_queries.OPERATIONS,
    queries.list_events,
    *subtasks.OPERATIONS,
    *steering.OPERATIONS,
    system.ping,
)

OPERATIONS: Mapping[str, Operation] = {operation.name: operation for operation in _ALL}
