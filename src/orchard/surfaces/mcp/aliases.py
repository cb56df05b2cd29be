"""Names that callers know from other orchestrators: accepted in a call, never listed.

One table for tools and one for their arguments. An argument is renamed only where the tool does not know it by the
name that was given, and only if that leaves one value for each field.
"""

from collections.abc import Mapping


def _orchestrator(*tools: str) -> Mapping[str, str]:
    """`deploy_task` as `orchestrator_deploy_task`, `orchestrator_deployTask` and `copilot_orchestratorDeployTask`."""
    made: dict[str, str] = {}
    for tool in tools:
        words = "".join(part.capitalize() for part in tool.split("_"))
        camel = words[0].lower() + words[1:]
        made |= dict.fromkeys((f"orchestrator_{tool}", f"orchestrator_{camel}", f"copilot_orchestrator{words}"), tool)
    return made


ALIASES: Mapping[str, str] = {
    "create_copilot_plan": "create_plan",
    "scaffold_copilot_plan": "scaffold_plan",
    "add_copilot_plan_job": "add_job",
    "add_copilot_plan_node": "add_job",
    "add_copilot_plan_jobs": "add_jobs",
    "finalize_copilot_plan": "finalize_plan",
    "get_copilot_plan": "get_plan",
    "get_copilot_plan_status": "get_plan",
    "list_copilot_plans": "list_plans",
    "get_copilot_plan_graph": "get_plan_graph",
    "clone_copilot_plan": "clone_plan",
    "cancel_copilot_plan": "cancel_plan",
    "pause_copilot_plan": "pause_plan",
    "resume_copilot_plan": "resume_plan",
    "delete_copilot_plan": "delete_plan",
    "retry_copilot_plan": "retry_plan",
    "reshape_copilot_plan": "reshape_plan",
    "update_copilot_plan": "update_plan",
    "create_copilot_job": "create_job",
    "create_copilot_node": "create_job",
    "get_copilot_job": "get_job",
    "get_copilot_job_details": "get_job",
    "get_copilot_node": "get_job",
    "get_copilot_node_details": "get_job",
    "list_copilot_jobs": "list_jobs",
    "list_copilot_nodes": "list_jobs",
    "get_copilot_job_logs": "get_job_logs",
    "get_copilot_node_logs": "get_job_logs",
    "get_copilot_job_attempts": "get_job_attempts",
    "get_copilot_node_attempts": "get_job_attempts",
    "get_copilot_job_failure_context": "get_job_failure",
    "get_copilot_node_failure_context": "get_job_failure",
    "retry_copilot_job": "retry_job",
    "retry_copilot_node": "retry_job",
    "force_fail_copilot_job": "force_fail_job",
    "force_fail_copilot_node": "force_fail_job",
    "update_copilot_plan_job": "update_job",
    "update_copilot_plan_node": "update_job",
    "list_copilot_groups": "list_groups",
    "get_copilot_group": "get_group",
    "get_copilot_group_status": "get_group",
    "cancel_copilot_group": "cancel_group",
    **_orchestrator("save_plan", "add_plan_task", "list_workers", "deploy_task", "complete_task", "cancel_task"),
    **_orchestrator("retry_task", "send_message", "list_agents"),
    "a2a_list_agents": "list_agents",
    "a2a_spawn_subtask": "spawn_subtask",
    "a2a_await_subtasks": "await_subtasks",
    "a2a_complete_subtask": "complete_subtask",
    "a2a_subtask_complete": "complete_subtask",
    "a2a_pull_subtask_changes": "pull_subtask_changes",
    "a2a_report_progress": "report_progress",
}

ARGUMENTS: Mapping[str, tuple[str, ...]] = {
    "plan_id": ("plan",),
    "plan_name": ("plan", "name"),
    "source_plan_id": ("plan",),
    "source_plan": ("plan",),
    "job_id": ("job", "id"),
    "job_name": ("job",),
    "node_id": ("job", "id"),
    "node": ("job",),
    "producer_id": ("job", "id"),
    "task_id": ("task", "job", "id", "subtask"),
    "job_ids": ("jobs",),
    "node_ids": ("jobs",),
    "nodes": ("jobs",),
    "tasks": ("jobs",),
    "task_ids": ("subtasks", "ids", "jobs"),
    "subtask_ids": ("subtasks", "ids"),
    "subtask_id": ("subtask", "id"),
    "group_id": ("group",),
    "group_name": ("group",),
    "group_path": ("group",),
    "new_work": ("work",),
    "new_prechecks": ("prechecks",),
    "new_postchecks": ("postchecks",),
    "clear_worktree": ("fresh",),
    "from": ("from_phase",),
    "phase": ("from_phase",),
    "resume_from_phase": ("from_phase",),
    "reset_to_stage": ("from_phase",),
    "attempt_number": ("attempt",),
    "tail_lines": ("tail",),
    "lines": ("tail",),
    "operations": ("changes",),
    "agent_type": ("agent",),
    "prompt": ("instructions",),
    "timeout": ("timeout_s",),
    "timeout_seconds": ("timeout_s",),
    "since": ("cursor",),
    "key": ("idempotency_key",),
    "scaffold": ("scaffolding",),
    "updates": ("set",),
    "type": ("op",),
    "spec": ("job",),
    "existing_job_id": ("id",),
}
"""Other names of arguments, in snake_case, with the fields that each may mean; the first that a tool has is meant."""

VALUES: Mapping[tuple[str, str], str] = {
    ("op", "add_job"): "add",
    ("op", "add_node"): "add",
    ("op", "remove_job"): "remove",
    ("op", "remove_node"): "remove",
    ("op", "update_deps"): "set_needs",
    ("op", "update_dependencies"): "set_needs",
    ("op", "set_dependencies"): "set_needs",
    ("until", "terminal"): "end",
    ("until", "done"): "end",
}
"""Other words for a value, by the field that holds it."""
