"""Facts about the health of workers, and updates: what an agent is told of its subtasks when its next turn begins."""

from orchard.model.events.event import AttemptFact


class UpdateQueued(AttemptFact, frozen=True):
    """Something that an agent should know; it joins the next turn of that agent."""

    number: int
    """Counts the updates for the agents of this job, from 1."""
    kind: str
    """`error`, `idle_response` or `progress`; errors are told first."""
    text: str
    about: str | None = None
    """The subtask that it is about; None: the agent itself, of which something is asked."""
    to: str | None = None
    """The subtask whose agent is told; None: the job's own."""
    wakes: bool = False
    """Whether an idle agent gets a turn because of it; else it waits for a turn that begins anyway."""


class UpdatesDelivered(AttemptFact, frozen=True):
    """An agent has taken in every update for it up to this number."""

    number: int
    to: str | None = None


class HealthNoted(AttemptFact, frozen=True):
    """A worker is in a condition, which is told once until it has passed; it passes with the turn at the latest."""

    condition: str
    """`idle`, `slow`, `stuck`, `looping` or `failing`."""
    evidence: str
    action: str
    """What is done about it: `tell`, `ask`, `interrupt` or `fail`."""
    subtask: str | None = None
    """The subtask whose worker it is; None: the job's own."""


class HealthCleared(AttemptFact, frozen=True):
    """A condition of a worker has passed while its turn goes on."""

    condition: str
    subtask: str | None = None
