"""Settings for programs of agents that a folder holds: what counts as such, and what is nothing."""

import time
from pathlib import Path

import pytest

from orchard.agents.backends.project_files import foreign, there
from orchard.agents.protocol import Task
from orchard.process.launcher import Launcher


def test_an_empty_folder_that_a_killed_sandbox_left_holds_no_settings(tmp_path: Path) -> None:
    (tmp_path / ".codex").mkdir()

    assert there(tmp_path, (".codex",)) == []


def test_whatever_could_hold_settings_counts_also_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "config.toml").touch()
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("empty")
    (tmp_path / "dangling").symlink_to("nowhere")

    assert there(tmp_path, ("empty", "full", "file", "link", "dangling", "none")) == [
        "full",
        "file",
        "link",
        "dangling",
    ]


def sets(folder: Path, text: str) -> bool:
    """Whether a file of this text is found to set a variable that matters."""
    (folder / ".env").write_text(text)
    task = Task("Do it", folder, {}, private=folder, scratch=folder, log=folder / "log", launcher=Launcher())
    return foreign(task, (), (".env",)) == [(folder / ".env").resolve()]


@pytest.mark.parametrize(
    "text",
    [
        "PATH=x",
        "\n\n \t PATH=x",
        "A=1\rPATH: x",
        "export PATH=x",
        "export\n\nPATH\n\n=x",
        "\ufeffPATH=x",
        "\u00a0PATH=x",
        "A=1\u2028PATH=x",
    ],
)
def test_a_variable_that_matters_is_found_however_a_file_sets_it(tmp_path: Path, text: str) -> None:
    assert sets(tmp_path, text)
    assert not sets(tmp_path, text.replace("PATH", "COLOUR"))


@pytest.mark.parametrize(
    "unit", ["\n", "\r", " ", "export\n", "export ", "a\n", "\u2028", "\u00a0", "a", "a.", "=", "\t\n"]
)
def test_a_long_file_of_variables_takes_no_time(tmp_path: Path, unit: str) -> None:
    length = 1_000_000 // len(unit.encode())
    begun = time.monotonic()

    for text in (unit * length, "export" + unit * (length - 10), "\n" * 10_000 + unit * (length - 10_000)):
        assert not sets(tmp_path, text)

    assert time.monotonic() - begun < 5
