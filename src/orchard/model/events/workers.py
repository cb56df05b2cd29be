"""Facts about workers: jobs that were deployed by hand, and what was said to agents that work on jobs."""

from orchard.model.events.event import JobFact


class JobDeployed(JobFact, frozen=True):
    """Somebody let a job run whose plan says `deploy: manual`; it starts when what it needs has succeeded."""


class MessageSent(JobFact, frozen=True):
    """A message for the agent of a job, acknowledged: it is given to the agent as its next turn."""

    number: int
    """Counts the messages to this job, from 1."""
    text: str


class MessagesDelivered(JobFact, frozen=True):
    """The agent has taken in every message up to this number: they are in its session."""

    attempt: int
    number: int


class WorkerIdle(JobFact, frozen=True):
    """The agent's turn is over and nobody has said more: it waits for a message, or to be told that it is done."""

    attempt: int
    why: str = "done"
    """`done`: it ended its turn; `interrupted`: somebody else did."""


class WorkerCompleted(JobFact, frozen=True):
    """Somebody said that the work of an idle agent is done: the attempt goes on with the commit."""

    attempt: int
