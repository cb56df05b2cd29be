"""What a job asked for and did not get: a value for each, told once and then counted."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

MOST_KINDS = 200
"""So many different ones are kept of one job; what is new after that is one refusal of its own."""
MOST_PROGRAMS = 30
"""So many times of one job it is looked for who asked."""


class Refusal(Struct, frozen=True):
    """One thing that was refused, and how often."""

    host: str
    port: int
    reason: str
    """One word: `not-listed`, `network-off`, `private`, `loopback`, `metadata`, `this-machine`, ..."""
    address: str | None = None
    """Where the name led to, when that was the reason."""
    entry: str | None = None
    """The line in the list that would allow it; None where none would."""
    own: bool = False
    """Only the user's own settings can have that line."""
    count: int = 1
    program: str | None = None
    """Who asked for it first, where that can be told."""


class Refusals:
    """All that was refused to one job. The listener hears the 1st, 10th, 100th ... time of each."""

    def __init__(self, tell: Callable[[Refusal], None]) -> None:
        self._tell = tell
        self._counts: dict[Refusal, int] = {}
        self._programs: dict[Refusal, str | None] = {}

    def wants_program(self, refusal: Refusal) -> bool:
        """Whether it is told for the first time, and not too many were looked for before."""
        return refusal not in self._programs and len(self._programs) < MOST_PROGRAMS

    def add(self, refusal: Refusal, program: str | None = None) -> None:
        if refusal not in self._counts and len(self._counts) >= MOST_KINDS:
            refusal, program = Refusal("*", 0, "too-many"), None
        if self.wants_program(refusal):
            self._programs[refusal] = program
        count = self._counts[refusal] = self._counts.get(refusal, 0) + 1
        if str(count).strip("0") == "1":
            self._tell(replace(refusal, count=count, program=self._programs.get(refusal)))

    def all(self) -> list[Refusal]:
        """Each with its count, in the order of their first times."""
        return [replace(refusal, count=count) for refusal, count in self._counts.items()]
