"""What lies somewhere below a tree; a tree that was seen before is not walked again."""

import threading
from typing import NamedTuple

from orchard.git.objects.reader import GITLINK, TREE, Objects

REMEMBERED_TREES = 500_000


class Below(NamedTuple):
    """What decides how the files of a tree are read and written."""

    attributes: tuple[tuple[bytes, str], ...] = ()
    """Every attribute file: its path and the oid of its content."""
    submodules: bool = False


class Census:
    """Looks below trees, once below each."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: dict[str, Below] = {}
        self._lock = threading.Lock()

    def below(self, tree: str) -> Below:
        """What lies below a tree."""
        with self._lock:
            return self._below(tree)

    def _below(self, tree: str) -> Below:
        if len(self._known) > REMEMBERED_TREES:
            self._known.clear()
        order, waiting = [], [tree]
        while waiting:
            if (one := waiting.pop()) not in self._known:
                order.append(one)
                waiting += [entry.oid for entry in self._objects.tree_entries(one).values() if entry.mode == TREE]
        for one in reversed(order):
            self._known[one] = self._sum(one)
        return self._known[tree]

    def _sum(self, tree: str) -> Below:
        attributes: list[tuple[bytes, str]] = []
        submodules = False
        for name, entry in self._objects.tree_entries(tree).items():
            if entry.mode == TREE:
                inner = self._known[entry.oid]
                attributes += [(name + b"/" + path, oid) for path, oid in inner.attributes]
                submodules = submodules or inner.submodules
            elif entry.mode == GITLINK:
                submodules = True
            elif name == b".gitattributes" and entry.is_regular:
                attributes.append((name, entry.oid))
        return Below(tuple(attributes), submodules)
