"""Subtasks as a person at a terminal looks at them and steers them; the agents are real programs that speak MCP."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchard.testing import Repo
from tests.nursery import command
from tests.proof.crash_shapes import HELPER

AGENT = """
cat "$1" > MARKS/told
if head -1 "$1" | grep -q PARENT; then MCP=$2 PYTHON MARKS/help.py; echo parent > parent.txt; exit; fi
n=$(ls turn* 2>/dev/null | wc -l)
echo "turn $n" > "turn$n.txt"
echo "The helper did turn $n."
"""
SPAWNS = HELPER[: HELPER.index("spawned = call")] + (
    'call("spawn_subtask", instructions="CHILD", interactive=True, blocking=True)\n'
)
PLAN = "name: Talk\nland: never\njobs: [{id: a, work: {instructions: PARENT, interactive: true}}]\n"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo")
    made("checkout", "-q", "-b", "work")
    (tmp_path / "agent.sh").write_text(AGENT.replace("MARKS", str(tmp_path)).replace("PYTHON", sys.executable))
    (tmp_path / "help.py").write_text(SPAWNS)
    (tmp_path / "plan.yaml").write_text(PLAN)
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "orchard" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    line = f"sh {tmp_path}/agent.sh {{prompt_file}} {{mcp_config}}"
    config.write_text(f"agent = 'scribe'\n[agents.scribe]\ncommand = \"{line}\"\n")
    return made


@pytest.fixture
def orchard(repo: Repo) -> Run:
    return lambda *args: command(*args, cwd=repo.path, seconds=60)


def test_a_subtask_is_read_and_steered_by_its_name_after_its_engine_is_gone(orchard: Run, tmp_path: Path) -> None:
    begun = orchard("run", str(tmp_path / "plan.yaml"))
    assert begun.returncode == 4, begun.stderr + begun.stdout
    page = json.loads(orchard("job", "a", "--json").stdout)
    (one,) = page["subtasks"]
    name = f"a/{one['id']}"
    assert (one["status"], one["interactive"]) == ("idle", True)
    assert "The helper did turn 0." in orchard("logs", name).stdout
    told = (tmp_path / "told").read_text()
    assert told.startswith("CHILD") and "PARENT" in told

    sent = orchard("send", name, "Once more")
    assert "goes on" in sent.stdout, sent.stderr
    answer = sent.stdout.partition("goes on with it.")[2]
    assert "Once more" in answer and "The helper did turn 1." in answer and "turn 0" not in answer, sent.stdout
    assert "turn 1" in orchard("logs", one["id"]).stdout  # the job may be left out
    assert "is paused" in orchard("pause", name).stdout
    later = orchard("send", name, "Later").stdout
    assert "the message waits until it is resumed" in later and "next: orchard resume" in later
    assert "goes on" in orchard("resume", name).stdout
    refused = orchard("interrupt", name)
    assert refused.returncode == 2 and "has no turn" in refused.stderr
    assert "is completed" in (done := orchard("complete", name)).stdout, done.stderr
    shown = orchard("subtask", name)
    assert "completed" in shown.stdout and "CHILD" in shown.stdout, shown.stderr
    assert "+turn 2" in orchard("diff", name).stdout
    missing = orchard("subtask", "a/subtask-aaaaa")
    assert missing.returncode == 3 and "has no subtask" in missing.stderr
    assert orchard("subtask", "a").returncode == 2
    assert json.loads(orchard("subtask", name, "--json").stdout)["subtask"]["status"] == "completed"
    assert orchard("cancel", page["plan"]).returncode == 0
