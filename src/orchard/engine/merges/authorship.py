"""Which jobs changed a path that is in conflict.

What a job changed is compared once and remembered. Of a leaf that meets the snapshot, the plan knows whose work is on
which side; only for other merges is git asked.
"""

from collections.abc import Iterable, Iterator
from itertools import islice

from orchard.core.run import Run
from orchard.engine.world import World
from orchard.git.history import is_ancestor
from orchard.model.events.plans import WorkCommitted
from orchard.model.plan import JobId

NAMED_JOBS = 5
LARGE_CHANGE = 10_000
"""Paths of one job beyond which its change is not remembered."""
REMEMBERED_CHANGES = 10_000


def authors(world: World, run: Run, sides: tuple[str, str], paths: set[bytes]) -> list[JobId]:
    """The first few jobs whose work is in the first commit and not in the second, and touched any of these paths."""
    inside, outside = sides
    touching = touched(world, run, run.records, paths)
    held = ((job, made.commit) for job, made, _ in touching if is_ancestor(world.repo, made.commit, inside))
    return list(islice((job for job, made in held if not is_ancestor(world.repo, made, outside)), NAMED_JOBS))


def met_by(world: World, run: Run, leaf: JobId, paths: set[bytes]) -> dict[JobId, set[bytes]]:
    """The jobs that a leaf meets in the snapshot, each with those of the paths that it changed."""
    others = run.snapshot.inside - _with_needs(run, leaf)
    inside = (job for job in run.records if job in others)
    return {job: changed for job, _, changed in touched(world, run, inside, paths)}


def touched(
    world: World, run: Run, jobs: Iterable[JobId], paths: set[bytes]
) -> Iterator[tuple[JobId, WorkCommitted, set[bytes]]]:
    """Those of the jobs that changed any of the paths, with their work and the paths."""
    for job in jobs:
        made = run.records[job].work_commit
        if made is not None and made.commit != made.base and (changed := paths & _changed_by(world, made)):
            yield job, made, changed


def _with_needs(run: Run, leaf: JobId) -> set[JobId]:
    found, waiting = set[JobId](), [leaf]
    while waiting:
        job = waiting.pop()
        if job not in found:
            found.add(job)
            waiting += run.job(job).needs
    return found


def _changed_by(world: World, made: WorkCommitted) -> frozenset[bytes]:
    pair = (made.base, made.commit)
    known = world.changed_paths.get(pair)
    if known is None:
        objects = world.integration.objects
        before, after = (objects.tree_of(commit) for commit in pair)
        known = frozenset(change.path for change in objects.diff_trees(before, after))
        if len(world.changed_paths) >= REMEMBERED_CHANGES:
            world.changed_paths.clear()
        if len(known) <= LARGE_CHANGE:
            world.changed_paths[pair] = known
    return known
