"""The session of a job's agent is opened in the agent's own program, where that can be done."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.program import Desk, desks, until

SESSION = "0e9bf8a2-5a8c-4d7a-8f3e-2f6f0a4c1b11"
CLAUDE = """#!/bin/sh
case "$*" in
  *--version*) echo "2.1.0 (Claude Code)"; exit 0;;
  *stream-json*) ;;
  *) echo "opened: $* in $PWD with $CLAUDE_CONFIG_DIR"; exit 3;;
esac
cat > /dev/null
echo half > half.txt
echo '{"type": "system", "subtype": "init", "session_id": "SESSION", "model": "m", "tools": [], "cwd": "."}'
echo '{"type": "result", "subtype": "success", "is_error": true, "session_id": "SESSION", "result": "no"}'
exit 1
"""
PLAN = """
name: Talk
target: goal
jobs: [{id: a, heal: false, work: '@claude Do it'}, {id: b, heal: false, work: 'false'}]
"""


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    for one in desks(tmp_path):
        place(one, SESSION)
        one.env |= {"PATH": f"{tmp_path / 'bin'}:{one.env['PATH']}", "ANTHROPIC_API_KEY": "sk-not-a-key"}
        yield one


def place(desk: Desk, session: str) -> None:
    program = desk.folder / "bin" / "claude"
    program.parent.mkdir(exist_ok=True)
    program.write_text(CLAUDE.replace("SESSION", session))
    program.chmod(0o755)


def failed(desk: Desk) -> Path:
    """The worktree of the job whose agent failed."""
    done = desk("run", desk.plan(PLAN))
    assert done.code == 1, done.talk
    return Path(desk("path", "a").out.strip())


def test_the_session_is_opened_in_the_worktree_with_the_folder_that_the_agent_had(desk: Desk) -> None:
    folder = failed(desk)

    said = desk("attach", "a", "--json").json
    shown = desk("attach", "a", "--print").out
    running, ours = desk.on_a_terminal("attach", "a")
    code = running.process.wait(60)
    screen = os.read(ours, 65536).decode()

    assert (said["session"], said["path"], said["agent"]) == (SESSION, str(folder), "claude")
    assert said["command"] == [str(desk.folder / "bin" / "claude"), "--resume", SESSION]
    assert Path(said["env"]["CLAUDE_CONFIG_DIR"]).is_dir() and "sk-not-a-key" not in str(said)
    assert shown.startswith(f"cd {folder} && CLAUDE_CONFIG_DIR=") and shown.endswith(f"--resume {SESSION}\n")
    flat = screen.replace("\r\n", "")
    assert code == 3 and f"opened: --resume {SESSION} in {folder} with {said['env']['CLAUDE_CONFIG_DIR']}" in flat


def test_without_a_terminal_the_command_is_named_that_prints_the_command(desk: Desk) -> None:
    failed(desk)

    done = desk("attach", "a")

    assert done.code == 4 and ":a --print" in done.err, done.talk


def test_a_job_without_an_agent_has_no_session(desk: Desk) -> None:
    failed(desk)

    done = desk("attach", "b", "--print")

    assert done.code == 3 and "No agent of job 'b' has a session" in done.err, done.talk


def test_the_session_of_an_agent_at_work_is_not_opened(desk: Desk) -> None:
    marker = desk.folder / "marker"
    running = desk.start("run", desk.plan(PLAN.replace("'false'", f"'touch {marker}; sleep 60'")))
    until(marker.exists, "the job runs")

    done = desk("attach", "b", "--print")
    desk("cancel", "--yes")
    running.end()

    assert done.code == 2 and "is at work" in done.err and "orchard send" in done.err, done.talk


def test_a_session_that_would_be_an_option_is_refused(desk: Desk) -> None:
    place(desk, "--dangerously-skip-permissions")
    failed(desk)

    done = desk("attach", "a", "--print")

    assert done.code == 2 and "no id of one" in done.err and done.out == "", done.talk
