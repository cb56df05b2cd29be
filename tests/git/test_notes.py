"""Git's notes on a worktree, as a job left them: what git could not bear is mended."""

from pathlib import Path

import pytest

from orchard.git.repository import Repository, Worktree
from orchard.git.worktree import notes
from orchard.git.worktree.notes import put_in_order, remember
from orchard.testing import Repo


@pytest.mark.parametrize("split", [False, True])
def test_an_index_of_far_more_paths_than_head_has_is_made_anew(
    repo: Repo, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, split: bool
) -> None:
    """A job can make one of a million paths in a second, and every git that reads it takes minutes."""
    monkeypatch.setattr(notes, "MORE_PATHS", 50)
    repo.write({f"{number}.txt": "x" for number in range(60)})
    repo("add", ".")
    repo("commit", "-qm", "sixty")
    repo("worktree", "add", "-q", "--detach", str(tmp_path / "job"))
    worktree = Worktree("job", tmp_path / "job")
    before = remember(repository, worktree)
    job = Repo(worktree.path)
    job("update-index", "--split-index" if split else "--no-split-index")
    for count, mended in ((40, []), (80, ["index"])):
        for number in range(count):
            (worktree.path / f"more-{number}.txt").write_text("y")
        job("add", ".")

        assert put_in_order(repository, before).done == mended

    assert len(job("ls-files").split()) == len(repo("ls-files").split())
    assert not list(before.folder.glob("orchard-aside/*"))
