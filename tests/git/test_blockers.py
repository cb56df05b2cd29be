"""Pipes and devices where git opens a file: named at once, never waited for."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchard.git.command import Blocked
from orchard.git.history import worktree_diff
from orchard.git.repository import Repository, Worktree, find_repository
from orchard.git.worktree.commit import CommitInfo, Committed, Refused, commit_work, worktree_changes
from orchard.git.worktree.save import ensure_saved
from orchard.git.worktree.status import fingerprint, refuse_blocked_notes
from orchard.git.worktree.worktrees import Worktrees
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo

INFO = CommitInfo("Build it", "refs/orchard/keep/p1/build/1", ("Ada Tester", "ada@example.com"))
REF = "refs/orchard/wip/p1/build/1"
LONGEST = 15.0


@pytest.fixture
def worktree(repo: Repo, trees: Worktrees) -> Worktree:
    repo.commit({"a": "a\n", "dir/c": "c\n"})
    return trees.add(repo.head(), "job")


@pytest.fixture(autouse=True)
def nothing_hangs() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < LONGEST


NAMES = (".gitignore", ".gitattributes", ".gitmodules", ".mailmap", "dir/.gitignore", "new/deep/.gitattributes")


@pytest.mark.parametrize("name", NAMES)
def test_a_pipe_where_git_reads_is_refused_by_name(repo: Repo, trees: Worktrees, worktree: Worktree, name: str) -> None:
    place = worktree.path / name
    place.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(place)
    (worktree.path / "x.txt").write_text("x")

    done = commit_work(trees.repo, worktree, repo.head(), INFO, made_from=trees.made_from(worktree))

    assert isinstance(done, Refused) and done.paths == (name,)


@pytest.mark.parametrize("name", NAMES)
def test_the_rest_of_the_worktree_is_saved_all_the_same(
    repo: Repo, trees: Worktrees, worktree: Worktree, name: str
) -> None:
    place = worktree.path / name
    place.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(place)
    (worktree.path / "x.txt").write_text("x")

    saved = ensure_saved(trees.repo, worktree, REF, "stopped", repo.head())

    assert saved.ref == REF and repo.files(REF)["x.txt"] == "x"
    trees.reset(worktree, repo.head(), saved)
    assert Repo(worktree.path)("status", "--porcelain", "--ignored") == ""


@pytest.mark.parametrize("name", ["index", "HEAD", "ORIG_HEAD", "config.worktree", "logs/HEAD", "rebase-merge/onto"])
def test_pipes_among_gits_notes_on_a_worktree_hang_nobody(
    repo: Repo, trees: Worktrees, worktree: Worktree, name: str
) -> None:
    place = trees.repo.common_dir / "worktrees" / worktree.name / name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    (worktree.path / "x.txt").write_text("x")

    done = commit_work(trees.repo, worktree, repo.head(), INFO, made_from=trees.made_from(worktree))
    assert isinstance(done, Refused) and done.paths == (name,)
    saved = ensure_saved(trees.repo, worktree, REF, "stopped", repo.head())

    assert repo.files(REF)["x.txt"] == "x"
    trees.remove(worktree, saved)


@pytest.mark.parametrize("name", ["HEAD", "gitdir", "locked", "index"])
def test_pipes_among_gits_notes_do_not_keep_us_from_listing_checkouts(
    repo: Repo, trees: Worktrees, worktree: Worktree, name: str
) -> None:
    place = trees.repo.common_dir / "worktrees" / worktree.name / name
    place.unlink()
    os.mkfifo(place)

    assert trees.repo.checkouts()[0].path == repo.path
    saved = ensure_saved(trees.repo, worktree, REF, "stopped", repo.head())
    trees.remove(worktree, saved)


def test_a_pipe_among_the_notes_on_a_worktree_of_the_users_is_named(repo: Repo, trees: Worktrees) -> None:
    repo("worktree", "add", "-q", str(repo.path.parent / "mine"), "-b", "mine")
    place = trees.repo.common_dir / "worktrees" / "mine" / "HEAD"
    place.unlink()
    os.mkfifo(place)

    with pytest.raises(Blocked, match="worktrees/mine/HEAD"):
        trees.repo.checkouts()
    assert place.is_fifo()


@pytest.mark.parametrize("name", ["refs/heads/evil", "refs/orchard/deep/evil", "packed-refs"])
def test_a_pipe_among_the_refs_fails_the_job_that_left_it_by_name(
    repo: Repo, trees: Worktrees, worktree: Worktree, name: str
) -> None:
    place, base = trees.repo.common_dir / name, repo.head()
    place.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(place)
    (worktree.path / "x.txt").write_text("x")

    done = commit_work(trees.repo, worktree, base, INFO, made_from=trees.made_from(worktree))

    assert isinstance(done, Refused) and done.paths == (name,)


def test_what_a_look_costs_does_not_grow_with_the_jobs_that_ever_ran(
    repo: Repo, repository: Repository, worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3000):
        (repository.common_dir / f"refs/orchard/keep/plan/job{number}").mkdir(parents=True)
    looked: list[bytes] = []
    scan = os.scandir

    def counted(path: bytes) -> "os._ScandirIterator[bytes]":
        looked.append(path)
        return scan(path)

    monkeypatch.setattr("orchard.git.pipes.os.scandir", counted)
    git = repository.worktree_git(worktree.name, worktree.path)
    refuse_blocked_notes(git)
    once = len(looked)

    for _ in range(20):
        refuse_blocked_notes(git)

    assert once > 3000 and len(looked) < 3 * once
    os.mkfifo(repository.common_dir / "refs/orchard/keep/plan/evil")
    with pytest.raises(Blocked, match="plan/evil"):
        refuse_blocked_notes(git, thorough=True)


@pytest.mark.parametrize("target", [None, "/dev/zero"])
def test_a_git_that_waits_at_a_pipe_or_device_is_stopped_and_the_way_out_is_told(
    repo: Repo, repository: Repository, target: str | None
) -> None:
    place = repository.common_dir / "refs" / "heads" / "evil"
    if target is None:
        os.mkfifo(place)
    else:
        place.symlink_to(target)

    with pytest.raises(Blocked, match="refs/heads/evil") as told:
        repository.branches()
    assert in_commands(told.value.hint or "").endswith(f"rm '{place}'")
    subprocess.run(in_commands(told.value.hint or "").partition(": ")[2], shell=True, check=True)
    assert repository.branches() == {"main": repo.head()}


def test_a_pipe_in_place_of_an_object_is_found_as_well(repo: Repo, repository: Repository) -> None:
    oid = repo("hash-object", "-w", "README.md").strip()
    place = repository.common_dir / "objects" / oid[:2] / oid[2:]
    place.unlink()
    os.mkfifo(place)

    with pytest.raises(Blocked, match=oid[2:]):
        repository.git("cat-file", "-p", oid)


def test_looking_and_comparing_wait_for_nothing(repo: Repo, repository: Repository, worktree: Worktree) -> None:
    os.mkfifo(worktree.path / ".gitattributes")

    with pytest.raises(Blocked):
        worktree_changes(repository, worktree)
    with pytest.raises(Blocked):
        fingerprint(repository.worktree_git(worktree.name, worktree.path), worktree.path)
    assert ".gitattributes" in worktree_diff(repository, worktree, repo.head(), 1000)


def test_a_socket_of_gits_own_is_no_obstacle(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        notes = trees.repo.common_dir / "worktrees" / worktree.name
        here = Path.cwd()
        os.chdir(notes)  # the path of a socket has to be short
        try:
            server.bind("fsmonitor--daemon.ipc")
        finally:
            os.chdir(here)
        (worktree.path / "x.txt").write_text("x")

        done = commit_work(trees.repo, worktree, repo.head(), INFO)

    assert isinstance(done, Committed) and done.changed


@pytest.mark.parametrize("name", [".git/HEAD", ".git/config", ".git"])
def test_a_repository_whose_first_notes_are_pipes_is_refused_at_once(tmp_path: Path, name: str) -> None:
    place = tmp_path / name
    if name == ".git":
        os.mkfifo(place)
    else:
        subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
        place.unlink()
        os.mkfifo(place)
    (tmp_path / "deep").mkdir()

    with pytest.raises(Blocked, match=place.name):
        find_repository(tmp_path / "deep")


def test_a_linked_worktree_whose_repository_holds_a_pipe_is_refused_at_once(repo: Repo, tmp_path: Path) -> None:
    repo("worktree", "add", "-q", str(tmp_path / "linked"))
    (repo.path / ".git/config").unlink()
    os.mkfifo(repo.path / ".git/config")

    with pytest.raises(Blocked, match="config"):
        find_repository(tmp_path / "linked")
