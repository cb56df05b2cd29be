"""A plan that is there becomes a plan file again, or another plan."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Desk, desks

PLAN = """
name: Twice
target: goal
params: {word: hello}
jobs:
  - {id: a, work: 'echo ${{ word }} > a.txt'}
  - {id: b, needs: [a], work: 'false'}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def test_a_plan_is_printed_as_a_file_that_runs_with_its_jobs_as_they_are_now(desk: Desk) -> None:
    desk("run", desk.plan(PLAN))
    desk("retry", "b", "--work", "echo two > b.txt")

    printed = desk("clone")
    again = desk("run", desk.plan(printed.out, "again.yaml"), "--target", "other")

    assert printed.code == 0 and "work: echo hello > a.txt" in printed.out, printed.talk
    assert again.code == 0, again.talk
    assert desk.repo.files("other") == desk.repo.files("goal")
    assert {"a.txt", "b.txt"} <= set(desk.repo.files("other"))


def test_json_is_a_plan_file_as_well_and_nothing_is_made(desk: Desk) -> None:
    desk("run", desk.plan(PLAN))

    printed = desk("clone", "--json", "--name", "Other", "--target", "elsewhere")

    assert (printed.json["name"], printed.json["target"]) == ("Other", "elsewhere")
    assert desk("validate", desk.plan(printed.out, "again.json")).code == 0
    assert len(desk("list", "--json").json) == 1


def test_a_clone_runs_at_once_when_it_is_told_to(desk: Desk) -> None:
    desk("run", desk.plan(PLAN.replace("'false'", "'echo b > b.txt'")))

    ran = desk("clone", "--run", "--target", "other", "--name", "Once more")

    assert ran.code == 0, ran.talk
    assert "Plan Once more is once-more-" in ran.out and "b.txt" in desk.repo.files("other")


def test_what_only_a_running_clone_can_have_is_refused(desk: Desk) -> None:
    desk("run", desk.plan(PLAN))

    done = desk("clone", "--detach")

    assert done.code == 2 and "Add --run" in done.err


def test_a_plan_that_no_file_can_say_is_refused_and_told_how_to_run_again(desk: Desk) -> None:
    jobs = "[{id: a, work: 'echo a > a'}, {id: b, group: g, needs: [a]}]"
    desk("run", desk.plan(f"name: Odd\ntarget: goal\nstart_paused: true\njobs: {jobs}\n"))
    plan = desk.status()["plan"]["id"]
    changes = desk.plan("[{op: add, job: {id: a, group: g, work: 'echo x > x'}}]", "changes.yaml")

    reshaped, printed = desk("reshape", plan, changes), desk("clone", plan)

    assert reshaped.code == 0, reshaped.talk
    assert printed.code == 2 and f"orchard clone {plan} --run" in printed.err and printed.out == ""
