"""Many clients and a nemesis in one repository: afterwards their logs, the journal, the jobs and git agree."""

import os
import random
import traceback
from pathlib import Path

import pytest

from tests.proof.history import check
from tests.proof.history_world import World, save

SEEDS = range(1, 11)


def disturbed(folder: Path, seed: int, seconds: float) -> None:
    print(f"seed {seed}: repeat with ORCHARD_SEED={seed}")
    world = World(folder, seed)
    try:
        problems = _problems(world, seconds)
        if problems:
            place = save(world, problems, Path(os.environ.get("ORCHARD_EVIDENCE") or folder / "evidence"))
            raise AssertionError(f"seed {seed}; evidence in {place}\n" + "\n".join(problems))
    finally:
        world.desk.close()


def _problems(world: World, seconds: float) -> list[str]:
    """What is wrong afterwards; a client that could not go on is wrong as well."""
    try:
        history = world.run(seconds)
    except Exception:
        return [traceback.format_exc()]
    results = [op.result for op in history.ops]
    print({name: results.count(name) for name in sorted(set(results))}, len(history.facts), "events")
    print(dict(world.nemesis.done))
    return check(history)


def test_a_short_history_is_sound(tmp_path: Path) -> None:
    seed = int(os.environ.get("ORCHARD_SEED") or random.randrange(1 << 30))
    disturbed(tmp_path, seed, 7.0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_long_history_is_sound(tmp_path: Path, seed: int) -> None:
    disturbed(tmp_path, seed, float(os.environ.get("ORCHARD_HISTORY_SECONDS") or 120))
