"""Every verb of the command line: where it is, what it is about, and its one sentence.

This table is all that `orchard --help` and shell completion need, so listing imports no command. A
test holds each sentence equal to the first line of the command's own help.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Verb(NamedTuple):
    """A command that is imported when it is used."""

    topic: str
    place: str
    """`module:name` below `orchard.surfaces.cli`."""
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
    "run": Verb("start", "running:run", "Run the plan in the file PLAN and land its result."),
    "demo": Verb("start", "around:demo", "Run a real plan in a scratch repository and show it."),
    "init": Verb("start", "around:init", "Write a commented plan file to start from."),
    "validate": Verb("start", "around:validate", "Check a plan file and say everything that is wrong with it."),
    "plan": Verb("start", "planning:plan", "Let an agent write a plan for GOAL; show it and save it."),
    "agent": Verb("start", "agenting:agent", "Let the built-in agent do TASK alone, in the current folder."),
    "graph": Verb("start", "around:graph", "Draw a plan file, or a plan under way, as a graph."),
    "list": Verb("look", "listing:list_plans", "List the plans of this repository, newest last."),
    "status": Verb("look", "looking:status", "Show a plan and all its jobs."),
    "job": Verb("look", "looking:job", "Show everything about one job."),
    "logs": Verb("look", "logs:logs", "Print what a job's programs printed."),
    "diff": Verb("look", "looking:diff", "Show what a job, or a whole plan, changed."),
    "attempts": Verb("look", "looking:attempts", "Show every try at a job, phase by phase."),
    "usage": Verb("look", "usage_view:usage", "Show what the agents of a plan used: tokens, cost and time."),
    "watch": Verb("look", "watching:watch", "Watch a plan on the whole screen until you press q."),
    "wait": Verb("look", "watching:wait", "Wait until a plan ends or needs a person."),
    "waiting": Verb("look", "waiting:waiting", "Show what needs a person, with the command that answers it."),
    "pause": Verb("act", "acting:pause", "Let running jobs finish and start nothing new."),
    "resume": Verb("act", "acting:resume", "Let a paused or interrupted plan go on."),
    "cancel": Verb("act", "cancel:cancel", "Stop a plan, or some of its jobs; what they wrote is kept."),
    "retry": Verb("act", "retrying:retry", "Try failed or canceled jobs again."),
    "force-fail": Verb("act", "acting:force_fail", "Stop a job and count it as failed."),
    "approve": Verb("act", "acting:approve", "Approve the changes of a job that waits for a person."),
    "land": Verb("act", "acting:land", "Land a plan that waits before landing."),
    "undo": Verb("act", "acting:undo", "Take a landing back: move the target branch to where it was."),
    "deploy": Verb("act", "sending:deploy", "Let jobs run of a plan that says 'deploy: manual'."),
    "send": Verb("act", "sending:send", "Say something to the agent that works on JOB."),
    "interrupt": Verb("act", "sending:interrupt", "End the present turn of the agent that works on JOB."),
    "complete": Verb("act", "sending:complete", "Say that the work of an idle agent is done."),
    "reshape": Verb("act", "retrying:reshape", "Change the graph of a plan: jobs that have not started."),
    "delete": Verb("clean", "acting:delete", "Take a plan out of the way; its commits are kept until purged."),
    "purge": Verb("clean", "acting:purge", "Remove a plan for good: its refs, saved work and logs."),
    "recover": Verb("clean", "acting:recover", "List saved work, or restore it into a folder."),
    "serve": Verb("serve", "serving:serve", "Serve repositories over HTTP and MCP and run their plans, until stopped."),
    "stop": Verb("serve", "serving:stop", "Stop the daemon that serves this repository, and wait until it has ended."),
    "trust": Verb(
        "set up",
        "around:trust",
        "Agree to what this repository would have run: by its orchard.toml, and by its settings for agents' programs.",
    ),
    "config": Verb("set up", "around:config", "Show the settings and where they come from."),
    "agents": Verb(
        "set up", "agents_view:agents", "List the agents: which are installed, logged in, and what each can do."
    ),
    "models": Verb("set up", "agents_view:models", "List the models of the agents, with vendor and tier."),
    "mcp": Verb("set up", "mcping:mcp", "Be an MCP server on stdin and stdout, for a program that talks with a model."),
    "skill": Verb("set up", "skilling:skill", "Teach an agent that prefers the command line how to use Orchard."),
    "schema": Verb("set up", "around:schema", "Print the JSON Schema of plan files, for editors."),
    "doctor": Verb("set up", "around:doctor", "Look for what could go wrong here; changes nothing."),
    "bench": Verb("set up", "benching:bench", "Measure how fast Orchard is on this repository and this machine."),
    "help": Verb("set up", "helping:help_about", "Explain a command, or a topic such as 'planning'."),
    "completion": Verb("set up", "around:completion", "Print a script that completes commands in your shell."),
}
