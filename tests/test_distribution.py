"""What people install: a wheel with the pages, metadata that names no stranger, and files that a release needs."""

import json
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest

from orchard import __version__
from orchard.surfaces.cli.commands.machine.topics import pages
from orchard.surfaces.cli.start import run_command_line

ROOT = Path(__file__).parent.parent
HOME = "https://forge.example/owner/orchard"
LINK = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")


def hatchling(*words: str, home: str = "") -> str:
    env = {**os.environ, "ORCHARD_REPOSITORY": home}
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", *words],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("dist")
    hatchling("build", "-t", "wheel", "-d", str(folder), home=HOME)
    [made] = folder.glob("*.whl")
    return zipfile.ZipFile(made)


def metadata(home: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(hatchling("metadata", home=home))
    return found


def test_the_wheel_has_the_command_and_every_page(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    [told] = [name for name in names if name.endswith(".dist-info/METADATA")]
    [points] = [name for name in names if name.endswith(".dist-info/entry_points.txt")]

    assert {f"orchard/docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= names
    assert "orchard = orchard.__main__:program" in wheel.read(points).decode()
    about = message_from_string(wheel.read(told).decode())
    assert (about["Name"], about["Version"]) == ("orchard-agents", __version__)
    assert {line.partition(", ")[0] for line in about.get_all("Project-URL", [])} >= {"Homepage", "Source", "Issues"}


def test_the_wheel_has_the_dashboard_and_nothing_that_it_was_made_of(wheel: zipfile.ZipFile) -> None:
    built = {name for name in wheel.namelist() if name.startswith("orchard/surfaces/http/pages/dashboard/")}

    assert any(name.endswith("/index.html") for name in built)
    assert sum(name.endswith(".js") for name in built) >= 2
    assert not [name for name in wheel.namelist() if name.startswith("web/") or "node_modules" in name]


def test_every_link_of_the_published_readme_leads_somewhere_from_anywhere() -> None:
    text = metadata(HOME)["readme"]["text"]

    links = LINK.findall(text)
    assert len(links) > 10
    assert [link for link in links if not link.startswith(f"{HOME}/")] == []
    assert f"]({HOME}/raw/main/docs/run.svg)" in text, "a picture is the file itself"


def test_a_build_that_does_not_know_where_the_project_lives_names_no_address() -> None:
    told = metadata("")

    assert "urls" not in told or not told["urls"]
    assert told["readme"]["text"] == (ROOT / "README.md").read_text("utf-8")
    assert told["version"] == __version__


@pytest.mark.parametrize("page", sorted(pages()))
def test_help_reads_every_page(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["help", f"{page}.md"]) == 0

    first = (ROOT / "docs" / f"{page}.md").read_text("utf-8").splitlines()[0]
    assert capsys.readouterr().out.splitlines()[0] == first


def test_help_names_the_page_of_a_command_that_has_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["help", "agents"]) == 0
    assert "orchard help agents.md" in capsys.readouterr().out

    assert run_command_line(["help"]) == 0
    shown = capsys.readouterr().out
    assert "plan-file " in shown and "agents.md " in shown

    assert run_command_line(["help", "docs/plan-file.md"]) == 0
    assert "# The plan file" in capsys.readouterr().out


def test_the_templates_of_a_release_agree_with_the_project() -> None:
    workflow = (ROOT / ".github" / "workflows" / "release.yml").read_text("utf-8")
    formula = (ROOT / "packaging" / "orchard.rb").read_text("utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    marks = set(re.findall(r"@[A-Z0-9]+@", formula))
    assert marks and all(f"s|{mark}|" in workflow for mark in marks), "the release fills in every mark"
    assert f'license "{project["license"]}"' in formula
    assert project["description"].removesuffix(".") in formula
    assert f"{project['name'].replace('-', '_')}-$version.tar.gz" in workflow
