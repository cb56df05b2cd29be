"""Conflicts that were resolved by taking a side or as they were before, recorded for the job that they concern."""

from msgspec import Struct

from orchard.core.run import Run
from orchard.core.sides import SIDES, kept_version
from orchard.engine.engine import Engine
from orchard.engine.merges.authorship import met_by
from orchard.engine.merges.picks import REMEMBERED, Pick, pick_of
from orchard.engine.world import World
from orchard.git.history import merge_bases
from orchard.git.merge.conflicts import Resolution
from orchard.git.merge.integration import LeafMerge
from orchard.model.events.plans import ConflictSettled
from orchard.model.phases import Phase
from orchard.model.plan import JobId

LISTED_PATHS = 5


class Sides(Struct, frozen=True):
    """The jobs whose versions met; none on the side of `ours`: the target's."""

    ours: tuple[JobId, ...] = ()
    theirs: tuple[JobId, ...] = ()


class Met(Struct, frozen=True):
    """What was decided between a leaf and those of one kind that it met in the snapshot: other jobs, or the target."""

    pick: Pick
    sides: Sides


def met(world: World, run: Run, leaf: LeafMerge, resolution: Resolution) -> list[Met]:
    """Whom a leaf met where its merge was resolved: the jobs that changed those paths, and the target if it did so too.

    A path that none of them changed, such as one that git made up, counts as everybody's that the leaf met.
    """
    job, paths = JobId(leaf.job), set(resolution.paths)
    if not paths:
        return []
    by_job = met_by(world, run, job, paths)
    of_target = _changed_on_target(world, run, leaf.commit, paths)
    jobs = tuple(by_job)
    if not by_job and not of_target:
        assert run.snapshot is not None
        jobs = tuple(name for name in run.snapshot.merged if name != job)
    if resolution.by not in SIDES:
        return [Met(pick_of(resolution, leaf.integration, leaf.commit), Sides(jobs, (job,)))]
    of_jobs = set[bytes]().union(*by_job.values())
    unclear = paths - of_jobs - of_target
    found = [(jobs, of_jobs | unclear)] if jobs else []
    found += [((), of_target | unclear)] if of_target or not jobs else []
    return [
        Met(pick_of(resolution, leaf.integration, leaf.commit, among), Sides(ours, (job,))) for ours, among in found
    ]


def _changed_on_target(world: World, run: Run, commit: str, paths: set[bytes]) -> set[bytes]:
    """Those of the paths that are not on the target as they were where the leaf's work began."""
    assert run.snapshot is not None
    objects, line = world.integration.objects, run.snapshot.rewritten or run.snapshot.start
    now = objects.tree_of(line)
    before = [objects.tree_of(base) for base in merge_bases(world.repo, line, commit)]
    return {
        path
        for path in paths
        if any(objects.entry(tree, path) != objects.entry(now, path) for tree in before)
        or (not before and objects.entry(now, path) is not None)
    }


def record_pick(engine: Engine, run: Run, job: JobId, phase: Phase, pick: Pick, sides: Sides) -> str:
    """Record what was decided in a merge, once; the sentence that the phase's note gets, empty if it is known."""
    if not pick.paths or any(_is_told(one, job, phase, pick, sides) for one in run.resolutions):
        return ""
    last, by = run.records[job].last, _decider(run, pick)
    number = last.number if last is not None else 1
    engine.record(
        run.id,
        ConflictSettled(
            job, number, phase, by, pick.paths, pick.ours, pick.theirs, pick.tree, sides.ours, sides.theirs
        ),
    )
    more = f" and {len(pick.paths) - LISTED_PATHS} more" if len(pick.paths) > LISTED_PATHS else ""
    whose = kept_version(by, sides.ours, sides.theirs, run.started.target_branch if run.started is not None else None)
    told = f"conflict in {', '.join(pick.paths[:LISTED_PATHS])}{more} resolved by '{by}'"
    return f"{told}: {whose}" if whose else told


def _is_told(one: ConflictSettled, job: JobId, phase: Phase, pick: Pick, sides: Sides) -> bool:
    """Whether a resolution tells of this decision: of this very merge, or of the answer that an agent gave to it."""
    if one.paths != pick.paths or (one.by in SIDES) != (pick.by in SIDES):
        return False
    if pick.by in SIDES:
        told = (one.job, one.phase, one.by, one.ours, one.theirs, one.ours_jobs)
        return told == (job, phase, pick.by, pick.ours, pick.theirs, sides.ours)
    if phase is Phase.MERGE_FI:
        return (one.job, one.phase) == (job, phase)
    # An agent is asked for the validation job as well, when it merges the leaves again.
    return one.phase is not Phase.MERGE_FI and one.theirs == pick.theirs


def _decider(run: Run, pick: Pick) -> str:
    """Who decided: for what is remembered, the agent that said so when this leaf was merged before."""
    if pick.by != REMEMBERED:
        return pick.by
    asked = (one for one in reversed(run.superseded) if one.by not in SIDES)
    return next((one.by for one in asked if (one.theirs, one.paths) == (pick.theirs, pick.paths)), pick.by)
