"""How commits of one plan relate, told from the commits themselves instead of by a process for each question.

All commits of a plan descend from the one that it began with. So what lies between that one, the floor, and a few
commits is all that has to be known to say which of them is in which, and where two of them part: a walk over commits
that are remembered anyway. Where a history leads elsewhere, the answer is `Unclear`, and git is asked.

    Line      a commit that grows, with everything in it down to the floor
    Meeting   how another commit relates to it
"""

from msgspec import Struct

from orchard.errors import OrchardError
from orchard.git.objects.reader import ObjectMissing, Objects

FARTHEST = 5_000
"""Commits that one walk looks at; beyond them a process is cheaper."""


class Unclear(OrchardError):
    """The history leads past the floor, or too far."""

    def __init__(self) -> None:
        super().__init__("The history between these commits is not the plan's alone.")


class Meeting(Struct, frozen=True):
    """How another commit relates to a line."""

    commit: str
    fresh: frozenset[str]
    """What it has that the line has not."""
    met: frozenset[str]
    """Where its history first meets the line's: where there is only one, that is the merge base."""


class Line:
    """A commit, and everything in it down to the floor."""

    def __init__(self, objects: Objects, floor: str, tip: str) -> None:
        self._objects = objects
        self._seen = {floor}
        self.tip = tip
        self._seen |= self._walk(tip)[0]

    def meet(self, commit: str) -> Meeting:
        return Meeting(commit, *self._walk(commit))

    def is_behind(self, meeting: Meeting) -> bool:
        """Whether the other commit has everything that the line has."""
        return self.tip in meeting.met

    def grow(self, meeting: Meeting, tip: str) -> None:
        """Go on at a commit that has all of both: the other one, or the merge of the two."""
        self._seen |= meeting.fresh
        self._seen.add(tip)
        self.tip = tip

    def _walk(self, start: str) -> tuple[frozenset[str], frozenset[str]]:
        fresh, met, waiting = set[str](), set[str](), [start]
        while waiting:
            commit = waiting.pop()
            if commit in self._seen:
                met.add(commit)
            elif commit not in fresh:
                fresh.add(commit)
                waiting += self._parents(commit)
                if len(fresh) > FARTHEST:
                    raise Unclear
        return frozenset(fresh), frozenset(met)

    def _parents(self, commit: str) -> tuple[str, ...]:
        try:
            parents = self._objects.parents(commit)
        except ObjectMissing:
            parents = ()  # where a shallow clone ends, or a gc was faster: git will say
        if not parents:
            raise Unclear
        return parents
