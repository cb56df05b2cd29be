"""The repositories that a daemon serves, and which of them a request means."""

from collections.abc import Iterable

from orchard.engine.server.server import EngineGone
from orchard.errors import Hint, NotFound, OrchardError, UsageError
from orchard.surfaces.served import Served


class NoEngine(EngineGone):
    """No engine works on the repository at the moment, and why."""

    def __init__(self, message: str, hint: Hint | None) -> None:
        OrchardError.__init__(self, message, hint)


class Repos:
    """What a daemon serves, in the order in which it was given."""

    def __init__(self, served: Iterable[Served]) -> None:
        self._by_id = {one.id: one for one in served}

    def all(self) -> list[Served]:
        return list(self._by_id.values())

    def find(self, id: str | None) -> Served:
        """The repository of this id, or of this name if no other has it; None means the only one there is."""
        if id is None:
            if len(self._by_id) == 1:
                return next(iter(self._by_id.values()))
            raise UsageError("Several repositories are served here.", f"Say which one: {self._names()}")
        if id in self._by_id:
            return self._by_id[id]
        named = [one for one in self._by_id.values() if one.name == id]
        if len(named) == 1:
            return named[0]
        if named:
            ids = ", ".join(one.id for one in named)
            raise UsageError("Several repositories have this name.", f"Give the id: {ids}")
        raise NotFound("No such repository is served here.", f"There is: {self._names()}")

    def _names(self) -> str:
        return ", ".join(self._by_id) or "none"
