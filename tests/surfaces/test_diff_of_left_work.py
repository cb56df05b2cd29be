"""What a job left that was canceled or failed before its work was committed is shown by `orchard diff`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Desk, desks, until

PLAN = "name: Left\ntarget: goal\njobs: [{{id: a, heal: false, work: '{work}'}}]\n"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


@pytest.mark.parametrize("ends", ["cancel", "fail"])
def test_the_diff_of_a_job_without_a_result_is_what_it_left(desk: Desk, ends: str) -> None:
    if ends == "fail":
        assert desk("run", desk.plan(PLAN.format(work="echo left > left.txt; false"))).code == 1
    else:
        running = desk.start("run", desk.plan(PLAN.format(work="echo left > left.txt; sleep 300")))
        until(lambda: any(desk.repo.path.glob(".worktrees/*/left.txt")), "the job has written")
        desk("cancel", desk.status()["plan"]["id"])
        running.end()

    shown = desk("diff", "a")
    Path(desk("path", "a").out.strip(), "left.txt").write_text("mine\n")

    assert shown.code == 0 and "+left" in shown.out, shown.talk
    assert "+mine" in desk("diff", "a").out, "what a person edits there counts on a retry"


def test_the_diff_of_a_job_whose_worktree_is_gone_is_what_was_saved(desk: Desk) -> None:
    desk("run", desk.plan(PLAN.format(work="echo left > left.txt; false")))
    plan = desk.status()["plan"]["id"]
    desk("delete", plan, "--yes")

    shown = desk("diff", "a", "--plan", plan)

    assert shown.code == 0 and "+left" in shown.out, shown.talk


def test_a_job_that_left_nothing_says_so_and_what_to_look_at(desk: Desk) -> None:
    plan = "name: Never\nstart_paused: true\njobs: [{id: a, work: 'true'}]\n"
    desk("run", desk.plan(plan), "--detach")
    found = desk.status()["plan"]["id"]
    desk("cancel", found)

    refused = desk("diff", "a")

    assert refused.code == 3 and "Job 'a' has no result; it is canceled." in refused.err
    assert f"orchard job a --plan {found}" in refused.err
