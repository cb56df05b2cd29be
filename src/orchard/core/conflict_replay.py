"""What events about conflicts mean for a run."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from orchard.core.run import Run
from orchard.core.sides import SIDES
from orchard.model.events import plans as events
from orchard.model.phases import Phase


def resolved_again(run: Run, event: events.LeafMerged) -> None:
    """Keep telling of a conflict that came again with a new snapshot: earlier versions recorded only the first."""
    if any(one.theirs == event.commit and one.phase is not Phase.MERGE_FI for one in run.resolutions):
        return
    by_side = event.resolver in SIDES
    for one in reversed(run.superseded):
        if (one.theirs, one.paths, one.by in SIDES) == (event.commit, event.resolved, by_side):
            run.resolutions.append(replace(one, by=event.resolver) if by_side else one)
            return


def _settled(run: Run, event: events.ConflictSettled, at: float) -> None:
    if event.phase is Phase.MERGE_FI:  # a job that gathers what it needs once more starts from another merge
        before = (event.job, event.phase, event.paths)
        run.resolutions = [
            one for one in run.resolutions if (one.job, one.phase, one.paths) != before or one.attempt >= event.attempt
        ]
    run.resolutions.append(event)


def _opened(run: Run, event: events.ConflictOpened, at: float) -> None:
    run.records[event.job].conflict = event


def _closed(run: Run, event: events.ConflictClosed, at: float) -> None:
    record = run.records[event.job]
    if record.conflict is not None and record.conflict.worktree == event.worktree:
        record.conflict = None


APPLY_CONFLICTS: Mapping[type[events.Event], Callable[[Run, Any, float], None]] = {
    events.ConflictOpened: _opened,
    events.ConflictClosed: _closed,
    events.ConflictSettled: _settled,
}
