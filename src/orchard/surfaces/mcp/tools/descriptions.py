"""What a model reads about each tool: what it does, an example, what it returns, what to call next."""

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "create_plan": """\
Create a plan and start it: jobs that run in parallel, each in its own git worktree, after the jobs they need; their \
work is merged, checked by `verify` and landed on `target`. The user's checkout is not touched.
A job must change files, unless it has `expects_no_changes`. Do not commit: Orchard does. Put detailed tasks into \
work.instructions; `name` and `task` are for people only. For many jobs use scaffold_plan, add_job, finalize_plan. \
Everything about fields: resource orchard://help/planning, or `orchard help planning` in a shell.
Example: {"name": "Add login", "target": "feature/login", "verify": "make test", "jobs": [
{"id": "models", "work": "@agent Add a User model with a hashed password"},
{"id": "api", "needs": ["models"], "work": {"instructions": "# Login\\nPOST /login ..."}, \
"postchecks": "pytest -q tests/api"},
{"id": "docs", "needs": ["models"], "work": "python tools/gen_docs.py"}]}
Returns at once: plan id, status, cursor, watch_command. Next: run watch_command in a shell, or wait_plan.""",
    "scaffold_plan": """\
Begin a plan without jobs; nothing runs before finalize_plan. Every field of create_plan but jobs and groups is taken.
Example: {"name": "Add login", "target": "feature/login", "verify": "make test"}
Returns the plan id. Next: add_job for each job, then finalize_plan.""",
    "add_job": """\
Add a job to a plan that is being scaffolded, or to one that runs. The jobs it needs must exist already. Every field \
of a job in create_plan is taken.
Example: {"plan": "add-login", "id": "api", "needs": ["models"], "work": "@agent Add POST /login", \
"postchecks": "pytest -q tests/api"}
Returns the full id of the job and how many there are. Next: add_job again, or finalize_plan.""",
    "finalize_plan": """\
Declare a scaffolded plan complete: it starts.
Example: {"plan": "add-login"}
Returns status, cursor and watch_command. Next: run watch_command in a shell, or wait_plan.""",
    "wait_plan": """\
Wait until something happens to a plan, for at most 45 seconds. Where you have a shell, prefer the command \
`orchard wait PLAN --json`, which waits until the plan ends.
Example: {"plan": "add-login", "cursor": 120, "until": "end"}
Returns status, what changed and a new cursor. Next: wait_plan with that cursor, or what `next` says.""",
    "add_jobs": """\
Add several jobs to a plan, all or none; they may need each other, in any order. Each is as a job of create_plan.
Example: {"plan": "add-login", "jobs": [{"id": "a", "work": "make a"}, {"id": "b", "needs": ["a"], \
"work": "make b"}]}
Returns their full ids. Next: finalize_plan.""",
    "reshape_plan": """\
Change the graph of a plan that is built or runs: only jobs that have not started, all changes or none. Ops: add, \
remove (what needed it then needs what it needed), set_needs, add_before, add_after, update, update_plan. Fields of \
jobs and plans are as in create_plan.
Example: {"plan": "add-login", "changes": [{"op": "add_after", "id": "api", "job": {"id": "lint", \
"work": "ruff check", "expects_no_changes": true}}, {"op": "remove", "id": "docs"}]}
Returns the jobs afterwards. Next: get_plan_graph, wait_plan.""",
    "update_plan": """\
Change what a plan itself says: at any time max_parallel, env, verify, land, push, budget, resolver, cleanup; the rest \
before it has started.
Example: {"plan": "add-login", "verify": "make test", "max_parallel": 2}
Returns the fields that were changed. Next: finalize_plan or wait_plan.""",
    "delete_plan": """\
Take a plan out of the way: it is stopped, its worktrees are saved and removed, its commits kept. With `purge` those \
go too, for good; what has landed stays.
Example: {"plan": "add-login"}
Returns what is left. Next: list_plans.""",
    "clone_plan": """\
Make a new plan with the jobs of another one.
Example: {"plan": "add-login", "target": "feature/login-2"}
Returns the new plan, which waits for finalize_plan. Next: update_job, reshape_plan, then finalize_plan.""",
    "create_job": """\
Create a plan of one job and start it. Fields are those of the job, and of the plan, as in create_plan.
Example: {"id": "fix-typo", "work": "@agent Fix the typos in README.md", "target": "fix/typos"}
Returns at once, as create_plan does. Next: run watch_command in a shell, or wait_plan.""",
    "update_job": """\
Change fields of a job that has not started, as described in create_plan. For one that failed use retry_job.
Example: {"plan": "add-login", "job": "api", "postchecks": "pytest -q", "timeout": "10m"}
Returns the fields that were changed. Next: finalize_plan or wait_plan.""",
    "get_group": """\
Look at one group and its jobs.
Example: {"plan": "add-login", "group": "backend/api"}
Returns status, counts and jobs. Next: get_job, cancel_group.""",
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
}
