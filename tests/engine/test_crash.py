"""kill -9 at any moment: nothing is lost, nothing lands twice, and the plan can be brought to its end."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from orchard.model.events.plans import JobFailed, Landed, WorkSaved
from orchard.surfaces.cli.render.text import moment
from tests.engine.conftest import Orchard, statuses, until
from tests.nursery import command

pytestmark = pytest.mark.anyio

PLAN = """
name: Crash
verify: cat a.txt b.txt c.txt
jobs:
  - {id: a, work: "echo a > a.txt; sed -i s/5/five/ shared.txt"}
  - {id: b, needs: [a], work: "echo b > b.txt; sed -i s/1/one/ shared.txt"}
  - {id: c, needs: [a], work: "echo c > c.txt; sed -i s/9/nine/ shared.txt", postchecks: "true"}
"""

# One of each kind; `tests/proof` kills at every place, in every kind of plan.
IN_RUN = (
    "journal.before-commit", "process.after-spawn", "worktree.before-release", "commit.after",
    "snapshot.after-publish", "landing.before-move", "landing.after-move",
)  # fmt: skip


def run_cli(
    orchard: Orchard, *args: str, failpoint: str = "", python: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "ORCHARD_FAILPOINT": failpoint}
    if not python:
        return command(*args, cwd=orchard.repo.path, env=env)
    return subprocess.run(
        [sys.executable, *python, *args],
        cwd=orchard.repo.path,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


async def kill_when(orchard: Orchard, plan: Path, condition: Callable[[], bool]) -> None:
    """Run a plan in another process and kill it as soon as something is true."""
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "orchard", "run", str(plan),
        cwd=orchard.repo.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    await until(condition)
    engine.kill()
    await engine.wait()


async def finish(orchard: Orchard) -> None:
    """Do what the hints say until the plan is over."""
    app = orchard.app
    if not app.plans():
        return
    async with app.session(work=False):
        pass  # what an engine does first
    if orchard.status()["plan"]["status"] not in ("succeeded", "failed"):
        await orchard.ask("resume_plan")
    for _ in range(4):
        if orchard.status()["plan"]["status"] != "failed":
            break
        await orchard.ask("retry_plan")


def check_promises(orchard: Orchard, before: str) -> None:
    status = orchard.status()
    landings = orchard.events(Landed)
    marked = orchard.repo("log", "--format=%H", "--grep=^Orchard-Landing", f"{before}..work").split()
    assert status["plan"]["status"] == "succeeded", status["plan"]["error"]
    assert len(landings) == 1
    assert len(marked) == len(set(marked)) == 2
    assert orchard.repo.files("work")["shared.txt"] == "one\n2\n3\n4\nfive\n6\n7\n8\nnine\n"
    assert orchard.repo("fsck", "--no-dangling", "--no-progress") == ""
    assert orchard.repo("status", "--porcelain") == ""
    assert orchard.repo("worktree", "list", "--porcelain").count("worktree ") == 1
    for one in status["jobs"]:
        if not one["validation"]:
            assert orchard.repo.exists(one["commit"])
    assert [p for p in psutil.process_iter() if _carries_token(p, status["plan"]["id"])] == []


def _carries_token(process: psutil.Process, plan: str) -> bool:
    try:
        return process.environ().get("ORCHARD_TOKEN", "").startswith(plan)
    except psutil.Error:
        return False


@pytest.mark.parametrize("name", IN_RUN)
async def test_a_run_killed_at_a_failpoint_is_brought_to_its_end(orchard: Orchard, tmp_path: Path, name: str) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    before = orchard.repo.head("work")

    killed = run_cli(orchard, "run", str(tmp_path / "plan.yaml"), failpoint=f"{name}:2:kill")

    if killed.returncode != 0:
        assert killed.returncode == -9, killed.stderr
    shown = run_cli(orchard, "status")
    assert shown.returncode in (0, 3), shown.stderr
    if not orchard.app.plans():
        run_cli(orchard, "run", str(tmp_path / "plan.yaml"))
    await finish(orchard)
    check_promises(orchard, before)


async def test_work_interrupted_by_a_crash_is_reported_and_not_run_again(orchard: Orchard, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(f"""
name: Interrupted
jobs: [{{id: a, work: "echo run >> {tmp_path}/runs; echo half > half.txt; sleep 300"}}]
""")
    await kill_when(orchard, tmp_path / "plan.yaml", (tmp_path / "runs").exists)

    looked = orchard.status()
    resumed = await orchard.ask("resume_plan")

    assert looked["plan"]["status"] == "paused"
    assert "resume" in looked["plan"]["hint"]
    assert statuses(looked) == {"a": "failed"}
    assert resumed["plan"]["status"] == "failed"
    assert orchard.events(JobFailed)[0].reason == "interrupted"
    assert orchard.events(JobFailed)[0].message.startswith("interrupted, because"), "the phase is told beside it"
    assert (tmp_path / "runs").read_text() == "run\n"
    assert (Path(resumed["jobs"][0]["worktree"]) / "half.txt").read_text() == "half\n"
    assert [p for p in psutil.process_iter() if _carries_token(p, resumed["plan"]["id"])] == []


async def test_a_silent_job_that_was_killed_with_its_engine_took_as_long_as_it_ran(
    orchard: Orchard, tmp_path: Path
) -> None:
    started = tmp_path / "started"
    (tmp_path / "plan.yaml").write_text(f"""
