"""What merges decided without asking anybody: which side of a conflict was taken, or that it was resolved before.

A merge is pure and may be made again, or be known from another job; so what it decided is kept beside the commit that
it made, and can be recorded for every job that starts from such a commit.
"""

from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator

from msgspec import Struct

from orchard.git.history import show_path
from orchard.git.merge.conflicts import Resolution
from orchard.git.objects.reader import Objects

KEPT = 10_000
REMEMBERED = "remembered"
"""In place of who decided, for what was resolved as it was before."""


class Pick(Struct, frozen=True):
    by: str
    """`ours`, `theirs` or `remembered`."""
    paths: tuple[str, ...]
    ours: str
    theirs: str
    tree: str


def pick_of(resolution: Resolution, ours: str, theirs: str, among: Container[bytes] | None = None) -> Pick:
    """What a resolution decided between two commits; `among`: of these paths only."""
    paths = tuple(show_path(path) for path in resolution.paths if among is None or path in among)
    return Pick(resolution.by, paths, ours, theirs, resolution.tree)


class Picks:
    def __init__(self) -> None:
        self._known: OrderedDict[str, Pick] = OrderedDict()

    def note(self, commit: str, pick: Pick) -> None:
        """Keep a decision; of very many the oldest are forgotten."""
        self._known[commit] = pick
        while len(self._known) > KEPT:
            self._known.popitem(last=False)

    def inside(self, objects: Objects, commit: str, needs: Iterable[str]) -> Iterator[Pick]:
        """The decisions on the way from what a job needs to the commit that it starts from."""
        ends = set(needs)
        while self._known and commit not in ends:
            if (pick := self._known.get(commit)) is not None:
                yield pick
            parents = objects.parents(commit)
            if not parents:
                return
            commit = parents[0]
