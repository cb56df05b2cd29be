"""Nothing is lost in a merge: each path of the result is explained by base, ours and theirs.

Let b, o, t, r be what base, ours, theirs and the result have at a path (mode and blob, or nothing). Outside of the
conflicts the rule is: o = b gives r = t; t = b gives r = o; o = t gives r = o. Where both sides changed a file, r must
be there with the merged mode, and every line that one side brought in must be in it.

A path that breaks the rule may have been renamed by the other side, or lie in a folder that was. Then what a side
changed must be found at another path of the result: the same blob, or a file with all the lines it brought in.

With several merge bases git merges against an invented base that no commit holds. There a path is accounted for if
the rule holds for one of the bases, or r is what one side has, or all three have something there; and of a file that
was renamed only its presence elsewhere is asked for, not its lines.

One thing passes unseen: a rename that the merge undid while the other side changed the file. All content is there,
under the old name.

The cost follows what theirs changed, not what ours gathered: only paths in diff(base, theirs) and diff(ours, result)
can break the rule, and folders with equal trees are never opened.
"""

from collections.abc import Sequence
from typing import TypeVar

from msgspec import Struct

from orchard.errors import OrchardError
from orchard.git.history import show_path
from orchard.git.merge.conflicts import Conflict
from orchard.git.objects.reader import TREE, Entry, Objects

T = TypeVar("T")

LINE_CHECK_LIMIT = 4 * 1024 * 1024


class LostInMerge(OrchardError):
    def __init__(self, paths: Sequence[bytes]) -> None:
        shown = ", ".join(show_path(path) for path in paths[:5])
        more = f" and {len(paths) - 5} more" if len(paths) > 5 else ""
        super().__init__(
            f"The merge of two commits does not explain what it has at {shown}{more}; nothing was changed.",
            hint="Merge the job's commit by hand, and please report this: it may be a bug in git or in orchard.",
        )
        self.paths = tuple(paths)


class Trees(Struct, frozen=True):
    bases: tuple[str, ...]
    ours: str
    theirs: str
    result: str
    conflicts: tuple[Conflict, ...] = ()


class _Place(Struct, frozen=True):
    path: bytes
    base: Entry | None
    ours: Entry | None
    theirs: Entry | None
    result: Entry | None


def check(objects: Objects, trees: Trees) -> None:
    lost = unaccounted(objects, trees)
    if lost:
        raise LostInMerge(lost)


def unaccounted(objects: Objects, trees: Trees) -> list[bytes]:
    apart = {conflict.path for conflict in trees.conflicts}
    paths = {change.path for change in objects.diff_trees(trees.ours, trees.result)}
    for base in trees.bases:
        paths |= {change.path for change in objects.diff_trees(base, trees.theirs)}
    odd: list[_Place] = []
    for path in paths - apart:
        places = [
            _Place(path, *(_file(objects, tree, path) for tree in (base, trees.ours, trees.theirs, trees.result)))
            for base in trees.bases
        ]
        if any(_follows(objects, place) for place in places):
            continue
        if len(places) > 1 and _plausible(places[0]):
            continue
        odd += places[:1]
    return sorted(_unexplained(objects, odd, trees)) if odd else []


def _file(objects: Objects, tree: str, path: bytes) -> Entry | None:
    entry = objects.entry(tree, path)
    return None if entry is not None and entry.mode == TREE else entry


def _follows(objects: Objects, place: _Place) -> bool:
    """The rule for one path, without renames."""
    base, ours, theirs, result = place.base, place.ours, place.theirs, place.result
    if ours == base:
        return result == theirs
    if theirs == base or ours == theirs:
        return result == ours
    if ours is None or theirs is None or result is None:
        return False
    mode = _either(base and base.mode, ours.mode, theirs.mode)
    oid = _either(base and base.oid, ours.oid, theirs.oid)
    if mode is not None and result.mode != mode:
        return False
    if oid is not None:
        return result.oid == oid
    return all(_keeps(objects, base, side, result) for side in (ours, theirs))


def _either(base: T | None, ours: T, theirs: T) -> T | None:
    """The merged value of one property; None if both sides changed it differently."""
    if ours == theirs or theirs == base:
        return ours
    return theirs if ours == base else None


