"""What is remembered of the subtasks of a job."""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from orchard.model.events.subtasks import ProgressReported

OVER = frozenset({"completed", "failed", "stopped", "interrupted"})
"""What a subtask can have come to; before that it is `waiting` for a slot, or `running`."""


class Subtask(Struct):
    id: str
    attempt: int
    agent: str
    instructions: str
    base: str
    spawned: float
    parent: str | None = None
    name: str = ""
    definition: str | None = None
    blocking: bool = False
    status: str = "waiting"
    started: float | None = None
    worktree: str | None = None
    """The name of its worktree, as long as it has one."""
    path: str | None = None
    program: tuple[int, float, str] | None = None
    """The identity of the program that was started last for it."""
    result: str | None = None
    """What its agent said when it called itself done."""
    succeeded: bool = True
    progress: ProgressReported | None = None
    awaits: bool = False
    """Its agent only waits, for subtasks of its own."""
    ended: float | None = None
    ended_seq: int = 0
    """The number of the event that ended it: who has seen that one knows how it ended."""
    message: str = ""
    summary: str = ""
    commit: str | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    pulled: str | None = None
    """The commit that its parent has taken over."""

    @property
    def over(self) -> bool:
        return self.status in OVER


def depth_of(subtasks: Mapping[str, Subtask], subtask: str | None) -> int:
    """How many agents stand between the job's own agent and this one; 0: it is the job's own."""
    depth = 0
    while subtask is not None:
        depth, subtask = depth + 1, subtasks[subtask].parent
    return depth


def children_of(subtasks: Mapping[str, Subtask], attempt: int, parent: str | None) -> Iterator[Subtask]:
    """The subtasks that one agent asked for in one attempt, in that order."""
    return (one for one in subtasks.values() if one.attempt == attempt and one.parent == parent)
