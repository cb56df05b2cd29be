"""From nothing to landed: tasks without a file, the usual plan file, a look before, and a part of a plan."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.git.merge.memory import SHARED, remember
from orchard.git.repository import find_repository
from orchard.surfaces.cli.commands.plans.tasks import plan_of_tasks
from tests.acceptance.program import Desk, desks

PLAN = """
name: Greet ${{ who }}
target: goal
params: {who: Ada}
jobs:
  - {id: greet, work: "echo hello ${{ who }} $MARK > greet.txt"}
  - {id: count, group: more, needs: [greet], work: "wc -c < greet.txt > count.txt"}
  - {id: other, work: "echo other > other.txt"}
"""
AGENT = """
agent = "mine"
[agents.mine]
command = "sh"
args = ["-c", "cat > \\"$ORCHARD_JOB.txt\\"; echo done", "{prompt}"]
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    yield from desks(tmp_path)


def test_run_without_a_file_runs_the_usual_one(desk: Desk) -> None:
    missing = desk("run")
    assert missing.code == 2 and "There is no file plan.yaml" in missing.err and "orchard init" in missing.err

    (desk.repo.path / "plan.yaml").write_text(PLAN)
    done = desk("run", "-e", "MARK=1", "-p", "who=Bob")

    assert done.code == 0, done.talk
    assert desk.repo.files("goal")["greet.txt"] == "hello Bob 1\n"
    assert desk("validate").code == 0


def test_a_dry_run_shows_everything_and_starts_nothing(desk: Desk) -> None:
    plan = desk.plan(PLAN)
    before = desk.fingerprint()

    done = desk("run", plan, "--dry-run", "--json")
    shown = desk("run", plan, "-n").out

    assert done.code == 0 and done.json["dry_run"] is True
    assert done.json["steps"] == [["greet", "other"], ["more/count"]]
    assert done.json["target"] == {"branch": "goal", "exists": False}
    for part in ("Greet Ada", "after greet", "echo hello Ada $MARK > greet.txt", "goal", "Nothing was started"):
        assert part in shown, part
    assert desk.fingerprint() == before


def test_a_dry_run_says_what_earlier_work_spares_the_run(desk: Desk) -> None:
    plan = desk.plan(PLAN)
    before = desk("run", plan, "-n", "--json").json
    (desk.repo.path / "node_modules").mkdir()
    remember(find_repository(desk.repo.path), SHARED, "0" * 64, desk.repo("rev-parse", "HEAD:README.md").strip())
    desk.env["ORCHARD_WORKTREE_COPY"] = "node_modules,absent"

    after, shown = desk("run", plan, "-n", "--json").json, desk("run", plan, "-n").out

    assert (before["copies"], before["resolved_before"], before["reused"]) == ([], False, [])
    assert (after["copies"], after["resolved_before"]) == (["node_modules"], True)
    assert "Every job would run; none is reused." in shown and "a copy of node_modules from" in shown
    assert "would be resolved the same way" in shown


def test_only_runs_what_is_named_and_what_it_needs(desk: Desk) -> None:
    plan = desk.plan(PLAN)

    done = desk("run", plan, "--only", "more")

    assert done.code == 0, done.talk
    assert {"greet.txt", "count.txt"} <= set(desk.repo.files("goal")) and "other.txt" not in desk.repo.files("goal")
    wrong = desk("run", plan, "--only", "grete")
    assert wrong.code == 2 and "is no job; did you mean 'greet'?" in wrong.err


@pytest.mark.parametrize("words", [("-e", "=1"), ("-e", "NOT_SET_HERE"), ("-p", "who"), ("-p", "a=1", "-p", "a=2")])
def test_a_value_that_is_none_is_refused(desk: Desk, words: tuple[str, ...]) -> None:
    assert desk("run", desk.plan(PLAN), *words).code == 2


def test_uncommitted_files_are_told(desk: Desk) -> None:
    (desk.repo.path / "README.md").write_text("mine\n")

    done = desk("run", desk.plan(PLAN))

    assert done.code == 0 and "1 uncommitted file is not part of this run." in done.talk


def test_tasks_run_at_once_and_land_without_a_file(desk: Desk, tmp_path: Path) -> None:
    config = tmp_path / "config" / "orchard"
    config.mkdir(parents=True, exist_ok=True)
    (config / "config.toml").write_text(AGENT)

    done = desk("do", "Fix the flaky test", "@mine Write the docs", "--verify", "ls *.txt", "--target", "goal")

    assert done.code == 0, done.talk
    assert {"fix-the-flaky-test.txt", "write-the-docs.txt"} <= set(desk.repo.files("goal"))
    subjects = desk.repo("log", "--format=%s", "goal", "^HEAD").splitlines()
    assert sorted(subjects) == ["Fix the flaky test", "Write the docs"]
    assert desk.status()["plan"]["name"] == "Fix the flaky test and 1 more"


def test_tasks_get_ids_and_names_that_say_what_they_are_about() -> None:
    long = "Make " + "very " * 40 + "sure"
    made = plan_of_tasks(
        ["# Ünïcode\nbody", "Same", "Same", long, "日本語"], agent="a", model=None, checks=("make",), name=None, env={}
    )

    ids = [job["id"] for job in made["jobs"]]
    assert ids[:3] == ["unicode", "same", "same-2"] and len(set(ids)) == 5
    assert made["name"] == "Ünïcode and 4 more"
    assert all(len(job["name"]) <= 72 and job["postchecks"] == ["make"] for job in made["jobs"])
    assert made["jobs"][0]["work"] == {"type": "agent", "instructions": "# Ünïcode\nbody", "agent": "a"}
    assert "env" not in made


def test_an_empty_task_is_refused(desk: Desk) -> None:
    assert desk("do", " ").code == 2
    assert desk("do").code == 2
