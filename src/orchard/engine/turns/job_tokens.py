"""Job tokens: what an agent shows at the engine's door instead of the user's secret, good for one job and one turn."""

import hmac
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from msgspec import Struct
from msgspec.structs import replace

from orchard.model.plan import JobId, PlanId


class Scope(Struct, frozen=True):
    """What a job token was given for: who shows it speaks as this attempt, and for nobody else."""

    plan: PlanId
    job: JobId
    attempt: int
    subtask: str | None = None
    """The subtask of the job that speaks, where it is not the job itself."""


class JobTokens:
    """The job tokens that are good now. They are kept in memory only: none outlives its engine."""

    def __init__(self) -> None:
        self.socket: str | None = None
        self.languages: frozenset[str] = frozenset()
        self._good: dict[str, Scope] = {}
        self._over: dict[int, list[Callable[[], None]]] = {}

    @contextmanager
    def issued(self, scope: Scope) -> Iterator[str]:
        secret = secrets.token_hex(32)
        self._good[secret] = scope = replace(scope)  # known by itself: the next turn has an equal one
        self._over[id(scope)] = []
        try:
            yield secret
        finally:
            del self._good[secret]
            for close in tuple(self._over.pop(id(scope))):
                close()

    @contextmanager
    def while_good(self, scope: Scope | None, close: Callable[[], None]) -> Iterator[None]:
        """Have something closed if, during the block, the job token that this scope came from is good no more."""
        closing = self._over.get(id(scope)) if scope is not None else []
        if closing is None:
            close()
            closing = []
        closing.append(close)
        try:
            yield
        finally:
            closing.remove(close)

    def scope_of(self, shown: str) -> Scope | None:
        """What a job token is good for; every one is compared, so that the time taken tells nothing."""
        found = None
        for secret, scope in self._good.items():
            if hmac.compare_digest(secret.encode(), shown.encode(errors="replace")):
                found = scope
        return found
