"""What a model reads about the tools for workers: what each does, an example, what it returns, what to call next."""

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "list_workers": """\
List the agents that work on jobs: created, running, idle (its turn is over, and it waits for a message or for \
complete_task), paused, completed, error. Jobs that have not started have none.
Example: {"plan": "add-login", "state": "idle"}
Returns workers with state and last words. Next: send_message, complete_task, interrupt_worker.""",
    "save_plan": """\
Save a plan of which nothing runs by itself: each task runs only after deploy_task (`deploy: manual`). Fields as of \
create_plan; `jobs` are its tasks, and add_plan_task adds more.
Example: {"name": "Add login", "target": "feature/login", "jobs": [{"id": "models", "work": "@agent Add a User \
model"}, {"id": "api", "needs": ["models"], "work": {"instructions": "Add POST /login", "interactive": true}}]}
Returns the plan id. Next: add_plan_task, deploy_task.""",
    "add_plan_task": """\
Add one task to a plan, before or after others were deployed. Fields as of a job in create_plan.
Example: {"plan": "add-login", "id": "docs", "needs": ["api"], "work": "@agent Document the login"}
Returns the full id of the task. Next: deploy_task.""",
    "deploy_task": """\
Let a task of a saved plan run. It starts when the tasks it needs have succeeded; those have to be deployed as well. \
When all tasks of the plan have succeeded, the plan is checked and lands, so add tasks before you deploy the last one.
Example: {"plan": "add-login", "job": "models"}
Returns the status of plan and task. Next: wait_plan, list_workers.""",
    "complete_task": """\
Say that the work of an idle agent is done: it is committed, checked and merged. An agent at work has to end its turn \
first, or be interrupted.
Example: {"plan": "add-login", "job": "api"}
Returns the status of plan and task. Next: wait_plan.""",
    "cancel_task": """\
Stop a task, or keep it from starting. What it wrote is kept; tasks that need it are blocked.
Example: {"plan": "add-login", "job": "api", "reason": "done by hand"}
Returns the status of plan and task. Next: retry_task takes it up again.""",
    "retry_task": """\
Try a failed or canceled task again, where it failed, or with other work or checks. A task that was deployed stays so.
Example: {"plan": "add-login", "job": "api", "work": "@agent Fix the import error in api.py"}
Returns the tasks that are retried. Next: wait_plan.""",
    "send_message": """\
Say something to the agent that works on a job. An idle one goes on at once, in its session; one at work is told when \
its turn ends (interrupt_worker ends it now). A job that has not started, or whose work is done, hears nothing.
Example: {"plan": "add-login", "job": "api", "message": "Use the helper in web/forms.py."}
Returns whether it is queued. Next: wait_plan, then list_workers for what it says.""",
    "interrupt_worker": """\
End the present turn of the agent that works on a job. Nothing fails: it is idle then, with its session and its files; \
if messages were sent to it, it goes on with those.
Example: {"plan": "add-login", "job": "api"}
Returns the state of the worker. Next: send_message, complete_task.""",
    "list_models": """\
List the models of the agents (`model` of a work), with vendor and tier. May take a few seconds.
Example: {"agent": "claude"}
Returns models by agent. Next: save_plan, create_plan.""",
}
