"""Refs move all together or not at all, and only from where they were expected to be."""

import os
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchard.errors import UsageError
from orchard.git import refs
from orchard.git.command import Git, GitError
from orchard.git.objects.reader import ObjectMissing
from orchard.git.refs import (
    ANY,
    RefMoved,
    Update,
    delete_refs,
    hold,
    integration_ref,
    job_of_ref_part,
    job_ref_part,
    keep_ref,
    list_refs,
    move_ref,
    next_number,
    read_ref,
    snapshot_ref,
    update_refs,
    wip_ref,
)
from orchard.git.repository import Repository, find_repository
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo

PART = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,12}", fullmatch=True)
IDS = st.lists(PART, min_size=1, max_size=3).map("/".join)


@pytest.mark.parametrize(
    ("job", "part"),
    [
        ("build", "build"),
        ("backend/api", "backend/api"),
        ("a/1", "a/%1"),
        ("1", "1"),
        ("a..b", "a.%.b"),
        ("a...b", "a.%.%.b"),
        ("a.lock", "a.%lock"),
        ("a.", "a.%"),
        ("__snapshot-validation__", "__snapshot-validation__"),
    ],
)
def test_a_job_id_becomes_a_part_of_a_ref_name(job: str, part: str) -> None:
    assert job_ref_part(job) == part
    assert job_of_ref_part(part) == job


@pytest.mark.parametrize("job", ["", "a//b", "a b", "a\nb", "../x", "a~1", "é", "a/"])
def test_what_is_no_job_id_does_not_become_a_ref(job: str) -> None:
    if job == "../x":
        assert ".." not in job_ref_part(job)
        return
    with pytest.raises(UsageError):
        job_ref_part(job)


@given(IDS, IDS)
def test_two_jobs_never_share_a_ref_name_and_none_is_a_folder_of_the_other(one: str, other: str) -> None:
    first, second = keep_ref("p", one, 1), keep_ref("p", other, 12)

    assert job_of_ref_part(job_ref_part(one)) == one
    assert first != second
    assert not first.startswith(f"{second}/") and not second.startswith(f"{first}/")


def test_every_odd_id_is_a_name_git_accepts(repo: Repo, repository: Repository) -> None:
    jobs = ["a..b", "a.lock", "a.", "a", "a/1", "a/1/2", "0", "0/0", "x.lock/y.lock", "-a".strip("-") + "-", "a...."]

    update_refs(repository.git, [Update(keep_ref("p1", job, 1), repo.head(), None) for job in jobs], "odd")

    assert len(repo.refs("refs/orchard/keep")) == len(jobs)


def test_the_names_are_as_documented() -> None:
    assert keep_ref("p1", "g/j", 2) == "refs/orchard/keep/p1/g/j/2"
    assert wip_ref("p1", "j", 3) == "refs/orchard/wip/p1/j/3"
    assert integration_ref("p1") == "refs/orchard/integration/p1"
    assert snapshot_ref("p1") == "refs/orchard/snapshot/p1"


def test_a_transaction_moves_all_refs_and_leaves_reflogs(repo: Repo, repository: Repository) -> None:
    first, second = repo.head(), repo.commit()
    update_refs(repository.git, [Update("refs/orchard/a", first, None), Update("refs/orchard/b", first, "")], "make")

    update_refs(
        repository.git,
        [
            Update("refs/orchard/a", second, first),
            Update("refs/orchard/b", None, first),
            Update("refs/orchard/c", first, ANY),
        ],
        "move",
    )

    assert repo.refs() == {"refs/orchard/a": second, "refs/orchard/c": first}
    assert "move" in repo("reflog", "refs/orchard/a")


