"""The skill: what it teaches works, word for word, and it is put where agents look."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pytest

from orchard import errors
from orchard.planfile.parse import parse
from orchard.surfaces.cli.commands.machine.install import skill_page
from orchard.surfaces.cli.group import VerbCommand, VerbFamily, cli
from orchard.surfaces.cli.start import run_command_line
from orchard.surfaces.cli.verbs import VERBS
from orchard.testing import Repo

SECONDS = 120
PAGE = skill_page()
COMMANDS = [row for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S) for row in block.splitlines()]
PLAN = re.search(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


# ------------------------------------------------------------------------------- what it teaches


def front() -> dict[str, str]:
    head = PAGE.split("---\n")[1]
    return dict(row.split(": ", 1) for row in head.splitlines())


def test_the_front_matter_keeps_to_the_common_form() -> None:
    found = front()

    assert set(found) == {"name", "description"}
    assert found["name"] == "orchard" and re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", found["name"])
    assert 1 <= len(found["description"]) <= 1024
    # A plain scalar of YAML, which ends at these.
    assert ": " not in found["description"] and " #" not in found["description"]


def test_it_is_short() -> None:
    assert len(PAGE) < 6000 and PAGE.count("\n") < 150


def test_its_plan_is_valid() -> None:
    assert PLAN is not None
    assert len(parse(PLAN[1].encode(), "SKILL.md").jobs) == 4


def test_its_exit_codes_are_those_of_the_program() -> None:
    told = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.M)}

    assert told == {value for name, value in vars(errors).items() if name.startswith("EXIT_")} - {errors.EXIT_INTERNAL}


def named() -> list[str]:
    """Every command that the page names, in a block or in a sentence."""
    inline: list[str] = re.findall(r"`(orchard [^`\n]+)`", PAGE)
    return [*COMMANDS, *inline]


@pytest.mark.parametrize("line", named())
def test_every_command_it_names_is_understood(line: str) -> None:
    _, verb, *words = shlex.split(line)
    command = cli.get_command(click.Context(cli), verb)

    assert verb in VERBS and isinstance(command, VerbCommand)
    context = command.make_context(verb, words, obj=None)
    assert context.args == []


def test_it_names_many_commands() -> None:
    assert len(COMMANDS) >= 12 and len(named()) > len(COMMANDS) + 5


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Callable[..., Done]]:
    """A user's shell in a scratch repository, with the program on the PATH."""
    repo = Repo.make(tmp_path / "repo")
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "orchard"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -m orchard "$@"\n')
    script.chmod(0o755)
    env = {**os.environ, "PATH": f"{script.parent}{os.pathsep}{os.environ['PATH']}"}

    def run(line: str) -> Done:
        done = subprocess.run(
            line, shell=True, cwd=repo.path, env=env, capture_output=True, text=True, timeout=SECONDS, check=False
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Done(done.returncode, done.stdout, done.stderr)

    yield run
    address = repo.path / ".git" / "orchard" / "daemon.json"
    if address.exists():
        os.kill(json.loads(address.read_text())["pid"], signal.SIGTERM)


def test_an_agent_that_does_what_it_says_gets_from_a_failure_to_a_landing_and_back(
    shell: Callable[..., Done], tmp_path: Path
) -> None:
    assert PLAN is not None
    broken = PLAN[1].replace("sh greet.sh you > GREETING.md", "echo no such greeting; exit 7")
    assert broken != PLAN[1]
    repo = Repo(tmp_path / "repo")
    (repo.path / "plan.yaml").write_text(broken)
    said: dict[str, list[Done]] = {}
    plan = "PLAN"

    for line in COMMANDS:
        done = shell(re.sub(r"\bPLAN\b", plan, line))
        said.setdefault(line.split()[1], []).append(done)
        if line.startswith("orchard run"):
            plan = done.json["plan"]

    codes = {verb: [done.code for done in calls] for verb, calls in said.items()}
    assert codes == {
        "validate": [0], "run": [0], "wait": [1, 4], "status": [0], "job": [0], "logs": [0], "diff": [0, 0],
        "retry": [0], "waiting": [4], "land": [0], "undo": [0], "delete": [0],
    }, said  # fmt: skip
    assert said["run"][0].json == {"plan": plan, "detached": True}
    failed = said["wait"][0].json
    assert failed["plan"]["status"] == "failed" and {"error", "hint", "target"} <= set(failed["plan"])
    assert next(job for job in failed["jobs"] if job["id"] == "docs")["failed_phase"] == "work"
    assert set(failed) == set(said["status"][0].json)
    assert "no such greeting" in said["logs"][0].out
    (asks,) = said["waiting"][0].json
    assert asks["command"] == f"orchard land {plan}" and asks["reason"]
    assert "GREETING.md" in said["diff"][1].out
    assert "Landed on greeting" in said["land"][0].out
    assert not repo.exists("refs/heads/greeting"), "it was taken back"


# ---------------------------------------------------------------------------------- putting it there


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    for variable in ("CLAUDE_CONFIG_DIR", "COPILOT_HOME"):
        monkeypatch.delenv(variable, raising=False)
    repo = Repo.make(tmp_path / "repo")

    def say(*words: str) -> Done:
        code = run_command_line(["-C", str(repo.path), "skill", "install", *words])
        said = capsys.readouterr()
        return Done(code, said.out, said.err)

    return say


@pytest.mark.parametrize(
    ("words", "place"),
    [
        ([], "repo/.agents/skills"),
        (["--host", "agents"], "repo/.agents/skills"),
        (["--host", "claude"], "repo/.claude/skills"),
        (["--host", "copilot"], "repo/.github/skills"),
        (["--user"], "home/.agents/skills"),
        (["--host", "claude", "--user"], "home/.claude/skills"),
        (["--host", "copilot", "--user"], "home/.copilot/skills"),
        (["--dir", "DIR"], "mine"),
    ],
)
def test_it_is_put_where_each_agent_looks_and_only_once(
    run: Callable[..., Done], tmp_path: Path, private_home: Path, words: list[str], place: str
) -> None:
    given = [str(tmp_path / "mine") if word == "DIR" else word for word in words]
    folder = private_home / place.removeprefix("home/") if place.startswith("home/") else tmp_path / place
    page = folder / "orchard" / "SKILL.md"

    asked = run(*given)
    before = page.exists()
    done = run(*shlex.split(asked.err.splitlines()[-1].removeprefix("hint: orchard skill install ")))
    again = run(*given)

    assert asked.code == 4 and not before
    assert done.code == 0, done.err
    assert page.read_text() == PAGE and page.parent.name == front()["name"]
    assert again.code == 0 and "already" in again.out
    assert [path.name for path in page.parent.iterdir()] == ["SKILL.md"]


def test_another_page_is_replaced_only_when_that_is_said_and_is_kept(run: Callable[..., Done], tmp_path: Path) -> None:
    page = tmp_path / "repo" / ".agents" / "skills" / "orchard" / "SKILL.md"
    page.parent.mkdir(parents=True)
    page.write_text("mine\n")

    refused = run("--yes")
    left = page.read_text()
    done = run("--yes", "--replace", "--json")

    assert refused.code == 4 and "another page" in refused.err and left == "mine\n"
    assert page.read_text() == PAGE
    assert Path(done.json["backup"]).read_text() == "mine\n"


def test_a_link_that_leads_outside_is_refused(run: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "repo" / ".agents").symlink_to(tmp_path / "outside")

    done = run("--yes")

    assert done.code == 2 and "is a link that leads to" in done.err
    assert list((tmp_path / "outside").iterdir()) == []


def test_print_gives_the_page_and_writes_nothing(run: Callable[..., Done], tmp_path: Path) -> None:
    shown, document = run("--print"), run("--print", "--json").json

    assert shown.out == PAGE and document == {"name": "orchard", "text": PAGE}
    assert not (tmp_path / "repo" / ".agents").exists()


@pytest.mark.parametrize("name", ["mcp", "skill"])
def test_commands_below_a_verb_explain_themselves(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    verb = cli.get_command(click.Context(cli), name)
    assert isinstance(verb, VerbFamily)

    for child, told in verb.rows.items():
        command = verb.get_command(click.Context(verb), child)
        assert isinstance(command, VerbCommand) and command.name == child
        assert (command.help or "").split("\n")[0] == told.help
        assert [one.name for one in command.params if isinstance(one, click.Option) and not one.help] == []
        assert run_command_line([name, child, "--help"]) == 0
        shown = capsys.readouterr().out
        assert f"Usage: orchard {name} {child}" in shown and "--json" in shown


def test_a_folder_of_one_s_own_stands_alone(run: Callable[..., Done], tmp_path: Path) -> None:
    done = run("--dir", str(tmp_path), "--user", "--yes")

    assert done.code == 2 and "stands alone" in done.err
