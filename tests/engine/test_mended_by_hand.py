"""What a person edits in the worktree of a failed check counts when the job is tried again, and is what lands."""

from pathlib import Path

import pytest

from orchard.model.events.plans import WorkSaved
from orchard.model.plan import VALIDATION
from tests.engine.conftest import Orchard, job

pytestmark = pytest.mark.anyio

PLAN = """
    name: Verify
    verify: {{command: "{verify}", on_failure: {{heal: false}}}}
    jobs: [{{id: a, work: "echo bad > a.txt"}}]
"""


def folder_of(orchard: Orchard, name: str = VALIDATION) -> Path:
    return Path(job(orchard.status(), name)["worktree"])


async def test_edits_after_a_failed_verify_are_verified_and_land(orchard: Orchard) -> None:
    plan = PLAN.format(verify="echo left >> made.log; grep -q best a.txt")
    assert (await orchard.run(plan))["plan"]["status"] == "failed"

    (folder_of(orchard) / "a.txt").write_text("better\n")
    assert (await orchard.ask("retry_plan"))["plan"]["status"] == "failed"
    (folder_of(orchard) / "a.txt").write_text("best\n")
    status = await orchard.ask("retry_plan")

    assert status["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["a.txt"] == "best\n"
    notes = [phase["note"] for phase in orchard.attempts(VALIDATION)[-1]["phases"]]
    assert "what was edited in its worktree becomes a part of the merged result" in notes


async def test_what_verify_itself_left_is_no_edit(orchard: Orchard) -> None:
    plan = PLAN.format(verify="test ! -e left || exit 3; touch left; test -e GO")
    go = orchard.repo.path.parent / "go"
    assert (await orchard.run(plan.replace("GO", str(go))))["plan"]["status"] == "failed"
    go.touch()

    status = await orchard.ask("retry_plan")

    assert status["plan"]["status"] == "succeeded", "it was checked in a worktree without what it left"
    assert "left" not in orchard.repo.files("work")


async def test_edits_of_a_merged_result_that_is_another_one_now_are_saved_and_do_not_count(orchard: Orchard) -> None:
    go = orchard.repo.path.parent / "go"
    plan = PLAN.format(verify=f"test -e {go}")
    assert (await orchard.run(plan))["plan"]["status"] == "failed"
    (folder_of(orchard) / "a.txt").write_text("mine\n")
    (orchard.repo.path / "other.txt").write_text("moved\n")
    orchard.repo("add", "other.txt")
    orchard.repo("commit", "-qm", "the target moves")
    go.touch()

    status = await orchard.ask("retry_plan")

    assert status["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["a.txt"] == "bad\n"
    saved = [one for one in orchard.events(WorkSaved) if one.job == VALIDATION]
    assert any(orchard.repo.files(one.ref)["a.txt"] == "mine\n" for one in saved)


async def test_edits_after_failed_postchecks_are_checked_and_land(orchard: Orchard) -> None:
    plan = """
        name: Checked
        jobs: [{id: a, heal: false, work: "echo bad > a.txt", postchecks: "grep -q good a.txt"}]
    """
    assert (await orchard.run(plan))["plan"]["status"] == "failed"
    (folder_of(orchard, "a") / "a.txt").write_text("good\n")

    assert (await orchard.ask("retry_plan"))["plan"]["status"] == "succeeded"
    assert orchard.repo.files("work")["a.txt"] == "good\n"
