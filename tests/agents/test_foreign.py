"""Settings for programs of agents that a folder holds: what counts as such, and what is nothing."""

from pathlib import Path

from orchard.agents.backends.project_files import there


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
