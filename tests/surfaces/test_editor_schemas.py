"""Editors know what Orchard knows: schemas of plan files and settings, and the line by which they are found."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from orchard import __version__
from orchard.config.schema import SCHEMA_ID, settings_schema
from orchard.git.repository import find_repository
from orchard.planfile import parse
from orchard.surfaces.cli.commands.plans.files import starter_config
from orchard.surfaces.cli.editor_schemas import keep_schemas, refresh_schemas
from orchard.surfaces.cli.start import run_command_line
from orchard.testing import Repo

NAMES = [([], parse.SCHEMA_ID), (["plan"], parse.SCHEMA_ID), (["settings"], SCHEMA_ID)]


@pytest.mark.parametrize(("words", "name"), NAMES)
def test_each_schema_has_a_name_of_its_own(words: list[str], name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command_line(["schema", *words]) == 0

    made = json.loads(capsys.readouterr().out)
    Draft202012Validator.check_schema(made)
    assert made["$id"] == name


def test_the_schema_of_settings_takes_every_default_and_no_unknown_key() -> None:
    look = Draft202012Validator(settings_schema())
    every = re.sub(r"^# (\w+ = )", r"\1", starter_config(), flags=re.MULTILINE)

    assert list(look.iter_errors(tomllib.loads(every))) == []
    rows = '[agents.claude]\nmodel = "opus"\n[agents.mine]\ncommand = "x {prompt}"\ntools = "ask"\n'
    assert list(look.iter_errors(tomllib.loads(f'sandbox = "off"\n{rows}'))) == []
    for wrong in (
        "max_paralel = 1",
        'max_parallel = "1"',
        "[heal]\nattempts = -1",
        "[agents.x]\nno = 1",
        "[agents.X]",
    ):
        assert list(look.iter_errors(tomllib.loads(wrong))), wrong


def test_a_run_replaces_schemas_of_another_version_and_makes_none_where_there_are_none(tmp_path: Path) -> None:
    repo = find_repository(Repo.make(tmp_path / "repo").path)
    refresh_schemas(repo)
    assert not list(repo.state.glob("*.schema.json"))

    keep_schemas(repo)
    place = repo.state / "plan.schema.json"
    ours = place.read_text()
    place.write_text(ours.replace(__version__, "0.0.1"))
    refresh_schemas(repo)
    assert place.read_text() == ours


def test_a_plan_that_was_begun_here_names_its_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repo = Repo.make(tmp_path / "repo")
    below = repo.path / "plans"
    below.mkdir()
    for folder, config in ((repo.path, False), (below, False), (repo.path, True)):
        monkeypatch.chdir(folder)
        assert run_command_line(["init", *(["--config"] if config else [])]) == 0
        written = folder / ("orchard.toml" if config else "plan.yaml")
        line = written.read_text().splitlines()[0]
        found = re.fullmatch(r"#:schema (.*)" if config else r"# yaml-language-server: \$schema=(.*)", line)
        assert found is not None, line
        made = json.loads((folder / found[1]).read_text())
        assert made.pop("$comment") == f"of Orchard {__version__}"
        assert made == (settings_schema() if config else parse.schema())
    assert repo("status", "--short").split() == ["??", "orchard.toml", "??", "plan.yaml", "??", "plans/"]


def test_outside_of_a_repository_no_schema_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert run_command_line(["init"]) == 0

    assert "$schema" not in (tmp_path / "plan.yaml").read_text()
