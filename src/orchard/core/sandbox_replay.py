"""What the events about walls mean for a run."""

from collections.abc import Callable, Mapping
from typing import Any

from orchard.core.run import Run
from orchard.model.events import plans as events

MOST = 200
"""Refusals of one attempt that are remembered."""


def _asked(run: Run, event: events.SandboxAsked, at: float) -> None:
    run.sandbox = event.sandbox


def _set(run: Run, event: events.SandboxSet, at: float) -> None:
    run.walls = event.sandbox, event.limits


def _refused(run: Run, event: events.SandboxRefused, at: float) -> None:
    attempt = run.records[event.job].last
    if attempt is None:
        return
    key = (event.kind, event.name, event.reason, event.subtask)
    if key in attempt.refused or len(attempt.refused) < MOST:
        attempt.refused[key] = event


APPLY_SANDBOX: Mapping[type[events.Event], Callable[[Run, Any, float], None]] = {
    events.SandboxAsked: _asked,
    events.SandboxSet: _set,
    events.SandboxRefused: _refused,
}
