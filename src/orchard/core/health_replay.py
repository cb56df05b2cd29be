"""What each event about the health of workers, and about updates for agents, means for a run."""

from collections.abc import Callable, Mapping
from typing import Any

from orchard.core.run import Run
from orchard.model.events import plans as events


def _queued(run: Run, event: events.UpdateQueued, at: float) -> None:
    run.records[event.job].updates.append(event)


def _delivered(run: Run, event: events.UpdatesDelivered, at: float) -> None:
    delivered = run.records[event.job].updates_delivered
    delivered[event.to] = max(delivered.get(event.to, 0), event.number)


APPLY_HEALTH: Mapping[type[events.Event], Callable[[Run, Any, float], None]] = {
    events.UpdateQueued: _queued,
    events.UpdatesDelivered: _delivered,
}
