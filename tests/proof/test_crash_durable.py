"""What a power cut may not take: that the disk is asked to keep it, and that half of a batch counts for nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from orchard.git.refs import Update, update_refs
from orchard.git.repository import find_repository
from orchard.model.events.plans import JobFailed, PlanPaused
from orchard.model.plan import PlanId
from orchard.store.journal import Journal
from orchard.store.reader import read
from orchard.testing import Repo
from tests.engine.conftest import Orchard, until
from tests.engine.test_crash import finish, run_cli

PLAN = PlanId("p1")


def syncs(trace: Path) -> int:
    """How often git asked the disk to keep something, as git itself tells."""
    rows = [json.loads(row) for row in trace.read_text().splitlines()] if trace.exists() else []
    return sum(int(row["value"]) for row in rows if row.get("category") == "fsync")


def test_git_syncs_objects_and_refs(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo")
    git = find_repository(repo.path).git
    traced = {name: tmp_path / name for name in ("object", "ref")}

    git.with_environment(GIT_TRACE2_EVENT=str(traced["object"]))("hash-object", "-w", "--stdin", stdin=b"new\n")
    watched = git.with_environment(GIT_TRACE2_EVENT=str(traced["ref"]))
    update_refs(watched, [Update("refs/orchard/keep/p/a/1", repo.head(), None)], "keep")

    assert syncs(traced["object"]) >= 1
    assert syncs(traced["ref"]) >= 1


def test_the_name_of_a_new_journal_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []
    sync = os.fsync

    def watch(fd: int) -> None:
        synced.append(os.path.realpath(f"/proc/self/fd/{fd}"))
        sync(fd)

    monkeypatch.setattr(os, "fsync", watch)
    with Journal.open(tmp_path / "state" / "journal.db"):
        pass

    assert str(tmp_path / "state") in synced


WRITER = """
import sys
from pathlib import Path
from msgspec.structs import replace
from orchard.core.views.documents import bare_summary
from orchard.model.events.plans import JobFailed, PlanPaused
from orchard.model.plan import PlanId
from orchard.store.journal import Journal
from orchard.store.plan_list import PlanRow

with Journal.open(Path(sys.argv[1])) as journal:
    for size in (1, 300):
        for number in range(size):
            shown = replace(bare_summary("p1", "n", "running", 1.0), error=str(number))
            row = PlanRow(PlanId("p1"), "n", 1.0, 0, "running", False, shown)
            journal.append(PlanId("p1"), PlanPaused(str(number)), 1.0, row)
        journal.flush()
"""


def test_a_half_written_batch_is_not_replayed(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    done = subprocess.run(
        [sys.executable, "-c", WRITER, str(path)],
        env={**os.environ, "ORCHARD_FAILPOINT": "journal.half-written:2:kill"},
        check=False,
        timeout=60,
    )

    assert done.returncode == -9
    with read(path) as reader:
        assert [one.event for one in reader.events()] == [PlanPaused("0")]
        assert [row.summary.error for row in reader.plans()] == ["0"]
    with Journal.open(path) as journal:
        assert journal.append(PLAN, PlanPaused(), 1.0) == 2


TELLER = """
import asyncio, sys
from pathlib import Path
from orchard.model.events.plans import PlanPaused
from orchard.model.plan import PlanId
from orchard.store.journal import Journal

async def main():
    with Journal.open(Path(sys.argv[1])) as journal:
        for number in range(3):
            await journal.durable(journal.append(PlanId("p1"), PlanPaused(), 1.0))
            print(number, flush=True)

asyncio.run(main())
"""


def test_nobody_is_told_while_the_disk_is_still_at_work(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    done = subprocess.run(
        [sys.executable, "-c", TELLER, str(path)],
        env={**os.environ, "ORCHARD_FAILPOINT": "journal.before-commit:2:sleep=1,journal.before-commit:2:kill"},
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stdout) == (-9, b"0\n")
    with read(path) as reader:
        assert reader.last_seq() == 1


@pytest.mark.anyio
async def test_a_program_starts_only_when_the_disk_knows_of_it(tmp_path: Path) -> None:
    orchard = Orchard(Repo.make(tmp_path / "repo"))
    runs, plan = tmp_path / "runs", tmp_path / "plan.yaml"
    plan.write_text(f"""
name: Slow disk
jobs: [{{id: a, work: "echo attempt $ORCHARD_ATTEMPT >> {runs}; echo a > a.txt"}}]
""")
    slow = ",".join(f"journal.before-commit:{number}:sleep=0.4" for number in range(1, 12))

    killed = run_cli(orchard, "run", str(plan), failpoint=f"{slow},process.after-spawn:1:kill")
    await until(runs.exists)
    await finish(orchard)

    assert killed.returncode == -9
    assert orchard.status()["plan"]["status"] == "succeeded"
    assert runs.read_text() == "attempt 1\nattempt 2\n"


@pytest.mark.anyio
async def test_work_does_not_leave_its_folder(tmp_path: Path) -> None:
    orchard = Orchard(Repo.make(tmp_path / "repo"))
    (tmp_path / "elsewhere").mkdir()

    done = await orchard.run(f"""
        name: Out
        jobs:
          - id: a
            prechecks: "ln -s {tmp_path}/elsewhere door"
            work: {{type: shell, command: "echo out > made.txt", cwd: door}}
        """)

    assert done["plan"]["status"] == "failed"
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.anyio
async def test_the_last_lines_of_a_failure_show_no_secret(tmp_path: Path) -> None:
    orchard = Orchard(Repo.make(tmp_path / "repo"))

    done = await orchard.run("""
        name: Secret
        env: {DEPLOY_TOKEN: correct-horse-battery}
        jobs: [{id: a, work: "echo using $DEPLOY_TOKEN; exit 1"}]
        """)

    (failed,) = orchard.events(JobFailed)
    assert done["plan"]["status"] == "failed"
    assert "using" in failed.tail
    assert "correct-horse-battery" not in json.dumps(done) + failed.tail
