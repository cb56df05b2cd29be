"""A real repository for each test, copied from one that is made once per run."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.git.objects.processes import Live
from orchard.git.repository import Repository, Worktree, find_repository
from orchard.git.worktree.worktrees import Worktrees
from orchard.testing import Repo


@pytest.fixture(autouse=True)
def nobodys_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings and variables of whoever runs the tests change nothing."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One commit on `main`; copying it costs a tenth of making it."""
    return Repo.make(tmp_path_factory.mktemp("template") / "repo").path


@pytest.fixture
def repo(template: Path, tmp_path: Path) -> Repo:
    """A checkout of `main` with one commit, in a folder whose name has a space."""
    place = tmp_path / "the repo"
    shutil.copytree(template, place, symlinks=True)
    return Repo(place)


@pytest.fixture
def repository(repo: Repo) -> Repository:
    """The same, as orchard sees it."""
    return find_repository(repo.path)


@pytest.fixture
def trees(repository: Repository) -> Worktrees:
    """The worktrees of that repository, at the usual place."""
    return Worktrees(repository, repository.worktree_root(".worktrees"))


@pytest.fixture
def live(repository: Repository) -> Iterator[Live]:
    """Its open processes."""
    with Live(repository) as live:
        yield live


@pytest.fixture
def worktree(repo: Repo, trees: Worktrees) -> Worktree:
    """A worktree of a commit with a few files."""
    repo.commit({"a": "a\n", "dir/b": "b\n", "dir/c": "c\n", ".gitignore": "*.o\n"})
    return trees.add(repo.head(), "job")
