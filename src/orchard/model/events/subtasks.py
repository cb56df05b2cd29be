"""Facts about subtasks: work that the agent of a job hands to another agent while it runs."""

from collections.abc import Mapping

from orchard.model.events.event import AttemptFact, JobFact, PhaseFact
from orchard.model.permissions import ALL, Tools


class SubtaskSpawned(PhaseFact, frozen=True):
    """An agent handed work to another; it begins when there is a slot, from a commit that holds the parent's files."""

    subtask: str
    agent: str
    instructions: str
    base: str
    """What it starts from: the parent's worktree, as it was then."""
    parent: str | None = None
    """The subtask whose agent asked for it; None: the job's own."""
    name: str = ""
    definition: str | None = None
    """The definition in the repository that its instructions begin with."""
    blocking: bool = False
    interactive: bool = False
    """Whether it waits for a message when its turn has ended, instead of being over."""
    tools: Tools = ALL
    """What whoever asked for it lets it use, of what it may use itself."""


class SubtaskStarted(AttemptFact, frozen=True):
    """A subtask has a slot: it begins, or goes on after it was idle."""

    subtask: str


class SubtaskIdle(AttemptFact, frozen=True):
    """The turn of a subtask's agent is over and the subtask is not: it has no slot, and waits to be told more."""

    subtask: str
    why: str = "done"
    """As in `WorkerIdle`."""


class SubtaskReleased(AttemptFact, frozen=True):
    """A subtask that was idle goes on as soon as there is a slot: somebody said something to it, or resumed it."""

    subtask: str


class SubtaskPlaced(JobFact, frozen=True):
    """A subtask got a worktree of its own, which stands at its base."""

    subtask: str
    worktree: str
    path: str


class SubtaskCompleted(AttemptFact, frozen=True):
    """The agent of a subtask told its result; its turn ends by itself. Or somebody else said that it is done."""

    subtask: str
    result: str
    """Of a long one only the beginning and the end; a file beside its log has the whole."""
    succeeded: bool = True
    size: int = 0
    """Bytes of the whole result."""
    by: str = "itself"
    """`itself`, `parent` or `person`."""


class SubtaskEnded(AttemptFact, frozen=True):
    """A subtask is over; where it changed something, a ref of ours holds `commit`."""

    subtask: str
    status: str
    """`completed`, `failed`, `stopped` (with its parent), or `interrupted` (the engine was gone)."""
    message: str = ""
    summary: str = ""
    commit: str | None = None
    counts: Mapping[str, int] = {}
    paths: tuple[str, ...] = ()
    """What it changed, as far as it is listed."""
    size: int = 0
    """Bytes of the whole result, of which `summary` may be a part; a file beside its log has it."""


class SubtaskFolderGone(JobFact, frozen=True):
    """A subtask's worktree was given back; what it held was saved before."""

    subtask: str
    worktree: str


class SubtaskPulled(AttemptFact, frozen=True):
    """What a subtask changed was merged into its parent's worktree."""

    subtask: str
    commit: str
    paths: tuple[str, ...] = ()
    """What was written there, as far as it is listed."""


class SubtaskTold(AttemptFact, frozen=True):
    """The agent that asked for a subtask was answered how it ended: no update has to tell it."""

    subtask: str


class SubtasksAwaited(AttemptFact, frozen=True):
    """An agent only waits for its subtasks, and gives its slot back meanwhile."""

    parent: str | None = None
    """The subtask whose agent waits; None: the job's own."""


class SubtasksAnswered(AttemptFact, frozen=True):
    """An agent that waited for its subtasks goes on."""

    parent: str | None = None


class ProgressReported(AttemptFact, frozen=True):
    """An agent told how far it is."""

    message: str
    percent: float | None = None
    subtask: str | None = None
    """The subtask whose agent told it; None: the job's own."""
