"""A newcomer's day on a small project; `tools/newcomer.py --archives DIR` plays it on real ones."""

import os
from pathlib import Path

import pytest

from tests.docs.day import a_day, projects
from tests.docs.points import POINTS, Point
from tests.docs.puzzles import PUZZLES

ALL = (*POINTS, *PUZZLES)


def test_every_point_has_a_check_or_says_why_not() -> None:
    numbers = {"B": 10, "M": 17, "C": 20, "U": 11}
    wanted = [f"{kind}{number}" for kind, last in numbers.items() for number in range(1, last + 1)]
    assert [one.name for one in ALL] == wanted
    assert not [one.name for one in ALL if one.check is None and not one.note]


@pytest.mark.slow
@pytest.mark.parametrize("point", [one for one in ALL if one.check], ids=lambda one: one.name)
def test_what_a_newcomer_found_is_put_right(point: Point, tmp_path: Path) -> None:
    if point.name == "B3" and os.getuid() != 0:
        pytest.skip("only root can give a folder away")
    assert point.check is not None
    with a_day(projects(None, tmp_path)["small"], tmp_path / "day") as day:
        point.check(day)
