"""The words of the command line: every verb, bad usage, bugs; no plan is run here."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path

import click
import pytest

from orchard import __version__
from orchard.errors import NotFound
from orchard.surfaces.cli.group import VerbCommand, cli
from orchard.surfaces.cli.start import run_command_line, single_cause
from orchard.surfaces.cli.verbs import TOPICS, VERBS, Verb

ROOT = Path(__file__).resolve().parent.parent.parent
CONTEXT = click.Context(cli, info_name="orchard")
HEAVY = ("pydantic", "rich", "ruamel", "psutil")


def python(code: str, *options: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return program([*options, "-c", code], cwd=cwd)


def program(words: list[str], cwd: Path = ROOT, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("name", VERBS)
def test_the_table_says_what_the_command_says(name: str) -> None:
    command = cli.get_command(CONTEXT, name)

    assert isinstance(command, VerbCommand)
    assert command.name == name
    assert (command.help or "").split("\n")[0] == VERBS[name].help
    assert VERBS[name].topic in TOPICS


@pytest.mark.parametrize("name", VERBS)
def test_every_command_explains_itself_and_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command_line([name, "--help"])

    shown = capsys.readouterr().out
    assert code == 0
    assert f"Usage: orchard {name}" in shown and "--json" in shown
    command = cli.get_command(CONTEXT, name)
    assert command is not None
    options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_the_reference_page_is_up_to_date() -> None:
    done = program(["tools/cli_reference.py", "--check"])

    assert done.returncode == 0, done.stdout


def test_help_lists_every_verb_under_its_topic_and_imports_none(capsys: pytest.CaptureFixture[str]) -> None:
    code = "import sys; from orchard.surfaces.cli.start import run_command_line as run; run(['--help'])"
    found = python(f"{code}; print(sorted(name for name in sys.modules if name.startswith('orchard')))")

    assert [topic for topic in TOPICS.values() if f"\n{topic}:" not in found.stdout] == []
    assert [verb for verb in VERBS if not re.search(rf"^  {verb} ", found.stdout, re.MULTILINE)] == []
    assert "orchard.app" not in found.stdout.splitlines()[-1]


def test_the_version_is_answered_without_importing_click() -> None:
    code = "import sys; sys.argv = ['orchard', '--version']; from orchard.__main__ import main; main()"
    found = python(f"{code}; print('click' in sys.modules)")

    assert found.stdout.split("\n")[:2] == [f"orchard {__version__}", "False"]


@pytest.mark.parametrize("words", [["list"], ["list", "--json"], ["doctor", "--help"]])
def test_fast_commands_import_nothing_heavy(words: list[str]) -> None:
    code = f"import sys; from orchard.surfaces.cli.start import run_command_line as run; run({words!r})"
    found = python(f"{code}; print('loaded', [name for name in {HEAVY!r} if name in sys.modules])")

    assert found.stdout.splitlines()[-1] == "loaded []", found.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["runn"], "Did you mean 'run'?"),
        (["status", "--nope"], "--nope"),
        (["run", "x.yaml", "--max-parallel", "-4"], "--max-parallel"),
        (["run", "x.yaml", "--target", "-x"], "is not a branch"),
        (["retry", "--from", "lunch"], "lunch"),
        (["-C", "/nowhere/at/all", "list"], "/nowhere/at/all"),
    ],
)
def test_bad_usage_is_a_sentence_a_hint_and_exit_2(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_command_line(words)

    said = capsys.readouterr()
    assert code == 2 and said.out == ""
    assert message in said.err
    assert said.err.startswith("error: ") and "hint: Run 'orchard" in said.err


def test_bad_usage_in_json_is_a_document_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command_line(["status", "--nope", "--json"])

    document = json.loads(capsys.readouterr().out)
    assert code == 2
    assert document["error"]["exit_code"] == 2 and "--nope" in document["error"]["message"]


def test_a_bug_is_reported_in_a_file_that_only_the_user_can_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setitem(VERBS, "status", Verb("look", "text:NO_PLANS", "broken"))

    code = run_command_line(["status"])

    (report,) = (tmp_path / "state" / "orchard" / "reports").iterdir()
    said = capsys.readouterr().err
    assert code == 70
    assert str(report) in said and "Traceback" not in said
    assert stat.S_IMODE(report.stat().st_mode) == 0o600
    assert "Traceback" in report.read_text() and __version__ in report.read_text()


def test_a_bug_whose_report_cannot_be_saved_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").write_text("in the way")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setitem(VERBS, "status", Verb("look", "text:NO_PLANS", "broken"))

    assert run_command_line(["status"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_an_error_for_people_is_found_inside_groups() -> None:
    inner = NotFound("no such plan")

    assert single_cause(ExceptionGroup("a", [ValueError(), ExceptionGroup("b", [inner])])) is inner


def test_outside_a_repository_the_user_is_told_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command_line(["-C", str(tmp_path), "list"])

    said = capsys.readouterr().err
    assert code != 0 and code != 70
    assert "error: " in said and "Traceback" not in said


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["completion", shell]) == 0
    assert "_ORCHARD_COMPLETE" in capsys.readouterr().out


def test_verbs_complete_in_bash() -> None:
    found = program(["-m", "orchard"], _ORCHARD_COMPLETE="bash_complete", COMP_WORDS="orchard sta", COMP_CWORD="1")

    assert found.stdout.split() == ["plain,status"]
