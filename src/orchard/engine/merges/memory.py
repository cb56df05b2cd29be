"""Merges of what jobs need, remembered: many jobs that need the same many others merge those once."""

import threading
from collections import OrderedDict
from collections.abc import Callable

from orchard.engine.outcome import Failed
from orchard.model.plan import Resolver

REMEMBERED_MERGES = 20_000

Merging = tuple[str, Resolver, str, str]
"""What decides how a merge ends: the plan, how it resolves conflicts, and both sides."""


class Gathered:
    """Merges that were made already: jobs that need the same do not merge the same again.

    What is remembered is a commit that a ref of an earlier job reaches. If that is gone, git says so when the commit is
    used; then everything is forgotten and made anew.
    """

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
