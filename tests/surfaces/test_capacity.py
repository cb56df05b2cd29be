"""`orchard capacity`: how many jobs may run at once, and which engine runs them."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Desk, desks

PLAN = """
name: Slow
jobs:
  - {id: a, work: "touch a; while ! test -f ../../go; do sleep 0.05; done"}
  - {id: b, work: "touch b; while ! test -f ../../go; do sleep 0.05; done"}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def test_it_names_the_engine_that_holds_slots_with_its_repository_and_plans(desk: Desk) -> None:
    assert json.loads(desk("capacity", "--json").out)["holders"] == []
    started = desk("run", desk.plan(PLAN), "--detach", "--json")
    assert started.code == 0, started.talk
    plan = desk.status()["plan"]["id"]
    until = time.monotonic() + 30
    while (found := json.loads(desk("capacity", "--json").out))["used"] < 2 and time.monotonic() < until:
        time.sleep(0.05)
    shown = desk("capacity").out
    (desk.repo.path / "go").touch()
    desk("wait", plan)

    (holder,) = found["holders"]
    assert (found["total"], found["used"], holder["slots"]) == (16, 2, 2)
    assert (holder["repository"], holder["plans"]) == (str(desk.repo.path), [plan])
    assert "2 of 16" in shown and plan in shown


def test_a_damaged_list_of_slots_is_told_by_the_run_that_sets_it_aside(desk: Desk, tmp_path: Path) -> None:
    desk("run", desk.plan("name: A\njobs: [{id: a, work: touch a}]"))
    (slots,) = tmp_path.rglob("slots.db")
    slots.write_text("broken" * 1000)
    assert "is damaged" in desk("capacity").talk
    told = desk("run", desk.plan("name: B\njobs: [{id: b, work: touch b}]"))
    assert told.code == 0 and "counts the jobs of this user anew" in told.talk, told.talk
    assert desk("capacity").talk.count("damaged") == 0
