"""A job's page: who needs it, its commits, what it brings with it, and where each attempt worked."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Desk, desks

PLAN = """
name: Two
target: work
description: Shows what jobs bring.
jobs:
  - {id: a, work: "echo a > a; git add a; git commit -qm 'First of a'; echo more > a2"}
  - {id: b, needs: [a], work: "echo b > b; test -f ok || exit 3"}
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    for one in desks(tmp_path):
        one.repo("checkout", "-q", "-b", "work")
        yield one


def test_a_job_tells_its_commits_its_dependents_and_what_it_brings(desk: Desk) -> None:
    desk("run", desk.plan(PLAN.replace("test -f ok || exit 3", "true")))
    a, b = (json.loads(desk("job", name, "--json").out) for name in ("a", "b"))
    assert [one["subject"] for one in a["commits"]] == ["First of a", "a"]
    assert (a["needed_by"], a["aggregated"]) == (["b"], None)
    assert (b["aggregated"]["added"], b["aggregated"]["commits"], b["summary"]["added"]) == (3, 3, 1)
    assert b["scheduled_at"] <= b["started_at"]
    whole = json.loads(desk("job", "__snapshot-validation__", "--json").out)
    assert [one["commit"] for one in whole["commits"]] == [desk.repo.head("work")]
    shown = desk("job", "b").out
    assert "with needs" in shown and "3 files +3 -0, 3 commits" in shown
    assert desk("status").out.splitlines()[1] == "Shows what jobs bring."


def test_a_job_that_was_held_was_scheduled_before_it_started(desk: Desk) -> None:
    desk("run", desk.plan("name: Held\njobs: [{id: a, approve: true, work: 'echo a > a'}]"))
    desk("approve", "a", "--yes")

    a = json.loads(desk("job", "a", "--json").out)

    assert a["status"] == "succeeded" and a["scheduled_at"] <= a["started_at"]
    assert a["scheduled_at"] == a["attempts_detail"][0]["scheduled_at"]


def test_each_attempt_keeps_its_own_base_and_folder(desk: Desk) -> None:
    desk("run", desk.plan(PLAN))
    desk("retry", "b", "--fresh")
    first, second = json.loads(desk("attempts", "b", "--json").out)
    a = json.loads(desk("job", "a", "--json").out)
    assert first["base_commit"] == second["base_commit"] == a["commit"]
    assert first["worktree"] and second["worktree"]
    assert first["scheduled_at"] < second["scheduled_at"]
    assert first["commit"] is None
