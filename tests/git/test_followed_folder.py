"""A folder that holds the next commit already is not checked out again: HEAD and index follow it."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from orchard.git.folders import plain_content
from orchard.git.landing.index import BadIndex, Stand, changed_index
from orchard.git.objects.processes import Live
from orchard.git.repository import Worktree
from orchard.git.worktree.worktrees import ProofIsOld, Worktrees
from orchard.testing import Repo
from tests.git.test_plain import change_at_random, commit, save


@pytest.fixture
def checkouts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The commits that git was asked to check out."""
    found: list[str] = []
    check_out = Worktrees._check_out

    def noted(trees: Worktrees, worktree: Worktree, wanted: str, *more: object) -> None:
        found.append(wanted)
        check_out(trees, worktree, wanted, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(Worktrees, "_check_out", noted)
    return found


def stands_at(worktree: Worktree, wanted: str) -> bool:
    """Whether git finds nothing in the folder but this commit, detached."""
    job = Repo(worktree.path)
    assert job("--no-optional-locks", "status", "--porcelain", "--ignored") == ""
    assert job("diff-index", "--cached", wanted) == "" and job("ls-files", "--unmerged") == ""
    assert job("rev-parse", "--abbrev-ref", "HEAD").strip() == "HEAD"
    return job.head() == wanted


def test_a_chain_of_random_changes_is_followed_without_a_checkout(
    repo: Repo, trees: Worktrees, live: Live, worktree: Worktree, checkouts: list[str]
) -> None:
    seed = int(os.environ.get("ORCHARD_SEED", random.randrange(10**9)))
    base, followed = repo.head(), 0
    for number in range(30):
        change_at_random(random.Random(f"{seed}-{number}"), worktree.path)
        (worktree.path / "always").write_text(str(number))
        done = commit(trees, live, worktree, base, replaces=number > 0)
        saved = save(trees, live, worktree, done.commit)

        trees.reset(worktree, done.commit, saved)

        assert stands_at(worktree, done.commit), f"ORCHARD_SEED={seed}"
        assert trees.made_from(worktree) == done.commit
        followed += saved.stands_at == done.commit
        base = done.commit
    assert followed >= 10 and len(checkouts) <= 30 - followed


def linked(worktree: Worktree) -> None:
    os.link(worktree.path / "new", worktree.path.parent / "elsewhere")


def unreadable(worktree: Worktree) -> None:
    (worktree.path / "new").chmod(0o600)


def by_all(worktree: Worktree) -> None:
    (worktree.path / "new").chmod(0o777)


def ignored(worktree: Worktree) -> None:
    (worktree.path / "x.o").write_text("built")


def empty_folder(worktree: Worktree) -> None:
    (worktree.path / "empty").mkdir()


def closed_folder(worktree: Worktree) -> None:
    (worktree.path / "inner").mkdir()
    (worktree.path / "inner" / "file").write_text("x")
    (worktree.path / "inner").chmod(0o500)


def flagged(worktree: Worktree) -> None:
    Repo(worktree.path)("update-index", "--skip-worktree", "a")


@pytest.mark.parametrize("odd", [linked, unreadable, by_all, ignored, empty_folder, closed_folder, flagged])
def test_a_folder_that_is_not_as_git_would_leave_it_is_checked_out(
    repo: Repo, trees: Worktrees, live: Live, worktree: Worktree, checkouts: list[str], odd: Callable[[Worktree], None]
) -> None:
    (worktree.path / "new").write_text("new\n")
    odd(worktree)
    done = commit(trees, live, worktree, repo.head())
    saved = save(trees, live, worktree, done.commit)

    trees.reset(worktree, done.commit, saved)

    assert checkouts == [done.commit]
    assert stands_at(worktree, done.commit)
    found = (worktree.path / "new").lstat()
    assert found.st_nlink == 1 and found.st_mode & 0o777 in (0o644, 0o755)
    assert not (worktree.path / "inner").exists() or (worktree.path / "inner").stat().st_mode & 0o777 == 0o755


def test_an_edit_after_the_commit_is_not_taken_for_the_commit(
    repo: Repo, trees: Worktrees, live: Live, worktree: Worktree
) -> None:
    (worktree.path / "new").write_text("new\n")
    done = commit(trees, live, worktree, repo.head())
    saved = save(trees, live, worktree, done.commit)
    (worktree.path / "new").write_text("NEW\n")

    with pytest.raises(ProofIsOld):
        trees.reset(worktree, done.commit, saved)
    again = save(trees, live, worktree, done.commit)
    trees.reset(worktree, done.commit, again)

    assert again.stands_at is None
    assert stands_at(worktree, done.commit) and (worktree.path / "new").read_text() == "new\n"


def test_the_next_jobs_edits_in_the_same_second_are_seen(
    repo: Repo, trees: Worktrees, live: Live, worktree: Worktree
) -> None:
    (worktree.path / "new").write_text("1111\n")
    done = commit(trees, live, worktree, repo.head())
    trees.reset(worktree, done.commit, save(trees, live, worktree, done.commit))

    (worktree.path / "new").write_text("2222\n")
    (worktree.path / "a").write_text("b\n")

    assert Repo(worktree.path)("status", "--porcelain").split() == ["M", "a", "M", "new"]


@pytest.mark.parametrize("version", [2, 3, 4])
def test_an_index_is_changed_only_where_all_of_it_is_understood(repo: Repo, version: int) -> None:
    repo.commit({"a": "a\n", "b": "b\n", "long/" + "x" * 60: "x\n"})
    if version == 3:
        (repo.path / "new").write_text("new")
        repo("add", "-N", "new")
    repo("update-index", "--index-version", str(version), "--force-write-index")
    place = repo.path / ".git" / "index"
    data = plain_content(place)
    assert data is not None
    stands = {b"b": None, b"a": Stand(0o100755, repo("rev-parse", "HEAD:b").strip(), Path(repo.path / "a").lstat())}

    if version != 2:
        with pytest.raises(BadIndex):
            changed_index(data, stands, 20)
        return
    place.write_bytes(changed_index(data, stands, 20))
    rows = [row.split("\t")[1] for row in repo("ls-files", "-s").splitlines()]
    assert rows == ["README.md", "a", "long/" + "x" * 60] and "100755" in repo("ls-files", "-s", "a")
    assert repo.run("fsck", "--strict").status == 0
