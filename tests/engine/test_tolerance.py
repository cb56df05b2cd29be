"""Work that may fail: run again in a clean worktree, or passed over by the rest of the plan."""

from pathlib import Path

import pytest

from orchard.errors import UsageError
from orchard.model.events.plans import JobFailed, WorkRepeated, WorktreeTaken
from tests.engine.conftest import Orchard, job, statuses

pytestmark = pytest.mark.anyio


def flaky(folder: Path, fails: int) -> str:
    """Work that fails so many times, and leaves a file each time."""
    count = folder / "count"
    return f"echo x >> {count}; test ! -e left.txt || exit 9; echo mine > left.txt; [ $(wc -l < {count}) -gt {fails} ]"


async def test_work_that_fails_is_run_again_in_a_clean_worktree(orchard: Orchard, tmp_path: Path) -> None:
    done = await orchard.run(f"""
        name: Flaky
        setup: [touch ready.txt]
        jobs: [{{id: a, retries: 2, heal: false, work: "{flaky(tmp_path, 2)}"}}]
    """)

    assert done["plan"]["status"] == "succeeded", job(done, "a")["error"]
    assert (tmp_path / "count").read_text() == "x\nx\nx\n"
    assert orchard.repo.files("work")["left.txt"] == "mine\n"
    assert job(done, "a")["attempts"] == 1
    taken = [event for event in orchard.events(WorktreeTaken) if event.job == "a"]
    assert len(taken) == 3, "what a run before had left was saved, and another worktree taken"
    repeated = orchard.events(WorkRepeated)
    assert [(event.run, event.most) for event in repeated] == [(2, 3), (3, 3)]
    assert all("exited with 1" in event.why for event in repeated)


async def test_the_last_failure_counts_when_every_run_failed(orchard: Orchard, tmp_path: Path) -> None:
    done = await orchard.run(f"""
        name: Broken
        jobs: [{{id: a, retries: 1, heal: false, work: "{flaky(tmp_path, 5)}"}}]
    """)

    assert job(done, "a")["status"] == "failed" and job(done, "a")["reason"] == "exit"
    assert (tmp_path / "count").read_text() == "x\nx\n"


async def test_others_go_on_as_if_a_job_that_may_fail_had_changed_nothing(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Tolerant
        jobs:
          - {id: first, work: echo 1 > first.txt}
          - {id: may, needs: [first], allow_failure: true, heal: false, work: echo 2 > may.txt, postchecks: "false"}
          - {id: last, needs: [may], work: "test ! -e may.txt && cat first.txt > last.txt"}
    """)

    assert statuses(done) == {"first": "succeeded", "may": "failed", "last": "succeeded"}
    assert (done["plan"]["status"], done["plan"]["landed"]) == ("succeeded", True)
    files = orchard.repo.files("work")
    assert {"first.txt", "last.txt"} <= set(files) and "may.txt" not in files
    [failed] = orchard.events(JobFailed)
    assert failed.stand_in == job(done, "first")["commit"] and job(done, "may")["allowed"]


async def test_a_job_that_the_plan_went_on_without_is_not_retried(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Tolerant and red
        verify: "false"
        jobs: [{id: may, allow_failure: true, heal: false, work: exit 3}, {id: b, work: echo b > b.txt}]
    """)
    assert done["plan"]["status"] == "failed"

    with pytest.raises(UsageError, match="went on without it"):
        await orchard.ask("retry_plan", plan=done["plan"]["id"], jobs=["may"])


async def test_what_a_last_job_that_may_fail_needs_lands_without_it(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Tolerant leaf
        jobs:
          - {id: one, work: echo 1 > one.txt}
          - {id: two, work: echo 2 > two.txt}
          - {id: may, needs: [one, two], allow_failure: true, heal: false, work: "echo 3 > three.txt; exit 3"}
    """)

    assert (done["plan"]["status"], done["plan"]["landed"]) == ("succeeded", True)
    assert job(done, "may")["status"] == "failed" and job(done, "may")["error"]
    files = orchard.repo.files("work")
    assert {"one.txt", "two.txt"} <= set(files) and "three.txt" not in files


async def test_needs_that_conflict_are_no_failure_of_the_job_that_may_fail(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Conflict
        resolver: fail
        jobs:
          - {id: one, work: echo 1 > same.txt}
          - {id: two, work: echo 2 > same.txt}
          - {id: may, needs: [one, two], allow_failure: true, work: "true"}
    """)

    assert done["plan"]["status"] == "failed" and not done["plan"]["landed"]
    assert job(done, "may")["failed_phase"] == "merge-fi"


async def test_a_plan_blames_the_job_that_stopped_it_and_not_one_that_was_allowed_to_fail(orchard: Orchard) -> None:
    done = await orchard.run("""
        name: Blamed
        verify: "false"
        jobs:
          - {id: flaky, allow_failure: true, heal: false, work: "false"}
          - {id: fine, work: echo 1 > fine.txt}
    """)

    error = done["plan"]["error"]
    assert done["plan"]["status"] == "failed"
    assert "flaky" not in error and "more failed" not in error
    assert "verify" in error
