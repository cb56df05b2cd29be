"""Which tools are offered: whole toolsets, single tools, less some, perhaps only those that change nothing.

Light on purpose: the process that only hands on what is asked can check its options without importing any tool.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from orchard.errors import UsageError
from orchard.text import did_you_mean, quoted

TOOLSETS: Mapping[str, tuple[str, ...]] = {
    "core": (
        "create_plan", "scaffold_plan", "add_job", "finalize_plan", "get_plan", "list_plans", "wait_plan",
        "pause_plan", "resume_plan", "cancel_plan", "retry_plan", "land_plan", "get_job", "get_job_logs",
        "get_job_failure", "get_job_diff", "retry_job",
    ),
    "plans": (
        "add_jobs", "get_plan_graph", "reshape_plan", "update_plan", "delete_plan", "clone_plan", "undo_plan",
        "propose_plan", "list_waiting", "list_events",
    ),
    "jobs": (
        "create_job", "list_jobs", "get_job_attempts", "force_fail_job", "update_job", "approve_job", "reject_job",
        "resolve_conflict",
    ),
    "groups": ("list_groups", "get_group", "cancel_group"),
    "workers": (
        "list_workers", "save_plan", "add_plan_task", "deploy_task", "complete_task", "cancel_task", "retry_task",
        "send_message", "allow_call", "deny_call", "interrupt_worker", "pause_worker", "resume_worker", "get_subtask",
        "get_job_talk", "list_agents", "list_models", "get_capacity",
    ),
    "subtasks": (
        "list_agents", "spawn_subtask", "await_subtasks", "steer_subtask", "complete_subtask",
        "pull_subtask_changes", "report_progress",
    ),
}  # fmt: skip
"""Every tool by the sets that hold it; a test compares this with the tools themselves."""

DEFAULT = ("core",)
KEYWORDS = ("default", "all")

OWN_PLAN = frozenset({
    "get_plan", "get_job", "list_jobs", "get_job_logs", "get_job_failure", "get_job_attempts", "get_job_diff",
    "get_plan_graph", "list_groups", "get_group", "get_subtask",
})  # fmt: skip
"""What an agent in a job may ask besides its subtasks: about its own plan, and nothing that acts."""

TOOL_NAMES = frozenset(name for names in TOOLSETS.values() for name in names)


class Selection(Struct, frozen=True):
    """The tools that one connection offers."""

    toolsets: tuple[str, ...] = DEFAULT
    tools: frozenset[str] = frozenset()
    """Single tools besides those of the toolsets."""
    exclude: frozenset[str] = frozenset()
    read_only: bool = False

    @classmethod
    def from_names(
        cls,
        toolsets: Iterable[str] | None = None,
        tools: Iterable[str] | None = None,
        exclude: Iterable[str] | None = None,
        read_only: bool = False,
    ) -> "Selection":
        """The selection that these words mean; single tools without any toolset are all there is.

        A word that means nothing is refused: a mistyped `exclude` must not leave a tool open.
        """
        sets, single, less = (_words(one) for one in (toolsets, tools, exclude))
        for name in sets:
            _known(name, (*TOOLSETS, *KEYWORDS), "toolset")
        for name in (*single, *less):
            _known(name, TOOL_NAMES, "tool")
        chosen: dict[str, None] = {}
        for name in sets or (() if single else DEFAULT):
            chosen.update(dict.fromkeys({"all": tuple(TOOLSETS), "default": DEFAULT}.get(name, (name,))))
        return cls(tuple(chosen), frozenset(single), frozenset(less), read_only)

    @property
    def names(self) -> frozenset[str]:
        """The tools that are asked for; one that changes something may still be left out by `read_only`."""
        return (frozenset(name for one in self.toolsets for name in TOOLSETS[one]) | self.tools) - self.exclude


def toolsets_of(tool: str) -> tuple[str, ...]:
    """The toolsets that hold a tool."""
    return tuple(name for name, tools in TOOLSETS.items() if tool in tools)


def _words(given: Iterable[str] | None) -> tuple[str, ...]:
    """The words of a list, each of which may hold several with commas between them."""
    lists = [given] if isinstance(given, str) else list(given or ())
    return tuple(dict.fromkeys(word for one in lists for part in one.split(",") if (word := part.strip())))


def _known(name: str, names: Iterable[str], what: str) -> None:
    known = sorted(names)
    if name in known:
        return
    near = did_you_mean(name, known)
    raise UsageError(f"There is no {what} {quoted(name)}{near}", hint=f"What there is: {', '.join(known)}")