@pytest.mark.parametrize("kind", ["create", "update", "delete", "absent"])
def test_one_ref_that_moved_stops_the_whole_transaction(repo: Repo, repository: Repository, kind: str) -> None:
    first, second = repo.head(), repo.commit()
    repo("update-ref", "refs/orchard/a", first)
    bad = {
        "create": Update("refs/orchard/a", second, None),
        "update": Update("refs/orchard/a", first, second),
        "delete": Update("refs/orchard/a", None, second),
        "absent": Update("refs/orchard/a", None, None),
    }[kind]

    with pytest.raises(RefMoved) as caught:
        update_refs(repository.git, [Update("refs/orchard/new", second, None), bad], "no")

    assert caught.value.ref == "refs/orchard/a"
    assert caught.value.actual == first
    assert repo.refs() == {"refs/orchard/a": first}


def test_of_many_who_create_a_ref_one_wins(repo: Repo, repository: Repository) -> None:
    commits = [repo.commit(message=str(number)) for number in range(8)]
    won: list[str] = []

    def race(commit: str) -> None:
        try:
            update_refs(repository.git, [Update("refs/orchard/one", commit, None)], "race")
        except RefMoved:
            return
        won.append(commit)

    threads = [threading.Thread(target=race, args=(commit,)) for commit in commits]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert won == [repo.refs()["refs/orchard/one"]]


def test_a_lock_that_is_held_for_a_moment_is_waited_for(repo: Repo, repository: Repository) -> None:
    lock = repo.path / ".git/refs/orchard/a.lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    timer = threading.Timer(0.4, lock.unlink)
    timer.start()

    update_refs(repository.git, [Update("refs/orchard/a", repo.head(), None)], "wait")

    timer.join(10)
    assert repo.exists("refs/orchard/a")


def old_lock(repo: Repo, ref: str, content: str) -> Path:
    lock = repo.path / ".git" / f"{ref}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text(content)
    os.utime(lock, (1, 1))
    return lock


@pytest.mark.parametrize("content", ["", "half of a na"])
def test_a_lock_that_a_killed_git_left_on_a_ref_of_ours_is_removed(
    repo: Repo, repository: Repository, content: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refs, "LOCK_TIMEOUT", 0.1)
    old_lock(repo, "refs/orchard/a", content)

    update_refs(quick(repository), [Update("refs/orchard/a", repo.head(), None)], "m")

    assert repo.head("refs/orchard/a") == repo.head()


def test_a_lock_on_a_branch_is_removed_only_if_it_holds_what_we_write(
    repo: Repo, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refs, "LOCK_TIMEOUT", 0.1)
    old_lock(repo, "refs/heads/ours", f"{repo.head()}\n")
    theirs = old_lock(repo, "refs/heads/theirs", "")

    move_ref(quick(repository), Update("refs/heads/ours", repo.head(), None), "m")
    with pytest.raises(GitError) as refused:
        move_ref(quick(repository), Update("refs/heads/theirs", repo.head(), None), "m")

    assert repo.head("ours") == repo.head()
    assert theirs.exists() and str(theirs) in in_commands(refused.value.hint or "")


