"""What a person is told who does nothing but read: each thing once, in time, with what to do about it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Desk, desks


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def test_each_further_run_of_work_that_failed_has_a_line_with_its_reason(desk: Desk, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    work = f"test -e {mark} || {{ touch {mark}; exit 3; }}; echo a > a.txt"

    done = desk("run", desk.plan(f'name: Flaky\ntarget: goal\njobs: [{{id: a, retries: 2, work: "{work}"}}]\n'))

    assert done.code == 0
    (line,) = [line for line in done.talk.splitlines() if " of 3 starts: " in line]
    assert "a  work  run 2 of 3 starts: " in line and line.endswith("exited with 3."), line
