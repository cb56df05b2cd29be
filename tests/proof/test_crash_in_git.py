"""kill -9 inside of the git commands that write: of git, of git and the engine, of the engine while git goes on.

A command is hit at one of its changes (a file created, written, renamed, removed), as the kernel sees them; see
`git_killer`. What must hold afterwards is what the crash matrix asks of every plan. `make test` has a sample, and
`make test-all` every change of every command below. Not there: `mktree`, which nobody calls, `pack-objects`, which
is called only while somebody's gc runs, and `fetch` and `push`, which change what is not ours.
"""

import os
import random
import shutil
from pathlib import Path

import pytest

from tests.proof.crash import Cell
from tests.proof.crash_shapes import SHAPES
from tests.proof.git_killer import WHO, GitKill, why_not

SEED = int(os.environ.get("ORCHARD_SEED", "1"))
WRITERS = {
    ("single", 0): {"update-ref": 5, "worktree": 1, "read-tree": 3},
    ("undo", 1): {"update-ref": 2, "read-tree": 2},
    ("joins", 0): {"update-ref": 3, "merge-tree": 1, "checkout": 2, "update-index": 1, "write-tree": 1},
    ("flaky", 0): {"update-index": 1, "write-tree": 1, "commit-tree": 1, "checkout": 1, "update-ref": 3},
    ("agents", 0): {"hash-object": 1, "update-index": 3, "write-tree": 2, "merge-tree": 1},
}
"""Which commands that write each plan calls, and how many of a kind are hit, by shape and goal."""
COMMANDS = [
    (shape, stage, verb, nth)
    for (shape, stage), verbs in WRITERS.items()
    for verb, times in verbs.items()
    for nth in range(1, times + 1)
]
MOST_CHANGES = 16


@pytest.fixture(scope="module", autouse=True)
def tracing() -> None:
    if reason := why_not():
        pytest.skip(f"NOT PROVEN HERE: {reason}")


def is_hit(folder: Path, shape: str, stage: int, kill: GitKill) -> bool:
    """One plan in which a git command is to be hit, and all that must hold; whether it was."""
    cell = Cell(SHAPES[shape], folder, [], git_kill=kill, git_stage=stage)
    try:
        cell.run()
        return cell.git_was_hit()
    except Exception as error:
        place = cell.save(SEED, str(error))
        raise AssertionError(f"{error}\n{shape}@{stage}, {kill}\nwhat is needed to look at it is in {place}") from error
    finally:
        cell.close()


def sample() -> list[tuple[str, GitKill]]:
    """A few, by the seed: the commands that every plan needs."""
    chance = random.Random(SEED)
    ranges = {"update-ref": (5, 7), "read-tree": (3, 8), "worktree": (1, 7)}
    return [
        ("single", GitKill(verb, chance.randint(1, times), chance.randint(1, changes), who))
        for (verb, (times, changes)), who in zip(ranges.items(), chance.sample(WHO, 3), strict=True)
    ]


@pytest.mark.parametrize(("shape", "kill"), sample(), ids=str)
def test_a_plan_whose_git_is_killed_is_brought_to_its_end(tmp_path: Path, shape: str, kill: GitKill) -> None:
    is_hit(tmp_path, shape, 0, kill)


@pytest.mark.slow
@pytest.mark.parametrize(("shape", "stage", "verb", "nth"), COMMANDS)
def test_every_change_that_a_git_command_makes(tmp_path: Path, shape: str, stage: int, verb: str, nth: int) -> None:
    hits, wrong = 0, []
    for change in range(1, MOST_CHANGES + 1):
        folder = tmp_path / str(change)
        kill = GitKill(verb, nth, change, WHO[(change + nth + SEED) % len(WHO)])
        try:
            hit = is_hit(folder, shape, stage, kill)
        except AssertionError as error:
            wrong.append(f"{kill}: {error}")
            hit = True
        else:
            shutil.rmtree(folder)
        if not hit:
            break
        hits += 1

    assert not wrong, "\n\n".join(wrong)
    assert hits, "this command is not called any more, or changes nothing"
