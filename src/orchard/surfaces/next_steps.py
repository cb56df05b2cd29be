"""Next steps as each surface writes them: a command line for a terminal, a tool call for a model."""

import json
import shlex
from collections.abc import Callable, Iterator

from orchard.errors import Hint, Next, OrchardError, parts_of
from orchard.surfaces.mcp.selection import TOOL_NAMES

# What stands in brackets is left out where the step does not say it; the last word of it names what is put in.
COMMANDS = {
    "allow_call": "allow [job] [--question question] [--plan plan]",
    "approve_job": "approve [job] [--plan plan]",
    "cancel_job": "cancel [job] [--plan plan]",
    "cancel_plan": "cancel [plan]",
    "clone_plan": "clone [plan]",
    "complete_task": "complete [job] [--plan plan]",
    "create_plan": "run plan.yaml",
    "delete_plan": "delete [plan]",
    "deny_call": "deny [job] [--question question] [--plan plan]",
    "deploy_task": "deploy [job] [--plan plan]",
    "finalize_plan": "finalize [plan]",
    "force_fail_job": "force-fail [job] [--plan plan]",
    "get_config": "config show",
    "get_doctor": "doctor",
    "get_job": "job [job] [--plan plan]",
    "get_job_attempts": "attempts [job] [--plan plan]",
    "get_job_diff": "diff [job] [--plan plan]",
    "get_job_logs": "logs [job] [--plan plan]",
    "get_plan": "status [plan]",
    "init_plan": "init",
    "interrupt_worker": "interrupt [job] [--plan plan]",
    "land_plan": "land [plan]",
    "list_agents": "agents [agent]",
    "list_models": "models [--agent agent]",
    "list_plans": "list [--deleted]",
    "list_saved_work": "recover [--plan plan]",
    "list_waiting": "waiting",
    "list_workers": "workers",
    "pause_plan": "pause [plan]",
    "pause_worker": "pause [worker]",
    "propose_plan": "pr [plan]",
    "purge_plan": "purge [plan]",
    "restore_saved_work": "recover [ref] [folder] [--plan plan]",
    "resolve_conflict": "resolve [job] [--plan plan] [--step]",
    "resume_plan": "resume [plan]",
    "resume_worker": "resume [worker]",
    "reject_job": "reject [job] WHY [--plan plan]",
    "retry_job": "retry [job] [--plan plan] [--from from_phase] [--keep] [--work work]",
    "retry_plan": "retry [--plan plan]",
    "send_message": "send [job] [message] [--plan plan]",
    "serve": "serve",
    "stop_daemon": "stop",
    "trust_repository": "trust",
    "undo_plan": "undo [plan] [--revert]",
    "update_plan": "reshape [plan] [--resolver resolver]",
    "validate_plan": "validate [file]",
}  # fmt: skip
"""How the command line is asked for an operation; a tool has the operation's own name."""

SPELLED = "--step"
"""What is typed as an option of its own: `--continue`, `--abort`, and none for `open`."""

TYPED_ONLY = {"list_agents": ("agent",)}
"""What only the command line takes."""


def command_line(step: Next) -> str:
    """A step as a person types it; one that only a newer Orchard knows is named."""
    form = COMMANDS.get(step.operation)
    return step.operation if form is None else " ".join(["orchard", *_words(form, step)])


def _is_validation(job: str | None) -> bool:
    from orchard.model.plan import VALIDATION  # a list of plans does without

    return job == VALIDATION


def _words(form: str, step: Next) -> Iterator[str]:
    given = {"plan": step.plan, "job": step.job, "worker": f"{step.plan}:{step.job}", **step.args}
    if step.operation == "resolve_conflict" and _is_validation(step.job):
        given["job"] = None  # no other job has failed then, and the user has not heard of this one
    plain, *said = form.replace("]", "").split(" [")
    yield plain
    for words in said:
        *option, name = words.split()
        value = given.get(name.lstrip("-"))
        if name == SPELLED:
            yield from [f"--{value}"] if value not in (None, "open") else []
        elif name.startswith("--"):
            yield from [name] if value else []
        elif value is not None:
            yield from (*option, shlex.quote(str(value)))


def tool_call(step: Next) -> str:
    """A step as a model calls it; one for which there is no tool is for a shell."""
    if step.operation not in TOOL_NAMES:
        return command_line(step)
    given = {"plan": step.plan, "job": step.job, **step.args}
    known = {name: value for name, value in given.items() if name not in TYPED_ONLY.get(step.operation, ())}
    said = ", ".join(f"{name}={json.dumps(value)}" for name, value in known.items() if value is not None)
    return f"{step.operation}({said})" if said else step.operation


def hint_text(hint: Hint, render: Callable[[Next], str]) -> str:
    return "".join(part if isinstance(part, str) else render(part) for part in parts_of(hint))


def in_commands(hint: Hint) -> str:
    return hint_text(hint, command_line)


def told(error: OrchardError) -> str:
    """An error in one line for a terminal or a log: what happened, and what to do."""
    return f"{error.message} {in_commands(error.hint or '')}".rstrip()


def in_tools(hint: Hint) -> str:
    text = hint_text(hint, tool_call)
    return f"In a shell: {text}" if text.startswith("orchard ") else text
