"""Commits and files that only git's own notes on a worktree lead to outlive the worktree."""

from pathlib import Path

import pytest

from orchard.git.repository import Worktree
from orchard.git.worktree.save import CannotSave, Saved, ensure_saved, restore, saved_work
from orchard.git.worktree.worktrees import Worktrees
from orchard.testing import Repo

REF = "refs/orchard/wip/p1/build/1"


@pytest.fixture
def worktree(repo: Repo, trees: Worktrees) -> Worktree:
    repo.commit({"a": "a\n", "b": "b\n"})
    return trees.add(repo.head(), "job")


@pytest.fixture
def job(worktree: Worktree) -> Repo:
    """The worktree, as the job sees it."""
    return Repo(worktree.path)


def save(trees: Worktrees, worktree: Worktree, base: str) -> Saved:
    return ensure_saved(trees.repo, worktree, REF, "interrupted", base)


def forget(repo: Repo, trees: Worktrees, worktree: Worktree, saved: Saved) -> None:
    """Remove the worktree, and everything that no ref reaches."""
    trees.remove(worktree, saved)
    trees.empty_trash()
    repo("reflog", "expire", "--expire=now", "--all")
    repo("gc", "-q", "--prune=now")


def _conflict(job: Repo) -> tuple[str, str]:
    """A commit of somebody else's, and two of the job's that change the same line."""
    start = job.head()
    theirs = job.commit({"a": "theirs\n"}, message="theirs")
    job("checkout", "-q", "--detach", start)
    job.commit({"a": "ours\n"}, message="hours of work")
    return theirs, job.commit({"precious": "precious\n"}, message="precious")


def _rebase(job: Repo) -> str:
    theirs, mine = _conflict(job)
    job.run("rebase", theirs)
    return mine


def _interactive_rebase(job: Repo) -> str:
    _, mine = _conflict(job)
    job.run("rebase", "--exec", "false", "HEAD~2")
    return mine


def _rebase_by_patches(job: Repo) -> str:
    theirs, mine = _conflict(job)
    job.run("rebase", "--apply", theirs)
    return mine


def _merge(job: Repo) -> str:
    theirs, mine = _conflict(job)
    job("checkout", "-q", "--detach", theirs)
    job.run("merge", mine)
    (job.path / "precious").unlink()
    return mine


def _cherry_pick(job: Repo) -> str:
    theirs, mine = _conflict(job)
    job("checkout", "-q", "--detach", theirs)
    job.run("cherry-pick", f"{mine}~1", mine)
    return mine


def _revert(job: Repo) -> str:
    _, mine = _conflict(job)
    job.commit({"a": "once more\n"})
    job.run("revert", "--no-edit", f"{mine}~1", mine)
    job("checkout", "-q", "-f", "--detach", f"{mine}~2")
    return mine


def _bisect(job: Repo) -> str:
    _, mine = _conflict(job)
    job("bisect", "start", mine, f"{mine}~2")
    job("checkout", "-q", "--detach", f"{mine}~2")
    return mine


def _autostash(job: Repo) -> str:
    theirs, _ = _conflict(job)
    job.write({"b": "not committed yet\n"})
    job.run("rebase", "--autostash", theirs)
    notes = Path(job("rev-parse", "--absolute-git-dir").strip())
    return (notes / "rebase-merge" / "autostash").read_text().strip()


def _reset(job: Repo) -> str:
    _, mine = _conflict(job)
    job("reset", "-q", "--hard", "HEAD~2")
    return mine


def _amend(job: Repo) -> str:
    _, mine = _conflict(job)
    job("rm", "-q", "precious")
    job("commit", "-q", "--amend", "--allow-empty", "-m", "nothing precious any more")
    return mine


def _own_ref(job: Repo) -> str:
    _, mine = _conflict(job)
    job("update-ref", "refs/worktree/mine", mine)
    job("checkout", "-q", "--detach", "HEAD~2")
    notes = Path(job("rev-parse", "--absolute-git-dir").strip())
    (notes / "logs" / "HEAD").unlink()
    return mine


