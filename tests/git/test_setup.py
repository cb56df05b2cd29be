"""Ignored files come along into worktrees, and nothing else does."""

import os
import stat
from pathlib import Path

import pytest

from orchard.errors import UsageError
from orchard.git.repository import Worktree
from orchard.git.worktree import setup
from orchard.git.worktree.commit import CommitInfo, Committed, commit_work
from orchard.git.worktree.setup import copy_included, link_folders
from orchard.git.worktree.worktrees import Worktrees
from orchard.testing import Repo


@pytest.fixture
def worktree(repo: Repo, trees: Worktrees) -> Worktree:
    repo.commit({".gitignore": ".env*\nsecrets/\nnode_modules/\n*.key\n", "tracked": "x"})
    return trees.add(repo.head(), "job")


def copy(repo: Repo, trees: Worktrees, worktree: Worktree, *patterns: str) -> list[str]:
    return copy_included(trees.repo, repo.path, worktree, (".env", *patterns), roots=(trees.root,))


def test_what_patterns_name_is_copied(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    repo.write({".env": "A=1", ".env.local": "B=2", "secrets/a/key": "k", "secrets/b": "n", "x.key": "no"})
    (repo.path / "secrets/a/key").chmod(0o640)
    os.utime(repo.path / ".env", (1000, 1000))

    names = copy(repo, trees, worktree, "secrets/a/", "!nothing")

    assert sorted(names) == [".env", "secrets/a/key"]
    assert (worktree.path / ".env").read_text() == "A=1"
    assert stat.S_IMODE((worktree.path / "secrets/a/key").stat().st_mode) == 0o640
    assert (worktree.path / ".env").stat().st_mtime == 1000
    assert Repo(worktree.path)("status", "--porcelain") == ""


def test_without_patterns_nothing_is_copied(repo: Repo, trees: Worktrees) -> None:
    repo.commit({".gitignore": ".env\n"})
    repo.write({".env": "A=1"})

    assert copy_included(trees.repo, repo.path, trees.add(repo.head(), "job"), ()) == []
    assert copy_included(trees.repo, None, trees.add(repo.head(), "job"), ("*",)) == []


def test_what_git_does_not_ignore_is_never_copied(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    repo.write({"notes.txt": "untracked", "tracked": "edited"})

    assert copy(repo, trees, worktree, "*") == []
    assert (worktree.path / "tracked").read_text() == "x"


def test_what_only_the_users_checkout_ignores_is_not_copied(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    """In the worktree it would be a new file, and end in the job's commit."""
    repo.write({".gitignore": "*.new\n", "a.new": "x"})

    assert copy(repo, trees, worktree, "*.new") == []


def test_a_file_that_exists_is_not_overwritten(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    repo.write({".env": "the user's"})
    (worktree.path / ".env").write_text("the job's")

    assert copy(repo, trees, worktree) == []
    assert (worktree.path / ".env").read_text() == "the job's"


def test_links_are_not_followed_on_either_side(
    repo: Repo, trees: Worktrees, worktree: Worktree, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.key").write_text("secret")
    (repo.path / "a.key").symlink_to(outside / "x.key")
    repo.write({"secrets/b.key": "b", "deep/c.key": "c"})
    (worktree.path / "deep").symlink_to(outside)
    (worktree.path / "secrets").symlink_to(outside)

    names = copy(repo, trees, worktree, "*.key")

    assert names == []
    assert sorted(path.name for path in outside.iterdir()) == ["x.key"]
    assert not os.path.lexists(worktree.path / "a.key")


def test_our_own_worktrees_and_other_repositories_are_not_copied(
    repo: Repo, trees: Worktrees, worktree: Worktree
) -> None:
    (worktree.path / ".env").write_text("in a worktree of ours")
    Repo.make(repo.path / "node_modules/inner")
    repo.write({"node_modules/x": "1"})
    other = trees.add(repo.head(), "other")

    assert copy(repo, trees, other, ".env", "node_modules/", ".worktrees/") == ["node_modules/x"]


def test_odd_names_are_copied(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    names = [b"new\nline.key", b"\xff.key", b"-dash.key", b'quote".key']
    for name in names:
        (repo.path / os.fsdecode(name)).write_bytes(name)

    assert len(copy(repo, trees, worktree, "*.key")) == len(names)
    assert all((worktree.path / os.fsdecode(name)).read_bytes() == name for name in names)


@pytest.mark.parametrize("limit", ["MAX_FILES", "MAX_BYTES"])
def test_too_much_is_an_error_that_says_so(
    repo: Repo, trees: Worktrees, worktree: Worktree, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup, limit, 2)
    repo.write({f"secrets/{number}": "content" for number in range(3)})

    with pytest.raises(UsageError, match="limit"):
        copy(repo, trees, worktree, "secrets/")

    assert not (worktree.path / "secrets").exists()


def test_a_linked_folder_is_shared_and_stays_out_of_the_commit(
    repo: Repo, trees: Worktrees, worktree: Worktree
) -> None:
    repo.write({"node_modules/pkg/index.js": "1"})

    result = link_folders(trees, repo.path, worktree, ["node_modules", "node_modules"])

    assert result.linked == ("node_modules",)
    assert result.skipped == (("node_modules", "its place is taken"),)
    assert (worktree.path / "node_modules/pkg/index.js").read_text() == "1"
    (worktree.path / "work").write_text("x")
    done = commit_work(trees.repo, worktree, repo.head(), CommitInfo("x", "refs/orchard/keep/p/j/1", ("A", "a@b")))
    assert isinstance(done, Committed) and done.added == 1
    assert "node_modules" not in repo("ls-tree", "--name-only", done.commit)


@pytest.mark.parametrize(
    "name", [".", "..", "", ".git", "a/../b", "/etc", "missing", "src", "link", ".GIT", "file.key"]
)
def test_what_cannot_be_linked_is_skipped_with_a_reason(
    repo: Repo, trees: Worktrees, worktree: Worktree, name: str, tmp_path: Path
) -> None:
    repo.write({"src/x": "not ignored", "file.key": "ignored, but a file"})
    (repo.path / "link").symlink_to(tmp_path)

    result = link_folders(trees, repo.path, worktree, [name])

    assert result.linked == () and result.skipped[0][1]
    assert not any(path.is_symlink() for path in worktree.path.iterdir())
