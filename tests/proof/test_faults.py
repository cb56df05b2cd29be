"""Whatever breaks around a plan: it is done, or says why not, and goes on when the fault is lifted."""

import os
import random
from pathlib import Path

import pytest

from orchard.errors import EXIT_WAITING
from tests.proof import faults_disk, faults_machine, faults_repository  # noqa: F401 (they fill the table)
from tests.proof.faults import FAULTS, SHAPES, Scene
from tests.proof.faults_steps import STEPS

NAMES = list(FAULTS)
EVERYDAY = [name for name in NAMES if not FAULTS[name].slow]
SAMPLE = 3


def seed() -> int:
    """The seed that was asked for, or a new one."""
    return int(os.environ.get("ORCHARD_SEED") or random.randrange(1_000_000))


def try_fault(folder: Path, name: str, shape: str, number: int) -> None:
    """Let one fault strike one plan, lift it, and bring the plan to its end."""
    print(f"seed {number}: fault {name} on plan {shape}")
    fault, scene = FAULTS[name], Scene(folder, shape, number)
    scene.words = fault.words
    try:
        fault.strike(scene)
        print(f"answers under the fault: {scene.heard}")
        scene.check_kept()
        scene.bring_to_its_end()
        scene.check_end()
    except Exception as error:
        place = scene.keep_evidence(f"{name}-on-{shape}", error)
        raise AssertionError(
            f"{name} on {shape} (seed {number}); see {place}/story.txt: {str(error)[-700:]}"
        ) from error
    finally:
        scene.close()


@pytest.mark.parametrize("turn", range(len(EVERYDAY) // 2))
def test_a_fault_is_survived_by_a_plan(tmp_path: Path, turn: int) -> None:
    """One fault of each pair of neighbours in the table, on one of the plans; another day it is the other one."""
    number = seed()
    chosen = random.Random(f"{number}-{turn}")
    try_fault(tmp_path / "s", EVERYDAY[2 * turn + chosen.randrange(2)], chosen.choice(list(SHAPES)), number)


@pytest.mark.parametrize("turn", range(SAMPLE))
def test_an_error_of_the_disk_at_some_step_is_survived_by_a_plan(tmp_path: Path, turn: int) -> None:
    number = seed()
    chosen = random.Random(f"{number}-{turn}")
    try_fault(tmp_path / "s", chosen.choice(STEPS), chosen.choice(list(SHAPES)), number)


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NAMES)
def test_a_fault_is_survived_by_every_plan(tmp_path: Path, name: str, shape: str) -> None:
    try_fault(tmp_path / "s", name, shape, seed())


def test_a_plan_that_cannot_begin_waits_with_the_reason(tmp_path: Path) -> None:
    scene = Scene(tmp_path / "s", "single")
    scene.words = "input/output error"
    try:
        done = scene.ask("run", scene.plan_file, ORCHARD_FAILPOINT="snapshot.before-start:1:error")
        waits = scene.status()["plan"]
        scene.bring_to_its_end()
        scene.check_end()
    finally:
        scene.close()

    assert done.code == EXIT_WAITING and "The plan cannot start" in done.talk
    assert waits["status"] == "waiting" and "nput/output" in waits["error"]
