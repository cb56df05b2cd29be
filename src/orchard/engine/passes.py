"""Passes: what an agent shows at the engine's door instead of the user's secret, good for one job and one turn."""

import hmac
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from orchard.core.plan import JobId, PlanId


@dataclass(frozen=True, slots=True)
class Scope:
    """What a pass was given for: who shows it speaks as this attempt, and for nobody else."""

    plan: PlanId
    job: JobId
    attempt: int
    subtask: str | None = None
    """The subtask of the job that speaks, where it is not the job itself."""


class Passes:
    """The passes that are good now. They are kept in memory only: none outlives its engine."""

    def __init__(self) -> None:
        self.socket: str | None = None
        """Where they are shown."""
        self._good: dict[str, Scope] = {}

    @contextmanager
    def issued(self, scope: Scope) -> Iterator[str]:
        """A pass that is good for the time of the block."""
        secret = secrets.token_hex(32)
        self._good[secret] = scope
        try:
            yield secret
        finally:
            del self._good[secret]

    def scope_of(self, shown: str) -> Scope | None:
        """What a pass is good for; every one is compared, so that the time taken tells nothing."""
        found = None
        for secret, scope in self._good.items():
            if hmac.compare_digest(secret.encode(), shown.encode(errors="replace")):
                found = scope
        return found
