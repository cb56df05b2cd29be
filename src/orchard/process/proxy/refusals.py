"""What a job asked for and did not get: a value for each, told once and then counted."""

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

MOST_KINDS = 200
"""So many different ones are kept of one job; what is new after that is one refusal of its own."""


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


class Refusals:
    """All that was refused to one job. The listener hears the 1st, 10th, 100th ... time of each."""

    def __init__(self, tell: Callable[[Refusal], None]) -> None:
        self._tell = tell
        self._counts: dict[Refusal, int] = {}

    def add(self, refusal: Refusal) -> None:
        if refusal not in self._counts and len(self._counts) >= MOST_KINDS:
            refusal = Refusal("*", 0, "too-many")
        count = self._counts[refusal] = self._counts.get(refusal, 0) + 1
        if str(count).strip("0") == "1":
            self._tell(replace(refusal, count=count))

    def all(self) -> list[Refusal]:
        """Each with its count, in the order of their first times."""
        return [replace(refusal, count=count) for refusal, count in self._counts.items()]
