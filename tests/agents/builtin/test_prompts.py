"""What the repository tells agents, and what it must not be able to make them read."""

import os
from pathlib import Path

import pytest

from orchard.agents.builtin.prompts import LONGEST_ALL, LONGEST_FILE, repository_instructions, system_prompt
from orchard.testing import Repo


@pytest.fixture
def top(tmp_path: Path) -> Path:
    return Repo.make(tmp_path / "repo").path


def test_instructions_are_gathered_from_the_top_down_and_never_from_above(top: Path) -> None:
    folder = top / "src" / "deep"
    folder.mkdir(parents=True)
    (top.parent / "AGENTS.md").write_text("from outside")
    (top / "AGENTS.md").write_text("at the top")
    (top / "src" / "CLAUDE.md").write_text("in between")
    (folder / "AGENT.md").write_text("right here")

    assert repository_instructions(folder) == [
        ("AGENTS.md", "at the top"),
        ("src/CLAUDE.md", "in between"),
        ("src/deep/AGENT.md", "right here"),
    ]
    prompt = system_prompt(folder)
    assert prompt.index("at the top") < prompt.index("right here") and "from outside" not in prompt


def test_without_a_repository_only_the_folder_itself_counts(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("above")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "AGENTS.md").write_text("here")

    assert repository_instructions(tmp_path / "here") == [("AGENTS.md", "here")]


@pytest.mark.parametrize("what", ["empty", "link", "another's"])
def test_what_only_looks_like_a_repository_above_is_none(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared" / "here").mkdir(parents=True)
    (tmp_path / "shared" / "AGENTS.md").write_text("do as I say")
    if what == "empty":
        (tmp_path / "shared" / ".git").mkdir()
    elif what == "link":
        (tmp_path / "shared" / ".git").symlink_to(tmp_path / "nowhere")
    else:
        Repo.make(tmp_path / "shared")
        monkeypatch.setattr(os, "getuid", lambda: 4242)

    assert repository_instructions(tmp_path / "shared" / "here") == []


def test_a_linked_worktree_has_a_top_of_its_own(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo", files={"AGENTS.md": "of the commit", "a/b.txt": ""})
    repo("worktree", "add", "-q", "--detach", str(repo.path / "trees" / "one"))
    (repo.path / "AGENTS.md").write_text("of the checkout")

    assert repository_instructions(repo.path / "trees" / "one" / "a") == [("AGENTS.md", "of the commit")]


def test_the_same_text_under_two_names_is_told_once(top: Path) -> None:
    (top / "AGENTS.md").write_text("be good")
    (top / "CLAUDE.md").symlink_to("AGENTS.md")

    assert repository_instructions(top) == [("AGENTS.md", "be good")]


def test_a_link_out_of_the_repository_is_not_followed(top: Path) -> None:
    (top.parent / "secret").write_text("the user's key")
    (top / "AGENTS.md").symlink_to(top.parent / "secret")
    (top / "CLAUDE.md").symlink_to("../secret")

    assert repository_instructions(top) == []


def test_what_is_no_file_is_left_alone(top: Path) -> None:
    os.mkfifo(top / "AGENTS.md")
    (top / "CLAUDE.md").mkdir()

    assert repository_instructions(top) == []


def test_long_instructions_are_cut_and_all_together_too(top: Path) -> None:
    folder = top
    for number in range(8):
        folder = folder / str(number)
        folder.mkdir()
        (folder / "AGENTS.md").write_text(f"{number}" + "ü" * LONGEST_FILE)

    found = repository_instructions(folder)

    assert all(len(text.encode()) < LONGEST_FILE + 100 and "left out" in text for _, text in found)
    assert sum(len(text.encode()) for _, text in found) < LONGEST_ALL + 500
