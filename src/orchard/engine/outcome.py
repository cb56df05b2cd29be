"""How a phase can end: a value, because a failed check is an expected outcome and not an error."""

from msgspec import Struct

from orchard.errors import Hint
from orchard.git.merge.conflicts import Merge
from orchard.model.phases import Phase


class Passed(Struct, frozen=True):
    note: str = ""


class Skipped(Struct, frozen=True):
    note: str = ""


class Failed(Struct, frozen=True):
    """The phase failed, and why; `reason` is one of the words listed in `JobFailed`."""

    reason: str
    message: str
    hint: Hint | None = None
    exit_code: int | None = None
    signal: int | None = None
    tail: str = ""
    resume_from: Phase | None = None
    may_heal: bool = False
    """Whether an agent could heal it: a program of the plan's failed."""
    command: str = ""
    advice: str | None = None
    left: str = ""
    """What the worktree looked like then; see `JobFailed`."""
    merge: Merge | None = None
    """The merge that met a conflict."""
    sides: tuple[str, ...] = ()
    """What people call the two sides of it."""


class Held(Struct, frozen=True):
    """A person has to decide; the attempt goes on at `resume_from` when they have."""

    kind: str
    reason: Hint
    resume_from: Phase
    left: str = ""
    """What the worktree looked like when it began to wait for an approval."""


Outcome = Passed | Skipped | Failed | Held
