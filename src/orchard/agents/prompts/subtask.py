"""What agents are told about other agents that can help them, and what such a helper is told itself.

The rest of what agents are told is in `work`. The instructions of a subtask are the words of an agent, not of a
person: they are its task all the same, so they stand first and as they are, like any task.
"""

from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from orchard.agents.prompts.quote import code, data, listed, verbatim

PATH = 4_096
FOLDERS = 50
PARENT_TASK = 3_000
PLAN_TASK = 1_500
READS_ONLY = "- You may only read: leave every file as it is (**a change makes it fail**), and answer by your words."
WAITS = "- Your turn may end with a question: it is answered, or you are told that you are done."
UNANSWERED = "- No person is there to answer questions: decide, and say what you decided."


class SubtaskContext(Struct, frozen=True, kw_only=True):
    task: str
    folder: Path
    plan: str
    job: str
    subtask: str
    role: str | None = None
    """Of `role.role_text`: by which definition it works."""
    parent_task: str = ""
    """What the agent was asked to do that handed it out."""
    plan_task: str = ""
    """What the plan is for, and what the job's needs delivered, in a few lines."""
    interactive: bool = False
    server: str | None = None
    may_spawn: bool = False
    may_change: bool = True
    """Whether it may change files; one that only reads pulls nothing, and leaves nothing to commit."""
    allowed_folders: Sequence[Path] = ()
    allowed_urls: Sequence[str] = ()
    permitted: str = ""
    """What it may use, in words; empty: all that it has."""


_PULLS = "`pull_subtask_changes` merges what it changed into your folder, "
_NOT_PULLED = "and what you have not pulled is not part of your result."
_READS = "You may not change files, so nothing that it changes can be pulled: ask it for words."


def tools_text(server: str, *, may_spawn: bool = True, may_change: bool = True) -> str:
    rows = [
        f"You have tools of the MCP server {code(server)}. Nothing obliges you to use them.",
        "- `get_plan`, `get_job`, `get_job_logs`, `get_job_diff` ...: what the other jobs of your plan do and did.",
        "- `report_progress`: tell people in a sentence how far you are; worth it in long work.",
    ]
    if may_spawn:
        rows.append(
            "- `spawn_subtask`: hand a part of the work to another agent (`list_agents` says to whom), in a copy of "
            f"your folder as it is then. `await_subtasks` waits for it, {_PULLS if may_change else ''}"
            "`steer_subtask` says more to it, ends its turn, pauses or completes it; `get_subtask`, "
            "`get_job_logs` and `get_job_diff` take its id as `job`. Worth it for large and independent parts. "
            "Await them: **when your work is done, subtasks that still run are stopped**"
            f"{f', {_NOT_PULLED}' if may_change else f'. {_READS}'}"
        )
    return "## Tools of the orchestrator\n\n" + "\n".join(rows)


def subtask_instructions(context: SubtaskContext) -> str:
    parts = [
        verbatim(context.task).strip("\n"),
        "---",
        context.role,
        _place(context),
        _around(context),
        tools_text(context.server, may_spawn=context.may_spawn, may_change=context.may_change)
        if context.server
        else "",
        _done(context),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _place(context: SubtaskContext) -> str:
    rows = [
        f"You work on {code(context.subtask)}: a part of job {code(context.job)} of plan {code(context.plan)}, which "
        "another agent handed to you. It goes on with its own work meanwhile.",
        f"- Your folder is {code(context.folder, PATH)}: a git worktree made for this, a copy of that agent's folder. "
        "Work in it and do not leave it: write nothing outside, and read no other worktree.",
    ]
    rows += reach(context.allowed_folders, context.allowed_urls)
    rows += permitted(context.permitted, own=context.server is not None)
    rows.append(WAITS if context.interactive else UNANSWERED)
    return "## Where you are\n\n" + "\n".join(rows)


def _around(context: SubtaskContext) -> str:
    """What the work is a part of: for its understanding, and no task of its own."""
    parts = [data("plan", context.plan_task, PLAN_TASK)] if context.plan_task else []
    parts += [data("task", context.parent_task, PARENT_TASK)] if context.parent_task else []
    if not parts:
        return ""
    head = "Your part is what stands at the top. This is what the agent works on that handed it to you; do not do it."
    return "## What it is a part of\n\n" + "\n\n".join([head, *parts])


def reach(folders: Sequence[Path], urls: Sequence[str]) -> list[str]:
    rows = [f"- You may also use these folders: {listed(folders, FOLDERS)}."] if folders else []
    return rows + ([f"- You may reach these addresses: {listed(urls, FOLDERS)}."] if urls else [])


def permitted(words: str, *, own: bool) -> list[str]:
    """What an agent may use; tools of ours are there besides (`own`), unless the words themselves name them."""
    if not words:
        return []
    besides = ", besides the tools of the orchestrator" if own else ""
    return [f"- What you may use is limited to: {code(words, 500)}{besides}. Whatever else you call is refused."]


def _done(context: SubtaskContext) -> str:
    when = "you are done" if context.interactive else "your turn ends"
    changes = [
        f"- What you changed in your folder is committed for you when {when}; the other agent takes it over if "
        "it wants to. Do not push, do not switch or make branches, do not reset, rebase or stash, and leave git's "
        "settings alone.",
        "- A question that needs no change is answered by your words alone.",
    ]
    rows = [
        *(changes if context.may_change else [READS_ONLY]),
        "- Start nothing that goes on after your turn: what is still running then is ended.",
    ]
    if context.server:
        rows.append(
            "- When you are done, call `complete_subtask` with your result in a few sentences (`succeeded: false` if "
            "you could not do it), and end your turn."
        )
    rows.append(
        "- End with a short summary: what you found or changed, what you decided, what is not done. The other agent "
        "reads that, and nothing else of what you say."
    )
    return "## What counts as done\n\n" + "\n".join(rows)
