"""Where the repository is and what it says about itself."""

import os
from pathlib import Path

import pytest

from orchard.errors import NotFound, UsageError
from orchard.git.command import GitError, GitMissing
from orchard.git.hazards import hazards
from orchard.git.repository import Repository, find_repository, git_version
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo


def kinds(repository: Repository) -> set[str]:
    return {hazard.kind for hazard in hazards(repository)}


def test_a_repository_is_found_from_any_folder_in_it(repo: Repo) -> None:
    deep = repo.path / "a/b"
    deep.mkdir(parents=True)

    found = find_repository(deep)

    assert found.top == found.main_top == repo.path.resolve()
    assert found.common_dir == repo.path.resolve() / ".git"
    assert found.state == found.common_dir / "orchard"
    assert not found.bare


def test_outside_of_a_repository_the_error_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))

    with pytest.raises(UsageError) as caught:
        find_repository(tmp_path)

    assert "not in a git repository" in caught.value.message
    assert caught.value.hint


def test_a_folder_that_was_removed_under_the_user_is_no_mistake_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    with pytest.raises(UsageError, match="was removed"):
        find_repository(Path())


def test_without_git_or_with_an_old_one_the_error_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitMissing):
        git_version(tmp_path)

    old = tmp_path / "git"
    old.write_text("#!/bin/sh\necho git version 2.30.1\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(GitMissing, match="too old"):
        git_version(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_an_answer_that_came_while_we_stood_still_is_heard(repo: Repo) -> None:
    git = find_repository(repo.path).git

    # No time at all, as after a standstill that was longer than git may take.
    git("update-ref", "refs/heads/made", "HEAD", timeout=0.0)
    with pytest.raises(GitError, match="took too long"):
        git("-c", "alias.hang=!sleep 60", "hang", timeout=0.0)

    assert repo.head("made") == repo.head()


def test_a_repository_of_another_user_is_explained(repo: Repo) -> None:
    for folder in (repo.path, repo.path / ".git"):
        os.chown(folder, 12345, 12345)

    with pytest.raises(UsageError, match="another user") as caught:
        find_repository(repo.path)

    assert "safe.directory" in in_commands(caught.value.hint or "")


def test_the_environment_does_not_choose_the_repository(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Repo.make(tmp_path / "other")
    monkeypatch.setenv("GIT_DIR", str(other.path / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.path / ".git/index"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.path))

    found = find_repository(repo.path)

    assert found.top == repo.path.resolve()
    assert found.git("rev-parse", "--git-dir").text == str(found.common_dir)


def test_plumbing_sees_neither_index_nor_attributes_of_a_checkout(repo: Repo, repository: Repository) -> None:
    repo.commit({".gitattributes": "* merge=union\n"})

    assert repository.git("ls-files").text == ""
    assert repository.git("check-attr", "merge", "--", "x").text == "x: merge: unspecified"


def test_a_linked_worktree_leads_to_the_main_one(repo: Repo, tmp_path: Path) -> None:
    linked = tmp_path / "linked\nwith a newline"
    repo("worktree", "add", "-q", "-b", "side", str(linked))

    found = find_repository(linked)

    assert found.top == linked.resolve()
    assert found.main_top == repo.path.resolve()
    assert found.current_branch() == "side"
    assert found.worktree_root(".worktrees") == repo.path.resolve() / ".worktrees"
    branches = {one.path: one.branch for one in found.checkouts()}
    assert branches == {repo.path.resolve(): "main", linked.resolve(): "side"}
    row = next(one for one in found.checkouts() if one.branch == "side")
    assert found.checkout_git(row)("rev-parse", "--abbrev-ref", "HEAD").text == "side"


def test_a_bare_repository_is_served(repo: Repo, tmp_path: Path) -> None:
    repo("clone", "-q", "--bare", ".", str(tmp_path / "b.git"))

    found = find_repository(tmp_path / "b.git")

    assert found.bare and found.top is None
    assert found.worktree_root(".worktrees") == found.common_dir / "orchard/worktrees"
    assert found.checkouts()[0].bare
    assert found.resolve("main") == ("main", repo.head())
    assert found.current_branch() == "main"


def test_a_repository_without_commits_says_so(tmp_path: Path) -> None:
    Repo(tmp_path)("init", "-q")

    found = find_repository(tmp_path)

    assert not found.has_commits()
    assert found.checkouts()[0].head is None
    assert "unborn" in kinds(found)
    with pytest.raises(NotFound):
        found.resolve("HEAD")


def test_a_git_folder_of_its_own_place_is_fine(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    Repo(work)("init", "-q", f"--separate-git-dir={tmp_path / 'elsewhere'}")

    found = find_repository(work)

    assert found.common_dir == tmp_path / "elsewhere"
    assert found.main_top == work
    assert found.checkouts()[0].path == work


@pytest.mark.parametrize("started", ["rebase", "merge", "cherry-pick", "revert", "bisect"])
def test_an_operation_under_way_is_seen_with_its_branch(repo: Repo, repository: Repository, started: str) -> None:
    base = repo.head()
    repo("checkout", "-q", "-b", "side")
    repo.commit({"README.md": "side\n"})
    repo("checkout", "-q", "-b", "topic", base)
    repo.commit({"README.md": "topic\n"})
    if started == "bisect":
        repo("bisect", "start", "HEAD", base)
        repo("checkout", "-q", "--detach")
    elif started == "revert":
        repo.commit({"README.md": "more\n"})
        repo.run("revert", "HEAD~1")
    else:
        repo.run(started, "side")

    (row,) = repository.checkouts()

    assert row.operation == started
    assert row.branch == "topic"
    assert "operation" in kinds(repository)


def test_names_are_resolved_as_branches_first_and_never_as_options(repo: Repo, repository: Repository) -> None:
    first = repo.head()
    second = repo.commit()
    repo("branch", "-q", "v1", first)
    repo("tag", "v1", second)

    assert repository.resolve("v1") == ("v1", first)
    assert repository.resolve("refs/tags/v1") == (None, second)
    assert repository.resolve("main~1") == (None, first)
    assert repository.resolve("HEAD") == (None, second)
    for name in ("--all", "-h", "HEAD^{tree}", "", "a\0b", "mian", "main..v1", "HEAD:README.md"):
        with pytest.raises((NotFound, UsageError)):
            repository.resolve(name)


def test_a_wrong_branch_name_suggests_a_near_one(repository: Repository) -> None:
    with pytest.raises(NotFound) as caught:
        repository.resolve("mian")

    assert in_commands(caught.value.hint or "") == "Did you mean 'main'?"


@pytest.mark.parametrize("name", ["", "-x", "HEAD", "a..b", "a b", "a\nb", "@{-1}", "a.lock", "a\0", "/a", "a/"])
def test_bad_branch_names_are_refused(repository: Repository, name: str) -> None:
    with pytest.raises(UsageError):
        repository.check_branch_name(name)


def test_a_free_branch_name_avoids_every_clash(repo: Repo, repository: Repository) -> None:
    assert repository.free_branch_name("orchard/x") == "orchard/x"
    for name in ("orchard/x", "orchard/x-2/deeper", "orchard/X-3"):
        repo("branch", name)

    assert repository.free_branch_name("orchard/x") == "orchard/x-4"


def test_a_branch_in_the_place_of_our_folder_is_worked_around(repo: Repo, repository: Repository) -> None:
    repo("branch", "orchard")

    name = repository.free_branch_name("orchard/x")

    repo("branch", name)
    assert name == "orchard-x"


def test_the_default_branch_is_what_the_remote_says(repo: Repo, repository: Repository, tmp_path: Path) -> None:
    assert repository.default_branch() == "main"
    repo("branch", "-m", "trunk")
    assert repository.default_branch() is None
    repo("config", "init.defaultBranch", "trunk")
    assert repository.default_branch() == "trunk"
    repo("update-ref", "refs/remotes/origin/dev", "HEAD")
    repo("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/dev")
    assert repository.default_branch() == "dev"


def test_identity_comes_from_git_and_has_a_fallback(repo: Repo, repository: Repository) -> None:
    assert repository.identity() == ("Ada Tester", "ada@example.com")
    repo("config", "author.name", "Ada <script>\x1b")
    assert repository.identity()[0] == "Ada  script"
    for key in ("user.name", "user.email", "author.name"):
        repo("config", "--unset", key)
    assert repository.identity() == ("Orchard", "orchard@localhost")


def test_signing_is_seen_although_we_override_it(repo: Repo, repository: Repository) -> None:
    assert not repository.wants_signing()
    repo("config", "commit.gpgSign", "true")

    assert repository.wants_signing()
    assert "signing" in kinds(repository)


@pytest.mark.parametrize("setting", [".", "..", ".git/x", ".git", "/", "src", "a\nb", ".git/orchard", " "])
def test_a_worktree_root_that_belongs_to_something_else_is_refused(
    repo: Repo, repository: Repository, setting: str
) -> None:
    repo.commit({"src/a": "a"})

    with pytest.raises(UsageError):
        repository.worktree_root(setting)


def test_a_worktree_root_may_be_anywhere_else(repository: Repository, tmp_path: Path) -> None:
    assert repository.worktree_root(str(tmp_path / "far")) == tmp_path / "far"
    assert repository.worktree_root("../beside") == tmp_path / "beside"
    assert repository.worktree_root(".git/orchard/worktrees") == repository.state / "worktrees"


def test_a_shallow_clone_is_seen(repo: Repo, tmp_path: Path) -> None:
    repo.commit()
    repo("clone", "-q", "--depth=1", f"file://{repo.path}", str(tmp_path / "shallow"))

    found = find_repository(tmp_path / "shallow")

    assert found.is_shallow()
    assert "shallow" in kinds(found)


def test_the_doctor_names_what_it_finds(repo: Repo, repository: Repository) -> None:
    assert kinds(repository) == set()
    settings = {
        "core.fsmonitor": "/bin/evil",
        "merge.x.driver": "evil %A",
        "include.path": "/tmp/more",
        "filter.lfs.clean": "git-lfs clean -- %f",
        "core.ignorecase": "true",
        "core.sparseCheckout": "true",
        "remote.origin.promisor": "true",
    }
    for key, value in settings.items():
        repo("config", key, value)
    hook = repo.path / ".git/hooks/pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\n")
    hook.chmod(0o755)
    repo("update-index", "--add", "--cacheinfo", f"160000,{repo.head()},sub")

    found = kinds(repository)

    assert found == {
        "fsmonitor",
        "merge-driver",
        "include",
        "lfs",
        "ignorecase",
        "sparse",
        "partial",
        "hooks",
        "submodules",
    }


def test_the_doctor_names_stale_locks_but_not_fresh_ones(repo: Repo, repository: Repository) -> None:
    stale = [".git/index.lock", ".git/packed-refs.lock", ".git/refs/heads/main.lock"]
    for name in stale:
        (repo.path / name).touch()
        os.utime(repo.path / name, (0, 0))
    (repo.path / ".git/config.lock").touch()

    found = [hazard.message for hazard in hazards(repository) if hazard.kind == "lock"]

    assert len(found) == 3
    assert all((repo.path / name).exists() for name in stale)


def test_a_repository_that_was_made_bare_by_accident_is_an_error(repo: Repo) -> None:
    repo("config", "core.bare", "true")

    found = [hazard for hazard in hazards(find_repository(repo.path)) if hazard.severity == "error"]

    assert [hazard.kind for hazard in found] == ["core.bare"]


@pytest.mark.parametrize(
    ("head", "found"),
    [
        (b"ref: refs/heads/main\n", "main"),
        (b"ref: refs/heads/deep/er\n", "deep/er"),
        (b"ref:  refs/heads/main", "main"),
        (b"ref: refs/heads/other-name\n", "main"),
        (b"ref: refs/remotes/origin/main\n", None),
        (b"%s\n", None),
    ],
)
def test_the_current_branch_is_what_git_says(
    repo: Repo, repository: Repository, head: bytes, found: str | None
) -> None:
    repo("symbolic-ref", "refs/heads/other-name", "refs/heads/main")
    (repo.path / ".git" / "HEAD").write_bytes(head.replace(b"%s", repo.head().encode()))

    assert repository.current_branch() == found
    said = repo.run("symbolic-ref", "-q", "HEAD").text
    assert (said.removeprefix("refs/heads/") if said.startswith("refs/heads/") else None) == found


def test_a_folder_is_no_worktree_root_once_git_tracks_something_there(repo: Repo, repository: Repository) -> None:
    root = repository.worktree_root("trees")
    assert repository.worktree_root("trees") == root == repo.path / "trees"

    repo.commit({"trees/mine.txt": "mine"})

    with pytest.raises(UsageError, match="holds files that git tracks"):
        repository.worktree_root("trees")


# --------------------------------------------------------------- repositories that come with a clone


def planted(repo: Repo, tmp_path: Path, *settings: str) -> Path:
    """A folder of tracked files that git would take for a repository without a checkout; its filter leaves a mark."""
    folder = repo.path / "docs" / "tools"
    repo("init", "-q", "--bare", str(folder))
    (folder / "objects" / "x").write_text("x")
    (folder / "refs" / "x").write_text("x")
    mark = tmp_path / "ran"
    (folder / "config").write_text(
        "[core]\nrepositoryformatversion = 0\n" + "".join(settings) + f'[filter "f"]\nclean = touch {mark}\n'
    )
    repo("add", "-A", "-f")
    repo("commit", "-qm", "docs")
    return folder


@pytest.mark.parametrize("named", [False, True])
def test_tracked_files_that_look_like_a_repository_are_refused(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    folder = planted(repo, tmp_path, "bare = true\n")
    monkeypatch.chdir(folder)

    with pytest.raises(UsageError, match="tracked by the one" if named else "counts only where you name it"):
        find_repository(folder if named else Path())


def test_a_bare_repository_counts_where_it_is_named_and_not_where_one_happens_to_stand(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "bare.git"
    repo("clone", "-q", "--bare", str(repo.path), str(bare))
    monkeypatch.chdir(bare)

    assert find_repository(bare).bare
    with pytest.raises(UsageError, match="counts only where you name it"):
        find_repository(Path())


@pytest.mark.parametrize("named", [False, True])
def test_a_repository_whose_files_are_those_of_another_is_refused(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: bool
) -> None:
    victim = Repo.make(tmp_path / "victim")
    other = Repo.make(tmp_path / "other")
    other("config", "core.worktree", str(victim.path))
    monkeypatch.chdir(other.path)

    with pytest.raises(UsageError, match="belongs to another repository"):
        find_repository(other.path if named else Path())


def test_tracked_files_that_look_like_a_repository_cannot_borrow_the_files_of_another(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = Repo.make(tmp_path / "victim")
    folder = planted(repo, tmp_path, f"worktree = {victim.path}\n")
    monkeypatch.chdir(folder)

    for start in (Path(), folder):
        with pytest.raises(UsageError):
            find_repository(start)


def test_a_submodule_and_its_linked_worktrees_are_found_by_their_own_folder(repo: Repo, tmp_path: Path) -> None:
    inner = Repo.make(tmp_path / "inner")
    repo("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(inner.path), "sub")
    Repo(repo.path / "sub")("worktree", "add", "-q", "--detach", str(tmp_path / "linked"))

    assert find_repository(repo.path / "sub").top == repo.path / "sub"
    assert find_repository(tmp_path / "linked").main_top == repo.path / "sub"


def test_a_link_that_git_tracks_leads_no_worktree_out_of_the_repository(
    repo: Repo, repository: Repository, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (repo.path / "l").symlink_to(tmp_path / "elsewhere")
    (repo.path / "deep").mkdir()
    (repo.path / "deep" / "m").symlink_to("../l")
    repo("add", "l", "deep/m")

    for setting in ("l", "l/x", "./l/x", "deep/m/x", "deep/m/y/z"):
        with pytest.raises(UsageError, match="leads out of the repository"):
            repository.worktree_root(setting)


def test_a_link_that_the_user_made_may_lead_worktrees_elsewhere(
    repo: Repo, repository: Repository, tmp_path: Path
) -> None:
    (tmp_path / "disk").mkdir()
    (repo.path / ".worktrees").symlink_to(tmp_path / "disk")

    assert repository.worktree_root(".worktrees") == (tmp_path / "disk").resolve()


def test_a_tilde_in_a_worktree_root_is_a_name_like_any_other(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere/else")

    assert find_repository(repo.path).worktree_root("./~/out") == repo.path / "~" / "out"
