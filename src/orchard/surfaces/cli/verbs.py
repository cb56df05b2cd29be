"""Every verb of the command line: where it is, what it is about, and its one sentence.

This table is all that `orchard --help` and shell completion need, so listing imports no command. The sentence is also
the first one of the command's own help, which its docstring goes on with.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Verb(NamedTuple):
    """A command that is imported when it is used."""

    topic: str
    place: str
    """`module:name` below `orchard.surfaces.cli.commands`."""
    help: str


TOPICS: Mapping[str, str] = {
    "start": "Start work",
    "look": "Look",
    "act": "Act",
    "clean": "Clean up",
    "serve": "Serve",
    "set up": "Set up",
}

VERBS: Mapping[str, Verb] = {
    "run": Verb("start", "plans.run:run", "Run the plan in the file PLAN and land its result."),
    "do": Verb("start", "plans.tasks:do", "Have agents do TASKS in parallel and land the result, without a plan file."),
    "demo": Verb("start", "machine.demo:demo", "Run a real plan in a scratch repository and show it."),
    "init": Verb("start", "plans.files:init", "Write a commented plan file to start from."),
    "validate": Verb("start", "plans.files:validate", "Check a plan file and report everything that is wrong with it."),
    "plan": Verb("start", "plans.run:plan", "Have an agent write a plan for GOAL, show it and save it."),
    "clone": Verb("start", "plans.copies:clone", "Copy a plan: print it as a plan file, or run it again."),
    "agent": Verb("start", "machine.agents:agent", "Have the built-in agent do TASK in the current folder."),
    "graph": Verb("start", "plans.files:graph", "Draw a plan, or a plan file, as a graph."),
    "list": Verb("look", "plans.list:list_plans", "List the plans of this repository, newest last."),
    "status": Verb("look", "plans.views:status", "Show a plan and all its jobs."),
    "job": Verb("look", "plans.views:job", "Show everything about one job."),
    "subtask": Verb(
        "look", "plans.views:subtask", "Show a subtask: work that one agent handed to another, and its result."
    ),
    "logs": Verb("look", "jobs.logs:logs", "Print the output of a job, or of a whole plan."),
    "diff": Verb("look", "plans.views:diff", "Show what a job, or a whole plan, changed."),
    "path": Verb("look", "jobs.worktrees:path", "Print the path of a job's worktree."),
    "shell": Verb("look", "jobs.worktrees:shell", "Open a shell in a job's worktree, or run a command there."),
    "attach": Verb("look", "jobs.worktrees:attach", "Open the session of a job's agent in the agent's own program."),
    "attempts": Verb("look", "plans.views:attempts", "Show every attempt at a job, phase by phase."),
    "usage": Verb("look", "plans.views:usage", "Show what the agents of a plan used: tokens, cost and time."),
    "events": Verb("look", "plans.views:events", "Show the journal: everything that happened, in order."),
    "watch": Verb("look", "plans.watch:watch", "Watch plans full-screen, and control them with keys."),
    "wait": Verb("look", "plans.watch:wait", "Wait until a plan ends or needs you."),
    "capacity": Verb(
        "look", "machine.settings:capacity", "Show how many jobs may run at once, and which engines run them."
    ),
    "workers": Verb("look", "jobs.workers:workers", "List plans, waiting tasks, working agents and their subtasks."),
    "talk": Verb("look", "jobs.workers:talk", "Read what people and agents said to each other about a job."),
    "waiting": Verb("look", "plans.views:waiting", "Show what needs you, with the command that answers it."),
    "finalize": Verb("act", "plans.plans:finalize", "Mark a plan that a program builds job by job as complete."),
    "pause": Verb("act", "plans.plans:pause", "Pause a plan: running jobs finish, no new job starts."),
    "resume": Verb("act", "plans.plans:resume", "Continue a paused or interrupted plan."),
    "cancel": Verb("act", "jobs.jobs:cancel", "Stop a plan, or some of its jobs; what they wrote is kept."),
    "retry": Verb("act", "jobs.jobs:retry", "Try failed or canceled jobs again."),
    "force-fail": Verb("act", "jobs.jobs:force_fail", "Stop a job and count it as failed."),
    "approve": Verb("act", "jobs.jobs:approve", "Approve the changes of a job that waits for you."),
    "reject": Verb(
        "act", "jobs.jobs:reject", "Reject the changes of a job that waits for you, and tell its agent why."
    ),
    "resolve": Verb("act", "jobs.conflicts:resolve", "Resolve a job's conflict by hand, in a worktree."),
    "allow": Verb("act", "jobs.jobs:allow", "Allow the call that an agent asks about."),
    "deny": Verb("act", "jobs.jobs:deny", "Deny the call that an agent asks about; the agent goes on without it."),
    "land": Verb("act", "plans.plans:land", "Land a plan that is waiting to land."),
    "pr": Verb("act", "plans.plans:pr", "Push a plan's result and open a pull request for it, or update the open one."),
    "undo": Verb("act", "plans.plans:undo", "Undo a landing: move the target branch back to where it was."),
    "deploy": Verb("act", "jobs.jobs:deploy", "Start jobs of a plan that says 'deploy: manual'."),
    "send": Verb("act", "jobs.jobs:send", "Send a message to the agent that works on JOB."),
    "interrupt": Verb("act", "jobs.jobs:interrupt", "End the current turn of the agent that works on JOB."),
    "complete": Verb("act", "jobs.jobs:complete", "Say that a job, or the work of its agent, is done."),
    "reshape": Verb("act", "plans.plans:reshape", "Change a plan's graph: the jobs that have not started."),
    "delete": Verb("clean", "plans.plans:delete", "Hide a plan; its commits are kept until it is purged."),
    "purge": Verb("clean", "plans.plans:purge", "Remove a plan permanently: its refs, saved work and logs."),
    "prune": Verb("clean", "machine.prune:prune", "Purge plans that ended long ago."),
    "recover": Verb("clean", "plans.views:recover", "List saved work, or restore it into a folder."),
    "serve": Verb(
        "serve", "machine.serve:serve", "Serve repositories over HTTP and MCP, and run their plans, until stopped."
    ),
    "stop": Verb("serve", "machine.serve:stop", "Stop the daemon that serves this repository, and wait for it to end."),
    "trust": Verb(
        "set up",
        "machine.settings:trust",
        "Agree to what this repository's orchard.toml and its files for agents would run.",
    ),
    "config": Verb("set up", "machine.settings:config", "Show the settings and where they come from."),
    "agents": Verb(
        "set up", "machine.agents:agents", "List the agents: which are installed and logged in, and what each can do."
    ),
    "models": Verb("set up", "machine.agents:models", "List the agents' models, with vendor and tier."),
    "mcp": Verb("set up", "machine.mcp:mcp", "Run an MCP server over stdin and stdout, for a chat or an editor."),
    "skill": Verb("set up", "machine.install:skill", "Teach an agent how to use Orchard on the command line."),
    "schema": Verb("set up", "plans.files:schema", "Print the JSON Schema of plan files or settings, for editors."),
    "doctor": Verb("set up", "machine.settings:doctor", "Look for problems here and on this machine; changes nothing."),
    "bench": Verb("set up", "machine.bench:bench", "Measure how fast Orchard is on this repository and this machine."),
    "help": Verb("set up", "machine.topics:help_about", "Explain a command, or read a page such as 'plan-file'."),
    "completion": Verb(
        "set up", "machine.settings:completion", "Print a script that completes commands in your shell."
    ),
}

OF_OTHERS = {
    "version": "--version", "ps": "list", "ls": "list", "up": "run", "start": "run", "apply": "run", "exec": "shell",
    "rm": "delete", "remove": "delete", "abort": "cancel", "kill": "cancel", "rerun": "retry", "revert": "undo",
    "rollback": "undo", "merge": "land", "show": "status", "lint": "validate", "check": "validate", "new": "init",
    "chat": "talk", "tail": "logs", "gc": "prune", "clean": "prune", "settings": "config",
}  # fmt: skip
"""What tools of others call a verb: who types it is told ours."""