def _plausible(place: _Place) -> bool:
    if place.result in (place.ours, place.theirs):
        return True
    return None not in (place.ours, place.theirs, place.result)


def _keeps(objects: Objects, base: Entry | None, side: Entry, result: Entry) -> bool:
    """Whether what a side brought in, its mode and its new lines, is in the result."""
    if base is not None and side.mode not in (base.mode, result.mode):
        return False
    if side.oid == result.oid or (base is not None and side.oid == base.oid):
        return True
    if not (side.is_regular and result.is_regular):
        return False
    known = _lines(objects, base) if base is not None and base.is_regular else frozenset()
    new, held = _lines(objects, side), _lines(objects, result)
    return known is None or new is None or held is None or new - known <= held


def _lines(objects: Objects, entry: Entry) -> frozenset[bytes] | None:
    """The lines of a file, whatever their ends; None for a file too large to look into."""
    content = objects.read(entry.oid)[1]
    if len(content) > LINE_CHECK_LIMIT:
        return None
    return frozenset(line.rstrip(b"\r") for line in content.split(b"\n"))


def _unexplained(objects: Objects, odd: Sequence[_Place], trees: Trees) -> set[bytes]:
    """Those of the odd paths that renames do not explain."""
    several = len(trees.bases) > 1
    holders = [place.result for place in odd if place.result is not None and place.result != place.base]
    holders += [held for conflict in trees.conflicts if (held := _file(objects, trees.result, conflict.path))]
    # What is in the conflict set is in front of the agent or person that resolves the conflict.
    stages = [entry for one in trees.conflicts for entry in (one.base, one.ours, one.theirs) if entry is not None]
    holders += stages
    shown = {entry.oid for entry in stages}
    sources = [objects.renames(trees.bases[0], side) for side in (trees.ours, trees.theirs)]
    moves: dict[bytes, list[Entry]] = {}
    for new, old in (pair for renamed in sources for pair in renamed.items()):
        moves.setdefault(old, []).extend(one for one in [_file(objects, trees.result, new)] if one is not None)
    exact = set(holders)
    # A file that both sides left alone cannot vanish, though a conflict may have moved it out of the way.
    alone = (one for one in odd if one.result is None and one.ours == one.theirs == one.base)
    lost = {one.path for one in alone if one.base not in exact}
    brought = set()
    for place in odd:
        for side, renamed in zip((place.ours, place.theirs), sources, strict=True):
            if side is None or side == place.base or side.oid in shown:
                continue
            base = place.base
            if base is None and place.path in renamed:
                base = _file(objects, trees.bases[0], renamed[place.path])
            near = [*moves.get(place.path, ()), *holders]
            homes = (one for one in near if several or _is_home(objects, odd, (base, side, one)))
            home = side if side in exact else next(homes, None)
            if home is None:
                lost.add(place.path)
            else:
                brought.add(home.oid)
    return lost if several else lost | _from_nowhere(odd, brought)


def _is_home(objects: Objects, odd: Sequence[_Place], moved: tuple[Entry | None, Entry, Entry]) -> bool:
    """Whether a side's file may have become this one of the result, at another path."""
    base, side, result = moved
    if not _keeps(objects, base, side, result):
        return False
    if side.oid == result.oid:
        return True
    new, held = _lines(objects, side), _lines(objects, result)
    if base is None or new is None or held is None or 2 * len(new & held) >= len(new):
        return True
    # Renamed here and rewritten there: the result is what the other side made of the same file.
    return any(
        result.oid in (one.ours and one.ours.oid, one.theirs and one.theirs.oid) for one in odd if one.base == base
    )


def _from_nowhere(odd: Sequence[_Place], brought: set[str]) -> set[bytes]:
    """Odd paths that hold what no side put there (a deletion undone, say), and what came from no other path."""
    sources: dict[str, set[bytes]] = {}
    for place in odd:
        for entry in (place.base, place.ours, place.theirs):
            if entry is not None:
                sources.setdefault(entry.oid, set()).add(place.path)
    found = set()
    for place in odd:
        result = place.result
        if result is None or result.oid in brought:
            continue
        put = any(side == result != place.base for side in (place.ours, place.theirs))
        if not put and not sources.get(result.oid, set()) - {place.path}:
            found.add(place.path)
    return found
