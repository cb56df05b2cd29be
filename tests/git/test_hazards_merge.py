"""Repositories that are not like the usual one: merging, integrating and landing in them."""

import subprocess
from pathlib import Path

import pytest

from orchard.git.command import OVERRIDES
from orchard.git.landing.checkout import BranchMoved
from orchard.git.landing.landing import land
from orchard.git.landing.obstacles import LandingRefused
from orchard.git.merge.conflicts import resolve_by_side
from orchard.git.merge.integration import Integration, LeafMerge, Prepared
from orchard.git.merge.merge import Merger, UnrelatedHistories
from orchard.git.objects.reader import GITLINK, Objects
from orchard.git.refs import integration_ref, snapshot_ref
from orchard.git.repository import Repository, find_repository
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Content, Repo
from tests.git.merger import merge_commits

TEXT = "".join(f"line {number}\n" for number in range(20))


def detached(repo: Repo, files: dict[str, Content], start: str = "main") -> str:
    repo("checkout", "-q", "--detach", start)
    commit = repo.commit(files)
    repo("checkout", "-q", "main")
    return commit


def whole_way(repository: Repository, target: str, leaves: list[str]) -> BranchMoved | LandingRefused:
    """Start, merge every leaf, land on `main`."""
    with Integration(repository) as line:
        line.start("p1", target)
        for number, commit in enumerate(leaves):
            tips = line.tips("p1")
            assert tips is not None
            prepared = line.prepare(
                LeafMerge("p1", f"j{number}", commit, *tips, title=f"Job {number}", when=1_767_225_600)
            )
            assert isinstance(prepared, Prepared)
            line.publish("p1", prepared)
        tips = line.tips("p1")
        assert tips is not None
        return land(repository, "main", target, tips[1], "orchard: landing")


def test_a_sha256_repository_goes_the_whole_way(tmp_path: Path) -> None:
    repo = Repo.make(tmp_path / "repo", object_format="sha256")
    leaves = [detached(repo, {name: name}) for name in ("a", "b")]

    outcome = whole_way(find_repository(repo.path), repo.head(), leaves)

    assert isinstance(outcome, BranchMoved)
    assert set(repo.files("main")) == {"README.md", "a", "b"}
    assert len(repo.head()) == 64


def test_a_bare_repository_goes_the_whole_way(repo: Repo, tmp_path: Path) -> None:
    leaves = [detached(repo, {name: name}) for name in ("a", "b")]
    for number, commit in enumerate(leaves):
        repo("branch", f"leaf{number}", commit)
    repo("clone", "-q", "--bare", str(repo.path), str(tmp_path / "bare.git"))
    bare = Repo(tmp_path / "bare.git")

    outcome = whole_way(find_repository(bare.path), bare.head("main"), leaves)

    assert outcome == BranchMoved(None)
    assert set(bare.files("main")) == {"README.md", "a", "b"}


