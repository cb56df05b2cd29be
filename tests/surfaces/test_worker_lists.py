"""`workers` and `talk` at a terminal, and the six steps by which an orchestrator is tried out, with a real program."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orchard.testing import Repo
from tests.nursery import command

AGENT = """
n=$(ls -d turn* 2>/dev/null | wc -l)
grep -c . "$1" > "turn$n"
echo "Shall I go on after turn $n?"
"""
PLAN = """
name: Feature X
deploy: manual
jobs:
  - {id: first, work: {instructions: Write the first, interactive: true}}
"""
SECOND = '[{"op": "add", "job": {"id": "second", "needs": ["first"], "work": "@agent Write the second"}}]'

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo")
    made("checkout", "-q", "-b", "work")
    (tmp_path / "agent.sh").write_text(AGENT)
    (tmp_path / "plan.yaml").write_text(PLAN)
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "orchard" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(f"agent = 'scribe'\n[agents.scribe]\ncommand = \"sh {tmp_path}/agent.sh {{prompt_file}}\"\n")
    return made


@pytest.fixture
def orchard(repo: Repo) -> Run:
    def run(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return command(*args, cwd=repo.path, stdin=stdin, seconds=60)

    return run


def test_a_plan_is_saved_extended_listed_deployed_watched_and_completed(
    orchard: Run, repo: Repo, tmp_path: Path
) -> None:
    saved = orchard("run", str(tmp_path / "plan.yaml"))  # 1
    assert saved.returncode == 4, saved.stderr
    plan = json.loads(orchard("list", "--json").stdout)[0]["id"]
    assert orchard("reshape", plan, "-", stdin=SECOND).returncode == 0  # 2

    listed = orchard("workers").stdout  # 3
    assert f"{plan}  Feature X  waiting" in listed
    assert "first  pending  agent  waits to be deployed" in listed
    assert "second  pending  agent  waits to be deployed  after first" in listed

    assert orchard("deploy", "first").returncode == 4  # 4
    watched = orchard("workers").stdout  # 5
    assert "first  idle  scribe" in watched and "says: Shall I go on after turn 0?" in watched
    assert "second  pending  agent  waits to be deployed" in watched
    assert "No worker is running." in orchard("workers", "--state", "running").stdout

    assert orchard("send", "first", "And the tests").returncode == 4
    assert orchard("complete", "first", "--result", "Both are there").returncode == 4  # 6
    done = orchard("complete", "second", "--result", "Was there already")
    assert done.returncode == 0, done.stderr

    assert json.loads(orchard("status", plan, "--json").stdout)["plan"]["status"] == "succeeded"
    assert "called done Both are there" in " ".join(orchard("job", "first").stdout.split())
    talk = [json.loads(row) for row in orchard("talk", "first", "--json").stdout.splitlines()]
    assert [one["kind"] for one in talk] == ["task", "words", "message", "words", "done"]
    assert [one["text"] for one in talk][::2] == ["Write the first", "And the tests", "Both are there"]
    told = orchard("talk", "first").stdout
    assert "person to agent  message\n    And the tests\n" in told
    later = orchard("talk", "first", "--since", str(talk[2]["seq"]), "--json").stdout.splitlines()
    assert [json.loads(row)["kind"] for row in later] == ["words", "done"]
    over = json.loads(orchard("workers", "--plan", plan, "--json").stdout)
    assert [(one["job"], one["state"]) for one in over["workers"]] == [("first", "completed"), ("second", "completed")]


def test_workers_of_all_repositories_are_listed_with_where_they_are(orchard: Run, repo: Repo, tmp_path: Path) -> None:
    other = Repo.make(tmp_path / "other")
    other("checkout", "-q", "-b", "work")
    for place in (repo, other):
        assert command("run", str(tmp_path / "plan.yaml"), cwd=place.path, stdin="", seconds=60).returncode == 4

    here = json.loads(orchard("workers", "--json").stdout)
    everywhere = json.loads(orchard("workers", "--all", "--json").stdout)

    assert [one["repository"] for one in here["plans"]] == [None]
    assert {one["repository"] for one in everywhere["plans"]} == {str(repo.path), str(other.path)}
    assert everywhere["plans"][0]["repository"] == str(repo.path), "one's own comes first"
    both = orchard("workers", "--all", "--plan", here["plans"][0]["plan"])
    assert (both.returncode, "exclude each other" in both.stderr) == (2, True)


def test_where_no_plan_is_under_way_that_is_said(orchard: Run) -> None:
    assert "No plan is under way" in orchard("workers").stdout


ROLES = """
name: Roles
deploy: manual
jobs:
  - {id: idle, work: {instructions: Write it, interactive: true, tools: [read_file, bash], max_turns: 3}}
  - {id: checked, work: "@architect Design it", postchecks: "false", heal: false}
  - {id: later, needs: [idle], work: "@agent Later"}
"""
ARCHITECT = "---\nname: architect\ndescription: Designs\n---\nBe careful.\n"


def test_workers_show_definitions_and_failures_and_a_pending_task_that_was_called_done(
    orchard: Run, repo: Repo, tmp_path: Path
) -> None:
    repo.commit({".claude/agents/architect.md": ARCHITECT})
    (tmp_path / "plan.yaml").write_text(ROLES)
    orchard("run", str(tmp_path / "plan.yaml"))
    orchard("deploy", "idle")
    orchard("deploy", "checked")
    done = orchard("complete", "later", "--result", "Was there already")
    assert "later  called done  it runs nothing: Was there already" in done.stdout

    listed = orchard("workers").stdout
    assert "checked  completed, job failed  scribe as architect" in listed
    assert "failed: 'false' exited with 1." in listed
    assert "later  completed, job pending  agent" in listed and "says: Was there already" in listed
    rows = {one["job"]: one for one in json.loads(orchard("workers", "--json").stdout)["workers"]}
    assert (rows["checked"]["definition"], rows["checked"]["status"]) == ("architect", "failed")
    assert "exited with 1" in rows["checked"]["error"] and rows["idle"]["error"] is None

    status = " ".join(orchard("status").stdout.split())
    assert "later called done" in status
    assert "It was called done, and runs nothing, after idle: Was there already" in status
    page = orchard("job", "idle").stdout
    assert "interactive: true" in page and "tools: [read_file, bash]" in page and "True" not in page
    checked = orchard("job", "checked").stdout
    assert "scribe as architect work  done" in checked and "archite~" not in checked
    assert "worker      scribe as architect completed" in checked

    waiting = orchard("waiting").stdout
    for offered in ("complete idle", "send idle MESSAGE", "pause", "cancel idle"):
        assert f"orchard {offered}" in waiting, waiting
    (item,) = [one for one in json.loads(orchard("waiting", "--json").stdout) if one["job"] == "idle"]
    operations = [step["operation"] for step in item["next"]]
    assert operations == ["complete_task", "send_message", "pause_worker", "cancel_job"]
