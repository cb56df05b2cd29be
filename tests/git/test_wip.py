"""What lies in a worktree is saved completely, or the saving fails and nothing may be removed."""

import os
import socket
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchard.errors import UsageError
from orchard.git.repository import Worktree, find_repository
from orchard.git.scratch import commit_index, private_file
from orchard.git.worktree.save import CannotSave, Saved, ensure_saved, restore, saved_work
from orchard.git.worktree.worktrees import ProofIsOld, Worktrees
from orchard.testing import Repo
from tests.git.moment import unnoticed_but_for_the_index

REF = "refs/orchard/wip/p1/build/1"


@pytest.fixture
def worktree(repo: Repo, trees: Worktrees) -> Worktree:
    repo.commit({"a": "a\n", "b": "b\n", "dir/c": "c\n", ".gitignore": "*.o\n"})
    return trees.add(repo.head(), "job")


@pytest.fixture
def job(worktree: Worktree) -> Repo:
    """The worktree, as the job sees it."""
    return Repo(worktree.path)


def save(trees: Worktrees, worktree: Worktree, base: str) -> Saved:
    return ensure_saved(trees.repo, worktree, REF, "interrupted", base)


def test_a_clean_worktree_needs_no_saving(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    saved = save(trees, worktree, repo.head())

    assert (saved.commit, saved.ref, saved.dirty, saved.clutter) == (None, None, False, False)
    assert repo.refs() == {}


def test_an_edit_of_the_moment_in_which_the_file_was_staged_is_saved(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo
) -> None:
    job.write({"a": "staged\n"})
    job("add", "a")
    job.write({"a": "edited\n"})
    unnoticed_but_for_the_index(trees.repo.common_dir / "worktrees" / worktree.name / "index", worktree.path, b"a")
    assert job("--no-optional-locks", "status", "--porcelain") == "MM a\n"

    saved = save(trees, worktree, repo.head())

    assert saved.ref is not None and repo.files(saved.ref)["a"] == "edited\n"


def test_staged_unstaged_untracked_and_deleted_are_saved(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo
) -> None:
    base = repo.head()
    job.write({"a": "unstaged\n", "b": "staged\n", "new": "untracked\n", "x.o": "ignored"})
    job("add", "b")
    (worktree.path / "dir/c").unlink()
    before = (trees.repo.common_dir / "worktrees" / worktree.name / "index").read_bytes()

    saved = save(trees, worktree, base)

    assert saved.commit is not None and saved.ref == REF
    assert repo.files(REF) == {
        "README.md": "# A small repository\n",
        ".gitignore": "*.o\n",
        "a": "unstaged\n",
        "b": "staged\n",
        "new": "untracked\n",
    }
    assert repo.head(f"{REF}^") == base
    assert saved.dirty and saved.ignored == 1
    assert (trees.repo.common_dir / "worktrees" / worktree.name / "index").read_bytes() == before
    assert not list((trees.repo.state / "tmp").iterdir())


def test_what_was_staged_and_then_changed_again_is_a_second_parent(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo
) -> None:
    job.write({"a": "staged\n", "gone": "staged, then deleted\n"})
    job("add", "-A")
    job.write({"a": "changed again\n", "gone": None})

    saved = save(trees, worktree, repo.head())

    assert saved.commit is not None
    assert repo.files(saved.commit)["a"] == "changed again\n"
    staged = repo.files(f"{saved.commit}^2")
    assert (staged["a"], staged["gone"]) == ("staged\n", "staged, then deleted\n")


def test_odd_names_modes_links_and_bytes_are_saved(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    top = os.fsencode(worktree.path)
    names = [b"new\nline", b"quote\"'", b"-dash", b"\xff\xfe", b" space ", b"tab\t", b"glob*[a]", "é".encode()]
    for name in names:
        Path(os.fsdecode(top + b"/" + name)).write_bytes(b"\0binary\xff" + name)
    (worktree.path / "run.sh").write_text("#!/bin/sh\n")
    (worktree.path / "run.sh").chmod(0o755)
    (worktree.path / "link").symlink_to("nowhere\nat all")
    (worktree.path / "a").unlink()
    (worktree.path / "a").mkdir()
    (worktree.path / "a/inside").write_text("a folder now")
    for place in (worktree.path / "dir/c", worktree.path / "dir"):
        place.unlink() if place.is_file() else place.rmdir()
    (worktree.path / "dir").write_text("a file now")

    saved = save(trees, worktree, repo.head())

    assert saved.commit is not None
    listed = (row.partition("\t") for row in repo("ls-tree", "-r", "-z", saved.commit).split("\0") if row)
    rows = {name: facts for facts, _, name in listed}
    assert {os.fsdecode(name) for name in names} <= rows.keys()
    assert rows["run.sh"].startswith("100755") and rows["link"].startswith("120000")
    assert "a/inside" in rows and rows["dir"].startswith("100644")
    blob = rows["\udcff\udcfe"].split(" ")[2]
    assert repo.run("cat-file", "blob", blob).stdout == b"\0binary\xff\xff\xfe"


def test_commits_that_only_head_knows_are_saved(repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo) -> None:
    base = repo.head()
    mine = job.commit({"mine": "1"})

    saved = save(trees, worktree, base)

    assert (saved.commit, saved.ref, saved.dirty) == (mine, REF, False)
    trees.remove(worktree, saved)
    repo("reflog", "expire", "--expire=now", "--all")
    repo("gc", "-q", "--prune=now")
    assert repo.files(REF)["mine"] == "1"


def test_commits_that_a_ref_of_ours_holds_are_not_saved_twice(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo
) -> None:
    base = repo.head()
    mine = job.commit({"mine": "1"})
    repo("update-ref", "refs/orchard/keep/p1/build/1", mine)

    saved = save(trees, worktree, base)

    assert saved.commit is None
    assert REF not in repo.refs()


def test_work_on_top_of_commits_saves_both(repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo) -> None:
    base = repo.head()
    mine = job.commit({"mine": "1"})
    job.write({"more": "2"})

    save(trees, worktree, base)

    assert repo.head(f"{REF}^") == mine
    assert repo.files(REF)["more"] == "2"


def test_a_ref_that_is_taken_gives_the_next_number(repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo) -> None:
    repo("update-ref", REF, "HEAD")
    job.write({"new": "x"})

    saved = save(trees, worktree, repo.head())

    assert saved.ref == "refs/orchard/wip/p1/build/2"


def test_an_unmerged_index_is_saved_with_its_markers(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo
) -> None:
    base = repo.head()
    repo("checkout", "-q", "-b", "side")
    side = repo.commit({"a": "side\n"})
    job.commit({"a": "mine\n"})
    job.run("merge", side)

    saved = save(trees, worktree, base)

    assert saved.commit is not None
    assert "<<<<<<<" in repo.files(saved.commit)["a"]


@pytest.mark.parametrize("damage", ["index", "no index", "HEAD", "admin"])
def test_damaged_notes_of_git_do_not_stop_the_saving(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo, damage: str
) -> None:
    admin = trees.repo.common_dir / "worktrees" / worktree.name
    job.write({"new": "work", "a": "edited\n"})
    if damage == "index":
        (admin / "index").write_bytes(b"DIRC broken")
    elif damage == "no index":
        (admin / "index").unlink()
    elif damage == "HEAD":
        (admin / "HEAD").write_text("")
    else:
        admin.rename(repo.path.parent / "lost")

    saved = save(trees, worktree, repo.head())

    assert saved.commit is not None
    files = repo.files(saved.commit)
    assert (files["new"], files["a"], files["b"]) == ("work", "edited\n", "b\n")


@pytest.mark.parametrize("where", ["new folder", "dir", "deep/er/folder", "."])
def test_a_repository_inside_cannot_be_saved(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo, where: str
) -> None:
    if where == ".":
        (worktree.path / ".git").unlink()
    inner = Repo.make(worktree.path / where, files={"inner": "only here"})
    job_files = sorted(path.name for path in worktree.path.iterdir())

    with pytest.raises(CannotSave) as caught:
        save(trees, worktree, repo.head())

    assert where in caught.value.paths
    assert sorted(path.name for path in worktree.path.iterdir()) == job_files
    assert inner.files()["inner"] == "only here"


def test_a_repository_without_a_commit_inside_cannot_be_saved(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    inner = worktree.path / "inner"
    inner.mkdir()
    Repo(inner)("init", "-q")
    (inner / "file").write_text("only here")

    with pytest.raises(CannotSave):
        save(trees, worktree, repo.head())


def test_a_folder_that_was_replaced_by_a_link_cannot_be_saved(
    repo: Repo, trees: Worktrees, worktree: Worktree, tmp_path: Path
) -> None:
    worktree.path.rename(tmp_path / "moved")
    worktree.path.symlink_to(tmp_path / "moved")

    with pytest.raises(CannotSave):
        save(trees, worktree, repo.head())


def test_pipes_and_sockets_are_counted(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    os.mkfifo(worktree.path / "dir/pipe")
    (worktree.path / "b").unlink()
    os.mkfifo(worktree.path / "b")
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(worktree.path)  # the path of a socket may have 108 bytes
        try:
            listener.bind("s")
        finally:
            os.chdir(here)
        saved = save(trees, worktree, repo.head())

    assert set(saved.special) == {b"dir/pipe", b"b", b"s"}
    assert saved.commit is not None and "b" not in repo.files(saved.commit)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
@pytest.mark.parametrize("name", ["file", "folder"])
def test_what_cannot_be_read_cannot_be_saved(repo: Repo, trees: Worktrees, worktree: Worktree, name: str) -> None:
    place = worktree.path / name
    place.mkdir() if name == "folder" else place.write_text("x")
    place.chmod(0)
    try:
        with pytest.raises(CannotSave):
            save(trees, worktree, repo.head())
    finally:
        place.chmod(0o700)


def test_a_full_disk_stops_the_saving(repo: Repo, trees: Worktrees, worktree: Worktree, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(small)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        objects = trees.repo.common_dir / "objects"
        objects.rename(tmp_path / "objects")
        (small / "info").mkdir()
        (small / "info/alternates").write_text(f"{tmp_path / 'objects'}\n")
        objects.symlink_to(small)
        (worktree.path / "big").write_bytes(os.urandom(1_000_000))

        with pytest.raises(CannotSave):
            save(trees, worktree, repo.head())

        assert (worktree.path / "big").exists()
        assert repo.refs() == {}
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_filter_of_the_users_that_fails_stops_the_saving(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo
) -> None:
    repo("config", "filter.x.clean", "false")
    repo("config", "filter.x.required", "true")
    job.write({".gitattributes": "*.bin filter=x\n", "f.bin": "content"})
    opened_later = find_repository(repo.path)

    with pytest.raises(CannotSave, match="filter"):
        ensure_saved(opened_later, worktree, REF, "interrupted", repo.head())


def test_objects_that_vanish_before_they_are_named_are_noticed(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo
) -> None:
    """A blob that the index believes in but that is gone: without reading back, it would be called saved."""
    job.write({"new": "content that is lost from the object store"})
    job("add", "new")
    blob = job("rev-parse", ":new").strip()
    (trees.repo.common_dir / "objects" / blob[:2] / blob[2:]).unlink()

    saved = save(trees, worktree, repo.head())

    assert saved.commit is not None
    assert repo.files(saved.commit)["new"] == "content that is lost from the object store"


def test_a_large_file_is_saved(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    with (worktree.path / "large").open("wb") as file:
        file.truncate(120 * 1024 * 1024)

    saved = save(trees, worktree, repo.head())

    assert saved.commit is not None
    assert repo("cat-file", "-s", f"{saved.commit}:large").strip() == str(120 * 1024 * 1024)


def test_saved_work_is_listed_and_restored(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo, tmp_path: Path
) -> None:
    job.write({"a": "edited\n", "new": "x", "run": "#!/bin/sh\n"})
    (worktree.path / "run").chmod(0o755)
    began = int(time.time())
    saved = save(trees, worktree, repo.head())
    repo("update-ref", "refs/orchard/wip/p2/g/%1/7", "HEAD")
    repo("update-ref", "refs/orchard/wip/odd", "HEAD")

    (work,) = saved_work(trees.repo, "p1")
    everything = saved_work(trees.repo)
    restored = restore(trees.repo, REF, tmp_path / "restored")

    assert (work.ref, work.commit, work.plan, work.job, work.number) == (REF, saved.commit, "p1", "build", 1)
    assert (work.subject, work.files) == ("interrupted", 3)
    assert began - 5 <= work.at <= time.time() + 5
    assert {(one.plan, one.job, one.number) for one in everything} == {("p1", "build", 1), ("p2", "g/1", 7)}
    assert restored == saved.commit
    assert (tmp_path / "restored/a").read_text() == "edited\n"
    assert stat.S_IMODE((tmp_path / "restored/run").stat().st_mode) & 0o100
    assert not (tmp_path / "restored/.git").exists()


def test_nothing_is_restored_over_anything(repo: Repo, trees: Worktrees, tmp_path: Path) -> None:
    full = tmp_path / "full"
    full.mkdir()
    (full / "a").write_text("mine")

    with pytest.raises(UsageError):
        restore(trees.repo, "main", full)

    assert (full / "a").read_text() == "mine"


def test_a_head_that_went_back_in_history_is_saved(repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo) -> None:
    base = repo.head()
    job("checkout", "-q", "--detach", "HEAD~1")

    saved = save(trees, worktree, base)

    assert saved.commit == repo.head("main~1")


def test_names_that_git_does_not_store_are_saved_under_others(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo
) -> None:
    job.write({"x.txt": "x", "git~1": "precious 1", ".GIT/notes": "precious 2", ".git\\x": "precious 3"})
    (worktree.path / ".gitmodules").symlink_to("nowhere")
    (worktree.path / "git~1").chmod(0o755)

    saved = save(trees, worktree, repo.head())

    assert saved.commit is not None
    files = repo.files(saved.commit)
    assert files["x.txt"] == "x"
    kept = {name: text for name, text in files.items() if name.startswith(".orchard-saved/")}
    assert kept == {
        ".orchard-saved/git%7E1": "precious 1",
        ".orchard-saved/%2EGIT/notes": "precious 2",
        ".orchard-saved/%2Egit%5Cx": "precious 3",
        ".orchard-saved/%2Egitmodules": "nowhere",
    }
    modes = {row.split("\t")[1]: row[:6] for row in repo("ls-tree", "-r", saved.commit).splitlines()}
    assert modes[".orchard-saved/git%7E1"] == "100755" and modes[".orchard-saved/%2Egitmodules"] == "120000"
    assert "git~1" in repo("log", "-1", "--format=%b", saved.commit)


def test_a_folder_that_became_a_link_is_saved(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    (worktree.path / "dir/c").rename(worktree.path / "c")
    (worktree.path / "dir").rmdir()
    (worktree.path / "dir").symlink_to(".")

    saved = save(trees, worktree, repo.head())

    assert saved.commit is not None
    files = repo.files(saved.commit)
    assert files["dir"] == "." and files["c"] == "c\n" and "dir/c" not in files


def test_a_lock_that_gc_holds_for_a_moment_makes_no_proof_old(repo: Repo, trees: Worktrees, worktree: Worktree) -> None:
    saved = save(trees, worktree, repo.head())
    (repo.path / ".git" / "worktrees" / worktree.name / "HEAD.lock").touch()

    trees.remove(worktree, saved)

    assert not worktree.path.exists()


@pytest.mark.parametrize("many", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        lambda path: (path / "precious.txt").write_text("written down"),
        lambda path: (path / "a").write_text("edited"),
        lambda path: (path / "left.txt").write_text("the job's file, edited"),
        lambda path: Repo(path).commit({"a": "committed"}),
        lambda path: Repo(path)("commit", "-q", "--allow-empty", "-m", "empty"),
    ],
    ids=["new file", "edit", "edit of what was saved", "commit", "empty commit"],
)
def test_what_is_put_into_a_worktree_after_it_was_saved_makes_the_proof_old(
    repo: Repo,
    trees: Worktrees,
    worktree: Worktree,
    job: Repo,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Path], object],
    many: bool,
) -> None:
    if many:
        monkeypatch.setattr("orchard.git.worktree.status.PICTURED", 2)
    job.write({"left.txt": "left by the job"})
    saved = save(trees, worktree, repo.head())
    change(worktree.path)

    with pytest.raises(ProofIsOld):
        trees.reset(worktree, repo.head(), saved)

    again = ensure_saved(trees.repo, worktree, REF, "found", saved.head or "")
    files = {name: text for _, commit in again.refs for name, text in repo.files(commit).items()}
    assert files.items() >= {one.name: one.read_text() for one in worktree.path.iterdir() if one.is_file()}.items() - {
        (".git", (worktree.path / ".git").read_text())
    }
    trees.reset(worktree, repo.head(), again)


@pytest.mark.parametrize("many", [False, True])
def test_a_proof_stays_good_as_long_as_nobody_writes(
    repo: Repo, trees: Worktrees, worktree: Worktree, job: Repo, monkeypatch: pytest.MonkeyPatch, many: bool
) -> None:
    if many:
        monkeypatch.setattr("orchard.git.worktree.status.PICTURED", 2)
    job.write({"left.txt": "left by the job", "x.o": "ignored"})
    job("add", "left.txt")
    saved = save(trees, worktree, repo.head())
    job("--no-optional-locks", "status")

    trees.reset(worktree, repo.head(), saved)

    assert not (worktree.path / "left.txt").exists()


def test_a_commit_without_files_leaves_nothing_for_fsck_to_miss(repo: Repo) -> None:
    repository = find_repository(repo.path)
    with private_file(repository) as index:
        git = repository.git.with_index(index)
        git("read-tree", "--empty")
        made = commit_index(git, [], "nothing")
    repo("update-ref", "refs/orchard/wip/strays/a/1", made)

    assert repo("fsck", "--full", "--no-dangling", "--no-progress") == ""
