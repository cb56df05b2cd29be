"""What a job needs, brought together in memory: the commit its work starts from."""

from collections.abc import Sequence
from functools import partial

from msgspec import Struct

from orchard.core.sides import SIDES
from orchard.core.views.conflicts import take_side
from orchard.engine.merges.memory import pick_of
from orchard.engine.outcome import Failed
from orchard.engine.world import World
from orchard.errors import Hint, Next
from orchard.git.history import Line, Meeting, Unclear, is_ancestor, merge_bases, show_path
from orchard.git.merge.account import Trees, check
from orchard.git.merge.conflicts import BadResolution, Merge, Resolution, resolve_by_side
from orchard.git.merge.integration import compose_message
from orchard.git.merge.memory import SHARED, resolve_as_by_hand, resolve_from_memory
from orchard.git.refs import ANY, PREFIX, RefMoved, Update, hold, job_ref_part, update_refs
from orchard.model.plan import Resolver
from orchard.process.failpoint import failpoint

LISTED_PATHS = 10


def gather(
    world: World, plan: str, ref: str, commits: Sequence[str], resolver: Resolver, floor: str | None = None
) -> str | Failed:
    """The first commit with every other merged into it; a new commit is held by `ref` and read back.

    The same commits give the same result: dates come from the commits themselves. `floor`: the commit that all of
    them descend from.
    """
    first, *others = dict.fromkeys(commits)
    try:
        line = Line(world.integration.objects, floor, first) if floor is not None else None
        joined = _join(world, (plan, resolver), (first, others), line)
    except Unclear:
        joined = _join(world, (plan, resolver), (first, others), None)
    if isinstance(joined, Failed):
        if joined.merge is not None and joined.merge.ours not in commits:
            # What was merged before the conflict is there when somebody resolves it, perhaps weeks later.
            update_refs(world.repo.git, [Update(ref, joined.merge.ours, ANY)], "orchard: gathered up to a conflict")
        return joined
    commit, made = joined
    if made:
        failpoint("gather.before-hold")
        _hold(world, ref, commit, first)
        failpoint("gather.after-hold")
    return commit


def _join(
    world: World, how: tuple[str, Resolver], commits: tuple[str, Sequence[str]], line: Line | None
) -> tuple[str, bool] | Failed:
    (base, others), made = commits, False
    for other in others:
        meeting = line.meet(other) if line is not None else None
        if _has(world, base, other, meeting):
            continue
        if _has_all(world, base, other, line, meeting):
            base = other
        else:
            bases = tuple(meeting.met) if meeting is not None and len(meeting.met) == 1 else None
            merge = partial(_merge, world, how, (base, other), bases)
            merged = world.gathered.merged((*how, base, other), merge)
            if isinstance(merged, Failed):
                return merged
            base, made = merged, True
        if line is not None and meeting is not None:
            line.grow(meeting, base)
    return base, made


def _has(world: World, base: str, other: str, meeting: Meeting | None) -> bool:
    return not meeting.fresh if meeting is not None else is_ancestor(world.repo, other, base)


def _has_all(world: World, base: str, other: str, line: Line | None, meeting: Meeting | None) -> bool:
    if line is not None and meeting is not None:
        return line.is_behind(meeting)
    return is_ancestor(world.repo, base, other)


def _hold(world: World, ref: str, commit: str, known: str) -> None:
    try:
        hold(world.repo.git, ref, commit, known, world.integration.live.results.move)
    except RefMoved as moved:
        if moved.actual != commit:
            update_refs(world.repo.git, [Update(ref, commit, moved.actual)], "orchard: gathered again")


def _merge(
    world: World, how: tuple[str, Resolver], sides: tuple[str, str], bases: tuple[str, ...] | None
) -> str | Failed:
    (plan, resolver), (ours, theirs) = how, sides
    objects, merger = world.integration.objects, world.integration.merger
    merge = merger.merge(ours, theirs)
    tree = objects.tree_of
    found = tuple(tree(base) for base in bases or merge_bases(world.repo, ours, theirs))
    check(objects, Trees(found, tree(ours), tree(theirs), merge.tree, merge.conflicts))
    resolution = resolve(world, plan, merge, resolver)
    if resolution is None:
        who = f"Two of the job's needs ({ours:.12} and {theirs:.12})"
        return conflict(merge, resolver, Between(plan, "", who, "the first need", "the second"))
    when = max(commit_time(world, ours), commit_time(world, theirs))
    made = merger.commit(resolution.tree, (ours, theirs), compose_message("Gather what a job needs"), when=when)
    if resolution.paths:
        world.picks.note(made, pick_of(resolution, ours, theirs))
    return made


def resolve(world: World, plan: str, merge: Merge, resolver: Resolver) -> Resolution | None:
    """The tree of a merge, None where it stays open; what an agent or a person decides comes by way of the memory."""
    if merge.clean:
        return Resolution(merge.tree, ())
    objects = world.integration.objects
    if resolver == "agent":
        memories = (resolve_from_memory(world.repo, objects, one, merge) for one in (plan, SHARED))
        return next((found for found in memories if found is not None), None)
    by_hand = resolve_as_by_hand(world.repo, objects, plan, merge)
    if by_hand is not None or resolver == "fail":
        return by_hand
    try:
        return resolve_by_side(world.repo, objects, merge, resolver)
    except BadResolution:
        return None


class Between(Struct, frozen=True):
    plan: str
    job: str
    """The job that fails."""
    who: str
    ours: str
    theirs: str
    jobs: bool = True
    """Whether both sides are jobs, of which one could have needed the other."""

    def hint(self, resolver: Resolver) -> Hint:
        """What helps: to resolve it, or a side to take, since the same merge meets the same conflict again."""
        order = " In a new plan, let one job need the other." if self.jobs else ""
        by_hand = "Resolve it by hand: '", Next("resolve_conflict", self.plan, self.job), "'."
        if resolver in SIDES:
            return "Neither side can be taken as it is. ", *by_hand, order
        theirs, ours = (take_side(self.plan, side) for side in ("theirs", "ours"))
        again = Next("retry_plan", self.plan)
        keep = f" To keep the version of {self.theirs}: '", theirs, f"', or of {self.ours}: '", ours, "'; then '"
        return (*by_hand, *keep, again, f"'.{order}")


def conflict(merge: Merge, resolver: Resolver, between: Between) -> Failed:
    shown = [f"{show_path(one.path)} ({one.kind})" for one in merge.conflicts[:LISTED_PATHS]]
    more = len(merge.conflicts) - len(shown)
    listed = ", ".join(shown) + (f" and {more} more" if more > 0 else "")
    return Failed(
        "conflict",
        f"{between.who} conflict in {listed}.",
        hint=between.hint(resolver),
        merge=merge,
        sides=(between.ours, between.theirs),
    )


def commit_time(world: World, commit: str) -> int:
    """When a commit was made, in seconds since 1970, as it says itself."""
    _, data = world.integration.objects.read(commit)
    for line in data.split(b"\n\n", 1)[0].split(b"\n"):
        if line.startswith(b"committer "):
            return int(line.rsplit(b" ", 2)[1])
    return 0


def base_ref(plan: str, job: str, attempt: int) -> str:
    """What holds the gathered commit an attempt starts from."""
    return f"{PREFIX}/base/{job_ref_part(plan)}/{job_ref_part(job)}/{attempt}"
