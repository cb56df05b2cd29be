"""Facts about agents: their turns, what they used, healed, resolved and were told; jobs deployed by hand, and work that
runs again."""

from orchard.model.events.event import AttemptFact, JobFact, Json, PhaseFact, TurnFact
from orchard.model.permissions import Source


class JobDeployed(JobFact, frozen=True):
    """Somebody let a job run whose plan says `deploy: manual`; it starts when what it needs has succeeded."""


class WorkRepeated(AttemptFact, frozen=True):
    """The work of a job failed, and runs again because the job's `retries` say so."""

    run: int
    """Which run of it begins, from 2 on."""
    most: int
    """How many runs there may be, the first included."""
    why: str
    """How the run before this one failed."""


class MessageSent(JobFact, frozen=True):
    """A message for the agent of a job, acknowledged: it is given to the agent as its next turn."""

    number: int
    """Counts the messages to this job, or to the subtask, from 1."""
    text: str
    subtask: str | None = None
    """The subtask whose agent it is for, here and in what follows; None: the job's own."""
    by: str = "person"
    """Or `parent`: the agent that asked for the subtask."""


class MessagesDelivered(AttemptFact, frozen=True):
    """The agent has taken in every message up to this number: they are in its session."""

    number: int
    subtask: str | None = None


class MessagesUnheard(AttemptFact, frozen=True):
    """The work was over before the agent could hear the last `count` messages up to this number: no turn tells them."""

    number: int
    count: int
    subtask: str | None = None


class WorkerIdle(AttemptFact, frozen=True):
    """The agent's turn is over and nobody has said more: it waits for a message, or to be told that it is done."""

    why: str = "done"
    """`done`: it ended its turn; `interrupted`: somebody else did; `paused`: the same, until it is resumed."""


class WorkerCompleted(AttemptFact, frozen=True):
    """Somebody said that the work of an agent is done: a turn is ended, and the attempt goes on with the commit."""

    result: str = ""
    """What it came to, in the words of whoever said so."""


class JobMarkedDone(JobFact, frozen=True):
    """Somebody said that a job is done on which nobody works: it runs nothing, and hands on what it starts from."""

    result: str = ""


class AgentStarted(TurnFact, frozen=True):
    """An agent was given a turn: for the job's work, to heal a failure or to resolve a conflict."""

    model: str | None = None
    session: str | None = None
    """The session that it goes on with."""
    number: int = 1
    """Counts the tries: of healing, or of the same turn after an error that passes."""
    subtask: str | None = None
    """The subtask that it works on, here and in the facts below; None: the job itself."""
    messages: int = 0
    """The number of the last message that this turn tells the agent; 0: it tells none."""
    tools: tuple[Source, ...] = ()
    """Who says what it may use; nobody: it may use all."""
    updates: int = 0
    """The number of the last update that this turn tells the agent; 0: it tells none."""
    definition: str | None = None
    """The definition by which it works, by its name."""


class AgentSession(TurnFact, frozen=True):
    """The session by which a later turn of this agent can go on."""

    session: str
    subtask: str | None = None


class AgentHeard(TurnFact, frozen=True):
    """The agent took in what the turn tells it: its session holds it, whatever becomes of the turn."""

    subtask: str | None = None


class AgentUsed(TurnFact, frozen=True):
    """What an agent used of a model since the last one of these."""

    usage: Json
    subtask: str | None = None


class AgentNoted(PhaseFact, frozen=True):
    """Something about an agent's turn that a person should know: a setting without effect, a retry, a lost session."""

    agent: str
    kind: str
    message: str
    subtask: str | None = None


class AgentEnded(TurnFact, frozen=True):
    """A turn of an agent ended; `reason` is `done` or a word of `agents.agent.Reason`."""

    reason: str
    message: str = ""
    text: str = ""
    """The agent's last words."""
    subtask: str | None = None


class HealTried(PhaseFact, frozen=True):
    """An agent tried to heal a failed phase, which was run again unless nothing was changed."""

    number: int
    outcome: str
    """`passed`, `failed`, or `unchanged`."""
    message: str = ""
    tail: str = ""
    """The last lines that the failed phase printed after the try."""


class ConflictSettled(PhaseFact, frozen=True):
    """Conflicting paths were resolved by an agent, by hand, by taking a side, or as they were resolved before."""

    by: str
    """The agent's name, `hand`, `ours` or `theirs`, or `remembered`."""
    paths: tuple[str, ...]
    ours: str
    theirs: str
    tree: str
    ours_jobs: tuple[str, ...] = ()
    theirs_jobs: tuple[str, ...] = ()
    """The jobs whose versions met, where they are known; none on the side of `ours`: the target's.

    A merge in which a job met other jobs and the target as well is told by two of these.
    """
