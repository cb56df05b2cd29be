"""`deploy`, `send`, `interrupt` and `complete`, as a person at a terminal uses them; the agent is a real program."""

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
if grep -q SLOW "$1"; then touch MARKS/slow; sleep 60; fi
echo "Shall I go on after turn $n?"
"""
PLAN = """
name: Talk
deploy: manual
jobs:
  - {id: a, work: {instructions: Write a, interactive: true}}
  - {id: b, needs: [a], work: echo b > b.txt}
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo")
    made("checkout", "-q", "-b", "work")
    (tmp_path / "agent.sh").write_text(AGENT.replace("MARKS", str(tmp_path)))
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


def test_a_plan_is_deployed_talked_about_and_completed_from_the_command_line(
    orchard: Run, repo: Repo, tmp_path: Path
) -> None:
    begun = orchard("run", str(tmp_path / "plan.yaml"))
    waits = orchard("waiting")
    assert (begun.returncode, waits.returncode) == (4, 4), begun.stderr
    assert "2 jobs wait to be deployed: a, b" in begun.stdout and "orchard deploy a --plan" in waits.stdout
    assert "not deployed" in orchard("status").stdout

    deployed = orchard("deploy", "a")
    assert deployed.returncode == 4, deployed.stderr
    assert "Shall I go on after turn 0?" in deployed.stdout
    assert "orchard send a MESSAGE" in deployed.stdout and "orchard complete a" in deployed.stdout
    assert "scribe idle" in orchard("job", "a").stdout

    answered = orchard("send", "a", "-", stdin="Once more.\nAnd again.\n")
    assert answered.returncode == 4, answered.stderr
    assert "Shall I go on after turn 1?" in answered.stdout

    completed = orchard("complete", "a", "--json")
    rows = [json.loads(line) for line in completed.stdout.splitlines()]
    assert (completed.returncode, rows[-1]["plan"]["status"]) == (4, "waiting"), completed.stderr
    assert orchard("deploy").returncode == 0, "all that wait"
    assert {"turn0", "turn1", "b.txt"} <= repo.files("work").keys()


def test_a_worker_in_the_background_is_told_later_interrupted_now_and_completed(
    orchard: Run, repo: Repo, tmp_path: Path
) -> None:
    orchard("run", str(tmp_path / "plan.yaml"))
    orchard("deploy", "a")
    sent = orchard("send", "a", "SLOW please", "--detach")
    assert sent.returncode == 0, sent.stderr
    followed = orchard("wait", "--timeout", "0.5")
    assert followed.returncode == 124
    while not (tmp_path / "slow").exists():
        orchard("status")

    interrupted = orchard("interrupt", "a")
    again = orchard("interrupt", "a")
    done = orchard("complete", "a")

    assert interrupted.returncode == 0, interrupted.stderr
    assert "interrupted and idle" in interrupted.stdout
    assert (again.returncode, "is idle already" in again.stderr) == (2, True)
    assert done.returncode == 4, done.stderr
    assert orchard("deploy", "b").returncode == 0


def test_what_is_sent_to_a_paused_worker_is_said_to_wait_with_the_command_that_resumes_it(
    orchard: Run, tmp_path: Path
) -> None:
    orchard("run", str(tmp_path / "plan.yaml"))
    orchard("deploy", "a")
    plan = json.loads(orchard("list", "--json").stdout)[0]["id"]
    assert orchard("pause", f"{plan}:a").returncode == 0

    sent = orchard("send", "a", "Once more")
    assert sent.returncode == 0, sent.stderr
    assert "The agent of job 'a' is paused: the message waits until it is resumed." in sent.stdout
    command_line = sent.stdout.partition("next: orchard ")[2].split()
    assert command_line[0] == "resume", sent.stdout

    resumed = orchard(*command_line)
    assert "Shall I go on after turn 1?" in resumed.stdout, resumed.stdout + resumed.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["send", "a", " "], "needs a text"),
        (["send", "b", "hello"], "not the work of an agent"),
        (["send", "a", "hello"], "Its agent would not hear it: job 'a' is pending"),
        (["send", "a"], "Missing argument 'MESSAGE'"),
        (["interrupt", "a"], "no turn to interrupt"),
        (["deploy", "__snapshot-validation__"], "starts by itself"),
    ],
)
def test_what_cannot_be_done_is_refused_with_one_message_and_no_traceback(
    orchard: Run, tmp_path: Path, words: list[str], said: str
) -> None:
    orchard("run", str(tmp_path / "plan.yaml"))

    refused = orchard(*words)

    assert refused.returncode == 2
    assert said in refused.stderr and "Traceback" not in refused.stderr
    assert refused.stdout == ""


def test_an_idle_worker_that_the_settings_would_ask_says_that_this_needs_an_engine_that_stays(
    orchard: Run, tmp_path: Path
) -> None:
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "orchard" / "config.toml"
    (tmp_path / "plan.yaml").write_text("name: T\njobs: [{id: a, work: {instructions: Write a, interactive: true}}]\n")
    told = orchard("run", str(tmp_path / "plan.yaml"))
    config.write_text(config.read_text() + "[health]\non_idle = 'ask'\n")
    asked = orchard("run", str(tmp_path / "plan.yaml"))

    assert (told.returncode, asked.returncode) == (4, 4)
    assert "needs an engine" not in told.stderr
    assert "'health.on_idle = \"ask\"' needs an engine that stays: orchard serve --background" in asked.stderr
