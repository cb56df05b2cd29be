"""Looking at plans as people do: logs of a whole plan, differences by path and while a job runs, and the list."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from orchard.surfaces.cli.commands.plans.list import _fitted as fitted
from orchard.surfaces.cli.render.lines import cells, plain
from orchard.surfaces.cli.render.text import when
from tests.acceptance.program import Desk, desks, until

PLAN = """
name: Two
target: goal
jobs:
  - {id: one, work: "echo from one; mkdir src; echo 1 > src/one.txt", postchecks: echo checked}
  - {id: two, needs: [one], work: "printf 'no end'; echo 2 > two.txt"}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def test_the_logs_of_a_plan_say_which_job_printed_each_line(desk: Desk) -> None:
    assert desk("run", desk.plan(PLAN)).code == 0

    assert desk("logs").out == "one    | from one\none    | checked\ntwo    | no end\n"
    assert desk("logs", "--phase", "postchecks").out == "one    | checked\n"
    rows = [row for row in desk("logs", "--json").out.splitlines() if '"job": "two"' in row]
    assert len(rows) == 1 and '"text": "no end"' in rows[0]
    assert desk("logs", "--raw").code == 2 and desk("logs", "--attempt", "1").code == 2


def test_the_logs_of_a_plan_are_followed_as_they_are_printed(desk: Desk) -> None:
    first, second = desk.folder / "first", desk.folder / "second"
    wait = "while [ ! -e {} ]; do sleep 0.05; done"
    jobs = f"""
  - {{id: a, work: "echo a1; {wait.format(first)}; echo a2"}}
  - {{id: b, work: "echo b1; {wait.format(second)}; echo b2"}}
"""
    owner = desk.start("run", desk.plan(f"name: Follow\ntarget: goal\njobs:{jobs}"))
    until(lambda: "a1" in desk("logs").out and "b1" in desk("logs").out)
    follower = desk.start("logs", "-f")
    follower.shows("b1")
    second.touch()
    follower.shows("| b2")
    first.touch()
    follower.shows("| a2")

    assert follower.end().code == 0 and owner.end().code == 0
    assert follower.out.index("b2") < follower.out.index("a2")


def test_a_difference_can_be_asked_for_some_paths_or_as_names(desk: Desk) -> None:
    assert desk("run", desk.plan(PLAN)).code == 0

    assert desk("diff", "--name-only").out == "src/one.txt\ntwo.txt\n"
    assert desk("diff", "--name-only", "--", "src").out == "src/one.txt\n"
    shown = desk("diff", "one", "--", "src/one.txt").out
    assert "+1\n" in shown and "two.txt" not in shown
    assert desk("diff", "one", "--", "elsewhere").out == ""
    assert desk("diff", "--stat", "--name-only").code == 2


def test_what_a_running_job_has_changed_so_far_is_shown(desk: Desk) -> None:
    gate = desk.folder / "gate"
    work = f"echo draft > draft.txt; while [ ! -e {gate} ]; do sleep 0.05; done"
    owner = desk.start("run", desk.plan(f'name: Slow\ntarget: goal\njobs:\n  - {{id: slow, work: "{work}"}}\n'))

    until(lambda: "+draft" in desk("diff", "slow").out)
    gate.touch()

    assert owner.end().code == 0
    assert desk.repo.files("goal")["draft.txt"] == "draft\n"


def test_the_list_is_cut_and_an_undone_plan_is_marked(desk: Desk) -> None:
    for name in ("One", "Two", "Three"):
        plan = f'name: {name}\ntarget: goal\njobs:\n  - {{id: a, work: "echo 1 > {name}.txt"}}\n'
        assert desk("run", desk.plan(plan)).code == 0
    assert desk("undo", "--yes").code == 0

    assert [plan["name"] for plan in desk("list", "--limit", "2", "--json").json] == ["Two", "Three"]
    assert [row.split()[1] for row in desk("list").out.splitlines()] == ["succeeded", "succeeded", "undone"]


@pytest.mark.parametrize("width", [64, 80, 120, 200])
def test_the_list_has_a_heading_and_fits_the_screen(desk: Desk, width: int) -> None:
    from orchard.app import open_app
    from orchard.surfaces.next_steps import in_commands

    name = "A name that is rather long for what it says " * 2
    desk("run", desk.plan(f'name: {name.strip()}\njobs:\n  - {{id: a, work: "echo 1 > a.txt"}}\n'))
    plans = open_app(desk.repo.path, in_commands).plans()

    lines = [plain(line) for line in fitted(plans, width)]

    assert lines[0].split() == ["PLAN", "STATUS", "CREATED", "NAME", "TARGET", "JOBS"]
    assert all(cells(line) <= width for line in lines), lines
    assert "today" in lines[1] and "succeeded" in lines[1]


def test_a_moment_is_told_as_people_say_it() -> None:
    now = datetime(2026, 11, 17, 12, 0).astimezone()

    def told(**ago: float) -> str:
        return when((now - timedelta(**ago)).isoformat(), now.timestamp())

    assert told(hours=1) == "today 11:00" and told(hours=13) == "yesterday 23:00"
    assert told(days=3) == "Sat 12:00" and told(days=20) == "28 Oct" and told(days=400) == "2025-10-13"
    assert when(None, 0) == ""