name: Silent
jobs: [{{id: a, work: "touch {started}; sleep 300"}}]
""")
    await kill_when(
        orchard, tmp_path / "plan.yaml", lambda: started.exists() and time.time() > started.stat().st_mtime + 2.5
    )

    looked, shown = orchard.status(), orchard.attempts("a", None)
    resumed, told = await orchard.ask("resume_plan"), orchard.attempts("a", None)

    assert seconds(looked["jobs"][0]) == seconds(shown[0]) == pytest.approx(seconds(told[0]), abs=0.01)
    assert 1.0 < seconds(told[0]["phases"][-1]) < 2.6
    assert seconds(told[0]) <= seconds(resumed["plan"])
    assert resumed["plan"]["usage"]["job_seconds"] > 1.0
    assert moment(looked["plan"]["idle_since"]) == moment(shown[0]["ended_at"])


def seconds(shown: dict[str, Any]) -> float:
    """How long something took, as every surface counts it."""
    began, ended = moment(shown["started_at"]), moment(shown["ended_at"])
    assert began is not None and ended is not None
    return ended - began - float(shown.get("idle_seconds", 0.0))


async def test_work_interrupted_by_a_crash_is_saved_at_once(orchard: Orchard, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(f"""
name: Interrupted
jobs: [{{id: a, work: "echo half > half.txt; touch {tmp_path}/started; sleep 300"}}]
""")
    await kill_when(orchard, tmp_path / "plan.yaml", (tmp_path / "started").exists)

    await orchard.ask("resume_plan")

    (saved,) = orchard.events(WorkSaved)
    assert orchard.repo.refs("refs/orchard/wip") == {saved.ref: saved.commit}
    assert orchard.repo.files(saved.commit)["half.txt"] == "half\n"


async def test_a_setup_that_was_interrupted_is_run_again(orchard: Orchard, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text("""
name: Interrupted
setup: ["touch ready"]
jobs: [{id: a, work: "test -e ready; echo a > a.txt"}]
""")
    run_cli(orchard, "run", str(tmp_path / "plan.yaml"), failpoint="program.before-start:1:kill")

    await finish(orchard)

    assert orchard.status()["plan"]["status"] == "succeeded"
    assert "ready" in orchard.repo.files("work")


async def test_scratch_files_of_a_killed_engine_go_after_a_while(orchard: Orchard, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    run_cli(orchard, "run", str(tmp_path / "plan.yaml"), failpoint="program.after-end:1:kill")
    run_cli(orchard, "resume", failpoint="wip.before-hold:1:kill")
    scratch = orchard.repo.path / ".git" / "orchard" / "tmp"
    (left,) = scratch.iterdir()
    os.utime(left, (0, 0))

    await finish(orchard)

    assert not left.exists()


async def test_a_landing_again_that_is_killed_is_found_landed(orchard: Orchard, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    run_cli(orchard, "run", str(tmp_path / "plan.yaml"))
    run_cli(orchard, "undo", "--yes")
    plan = orchard.status()["plan"]["id"]
    run_cli(orchard, "land", plan, "--yes", failpoint="checkout.after:1:kill")

    again = run_cli(orchard, "land", plan, "--yes")

    assert again.returncode == 0, again.stderr
    assert orchard.status()["plan"]["landed"] is True


async def test_retry_on_interrupt_runs_the_work_again_by_itself(orchard: Orchard, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(f"""
name: Interrupted
jobs:
  - id: a
    retry_on_interrupt: true
    work: "echo run >> {tmp_path}/runs; test -f {tmp_path}/go || sleep 300; echo a > a.txt"
