"""Which cells the crash matrix has: every place with every plan that passes it, and combinations of them."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchard.process.failpoint import known
from tests.proof.crash import Kill
from tests.proof.crash_shapes import SHAPES
from tests.proof.crash_table import REACHED, by_chance, reached

INTERRUPTED = "program.after-end"
TAKEN = "worktree.after-take"
IN_RECOVERY = ("recovery.before-job", "recovery.after-survivors", "recovery.after-job", "recovery.done")
STRAY = "recovery.before-stray"
LATE = (
    "validation.", "landing.", "branch.", "checkout.", "pool.", "trash.", "undo.", "delete.", "purge.", "cancel.",
    "worktree.before-remove", "worktree.after-release", "worktree.after-rename", "worktree.after-remove",
    "worktree.after-reset", "attempt.before-end", "attempt.after-end",
)  # fmt: skip
TIDYING = ("wip.", "worktree.before-release")


@dataclass(frozen=True)
class Plan:
    """One cell: a shape, its kills in their order, and perhaps a place where the user moves the target."""

    shape: str
    kills: tuple[Kill, ...]
    gap: str | None = None

    def __str__(self) -> str:
        words = [self.shape, *([f"gap={self.gap}"] if self.gap else []), *map(str, self.kills)]
        return " ".join(words)


def split(key: str) -> tuple[str, int]:
    shape, _, stage = key.partition("@")
    return shape, int(stage)


ONE_JOB = ("single", "undo", "apart", "never", "cancel", "delete")
"""Plans in which the second time through a place is no other job's."""
SAME_AS_SINGLE = ("undo@0", "apart@0", "delete@0")
"""Stages that begin as that plan does; what matters there comes later."""


def single_kills() -> Iterator[Plan]:
    """Every place in every plan that passes it, and the second time where that is another job's."""
    for key in REACHED:
        shape, stage = split(key)
        for place, times in reached(key).items():
            if key in SAME_AS_SINGLE and place in reached("single@0"):
                continue
            for nth in range(1, 2 if shape in ONE_JOB else times + 1):
                yield Plan(shape, (Kill(place, nth, stage, certain=nth == 1 or not by_chance(place)),))


def kills_of_recovery() -> Iterator[Plan]:
    """The engine dies, and so does the one that puts things right, wherever it is."""
    for shape in SHAPES:
        for place in (*IN_RECOVERY, "journal.before-commit", "journal.after-commit"):
            yield Plan(shape, (Kill(INTERRUPTED), Kill(place)))
        yield Plan(shape, (Kill(TAKEN), Kill(STRAY)))
        yield Plan(shape, (Kill(INTERRUPTED), *(Kill(place) for place in IN_RECOVERY)))


ELSEWHERE = ("pull-request.", "conflict.")
"""Places that need a forge, or a person who resolves a conflict: `tests/forge/test_plans.py` and
`tests/engine/test_resolving.py` kill at each of them."""
GAPS = {
    "single": ("landing.before-intent", "landing.before-move", "checkout.before", "checkout.after"),
    "chain": ("landing.before-intent", "landing.before-move", "branch.before-swap", "branch.after-swap"),
    "wide": ("validation.before-verify", "validation.after-verify", "checkout.before", "landing.after-move"),
    "joins": ("snapshot.before-publish", "validation.before-settle", "landing.before-move"),
}


def gaps() -> Iterator[Plan]:
    """The user commits to the target at a bad moment; the engine goes on, or dies right there."""
    for shape, places in GAPS.items():
        for place in places:
            yield Plan(shape, (), place)
            yield Plan(shape, (Kill(place),), place)


def random_kills(seed: int, count: int) -> Iterator[Plan]:
    """Three deaths in a row, wherever; only the first is sure to come."""
    chance = random.Random(seed)
    for _ in range(count):
        shape, stage = split(chance.choice(list(REACHED)))
        places = list(reached(f"{shape}@{stage}"))
        first, *others = (chance.choice(places) for _ in range(3))
        yield Plan(shape, (Kill(first, 1, stage), *(Kill(place, 1, stage, certain=False) for place in others)))


def sample(seed: int) -> list[Plan]:
    """Few cells in which every place is killed once: an early one and a late one in each."""
    chance = random.Random(seed)
    passed = [place for place in known() if any(place in reached(key) for key in REACHED)]
    early = [place for place in passed if not place.startswith((*LATE, "recovery."))]
    late = [place for place in passed if place.startswith(LATE)]
    chance.shuffle(early)
    cells = [Plan("single", (Kill(INTERRUPTED), *(Kill(place) for place in IN_RECOVERY)))]
    cells += [Plan(chance.choice(("chain", "diamond")), (Kill(TAKEN), Kill(STRAY)))]
    for place in late:
        shape, stage = split(chance.choice([key for key in REACHED if place in reached(key)]))
        before = [one for one in early if one in reached(f"{shape}@0") and _may_come_before(one, place, shape, stage)]
        before = before[:1]
        early = [one for one in early if one not in before]
        cells.append(Plan(shape, (*(Kill(one) for one in before), Kill(place, 1, stage))))
    cells += _together(early, chance)
    cells += chance.sample(list(gaps()), 2)
    return cells


def _may_come_before(early: str, late: str, shape: str, stage: int) -> bool:
    """Whether the second death is sure to come after the first.

    What a job left is tidied up while the plan goes on, which may have passed any late place by then. Who wants
    to cancel does so after the first death: then no job runs any more, and one cancel is enough.
    """
    if stage > 0:
        return True
    return not early.startswith(TIDYING) and (SHAPES[shape].goals[0] != "canceled" or late.startswith("cancel."))


def _together(places: Sequence[str], chance: random.Random) -> Iterator[Plan]:
    for place in places:
        shape, stage = split(chance.choice([key for key in REACHED if place in reached(key)]))
        yield Plan(shape, (Kill(place, 1, stage),))
