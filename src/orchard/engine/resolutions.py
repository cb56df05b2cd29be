"""Conflicts that were resolved by taking a side or as they were before, recorded for the job that they concern."""

from orchard.core.events import ConflictSettled
from orchard.core.phases import Phase
from orchard.core.plan import JobId
from orchard.core.run import Run
from orchard.engine.engine import Engine
from orchard.engine.picks import Pick
from orchard.frozen import frozen

LISTED_PATHS = 5


@frozen
class Sides:
    """The jobs whose versions met."""

    ours: tuple[JobId, ...] = ()
    theirs: tuple[JobId, ...] = ()


def record_pick(engine: Engine, run: Run, job: JobId, phase: Phase, pick: Pick, sides: Sides) -> str:
    """Record a decision once for each job and phase; the sentence that the phase's note gets, empty if it is known."""
    known = (one for one in run.resolutions if (one.job, one.phase) == (job, phase))
    if not pick.paths or any(one.paths == pick.paths for one in known):
        return ""
    number = run.records[job].number
    engine.record(
        run.id,
        ConflictSettled(
            job, number, phase, pick.by, pick.paths, pick.ours, pick.theirs, pick.tree, sides.ours, sides.theirs
        ),
    )
    more = f" and {len(pick.paths) - LISTED_PATHS} more" if len(pick.paths) > LISTED_PATHS else ""
    return f"conflict in {', '.join(pick.paths[:LISTED_PATHS])}{more} resolved by '{pick.by}'{_whose(pick, sides)}"


def _whose(pick: Pick, sides: Sides) -> str:
    """Whose version was taken, where a side was."""
    named = {"ours": (sides.ours, sides.theirs), "theirs": (sides.theirs, sides.ours)}.get(pick.by)
    if named is None:
        return ""
    taken, dropped = (", ".join(one) or "the target" for one in named)
    return f": the version of {taken} is kept, that of {dropped} is not"