def test_a_foreign_git_dir_in_the_environment_changes_nothing(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Repo.make(tmp_path / "other")
    repository = find_repository(repo.path)
    leaves = [detached(repo, {name: name}) for name in ("a", "b")]
    before = other("for-each-ref"), other("count-objects")
    for name, value in (
        ("GIT_DIR", other.path / ".git"),
        ("GIT_WORK_TREE", other.path),
        ("GIT_INDEX_FILE", other.path / ".git/index"),
        ("GIT_OBJECT_DIRECTORY", other.path / ".git/objects"),
    ):
        monkeypatch.setenv(name, str(value))

    outcome = whole_way(repository, repo.head(), leaves)

    assert outcome == BranchMoved(repo.path)
    assert (other("for-each-ref"), other("count-objects")) == before


def test_no_hook_and_no_fsmonitor_runs_on_the_way(repo: Repo, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh\necho \"$0\" >> '{canary}'\nexit 1\n")
    script.chmod(0o755)
    leaves = [detached(repo, {name: name}) for name in ("a", "b")]
    target = repo.head()
    hooks = repo.path / ".git/hooks"
    hooks.mkdir(exist_ok=True)
    for name in (
        "reference-transaction",
        "pre-commit",
        "commit-msg",
        "post-merge",
        "post-checkout",
        "post-index-change",
    ):
        (hooks / name).symlink_to(script)
    repo("config", "core.fsmonitor", str(script))

    outcome = whole_way(find_repository(repo.path), target, leaves)

    assert outcome == BranchMoved(repo.path)
    assert not canary.exists()


def test_with_signing_on_our_own_line_stays_unsigned_and_the_landing_line_is_signed(repo: Repo, tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=60)
    for name, value in (("gpg.format", "ssh"), ("user.signingKey", str(key))):
        repo("config", name, value)
    commit = detached(repo, {"a": "a"})
    repo("config", "commit.gpgSign", "true")
    repository = find_repository(repo.path)

    with Integration(repository) as line:
        line.start("p1", repo.head())
        leaf = LeafMerge(
            "p1", "j", commit, repo.head(), repo.head(), title="t", when=1, sign=repository.wants_signing()
        )
        prepared = line.prepare(leaf)

    assert isinstance(prepared, Prepared)
    assert "gpgsig" in repo("cat-file", "commit", prepared.snapshot)
    assert "gpgsig" not in repo("cat-file", "commit", prepared.integration)


def test_a_shallow_clone_says_how_to_get_its_history(repo: Repo, tmp_path: Path) -> None:
    detached(repo, {"a": "a"})
    repo("branch", "left", "HEAD@{1}")
    repo.commit({"b": "b"})
    repo("clone", "-q", "--depth=1", "--no-single-branch", f"file://{repo.path}", str(tmp_path / "shallow"))
    shallow = find_repository(tmp_path / "shallow")

    with pytest.raises(UnrelatedHistories) as caught:
        merge_commits(shallow, repo.head("main"), repo.head("left"))

    assert "git fetch --unshallow" in in_commands(caught.value.hint or "")


def test_a_shallow_clone_works_where_the_history_is_there(repo: Repo, tmp_path: Path) -> None:
    repo.commit({"b": "b"})
    repo("clone", "-q", "--depth=1", f"file://{repo.path}", str(tmp_path / "shallow"))
    shallow = Repo(tmp_path / "shallow")
    shallow("config", "user.name", "A")
    shallow("config", "user.email", "a@example.com")
    leaves = [detached(shallow, {name: name}) for name in ("x", "y")]

    outcome = whole_way(find_repository(shallow.path), shallow.head(), leaves)

    assert isinstance(outcome, BranchMoved)


def test_a_missing_object_of_a_partial_clone_is_an_error_and_no_download(repo: Repo, tmp_path: Path) -> None:
    repo.commit({"f": TEXT})
    ours, theirs = detached(repo, {"f": "a\n" + TEXT}), detached(repo, {"f": TEXT + "b\n"})
    repo("branch", "ours", ours)
    repo("branch", "theirs", theirs)
    repo("config", "uploadpack.allowFilter", "true")
    url = f"file://{repo.path}"
    repo("clone", "-q", "--bare", "--filter=blob:none", url, str(tmp_path / "partial.git"))
    partial = find_repository(tmp_path / "partial.git")
    packs = sorted((tmp_path / "partial.git/objects").rglob("*.pack"))

    with pytest.raises(Exception, match="merge-tree"):
        merge_commits(partial, ours, theirs)

    assert sorted((tmp_path / "partial.git/objects").rglob("*.pack")) == packs


def test_a_submodule_that_both_moved_is_a_conflict_that_a_side_can_settle(repo: Repo, tmp_path: Path) -> None:
    inner = Repo.make(tmp_path / "inner")
    commits = [inner.commit({"x": str(number)}) for number in range(3)]
    sides = []
    repo("update-index", "--add", "--cacheinfo", f"160000,{commits[0]},sub")
    repo("commit", "-q", "-m", "submodule")
    for commit in commits[1:]:
        repo("checkout", "-q", "--detach", "main")
        repo("update-index", "--cacheinfo", f"160000,{commit},sub")
        repo("commit", "-q", "-m", "move")
        sides.append(repo.head())
    repo("checkout", "-q", "main")
    repository = find_repository(repo.path)

    with Objects(repository.git) as objects, Merger(repository, objects) as merger:
        merge = merger.merge(*sides)
        entry = objects.entry(resolve_by_side(repository, objects, merge, "theirs").tree, b"sub")
        again = merger.merge(*sides)

    assert merge == again
    assert [conflict.kind for conflict in merge.conflicts] == ["submodule"]
    assert entry is not None and entry == (GITLINK, commits[2])


def test_line_end_settings_of_the_user_do_not_change_what_is_merged(repo: Repo) -> None:
    repo.commit({"f": TEXT})
    ours, theirs = detached(repo, {"f": "a\n" + TEXT}), detached(repo, {"f": TEXT + "b\n"})
    before = merge_commits(find_repository(repo.path), ours, theirs).tree
    repo("config", "core.autocrlf", "true")
    repo("config", "core.eol", "crlf")

    after = merge_commits(find_repository(repo.path), ours, theirs).tree

    assert before == after
    assert repo.files(after)["f"] == f"a\n{TEXT}b\n"


def test_renormalization_is_done_as_the_repository_says(repo: Repo) -> None:
    repo.commit({"f": TEXT.replace("\n", "\r\n").encode()})
    ours = detached(repo, {"f": TEXT, ".gitattributes": "f text\n"})
    theirs = detached(repo, {"f": (TEXT + "b\n").replace("\n", "\r\n").encode()})
    results = []
    for value in ("false", "true"):
        repo("config", "merge.renormalize", value)
        results.append(merge_commits(find_repository(repo.path), ours, theirs).clean)

    assert results == [False, True]


def test_replacement_objects_do_not_change_what_is_merged(repo: Repo) -> None:
    ours, theirs = detached(repo, {"a": "a"}), detached(repo, {"b": "b"})
    repository = find_repository(repo.path)
    before = [merge_commits(repository, start, theirs).tree for start in (ours, repo.head())]
    repo("replace", theirs, detached(repo, {"b": "replaced"}))

    after = [merge_commits(repository, start, theirs).tree for start in (ours, repo.head())]

    assert after == before


def test_a_locked_branch_is_refused_in_time_and_the_lock_stays(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    repo("checkout", "-q", "-b", "elsewhere")
    new = detached(repo, {"a": "a"}, "elsewhere")
    repo("checkout", "-q", "elsewhere")
    lock = repo.path / ".git/refs/heads/main.lock"
    lock.write_text("")
    monkeypatch.setattr("orchard.git.refs.LOCK_TIMEOUT", 0.1)
    monkeypatch.setitem(OVERRIDES, "core.filesRefLockTimeout", "50")

    before = repo.head("main")
    refused = land(find_repository(repo.path), "main", before, new, "m")

    assert isinstance(refused, LandingRefused) and refused.kind == "locked"
    assert "main.lock" in refused.reason and "rm " in in_commands(refused.hint)
    assert lock.exists() and repo.head("main") == before


def test_refs_survive_packing_and_collection_between_the_steps(repo: Repo) -> None:
    leaves = [detached(repo, {name: name}) for name in ("a", "b")]
    for number, commit in enumerate(leaves):
        repo("update-ref", f"refs/orchard/keep/p1/j{number}/1", commit)
    repository = find_repository(repo.path)
    with Integration(repository) as line:
        line.start("p1", repo.head())
        for commit in leaves:
            tips = line.tips("p1")
            assert tips is not None
            prepared = line.prepare(LeafMerge("p1", "j", commit, *tips, title="t", when=1))
            assert isinstance(prepared, Prepared)
            line.publish("p1", prepared)
            repo("reflog", "expire", "--expire=now", "--all")
            repo("gc", "-q", "--prune=now")

    assert set(repo.files(snapshot_ref("p1"))) == {"README.md", "a", "b"}
    assert repo.run("fsck", "--strict").status == 0
    assert repo.exists(integration_ref("p1"))
