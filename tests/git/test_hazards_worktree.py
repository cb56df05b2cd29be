"""What lies in a worktree or in the settings never runs, and odd repositories lose nothing.

A canary is a program that leaves a file when it runs.
"""

import os
import shutil
from pathlib import Path

import pytest

from orchard.git.repository import Repository, Worktree, find_repository
from orchard.git.worktree.commit import CommitInfo, Committed, Refused, commit_work, worktree_changes
from orchard.git.worktree.save import CannotSave, Saved, ensure_saved
from orchard.git.worktree.setup import copy_included
from orchard.git.worktree.worktrees import Worktrees
from orchard.testing import Repo

HOOKS = ("post-checkout", "pre-commit", "commit-msg", "post-commit", "reference-transaction", "post-index-change")


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A program that shows that it ran by making `ran` beside it."""
    program = tmp_path / "canary"
    program.write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran'\ncat\n")
    program.chmod(0o755)
    return program


def ran(canary: Path) -> bool:
    return (canary.parent / "ran").exists()


def save(trees: Worktrees, worktree: Worktree, base: str) -> Saved:
    return ensure_saved(trees.repo, worktree, "refs/orchard/wip/p/j/1", "saved", base)


def info(number: int = 1) -> CommitInfo:
    return CommitInfo("x", f"refs/orchard/keep/p/j/{number}", ("A", "a@b"))


def live(trees: Worktrees, worktree: Worktree, base: str) -> None:
    """Everything that we ever do with a worktree."""
    Repo(worktree.path).write({"work": "x", "f.txt": "edited\n"})
    worktree_changes(trees.repo, worktree)
    copy_included(trees.repo, trees.repo.main_top, worktree, ("*.key",))
    done = commit_work(trees.repo, worktree, base, info())
    if isinstance(done, Committed):
        base = done.commit
        Repo(worktree.path).write({"work": "y"})
    saved = save(trees, worktree, base)
    trees.reset(worktree, base, saved)
    trees.remove(worktree, save(trees, worktree, base))


def test_hooks_do_not_run(repo: Repo, trees: Worktrees, canary: Path) -> None:
    base = repo.commit({"f.txt": "x\n"})
    for name in HOOKS:
        hook = repo.path / ".git/hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(f"#!/bin/sh\n{canary} </dev/null\nexec sleep 600\n")
        hook.chmod(0o755)

    live(trees, trees.add(base, "job"), base)

    assert not ran(canary)


@pytest.mark.parametrize(
    "setting", ["core.fsmonitor", "diff.external", "core.pager", "core.editor", "core.sshCommand", "gpg.program"]
)
def test_programs_in_the_settings_do_not_run(repo: Repo, trees: Worktrees, canary: Path, setting: str) -> None:
    base = repo.commit({"f.txt": "x\n"})
    worktree = trees.add(base, "job")
    Repo(worktree.path)("config", setting, str(canary))
    repo("config", "commit.gpgSign", "true")

    live(trees, worktree, base)

    assert not ran(canary)


def test_settings_of_the_worktree_itself_do_not_run(repo: Repo, trees: Worktrees, canary: Path) -> None:
    base = repo.commit({"f.txt": "x\n"})
    worktree = trees.add(base, "job")
    repo("config", "extensions.worktreeConfig", "true")
    Repo(worktree.path)("config", "--worktree", "core.fsmonitor", str(canary))
    Repo(worktree.path)("config", "--worktree", "core.hooksPath", str(canary.parent))
    shutil.copy(canary, canary.parent / "post-index-change")

    live(trees, worktree, base)

    assert not ran(canary)


@pytest.mark.parametrize("kind", ["clean", "smudge", "process"])
@pytest.mark.parametrize("scope", ["--local", "--worktree"])
def test_a_filter_that_turned_up_during_the_run_does_not_run(
    repo: Repo, trees: Worktrees, canary: Path, kind: str, scope: str
) -> None:
    base = repo.commit({"f.txt": "x\n"})
    worktree = trees.add(base, "job")
    job = Repo(worktree.path)
    if scope == "--worktree":
        repo("config", "extensions.worktreeConfig", "true")
    job("config", scope, f"filter.evil.{kind}", str(canary))
    (worktree.path / ".gitattributes").write_text("*.txt filter=evil\n")
    (worktree.path / "new.txt").write_text("x")

    done = commit_work(trees.repo, worktree, base, info())
    saved = save(trees, worktree, base)

    assert isinstance(done, Refused) and "evil" in done.message
    assert saved.commit is not None and repo.files(saved.commit)["new.txt"] == "x"
    assert not ran(canary)


def test_a_filter_of_the_users_cannot_be_replaced_during_the_run(repo: Repo, canary: Path) -> None:
    repo("config", "filter.up.clean", "tr a-z A-Z")
    base = repo.commit({".gitattributes": "*.up filter=up\n"})
    found = find_repository(repo.path)
    trees = Worktrees(found, found.worktree_root(".worktrees"))
    worktree = trees.add(base, "job")
    Repo(worktree.path)("config", "filter.up.clean", str(canary))
    (worktree.path / "x.up").write_text("hello\n")

    done = commit_work(found, worktree, base, info())

    assert isinstance(done, Committed)
    assert repo.files(done.commit)["x.up"] == "HELLO\n"
    assert not ran(canary)


@pytest.mark.parametrize("how", ["file", "link", "folder"])
def test_a_replaced_git_file_leads_nowhere(
    repo: Repo, trees: Worktrees, canary: Path, tmp_path: Path, how: str
) -> None:
    base = repo.commit({"f.txt": "x\n"})
    worktree = trees.add(base, "job")
    evil = Repo.make(tmp_path / "evil")
    evil("config", "core.fsmonitor", str(canary))
    pointer = worktree.path / ".git"
    pointer.unlink()
    if how == "file":
        pointer.write_text(f"gitdir: {evil.path}/.git\n")
    elif how == "link":
        pointer.symlink_to(evil.path / ".git")
    else:
        shutil.copytree(evil.path / ".git", pointer)
    (worktree.path / "work").write_text("x")

    done = commit_work(trees.repo, worktree, base, info())

    if how == "folder":
        assert isinstance(done, Refused)
        with pytest.raises(CannotSave):
            save(trees, worktree, base)
    else:
        assert isinstance(done, Committed) and repo.files(done.commit)["work"] == "x"
    assert len(evil.refs("refs")) == 1
    assert not ran(canary)


@pytest.mark.parametrize("staged", [False, True])
def test_settings_of_a_repository_inside_do_not_run(repo: Repo, trees: Worktrees, canary: Path, staged: bool) -> None:
    """A plain `git status` or `git add` would start a git in there, with its settings."""
    base = repo.commit({"f.txt": "x\n"})
    worktree = trees.add(base, "job")
    inner = Repo.make(worktree.path / "inner")
    if staged:
        Repo(worktree.path).run("-c", "advice.addEmbeddedRepo=false", "add", "inner")
    inner.write({"README.md": "# A SMALL REPOSITORY\n"})  # of the same size: git has to read it to know
    inner("config", "core.fsmonitor", str(canary))
    inner("config", "filter.evil.clean", str(canary))
    (inner.path / ".git/info").mkdir(exist_ok=True)
    (inner.path / ".git/info/attributes").write_text("* filter=evil\n")

    done = commit_work(trees.repo, worktree, base, info())
    with pytest.raises(CannotSave):
        save(trees, worktree, base)
    changes = worktree_changes(trees.repo, worktree)

    assert isinstance(done, Refused)
    assert changes.total >= 1
    assert not ran(canary)


@pytest.fixture
def with_submodule(repo: Repo, tmp_path: Path) -> Repo:
    """The repository with a submodule `sub`."""
    library = Repo.make(tmp_path / "library", files={"lib": "1\n"})
    repo("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library.path), "sub")
    repo.commit({"f.txt": "x\n"})
    return repo


def test_a_submodule_is_an_empty_folder_and_stays_as_it_is(with_submodule: Repo, trees: Worktrees) -> None:
    base = with_submodule.head()
    worktree = trees.add(base, "job")
    (worktree.path / "work").write_text("x")

    done = commit_work(trees.repo, worktree, base, info())

    assert isinstance(done, Committed) and (done.added, done.modified, done.deleted) == (1, 0, 0)
    assert with_submodule("ls-tree", done.commit, "sub") == with_submodule("ls-tree", base, "sub")
    assert list((worktree.path / "sub").iterdir()) == []


@pytest.mark.parametrize("change", ["edit", "untracked", "commit", "plain files"])
def test_work_in_a_submodule_is_neither_lost_nor_committed(
    with_submodule: Repo, trees: Worktrees, canary: Path, change: str
) -> None:
    base = with_submodule.head()
    worktree = trees.add(base, "job")
    job = Repo(worktree.path)
    if change == "plain files":
        job.write({"sub/file": "work"})
    else:
        job("-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init")
        inner = Repo(worktree.path / "sub")
        assert not save(trees, worktree, base).dirty
        if change == "commit":
            inner("config", "user.name", "x")
            inner("config", "user.email", "x@y")
            inner.commit({"lib": "2\n"})
        else:
            inner.write({"lib" if change == "edit" else "new": "work\n"})
        inner("config", "core.fsmonitor", str(canary))
        inner("config", "filter.evil.clean", str(canary))
        inner.write({".git-attributes-canary": ""} if change == "untracked" else {})

    done = commit_work(trees.repo, worktree, base, info())
    with pytest.raises(CannotSave, match="submodule sub"):
        save(trees, worktree, base)

    assert isinstance(done, Refused) and done.paths == ("sub",)
    assert not ran(canary)


def test_a_pointer_of_a_submodule_that_the_job_moves_is_refused(with_submodule: Repo, trees: Worktrees) -> None:
    base = with_submodule.head()
    worktree = trees.add(base, "job")
    Repo(worktree.path)("update-index", "--cacheinfo", f"160000,{base},sub")

    refused = commit_work(trees.repo, worktree, base, info())

    assert isinstance(refused, Refused) and "submodule" in refused.message


@pytest.mark.parametrize("worktree_config", [False, True])
def test_a_sparse_checkout_deletes_nothing(repo: Repo, tmp_path: Path, worktree_config: bool) -> None:
    base = repo.commit({"in/a": "a", "out/b": "b", "f.txt": "x\n"})
    if worktree_config:
        repo("sparse-checkout", "set", "--no-cone", "/in/")
    else:
        (repo.path / ".git/info").mkdir(exist_ok=True)
        (repo.path / ".git/info/sparse-checkout").write_text("/in/\n")
        repo("config", "core.sparseCheckout", "true")
        repo("read-tree", "-mu", "HEAD")
    found = find_repository(repo.path)
    trees = Worktrees(found, found.worktree_root(".worktrees"))
    worktree = trees.add(base, "job")
    assert sorted(path.name for path in worktree.path.iterdir()) == [".git", "in"]
    (worktree.path / "in/new").write_text("x")

    done = commit_work(found, worktree, base, info())
    assert isinstance(done, Committed)
    clean = save(trees, worktree, done.commit)
    trees.reset(worktree, base, clean)

    assert (done.added, done.modified, done.deleted) == (1, 0, 0)
    assert repo.files(done.commit).keys() == {"README.md", "in/a", "in/new", "out/b", "f.txt"}
    assert clean.commit is None
    assert sorted(path.name for path in worktree.path.iterdir()) == [".git", "in"]


def test_a_file_outside_of_the_sparse_part_is_seen_when_the_job_writes_it(repo: Repo) -> None:
    base = repo.commit({"in/a": "a", "out/b": "b"})
    repo("sparse-checkout", "set", "--no-cone", "/in/")
    found = find_repository(repo.path)
    trees = Worktrees(found, found.worktree_root(".worktrees"))
    worktree = trees.add(base, "job")
    Repo(worktree.path).write({"out/b": "edited"})

    saved = save(trees, worktree, base)

    assert saved.commit is not None and repo.files(saved.commit)["out/b"] == "edited"


def test_the_environment_of_the_caller_changes_nothing(
    repo: Repo, trees: Worktrees, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = repo.commit({"f.txt": "x\n"})
    other = Repo.make(tmp_path / "other")
    before = other.refs("refs")
    for name in ("GIT_DIR", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"):
        monkeypatch.setenv(name, str(other.path / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.path))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.path / ".git/index"))

    live(trees, trees.add(base, "job"), base)

    assert other.refs("refs") == before
    assert other("status", "--porcelain") == ""
    assert repo.exists("refs/orchard/keep/p/j/1")


@pytest.mark.parametrize("state", ["detached", "rebase", "dirty", "index.lock", "shallow"])
def test_the_state_of_the_users_checkout_does_not_matter(repo: Repo, tmp_path: Path, state: str) -> None:
    base = repo.commit({"f.txt": "x\n"})
    place = repo.path
    if state == "detached":
        repo("checkout", "-q", "--detach")
    elif state == "rebase":
        repo("checkout", "-q", "-b", "side", "HEAD~1")
        repo.commit({"f.txt": "conflict\n"})
        repo.run("rebase", "main")
    elif state == "dirty":
        repo.write({"f.txt": "typing\n", "draft": "mine"})
    elif state == "index.lock":
        (repo.path / ".git/index.lock").touch()
    else:
        repo("clone", "-q", "--depth=1", f"file://{repo.path}", str(tmp_path / "shallow"))
        place = tmp_path / "shallow"
    found = find_repository(place)
    trees = Worktrees(found, found.worktree_root(".worktrees"))
    before = snapshot(place)

    live(trees, trees.add(base, "job"), base)

    assert snapshot(place) == before


def snapshot(place: Path) -> dict[str, bytes]:
    """Everything of the user's: files, HEAD, index, settings, branches."""
    ours = {"orchard", "objects", "worktrees", "logs", "info"}
    found = {}
    for folder, folders, files in os.walk(place):
        folders[:] = [name for name in folders if not (Path(folder).name == ".git" and name in ours)]
        folders[:] = [name for name in folders if name != ".worktrees" and not folder.endswith("refs/orchard")]
        if "refs/orchard" in folder:
            continue
        found.update({f"{folder}/{name}": (Path(folder) / name).read_bytes() for name in files})
    return found


def test_work_in_a_removed_worktree_outlives_gc(repo: Repo, repository: Repository, trees: Worktrees) -> None:
    base = repo.head()
    worktree = trees.add(base, "job")
    (worktree.path / "work").write_text("x")
    done = commit_work(repository, worktree, base, info())
    assert isinstance(done, Committed)

    trees.remove(worktree, save(trees, worktree, done.commit))
    repo("reflog", "expire", "--expire=now", "--all")
    repo("worktree", "prune")
    repo("gc", "-q", "--prune=now")

    assert repo.files(done.commit)["work"] == "x"
