"""`orchard agent`, as a program: the built-in agent alone in a folder, with a scripted model on this machine."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orchard.testing import Repo
from tests.agents.llm import Call, Fail, Hang, Say, ScriptedLlm, steps
from tests.nursery import command

SECONDS = 180.0
SCRIPT = steps(
    [Say("I will look."), Call("list_files", {"path": "."}), Call("read_file", {"path": "missing.txt"})],
    Call("bash", {"command": "echo hi > hello.txt"}),
    Say("I wrote \x1b[2Jhello.txt with canary-of-somebody-0123456789 in mind."),
)


@pytest.fixture
def llm() -> Iterator[ScriptedLlm]:
    with ScriptedLlm(SCRIPT) as llm:
        yield llm


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that is in no repository."""
    place = tmp_path / "folder"
    place.mkdir()
    return place


def environment(llm: ScriptedLlm, **more: str) -> dict[str, str]:
    env = {**os.environ, "ANTHROPIC_BASE_URL": llm.url, "ANTHROPIC_API_KEY": "canary-of-somebody-0123456789", **more}
    return {name: value for name, value in env.items() if value}


def orchard(
    folder: Path, llm: ScriptedLlm, *words: str, stdin: str = "", **more: str
) -> subprocess.CompletedProcess[str]:
    return command("agent", *words, cwd=folder, env=environment(llm, **more), stdin=stdin, seconds=SECONDS)


