"""Crashes, faults and random histories once more, with the programs of every job behind a wall.

The other tests of this folder run without one: they are as fast, and the same, on every machine. What they prove must
hold behind each wall that works here as well, and a wall has processes and mounts of its own that can be left behind.
`make test` tries a crash and a fault, others each day, and `make test-all` the whole sample. To repeat a failure:
`ORCHARD_SEED=... pytest tests/proof/test_behind_walls.py -k '...'`. Whatever else is to run behind a wall:
`ORCHARD_TEST_SANDBOX=bwrap pytest tests/...` (or `landlock`).
"""

import os
import random
import time
from pathlib import Path

import pytest

from orchard.process.sandbox.level import walls
from tests.proof import faults_disk, faults_machine, faults_repository  # noqa: F401 (they fill the table)
from tests.proof.crash_cells import Plan, sample
from tests.proof.faults import FAULTS
from tests.proof.test_crash_matrix import go_through, name_of
from tests.proof.test_faults import try_fault
from tests.proof.test_history import disturbed

LEVELS = [finding.level for finding in walls().findings if finding.works]
SEED = int(os.environ.get("ORCHARD_SEED") or time.time() // 86400)
CELLS = sample(1)
NAMES = list(FAULTS)

levels = pytest.mark.parametrize("level", LEVELS)


@pytest.fixture(autouse=True)
def behind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHARD_SANDBOX", request.getfixturevalue("level"))


@levels
def test_a_plan_that_is_killed_behind_a_wall_is_brought_to_its_end(tmp_path: Path, level: str) -> None:
    go_through(random.Random(f"{SEED}-{level}").choice([cell for cell in CELLS if len(cell.kills) < 3]), tmp_path)


@pytest.mark.slow
@levels
@pytest.mark.parametrize("plan", CELLS, ids=name_of)
def test_plans_that_are_killed_at_every_place_are_brought_to_their_end(tmp_path: Path, level: str, plan: Plan) -> None:
    go_through(plan, tmp_path)


@levels
def test_a_fault_is_survived_behind_a_wall(tmp_path: Path, level: str) -> None:
    everyday = [name for name in NAMES if not FAULTS[name].slow]
    try_fault(tmp_path / "s", random.Random(f"{SEED}-{level}").choice(everyday), "single", SEED)


@pytest.mark.slow
@levels
@pytest.mark.parametrize("name", NAMES)
def test_every_fault_is_survived_behind_a_wall(tmp_path: Path, level: str, name: str) -> None:
    try_fault(tmp_path / "s", name, "single", SEED)


@pytest.mark.slow
@levels
@pytest.mark.parametrize("seconds", [3.0, 60.0])
def test_a_history_behind_a_wall_is_sound(tmp_path: Path, level: str, seconds: float) -> None:
    disturbed(tmp_path, SEED, seconds)
