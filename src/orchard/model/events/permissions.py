"""Facts about calls that a person is asked about: what an agent wants to do, and what came of it."""

from orchard.model.events.event import AttemptFact


class CallAsked(AttemptFact, frozen=True):
    """An agent wants to use a tool that needs a person's word; its turn waits. The question ends with the turn."""

    number: int
    """Counts the questions of this job, from 1."""
    agent: str
    tool: str
    about: str = ""
    input: str = ""
    """What it would be called with, whole, without secrets."""
    subtask: str | None = None
    until: float | None = None
    """When it is refused if nobody has answered; None: it waits as long as the turn."""

    @property
    def call(self) -> str:
        """In a line: the tool, and what the call is about, as far as that is known and says more."""
        about = self.about or self.input
        return f"{self.tool}: {about}" if about and not self.tool.endswith(f": {about}") else self.tool


class CallAnswered(AttemptFact, frozen=True):
    """The call may be made, or not."""

    number: int
    allowed: bool
    by: str = "person"
    """`person`; `timeout`: no person answered in time; `withdrawn`: the agent waits for no answer any more."""
    why: str = ""
    always: bool = False
    """The same worker may use the same tool until its attempt ends, without a question."""
    subtask: str | None = None