""")
    await kill_when(orchard, tmp_path / "plan.yaml", (tmp_path / "runs").exists)
    (tmp_path / "go").touch()

    done = await orchard.ask("resume_plan")

    assert done["plan"]["status"] == "succeeded"
    assert (tmp_path / "runs").read_text() == "run\nrun\n"


@pytest.mark.parametrize("again", [True, False])
async def test_a_resume_runs_what_was_cut_off_again_only_if_that_is_asked_for(
    orchard: Orchard, tmp_path: Path, again: bool
) -> None:
    (tmp_path / "plan.yaml").write_text(f"""
name: Interrupted
jobs:
  - {{id: broken, work: "false", heal: false, allow_failure: true}}
  - id: a
    work: "echo run >> {tmp_path}/runs; echo a >> a.txt; test -f {tmp_path}/go || sleep 300"
""")
    await kill_when(orchard, tmp_path / "plan.yaml", (tmp_path / "runs").exists)
    (tmp_path / "go").touch()

    done = await orchard.ask("resume_plan", again=again)

    assert done["plan"]["status"] == ("succeeded" if again else "failed")
    assert (tmp_path / "runs").read_text() == "run\n" * (2 if again else 1)
    assert statuses(done)["broken"] == "failed", "what had failed before is not tried again"
    if again:
        assert orchard.repo.files("work")["a.txt"] == "a\n"


async def test_what_is_to_run_again_never_stays_failed_when_recovery_is_killed(
    orchard: Orchard, tmp_path: Path
) -> None:
    (tmp_path / "plan.yaml").write_text(f"""
name: Interrupted
jobs:
  - id: a
    retry_on_interrupt: true
    work: "echo run >> {tmp_path}/runs; test -f {tmp_path}/go || sleep 300; echo a > a.txt"
""")
    await kill_when(orchard, tmp_path / "plan.yaml", (tmp_path / "runs").exists)
    (tmp_path / "go").touch()
    # Whoever is slow to record gives the journal time to commit each event by itself.
    slow = "import time, orchard.__main__ as o, orchard.store.journal as j; record = j.Journal.append; "
    slow += "j.Journal.append = lambda *a, **k: (record(*a, **k), time.sleep(0.05))[0]; o.program()"

    for nth in (1, 2, 3):
        killed = run_cli(orchard, "resume", failpoint=f"journal.after-commit:{nth}:kill", python=("-c", slow))
        assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = await orchard.ask("resume_plan")

    assert done["plan"]["status"] == "succeeded"


async def test_recovery_that_is_killed_itself_can_be_repeated(orchard: Orchard, tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    before = orchard.repo.head("work")
    run_cli(orchard, "run", str(tmp_path / "plan.yaml"), failpoint="program.after-end:2:kill")

    for name in ("recovery.before-job", "recovery.after-job", "recovery.before-stray", "journal.before-commit"):
        run_cli(orchard, "resume", failpoint=f"{name}:1:kill")
    await finish(orchard)

    check_promises(orchard, before)


@pytest.mark.parametrize("name", ["undo.before-move", "undo.after-move"])
async def test_an_undo_that_is_killed_happens_once_or_not_at_all(orchard: Orchard, tmp_path: Path, name: str) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    before = orchard.repo.head("work")
    run_cli(orchard, "run", str(tmp_path / "plan.yaml"))
    landed = orchard.repo.head("work")

    run_cli(orchard, "undo", "--yes", failpoint=f"{name}:1:kill")
    there = orchard.repo.head("work")
    again = run_cli(orchard, "undo", "--yes")

    assert there == (landed if name == "undo.before-move" else before)
    assert again.returncode == 0, again.stderr
    assert orchard.repo.head("work") == before
    assert orchard.status()["plan"]["undone"] is True


async def test_a_target_deleted_after_a_crash_is_not_made_again(orchard: Orchard, tmp_path: Path) -> None:
    orchard.repo("branch", "goal")
    (tmp_path / "plan.yaml").write_text(f"{PLAN}target: goal\n")
    run_cli(orchard, "run", str(tmp_path / "plan.yaml"), failpoint="landing.before-move:1:kill")
    orchard.repo("branch", "-D", "goal")

    done = await orchard.ask("resume_plan")

    assert done["plan"]["status"] == "failed"
    assert "does not exist any more" in done["plan"]["error"]
    assert not orchard.repo.exists("refs/heads/goal")
