"""Merges, remembered: those of what jobs need, and what merges decided without asking anybody.

Many jobs that need the same many others merge those once (`Gathered`). A merge is pure and may be made again, or be
known from another job; so what it decided, which side of a conflict was taken or that it was resolved before, is kept
beside the commit that it made (`Picks`), and can be recorded for every job that starts from such a commit.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator

from msgspec import Struct

from orchard.engine.outcome import Failed
from orchard.git.history import show_path
from orchard.git.merge.conflicts import Resolution
from orchard.git.objects.reader import Objects
from orchard.model.plan import Resolver

REMEMBERED_MERGES = 20_000
KEPT_PICKS = 10_000
REMEMBERED = "remembered"
"""In place of who decided, for what was resolved as it was before."""

Merging = tuple[str, Resolver, str, str]
"""What decides how a merge ends: the plan, how it resolves conflicts, and both sides."""


class Gathered:
    """What is kept is a commit that a ref of an earlier job reaches; if git says that it is gone, all is made anew."""

    def __init__(self) -> None:
        self._known: OrderedDict[Merging, str] = OrderedDict()
        self._turn = threading.Lock()

    def merged(self, what: Merging, merge: Callable[[], str | Failed]) -> str | Failed:
        """The merge of two commits, made by `merge` if it is not known; one at a time, so that none is made twice."""
        with self._turn:
            known = self._known.get(what)
            if known is not None:
                self._known.move_to_end(what)
                return known
            made = merge()
            if isinstance(made, str):
                self._known[what] = made
                if len(self._known) > REMEMBERED_MERGES:
                    self._known.popitem(last=False)
            return made

    def forget(self) -> None:
        with self._turn:
            self._known.clear()


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
        self._known[commit] = pick
        while len(self._known) > KEPT_PICKS:
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
