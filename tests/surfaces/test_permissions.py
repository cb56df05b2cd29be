"""What agents may use, as a person at a terminal sees and answers it; only the model is scripted."""

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchard.testing import Repo
from tests.agents.llm import Call, Say, ScriptedLlm, routes, steps
from tests.nursery import command

SCRIPT = routes(
    {
        "Write it": steps(
            Call("write_file", {"path": "a.txt", "content": "by tool\n"}),
            Call("bash", {"command": "echo by command > b.txt"}),
            Say("Wrote it."),
        ),
    }
)
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def llm() -> Iterator[ScriptedLlm]:
    with ScriptedLlm(SCRIPT) as made:
        yield made


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo.make(tmp_path / "repo")
    made("checkout", "-q", "-b", "work")
    return made


@pytest.fixture
def orchard(repo: Repo, llm: ScriptedLlm) -> Run:
    env = {**os.environ, "ANTHROPIC_BASE_URL": llm.url, "ANTHROPIC_API_KEY": "not-a-key"}

    def run(*args: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return command(*args, cwd=repo.path, env=env, stdin=stdin, seconds=120)

    return run


def plan(tmp_path: Path, **fields: object) -> str:
    job = {"id": "a", "heal": False, "work": "@builtin Write it", **fields}
    (tmp_path / "plan.json").write_text(json.dumps({"name": "Tools", "jobs": [job]}))
    return str(tmp_path / "plan.json")


def until_waiting(orchard: Run, words: str) -> str:
    deadline = time.monotonic() + 100
    while words not in (said := orchard("waiting").stdout):
        assert time.monotonic() < deadline, said
        time.sleep(0.2)
    return said


def test_calls_are_asked_about_allowed_and_denied_from_another_terminal(
    orchard: Run, repo: Repo, tmp_path: Path
) -> None:
    done: list[subprocess.CompletedProcess[str]] = []
    running = threading.Thread(target=lambda: done.append(orchard("run", plan(tmp_path, tools="ask"))))
    running.start()
    said = until_waiting(orchard, "write_file")
    assert "Agent 'builtin' asks whether it may use write_file: a.txt" in said
    assert "by tool" in said, "what it would write"
    assert "orchard allow a --question 1" in said and "orchard deny a --question 1" in said
    status = orchard("status").stdout
    assert "waiting: permission" in status
    assert re.search(r"next: orchard allow a --question 1 --plan \S+; or: orchard deny a --question 1", status)
    workers = orchard("workers").stdout
    assert "a  running work, asks you  builtin" in workers
    assert re.search(r"asks: may it use write_file: a.txt\?  orchard allow a --question 1", workers)
    assert "by tool" in orchard("job", "a").stdout

    allowed = orchard("allow", "a")
    assert allowed.returncode == 0 and "uses write_file (a.txt)" in allowed.stdout
    assert "by tool" in allowed.stdout, "what the agent says it is about is not all"
    until_waiting(orchard, "bash")
    denied = orchard("deny", "a", "--reason", "No commands.", "--json")
    assert json.loads(denied.stdout)["tool"] == "bash"
    running.join(120)

    assert done[0].returncode == 0, done[0].stdout + done[0].stderr
    assert "asks  write_file: a.txt" in done[0].stdout and "denied  No commands." in done[0].stdout
    assert {"a.txt"} <= repo.files("work").keys() and "b.txt" not in repo.files("work")
    assert orchard("allow", "a").returncode == 2


def test_a_job_says_what_its_agent_may_use_and_what_was_refused(orchard: Run, repo: Repo, tmp_path: Path) -> None:
    done = orchard("run", plan(tmp_path, tools="edit"))

    assert done.returncode == 0, done.stdout + done.stderr
    assert "denied  bash: the tools of this work are: edit" in done.stdout
    page = orchard("job", "a").stdout
    assert "may use     edit" in page and "the job: edit" in page
    found = json.loads(orchard("job", "a", "--json").stdout)
    assert found["permissions"] == {
        "tools": "edit", "mode": "edit", "sources": [{"origin": "the job", "tools": "edit"}],
    }  # fmt: skip
    assert found["configuration"]["tools"] == "edit"
    assert "b.txt" not in repo.files("work")


def test_validate_says_what_has_no_effect_with_whom(orchard: Run, tmp_path: Path) -> None:
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "orchard" / "config.toml"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text('[agents.mine]\ncommand = "true"\n')

    said = orchard("validate", plan(tmp_path, tools=["read-only", "ask"], work="@mine Write it"))

    assert said.returncode == 0
    assert "'tools: read-only' has no effect with mine" in said.stderr
    assert "'tools: ask' has no effect with mine" in said.stderr
    listed = json.loads(orchard("agents", "--json").stdout)["agents"]
    held = {one["name"]: one["permissions"] for one in listed}
    assert (held["builtin"], held["claude"], held["codex"], held["mine"]) == ("calls", "tools", "modes", "nothing")
    assert "each call is checked" in orchard("agents", "builtin").stdout


@pytest.mark.parametrize(("tools", "left"), [("read-only", set()), ("edit", {"a.txt"}), ("bash", {"b.txt"})])
def test_a_lone_agent_has_no_more_than_it_is_given(orchard: Run, repo: Repo, tools: str, left: set[str]) -> None:
    done = orchard("agent", "Write it", "--tools", tools)

    assert done.returncode == 0, done.stderr
    assert {name for name in ("a.txt", "b.txt") if (repo.path / name).exists()} == left


def test_a_lone_agent_that_would_have_to_ask_is_refused_where_no_terminal_is(orchard: Run, repo: Repo) -> None:
    done = orchard("agent", "Write it", "--tools", "ask")

    assert done.returncode == 0
    assert "a person would have to be asked" in done.stderr
    assert not (repo.path / "a.txt").exists()


def test_tools_that_cannot_be_meant_are_refused(orchard: Run) -> None:
    said = orchard("agent", "Write it", "--tools", "Bash(git:*)")
    assert said.returncode == 2 and "must be the name of a tool" in said.stderr


def test_a_repository_takes_tools_away_without_consent_and_gives_none(orchard: Run, repo: Repo) -> None:
    (repo.path / "orchard.toml").write_text('[agents.builtin]\ntools = "read-only"\n')
    done = orchard("agent", "Write it", "--tools", "all")

    assert done.returncode == 0, done.stderr
    assert not (repo.path / "a.txt").exists()