@pytest.mark.parametrize("why", ["a gc runs", "it is young"])
def test_a_lock_that_may_be_somebody_elses_stays(
    repo: Repo, repository: Repository, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = old_lock(repo, "refs/orchard/a", "")
    if why == "a gc runs":
        monkeypatch.setattr(refs, "LOCK_TIMEOUT", 0.1)
        (repo.path / ".git/gc.pid").write_text("1 here\n")
    else:
        monkeypatch.setattr(refs, "LOCK_TIMEOUT", 1.0)
        os.utime(lock, (time.time() + 60, time.time() + 60))

    with pytest.raises(GitError):
        update_refs(quick(repository), [Update("refs/orchard/a", repo.head(), None)], "m")

    assert lock.exists()


def quick(repository: Repository) -> Git:
    """A git that waits for no lock."""
    return repository.git.with_config(core__filesRefLockTimeout="0")


def test_a_failure_that_is_no_race_is_reported_as_what_it_is(repo: Repo, repository: Repository) -> None:
    with pytest.raises(GitError):
        update_refs(repository.git, [Update("refs/orchard/a", "1" * 40, None)], "no such object")


def test_reading_does_not_guess(repo: Repo, repository: Repository) -> None:
    repo("update-ref", "refs/orchard/a/b", "HEAD")

    assert read_ref(repository.git, "refs/orchard/a") is None
    assert read_ref(repository.git, "refs/orchard/a/b~0") is None
    assert read_ref(repository.git, "refs/orchard/*/b") is None
    assert read_ref(repository.git, "refs/orchard/a/b") == repo.head()


def test_packed_refs_are_refs(repo: Repo, repository: Repository) -> None:
    repo("update-ref", "refs/orchard/a", "HEAD")
    repo("pack-refs", "--all")

    with pytest.raises(RefMoved):
        update_refs(repository.git, [Update("refs/orchard/a", repo.head(), None)], "again")
    delete_refs(repository.git, {"refs/orchard/a": repo.head()}, "gone")

    assert list_refs(repository.git, "refs/orchard") == {}


def test_sha256_refs_are_created_and_compared(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "r", object_format="sha256")
    git = find_repository(repo.path).git

    update_refs(git, [Update("refs/orchard/a", repo.head(), None)], "make")

    assert len(read_ref(git, "refs/orchard/a") or "") == 64
    with pytest.raises(RefMoved):
        update_refs(git, [Update("refs/orchard/a", repo.head(), None)], "again")


def test_the_hook_for_ref_transactions_does_not_run(repo: Repo, repository: Repository, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    hook = repo.path / ".git/hooks/reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch '{canary}'\nexit 1\n")
    hook.chmod(0o755)

    update_refs(repository.git, [Update("refs/orchard/a", repo.head(), None)], "make")

    assert not canary.exists()


def test_the_next_number_follows_the_highest(repo: Repo, repository: Repository) -> None:
    assert next_number(repository.git, wip_ref("p", "a", 1)) == 1
    for name in ("a/2", "a/10", "a/%1/7", "a/b/99"):
        repo("update-ref", f"refs/orchard/wip/p/{name}", "HEAD")

    assert next_number(repository.git, wip_ref("p", "a", 1)) == 11


def test_a_ref_is_not_made_to_hold_what_cannot_be_read(repo: Repo, repository: Repository) -> None:
    base = repo.head()
    commit = repo.commit({"a": "a"})
    blob = repo("rev-parse", "HEAD:a").strip()
    (repo.path / ".git/objects" / blob[:2] / blob[2:]).unlink()

    with pytest.raises(GitError):
        hold(repository.git, "refs/orchard/keep/p/j/1", commit, base)

    assert repo.refs() == {}


def test_a_ref_goes_again_in_whatever_way_its_proof_fails(repo: Repo, repository: Repository) -> None:
    base = repo.head()
    commit = repo.commit()

    def fail(ref: str, commit: str, base: str) -> None:
        raise ObjectMissing(commit)

    with pytest.raises(ObjectMissing):
        hold(repository.git, "refs/orchard/keep/p/j/1", commit, base, prove=fail)

    assert repo.refs() == {}


def test_while_a_gc_runs_what_is_held_is_packed_as_well(repo: Repo, repository: Repository) -> None:
    base = repo.head()
    commit = repo.commit({"a": "a"})
    (repo.path / ".git/gc.pid").write_text("1 host")

    hold(repository.git, "refs/orchard/keep/p/j/1", commit, base)
    for folder in (repo.path / ".git/objects").iterdir():
        if len(folder.name) == 2:
            for name in folder.iterdir():
                if name.name in (commit[2:], repo("rev-parse", f"{commit}:a").strip()[2:]):
                    name.unlink()  # as a gc would that had begun before there was a ref

    assert repo.files("refs/orchard/keep/p/j/1")["a"] == "a"


def test_holding_the_same_again_is_fine(repo: Repo, repository: Repository) -> None:
    base = repo.head()
    commit = repo.commit()
    for _ in range(2):
        hold(repository.git, "refs/orchard/keep/p/j/1", commit, base)

    with pytest.raises(RefMoved):
        hold(repository.git, "refs/orchard/keep/p/j/1", base, base)
