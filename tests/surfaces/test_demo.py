"""The demo is a real run, and the first thing a newcomer sees: it must work, show, and clean up."""

import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

import pytest

from orchard.config.keys import KEYS
from orchard.config.layers import Layer, merge_layers
from orchard.core.views.graph import edges
from orchard.errors import UsageError
from orchard.planfile.parse import parse
from orchard.process.sandbox.level import walls
from orchard.surfaces.cli.commands.machine.demo import NEEDY_JOB, make_project, plan_text, scratch_folder
from orchard.surfaces.cli.commands.plans.files import FORMATS, STARTER, run_init, show_graph, starter_config
from orchard.surfaces.cli.terminal import Terminal
from orchard.testing import Repo
from tests.nursery import command

SECONDS = 120


def user(home: Path) -> dict[str, str]:
    """The environment of a user with no settings, whose temporary files are ours to count."""
    (home / "tmp").mkdir(parents=True)
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "TMPDIR": str(home / "tmp"),
        "XDG_STATE_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "config"),
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_CONFIG_NOSYSTEM": "1",
        "ORCHARD_SANDBOX": "off",
    }


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return user(tmp_path / "home")


def demo(env: dict[str, str], *words: str | Path) -> subprocess.CompletedProcess[str]:
    return command("demo", *words, cwd=Path(env["HOME"]), env=env, seconds=SECONDS)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Any]]:
    """One demo, run to its end: the folder it left and the documents it printed."""
    place = tmp_path_factory.mktemp("demo")
    done = demo(user(place / "home"), "--folder", place / "a scratch folder", "--json")
    assert done.returncode == 0, done.stderr[-3000:]
    return place / "a scratch folder", [json.loads(line) for line in done.stdout.splitlines()]


def test_the_demo_fails_retries_and_lands(played: tuple[Path, list[Any]]) -> None:
    rows = played[1]
    result = rows[-1]
    failed = [row for row in rows if row.get("event") == "JobFailed"]

    assert [(row["job"], row["phase"]) for row in failed] == [(NEEDY_JOB, "prechecks")]
    assert result["plan"]["status"] == "succeeded" and result["plan"]["landed"]
    assert {job["id"]: job["attempts"] for job in result["jobs"]}[NEEDY_JOB] == 2
    assert result["demo"]["draft_untouched"] and result["demo"]["kept"]


def test_what_the_demo_lands_is_in_the_checkout_and_passes_its_tests(played: tuple[Path, list[Any]]) -> None:
    repo = Repo(played[0] / "textkit")

    tests = subprocess.run(
        [sys.executable, "-B", "-m", "unittest", "-q"], cwd=repo.path, capture_output=True, timeout=60, check=False
    )

    assert tests.returncode == 0
    assert repo("status", "--porcelain") == "?? draft.txt\n"
    assert "rare: 3" in (repo.path / "docs" / "usage.md").read_text()
    assert int(repo("rev-list", "--count", "HEAD")) > 3


def test_the_demo_shows_what_happened_and_leaves_nothing(env: dict[str, str]) -> None:
    done = demo(env)

    assert done.returncode == 0, done.stderr[-3000:]
    for words in (
        "failed, as it should",
        "| the list of rare words is missing",
        "orchard retry",
        "Landed on main",
        "docs/usage.md",
        "orchard init",
    ):
        assert words in done.stdout
    assert "\x1b" not in done.stdout
    assert list((Path(env["HOME"]) / "tmp").iterdir()) == []


@pytest.mark.parametrize("level", [finding.level for finding in walls().findings if finding.works])
def test_the_demo_lands_behind_a_wall(env: dict[str, str], level: str) -> None:
    done = demo({**env, "ORCHARD_SANDBOX": level})

    assert done.returncode == 0, done.stderr[-3000:]
    assert f"sandbox {level}" in done.stdout and "Landed on main" in done.stdout


def test_a_temporary_folder_stays_if_it_is_kept_or_something_goes_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with scratch_folder(None, keep=True) as kept:
        pass
    with scratch_folder(None, keep=False) as gone:
        pass
    with pytest.raises(RuntimeError), scratch_folder(None, keep=False) as looked_into:
        raise RuntimeError

    assert sorted(tmp_path.iterdir()) == sorted([kept.folder, looked_into.folder])
    assert not gone.folder.exists()


def test_a_folder_that_holds_something_is_not_used(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "precious.txt").write_text("mine")

    done = demo(env, "--folder", tmp_path / "full")

    assert done.returncode == 2 and "not empty" in done.stderr
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["precious.txt"]


def test_the_plan_of_the_demo_shows_what_plans_can_do(tmp_path: Path) -> None:
    plan = parse(plan_text(str(tmp_path / "odd: 'name'")).encode())

    assert plan.env["RARE_WORDS"] == str(tmp_path / "odd: 'name'")
    assert len(plan.jobs) > 8 and len({job.group for job in plan.jobs.values() if job.group}) >= 3
    assert max(len(after) for after in plan.needed_by.values()) >= 4
    assert max(len(job.needs) for job in plan.jobs.values()) >= 3
    assert any(job.changes == "forbidden" and not job.id.startswith("__") for job in plan.jobs.values())
    assert plan.verify is not None


def test_the_project_of_the_demo_is_a_clean_repository(tmp_path: Path) -> None:
    project = make_project(tmp_path / "demo")

    assert Repo(project.top)("status", "--porcelain") == "?? draft.txt\n"
    assert not project.rare_words.exists()


# ------------------------------------------------------------------------- init and graph, beside it


def test_init_writes_a_plan_that_is_valid_and_replaces_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_init(Terminal(), tmp_path) == 0
    assert "orchard run" in capsys.readouterr().out
    assert parse((tmp_path / "plan.yaml").read_bytes()).jobs
    (tmp_path / "plan.yaml").write_text("mine")

    with pytest.raises(UsageError, match="left as it is"):
        run_init(Terminal(), tmp_path)

    assert (tmp_path / "plan.yaml").read_text() == "mine"


def test_init_does_not_write_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UsageError):
        run_init(Terminal(), tmp_path)

    assert not (tmp_path / "elsewhere").exists()


def test_the_starter_settings_name_every_key_at_its_default(tmp_path: Path) -> None:
    run_init(Terminal(quiet=True), tmp_path, config=True)
    text = (tmp_path / "orchard.toml").read_text()
    assert merge_layers([Layer("file", tomllib.loads(text))]) == merge_layers([])

    opened = re.sub(r"^# (\w+ = )", r"\1", text, flags=re.MULTILINE)
    resolved = merge_layers([Layer("file", tomllib.loads(opened))])

    assert resolved.config == merge_layers([]).config
    assert set(resolved.origins.values()) == {"file"} and set(resolved.origins) == set(KEYS)
    assert text == starter_config()


@pytest.mark.parametrize("form", FORMATS)
def test_graph_prints_the_picture_or_writes_it(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = parse(STARTER.encode())
    output = tmp_path / f"plan.{form}"

    show_graph(Terminal(), plan, None, form)
    printed = capsys.readouterr().out
    show_graph(Terminal(json=True), plan, None, form, output)
    document: Any = json.loads(capsys.readouterr().out)

    assert printed == output.read_text() == document["graph"]
    assert document["edges"] == [[need, job] for need, job in edges(plan)]


def test_graph_refuses_a_format_that_does_not_exist() -> None:
    with pytest.raises(UsageError, match="no format 'png'"):
        show_graph(Terminal(), parse(STARTER.encode()), None, "png")
