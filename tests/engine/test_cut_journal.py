"""A crash that leaves only the first of two events that belong together, and what the next engine makes of it."""

import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest

from orchard.errors import OrchardError
from orchard.model.events.plans import JobFailed, JobSucceeded
from tests.engine.conftest import Orchard, job

pytestmark = pytest.mark.anyio


def cut_after(orchard: Orchard, name: str, *words: str) -> None:
    """Lose everything that was recorded after the last event of this kind that holds these words."""
    with closing(sqlite3.connect(orchard.repo.path / ".git/orchard/journal.db")) as journal, journal:
        rows = journal.execute("SELECT seq, body FROM events WHERE name = ? ORDER BY seq", (name,)).fetchall()
        last = [seq for seq, body in rows if all(word in body for word in words)][-1]
        assert journal.execute("DELETE FROM events WHERE seq > ?", (last,)).rowcount > 0
        journal.execute("UPDATE plans SET settled = 0, status = 'running'")


async def test_an_approval_is_still_asked_for_when_the_hold_was_lost(orchard: Orchard, tmp_path: Path) -> None:
    await orchard.run(f"""
        name: Look first
        jobs: [{{id: a, approve: true, work: "echo x >> {tmp_path}/runs; echo a > a.txt"}}]
    """)
    cut_after(orchard, "PhaseEnded", '"a"', "postchecks")

    waiting = await orchard.ask("resume_plan")

    assert waiting["plan"]["status"] == "waiting"
    assert job(waiting, "a")["waiting"]["kind"] == "approval"
    assert orchard.events(JobSucceeded) == []
    assert (await orchard.ask("approve_job", job="a"))["plan"]["status"] == "succeeded"
    assert (tmp_path / "runs").read_text() == "x\n"


async def test_work_that_failed_does_not_succeed_when_its_failure_was_lost(orchard: Orchard, tmp_path: Path) -> None:
    await orchard.run(f"""
        name: Fails
        jobs: [{{id: a, work: "echo x >> {tmp_path}/runs; echo a > a.txt; exit 3"}}]
    """)
    cut_after(orchard, "PhaseEnded", '"a"', "work")

    resumed = await orchard.ask("resume_plan")

    assert resumed["plan"]["status"] == "failed"
    assert [failed.reason for failed in orchard.events(JobFailed)] == ["interrupted"]
    assert (tmp_path / "runs").read_text() == "x\n"


async def test_a_cancel_that_was_cut_short_is_completed_and_can_be_retried(orchard: Orchard) -> None:
    await orchard.run("name: Later\nstart_paused: true\njobs: [{id: a, work: echo a > a.txt}]")
    await orchard.ask("cancel_plan")
    cut_after(orchard, "PlanCanceled")

    assert (await orchard.ask("retry_plan"))["plan"]["status"] == "succeeded"


async def test_a_cancel_that_was_cut_short_is_listed_as_it_is_when_completed(orchard: Orchard) -> None:
    await orchard.run("name: Later\nstart_paused: true\njobs: [{id: a, work: echo a > a.txt}]")
    await orchard.ask("cancel_plan")
    with closing(sqlite3.connect(orchard.repo.path / ".git/orchard/journal.db")) as journal, journal:
        # As it is between the two commits: the plan is canceled, and its row still counts jobs that are not.
        journal.execute("DELETE FROM events WHERE name = 'JobCanceled'")
        journal.execute(
            """UPDATE plans SET summary = json_set(summary, '$.counts', json('{"ready": 1, "total": 1}'))"""
        )

    with suppress(OrchardError):
        await orchard.ask("cancel_plan")

    assert [row.summary.counts for row in orchard.app.reader.plans()] == [orchard.status()["plan"]["counts"]]


async def test_work_is_not_run_again_when_a_crash_comes_while_its_attempt_goes_on(
    orchard: Orchard, tmp_path: Path
) -> None:
    await orchard.run(f"""
        name: Look first
        land: ask
        jobs: [{{id: a, approve: true, work: "echo x >> {tmp_path}/runs; echo a > a.txt"}}]
    """)
    await orchard.ask("approve_job", job="a")
    cut_after(orchard, "PhaseStarted", '"a"', "merge-fi")

    waiting = await orchard.ask("resume_plan")

    assert waiting["plan"]["status"] == "waiting"
    assert job(waiting, "a")["status"] == "succeeded"
    assert (tmp_path / "runs").read_text() == "x\n"


async def test_what_is_added_to_a_validated_plan_is_validated_before_it_lands(orchard: Orchard) -> None:
    before = orchard.repo.head("work")
    await orchard.run("name: Ask\nland: ask\nverify: test ! -e bad.txt\njobs: [{id: a, work: echo a > a.txt}]")

    change = {"op": "add", "job": {"id": "b", "work": "echo b > bad.txt"}}
    done = await orchard.ask("reshape_plan", changes=[change])

    assert done["plan"]["status"] == "failed"
    assert job(done, "__snapshot-validation__")["failed_phase"] == "work"
    assert orchard.repo.head("work") == before