STOPPED = {
    "rebase": _rebase,
    "interactive rebase": _interactive_rebase,
    "rebase by patches": _rebase_by_patches,
    "merge": _merge,
    "cherry-pick": _cherry_pick,
    "revert": _revert,
    "bisect": _bisect,
    "autostash": _autostash,
    "reset": _reset,
    "amend": _amend,
    "ref of its own": _own_ref,
}


@pytest.mark.parametrize("what", STOPPED)
@pytest.mark.parametrize("folder", ["there", "gone"])
def test_commits_that_only_gits_notes_know_outlive_the_worktree(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo, what: str, folder: str
) -> None:
    base = repo.head()
    mine = STOPPED[what](job)
    if folder == "gone":
        worktree.path.rename(worktree.path.with_name("away"))

    saved = save(trees, worktree, base)
    forget(repo, trees, worktree, saved)

    assert repo("cat-file", "-t", mine) == "commit\n"
    assert repo("for-each-ref", f"--contains={mine}", "refs/orchard/wip/p1/build")
    assert dict(saved.refs) == repo.refs("refs/orchard/wip")


def test_they_are_listed_and_can_be_restored(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo, tmp_path: Path
) -> None:
    mine = _rebase(job)

    saved = save(trees, worktree, repo.head())
    forget(repo, trees, worktree, saved)

    rows = {work.commit: work for work in saved_work(trees.repo, "p1")}
    assert rows[mine].subject == "precious" and rows[mine].files == 1
    restore(trees.repo, rows[mine].ref, tmp_path / "rescued")
    assert (tmp_path / "rescued" / "precious").read_text() == "precious\n"
    notes = next(work for work in rows.values() if "notes of a rebase" in work.subject)
    listed = repo("ls-tree", "-r", "--name-only", notes.commit).split()
    assert "notes/rebase-merge/git-rebase-todo" in listed and "index/2/a" in listed and "index/3/a" in listed


def test_patches_that_a_stopped_am_has_not_come_to_are_saved(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo
) -> None:
    base = repo.head()
    theirs, mine = _conflict(job)
    patches = job("format-patch", "--stdout", f"{mine}~2..{mine}").encode()
    job("checkout", "-q", "--detach", theirs)
    job.run("am", "-3", stdin=patches)

    saved = save(trees, worktree, base)
    forget(repo, trees, worktree, saved)

    notes = saved.more[-1][1]
    assert "precious" in repo("cat-file", "blob", f"{notes}:notes/rebase-apply/0002")


def test_a_hundred_amended_commits_make_few_refs_and_none_is_lost(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo
) -> None:
    base, made = repo.head(), []
    for number in range(30):
        made.append(job.commit({f"n{number}": "x"}))
        job("reset", "-q", "--hard", base)

    saved = save(trees, worktree, base)
    forget(repo, trees, worktree, saved)

    assert len(saved.refs) <= 20
    assert all(repo.exists(one) for one in made)


def test_notes_that_name_nothing_new_make_no_ref(repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo) -> None:
    base = repo.head()
    repo("branch", "known", repo.commit({"c": "c"}))
    job("checkout", "-q", "--detach", "known")
    job("checkout", "-q", "--detach", base)

    assert save(trees, worktree, base).refs == ()


def test_a_worktree_that_was_reset_knows_nothing_of_the_job_before(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo
) -> None:
    base = repo.head()
    mine = _reset(job)
    trees.reset(worktree, base, save(trees, worktree, base))
    repo("update-ref", "-d", f"{REF.rpartition('/')[0]}/1")

    assert save(trees, worktree, base).refs == ()
    assert mine not in job.run("reflog").stdout.decode()


def test_notes_too_large_to_look_through_keep_the_worktree(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo
) -> None:
    notes = Path(job("rev-parse", "--absolute-git-dir").strip())
    with (notes / "ORIG_HEAD").open("wb") as file:
        file.truncate(64 * 1024 * 1024)

    with pytest.raises(CannotSave, match="ORIG_HEAD"):
        save(trees, worktree, repo.head())
