"""kill -9 at every named place, in every kind of plan: nothing lost, nothing twice, nothing stuck, nothing left.

`make test` kills at every place once, in cells drawn by a seed; `make test-all` does everything. To repeat
a failure: `ORCHARD_SEED=... pytest tests/proof/test_crash_matrix.py -k '...'`; its message names a folder
with the repository, the plan, and what was typed.
"""

import ast
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

import orchard
from orchard.process.failpoint import FAILPOINTS, failpoint, known, rearm
from tests.proof.crash import Cell
from tests.proof.crash_cells import ELSEWHERE, Plan, gaps, kills_of_recovery, random_kills, sample, single_kills
from tests.proof.crash_shapes import SHAPES
from tests.proof.crash_table import REACHED, by_chance, reached, row

SEED = int(os.environ.get("ORCHARD_SEED", "1"))
RANDOM_CELLS = 60


def name_of(cell: Plan) -> str:
    return re.sub(r"[^\w.@=-]+", "-", str(cell))


def go_through(plan: Plan, folder: Path) -> None:
    print(f"seed {SEED}, cell: {plan}")
    cell = Cell(SHAPES[plan.shape], folder, list(plan.kills), gap=plan.gap)
    try:
        cell.run()
    except Exception as error:
        place = cell.save(SEED, str(error))
        raise AssertionError(
            f"{error}\nseed {SEED}, cell: {plan}\nwhat is needed to look at it is in {place}"
        ) from error
    finally:
        cell.close()


@pytest.mark.parametrize("plan", sample(SEED), ids=name_of)
def test_a_plan_that_is_killed_is_brought_to_its_end(tmp_path: Path, plan: Plan) -> None:
    go_through(plan, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("plan", list(single_kills()), ids=name_of)
def test_every_place_in_every_plan(tmp_path: Path, plan: Plan) -> None:
    go_through(plan, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("plan", list(kills_of_recovery()), ids=name_of)
def test_recovery_that_is_killed_is_done_again(tmp_path: Path, plan: Plan) -> None:
    go_through(plan, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("plan", list(gaps()), ids=name_of)
def test_a_target_that_moves_at_a_bad_moment_keeps_what_it_got(tmp_path: Path, plan: Plan) -> None:
    go_through(plan, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("plan", list(random_kills(SEED, RANDOM_CELLS)), ids=name_of)
def test_three_deaths_in_a_row(tmp_path: Path, plan: Plan) -> None:
    go_through(plan, tmp_path)


# ------------------------------------------------------------------------------------- the table


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_the_table_is_true(tmp_path: Path, shape: str) -> None:
    cell = Cell(SHAPES[shape], tmp_path, [], trace=True)
    try:
        cell.run()
    finally:
        cell.close()

    for stage in range(len(SHAPES[shape].goals)):
        key = f"{shape}@{stage}"
        listed = reached(key)
        assert row(settled(cell.passed(stage), listed)) == row(listed), f"the row of {key} is not true any more"


def settled(passed: Mapping[str, int], listed: Mapping[str, int]) -> dict[str, int]:
    """What was passed, without what only the pace of the machine decides."""
    known = {place: times for place, times in passed.items() if place in listed or not by_chance(place)}
    return {place: listed[place] if by_chance(place) else times for place, times in known.items()}


def test_the_table_has_a_row_for_every_goal() -> None:
    assert set(REACHED) == {f"{name}@{stage}" for name, shape in SHAPES.items() for stage in range(len(shape.goals))}


def test_no_place_is_left_out() -> None:
    killed = {kill.place for plan in (*single_kills(), *kills_of_recovery()) for kill in plan.kills}

    assert killed == {place for place in known() if not place.startswith(ELSEWHERE)}
    assert len(killed) >= 60
    for seed in range(20):
        assert {kill.place for plan in sample(seed) for kill in plan.kills} == killed


def test_every_listed_place_is_in_the_code() -> None:
    used = set()
    for path in Path(orchard.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "failpoint":
                used |= {word.value for word in node.args if isinstance(word, ast.Constant)}

    assert used == FAILPOINTS


def test_a_place_can_be_noted_and_held_up(tmp_path: Path) -> None:
    notes, go = tmp_path / "notes", tmp_path / "go"
    go.touch()
    place = known()[0]
    rearm(f"{place}:1:note={notes},{place}:2:note={notes},{place}:2:wait={go}")
    try:
        for _ in range(3):
            failpoint(place)
    finally:
        rearm(None)

    assert notes.read_text() == f"{place}:1\n{place}:2\n"
