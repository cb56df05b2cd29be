"""What random histories found, or could have: each made to happen for certain."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Desk, Running, desks, until

PLAN = "name: One\ntarget: goal\njobs: [{id: a, work: 'echo a > a.txt'}]\n"


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def stopped_at(desk: Desk, place: str, *words: str | Path, more: str = "") -> Running:
    """A command that has come to a failpoint, and waits there until `go_on`."""
    note, go = desk.folder / "there", desk.folder / "go"
    armed = ",".join(one for one in (f"{place}:1:note={note}", f"{place}:1:wait={go}", more) if one)
    running = desk.start(*words, ORCHARD_FAILPOINT=armed)
    until(note.exists, place)
    return running


def go_on(desk: Desk) -> None:
    (desk.folder / "go").touch()


def users_commit(desk: Desk, branch: str) -> str:
    """A commit of the user's on a branch that is not checked out."""
    tip = desk.repo.head(branch)
    made = desk.repo("commit-tree", f"{tip}^{{tree}}", "-p", tip, "-m", "mine").strip()
    desk.repo("update-ref", f"refs/heads/{branch}", made, tip)
    return made


def test_a_cancel_that_comes_while_the_branch_moves_is_too_late_and_says_so(desk: Desk) -> None:
    desk.repo("branch", "goal")
    owner = stopped_at(desk, "branch.after-swap", "run", desk.plan(PLAN))

    cancel = desk.start("cancel")
    until(lambda: desk.events("PlanCanceled"), "the cancel")
    go_on(desk)
    ended, refused = owner.end(), cancel.end()

    plan = desk.status()["plan"]
    assert (plan["status"], plan["landed"]) == ("succeeded", True)
    assert len(desk.events("Landed")) == 1
    assert ended.code == 0, ended.talk
    assert refused.code == 2 and "landed" in refused.err and "orchard undo" in refused.err, refused.err


def test_a_forced_failure_that_comes_while_the_branch_moves_is_too_late(desk: Desk) -> None:
    desk.repo("branch", "goal")
    asked = desk.folder / "asked"
    owner = stopped_at(desk, "branch.after-swap", "run", desk.plan(PLAN), more=f"request.before:2:note={asked}")

    force = desk.start("force-fail", "__snapshot-validation__")
    until(asked.exists, "the request")
    go_on(desk)
    ended, refused = owner.end(), force.end()

    assert desk.status()["plan"]["status"] == "succeeded"
    assert (ended.code, refused.code) == (0, 2), refused.err


def test_a_landing_found_after_a_crash_is_known_before_anything_else_can_happen(desk: Desk) -> None:
    desk.repo("branch", "goal")
    desk.start("run", desk.plan(PLAN), ORCHARD_FAILPOINT="landing.after-move:1:kill").process.wait(60)

    canceled = desk("cancel")
    reshaped = desk("reshape", desk.status()["plan"]["id"], "--set-needs", "a=")
    looked = desk.status()["plan"]
    resumed = desk("resume")

    assert canceled.code == 2 and "landed" in canceled.err, canceled.talk
    assert reshaped.code == 2, reshaped.talk
    assert looked["landed"] is True
    assert resumed.code == 0, resumed.talk
    assert len(desk.events("Landed")) == 1


def test_an_undo_that_was_interrupted_is_known_after_the_next_start_whatever_it_is_for(desk: Desk) -> None:
    desk.repo("branch", "goal")
    before = desk.repo.head("goal")
    desk("run", desk.plan(PLAN))
    first = desk.status()["plan"]["id"]
    desk.start("undo", "--yes", ORCHARD_FAILPOINT="undo.after-move:1:kill").process.wait(60)
    mine = users_commit(desk, "goal")

    desk("run", desk.plan(PLAN.replace("a.txt", "b.txt")))

    plan = desk.status(first)["plan"]
    assert (plan["landed"], plan["undone"]) == (False, True)
    assert desk.repo.run("merge-base", "--is-ancestor", mine, "goal").status == 0
    assert before != desk.repo.head("goal") and "a.txt" not in desk.repo.files("goal")


def test_a_landing_that_was_undone_before_its_plan_was_over_does_not_come_back(desk: Desk) -> None:
    desk.repo("branch", "goal")
    before = desk.repo.head("goal")
    desk.start("run", desk.plan(PLAN), ORCHARD_FAILPOINT="landing.after-done:1:kill").process.wait(60)

    undone = desk("undo", "--yes")
    resumed = desk("resume")

    assert undone.code == 0, undone.talk
    assert resumed.code == 0, resumed.talk
    assert desk.repo.head("goal") == before
    assert desk.status()["plan"]["undone"] is True


def test_what_a_list_counts_of_a_canceled_plan_is_what_became_of_its_jobs(desk: Desk) -> None:
    jobs = "[{id: a, work: 'exit 3'}, {id: b, needs: [a], work: 'echo b > b.txt'}]"
    desk("run", desk.plan(f"name: Half\ntarget: goal\njobs: {jobs}\n"))

    desk("cancel")

    assert desk("list", "--json").json[0]["counts"] == desk.status()["plan"]["counts"]


def test_a_plan_that_landed_and_was_interrupted_can_be_deleted(desk: Desk) -> None:
    desk.repo("branch", "goal")
    desk.start("run", desk.plan(PLAN), ORCHARD_FAILPOINT="landing.after-done:1:kill").process.wait(60)

    deleted = desk("delete", "--yes")

    assert deleted.code == 0, deleted.talk
    assert "a.txt" in desk.repo.files("goal")
    assert len(desk.events("Landed")) == 1


@pytest.mark.parametrize("when", ["before-recovery", "after-recovery"])
def test_an_attempt_whose_folder_is_gone_does_not_run_its_work_again(desk: Desk, when: str) -> None:
    runs = desk.folder / "runs"
    plan = desk.plan(f"name: One\ntarget: goal\njobs: [{{id: a, work: 'echo run >> {runs}; echo a > a.txt'}}]\n")
    owner = stopped_at(desk, "keep.before-hold", "run", plan)
    until(lambda: any('"phase":"commit"' in body for *_, body in desk.events("PhaseStarted")), "the commit")
    owner.process.kill()
    owner.process.wait(10)
    if when == "after-recovery":
        assert desk("pause").code == 0
    for folder in (desk.repo.path / ".worktrees").iterdir():
        shutil.rmtree(folder)

    resumed = desk("resume")

    assert runs.read_text() == "run\n"
    assert resumed.code == 1 and "interrupted" in resumed.talk, resumed.talk
    assert desk("retry").code == 0
    assert desk.status()["plan"]["landed"] is True