def rows(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_works_in_a_folder_without_a_repository_and_shows_what_it_does(folder: Path, llm: ScriptedLlm) -> None:
    done = orchard(folder, llm, "Greet.", "--model", "fake-model")

    assert done.returncode == 0, done.stderr
    assert (folder / "hello.txt").read_text() == "hi\n"
    assert done.stdout.startswith("I will look.\nI wrote hello.txt with ")
    assert "list_files" in done.stderr and "read_file failed  missing.txt" in done.stderr
    assert "orchard agent --session" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "canary" not in done.stdout + done.stderr
    assert llm.requests[0].prompts == ["Greet."] and llm.requests[0].model == "fake-model"


def test_everything_comes_as_json_lines_with_the_result_last(folder: Path, llm: ScriptedLlm) -> None:
    done = orchard(folder, llm, "Greet.", "--model", "fake-model", "--json")

    found = rows(done)
    assert done.returncode == 0
    assert {row["type"] for row in found} == {"session", "said", "called", "used", "result"}
    assert {"type": "called", "tool": "read_file", "about": "missing.txt", "failed": True} in found
    last, used = found[-1], llm.usage()
    assert last["type"] == "result" and last["ok"] is True and last["reason"] == "done"
    assert last["usage"]["input"] == used.input and last["usage"]["output"] == used.output
    assert last["session"] == found[0]["session"]
    assert "canary" not in done.stdout


def test_quiet_prints_the_last_words_only(folder: Path, llm: ScriptedLlm) -> None:
    done = orchard(folder, llm, "Greet.", "-q", "--model", "fake-model")

    assert done.stdout.startswith("I wrote hello.txt") and done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_a_session_goes_on_and_a_task_may_come_from_stdin(folder: Path, llm: ScriptedLlm) -> None:
    first = rows(orchard(folder, llm, "One.", "--json", "--model", "fake-model"))[-1]

    done = orchard(folder, llm, "-", "--session", first["session"], "--model", "fake-model", stdin="Two.")

    assert done.returncode == 0
    assert llm.requests[-1].prompts == ["One.", "Two."]


def test_repository_settings_count_once_they_are_trusted_and_tools_reach_the_repository(
    tmp_path: Path, llm: ScriptedLlm
) -> None:
    repo = Repo.make(tmp_path / "repo", files={"AGENTS.md": "Be polite.", "a/b.txt": "b"})
    (repo.path / "orchard.toml").write_text('[agents.builtin]\nmodel = "of-the-repository"\n')

    refused = orchard(repo.path / "a", llm, "Greet.")
    trust = [sys.executable, "-m", "orchard", "trust"]
    shown = subprocess.run(
        [*trust, "--show", "--json"], cwd=repo.path, check=True, timeout=SECONDS, capture_output=True, text=True
    )
    subprocess.run([*trust, "--yes", json.loads(shown.stdout)["digest"]], cwd=repo.path, check=True, timeout=SECONDS)
    trusted = orchard(repo.path / "a", llm, "Greet.")

    assert refused.returncode == 4 and "orchard trust" in refused.stderr
    assert trusted.returncode == 0, trusted.stderr
    assert (repo.path / "a" / "hello.txt").exists()
    assert llm.requests[0].model == "of-the-repository"
    assert "Be polite." in llm.requests[0].body["system"]


def test_compatible_servers_are_reached_by_their_provider(folder: Path, llm: ScriptedLlm) -> None:
    words = ("Greet.", "--provider", "openai", "--model", "fake-model")
    done = orchard(folder, llm, *words, OPENAI_BASE_URL=f"{llm.url}/v1", OPENAI_API_KEY="other-key")
    without = orchard(folder, llm, *words)

    assert done.returncode == 0, done.stderr
    assert llm.requests[0].wire == "chat" and llm.requests[0].headers["authorization"] == "Bearer other-key"
    assert without.returncode == 1 and "OPENAI_API_KEY is not set" in without.stderr


@pytest.mark.parametrize(
    ("words", "more", "code", "said"),
    [
        (("Greet.",), {"ANTHROPIC_API_KEY": ""}, 1, "ANTHROPIC_API_KEY is not set"),
        (("Greet.", "--session", "0" * 32), {}, 3, "is not there any more"),
        (("Greet.", "--max-turns", "1"), {}, 1, "once without coming to an end"),
        (("Greet.", "--max-turns", "0"), {}, 2, "--max-turns"),
        (("Greet.", "--provider", "acme"), {}, 2, "acme"),
        (("  ",), {}, 2, "The task is empty"),
        (("Greet.", "-C", "nowhere"), {}, 2, "nowhere"),
    ],
)
def test_what_goes_wrong_is_said_in_a_sentence_with_its_exit_code(
    folder: Path, llm: ScriptedLlm, words: tuple[str, ...], more: dict[str, str], code: int, said: str
) -> None:
    done = orchard(folder, llm, *words, **more)

    assert done.returncode == code, done.stderr
    assert said in done.stderr and "Traceback" not in done.stderr


def test_an_error_of_the_server_is_told(folder: Path) -> None:
    with ScriptedLlm(steps(Fail(401, "who are you"))) as llm:
        done = orchard(folder, llm, "Greet.", "--json")

    last = rows(done)[-1]
    assert done.returncode == 1
    assert (last["type"], last["ok"], last["reason"]) == ("result", False, "not-logged-in")
    assert "who are you" in last["message"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_it_with_everything_it_started(folder: Path, how: signal.Signals) -> None:
    script = steps(Call("bash", {"command": "sleep 300 & echo $! > pid; wait"}), Hang(Say("late")))
    with ScriptedLlm(script) as llm:
        program = subprocess.Popen(
            [sys.executable, "-m", "orchard", "agent", "Wait."],
            cwd=folder,
            env=environment(llm),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        pid = _appears(folder / "pid", program)
        program.send_signal(how)
        program.communicate(timeout=SECONDS)

    assert program.returncode == 130
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1][:3]


def _appears(path: Path, program: subprocess.Popen[bytes]) -> int:
    """The number in a file, once somebody has written it."""
    import time

    until = time.monotonic() + SECONDS
    while time.monotonic() < until and program.poll() is None:
        if path.exists() and (text := path.read_text().strip()):
            return int(text)
        time.sleep(0.05)
    raise AssertionError(f"it never began: {program.communicate()}")
