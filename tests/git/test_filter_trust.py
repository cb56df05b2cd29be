"""What a repository that a job wrote can add to a filter that the user has."""

from pathlib import Path

import pytest

from orchard.git.command import Git
from orchard.git.repository import block_filters
from orchard.testing import Repo


@pytest.mark.parametrize("key", ["process", "clean", "smudge"])
def test_a_repository_adds_no_program_to_a_filter_of_the_user_s(repo: Repo, tmp_path: Path, key: str) -> None:
    mark = tmp_path / "ran"
    users = {"process": "", "clean": "cat", "smudge": "cat"} | {key: ""}
    trusted = tuple((f"filter.crypt.{name}", value) for name, value in users.items() if value)
    repo("config", f"filter.crypt.{key}", f"touch {mark}; cat")
    repo.write({".gitattributes": "*.txt filter=crypt\n", "a.txt": "one\n"})
    folder = repo.path / ".git"
    git = block_filters(Git(folder, folder, cwd=repo.path, work_tree=repo.path), trusted)

    git("add", "a.txt", ok=(0, 1, 128))
    git("checkout-index", "-f", "a.txt", ok=(0, 1, 128))

    assert not mark.exists()
