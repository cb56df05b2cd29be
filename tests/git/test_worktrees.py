"""Worktrees are made, reused and removed without losing work, beside whatever else runs."""

import multiprocessing
import os
import shutil
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import filelock
import pytest

from orchard.errors import OrchardError
from orchard.git.folders import mounts_below
from orchard.git.repository import Worktree, find_repository
from orchard.git.worktree import worktrees
from orchard.git.worktree.save import Saved, ensure_saved
from orchard.git.worktree.worktrees import NotSaved, Stray, Worktrees
from orchard.testing import Repo


def save(trees: Worktrees, worktree: Worktree, base: str) -> Saved:
    return ensure_saved(trees.repo, worktree, "refs/orchard/wip/p/j/1", "saved", base)


def content(folder: Path) -> dict[str, str]:
    names = [name for name in folder.rglob("*") if name.name != ".git" and (name.is_symlink() or not name.is_dir())]
    return {
        str(name.relative_to(folder)): str(name.readlink()) if name.is_symlink() else name.read_text() for name in names
    }


def test_a_worktree_holds_the_commit_detached_and_locked(repo: Repo, trees: Worktrees) -> None:
    old = repo.head()
    repo.commit({"later.txt": "later"})

    made = trees.add(old, "plan p1, job\nbuild\x1b[31m")

    assert content(made.path) == {"README.md": "# A small repository\n"}
    assert trees.head(made) == old
    assert trees.exists(made) and trees.is_ours(made)
    (row,) = [one for one in trees.repo.checkouts() if one.path == made.path]
    assert (row.branch, row.locked, row.ours) == (None, True, True)
    assert row.git_dir.name == made.name
    reason = (row.git_dir / "locked").read_text()
    assert reason == "orchard: plan p1, job build [31m\n" or reason == "orchard: plan p1, job build [31m"
    assert Repo(made.path)("status", "--porcelain") == ""


def test_the_users_checkout_shows_nothing_of_it(repo: Repo, trees: Worktrees) -> None:
    before = {name: (repo.path / ".git" / name).read_bytes() for name in ("HEAD", "index", "config")}

    trees.add(repo.head(), "job")

    assert before == {name: (repo.path / ".git" / name).read_bytes() for name in before}
    assert repo("status", "--porcelain", "--untracked-files=all") == ""
    assert stat.S_IMODE(trees.root.stat().st_mode) == 0o700


@pytest.mark.parametrize("before", [b"", b"*.tmp\n", b"*.tmp", None])
def test_the_exclude_file_keeps_what_the_user_wrote(repo: Repo, trees: Worktrees, before: bytes | None) -> None:
    place = repo.path / ".git/info/exclude"
    if before is None:
        place.unlink(missing_ok=True)
        place.parent.rmdir()
    else:
        place.write_bytes(before)

    trees.add(repo.head(), "one")
    Worktrees(trees.repo, trees.root).add(repo.head(), "two")

    kept = before or b""
    assert place.read_bytes() == kept + (b"\n" if kept and not kept.endswith(b"\n") else b"") + b"/.worktrees/\n"


def test_a_root_with_odd_characters_is_excluded_literally(repo: Repo) -> None:
    found = find_repository(repo.path)
    trees = Worktrees(found, found.worktree_root("odd [a-z]*\\ é"))

    trees.add(repo.head(), "job")

    assert repo("status", "--porcelain", "--untracked-files=all") == ""


def test_a_root_elsewhere_writes_no_exclude(repo: Repo, tmp_path: Path) -> None:
    before = (repo.path / ".git/info/exclude").read_bytes()

    Worktrees(find_repository(repo.path), tmp_path / "far").add(repo.head(), "job")

    assert (repo.path / ".git/info/exclude").read_bytes() == before


def test_a_commit_that_does_not_exist_leaves_nothing_behind(trees: Worktrees) -> None:
    with pytest.raises(OrchardError):
        trees.add("1" * 40, "job")

    assert trees.strays([]) == []
    assert [one.path for one in trees.repo.checkouts()] == [trees.repo.main_top]


def test_a_checkout_that_fails_leaves_nothing_behind(repo: Repo, trees: Worktrees) -> None:
    commit = repo.commit({"a": "a"})
    blob = repo("rev-parse", "HEAD:a").strip()
    (repo.path / ".git/objects" / blob[:2] / blob[2:]).unlink()

    with pytest.raises(OrchardError):
        trees.add(commit, "job")

    assert trees.strays([]) == []
    assert len(trees.repo.checkouts()) == 1


def test_parallel_checkout_gives_the_same_files(repo: Repo, trees: Worktrees) -> None:
    commit = repo.commit({f"d{number % 7}/f{number}": str(number) for number in range(150)})

    made = trees.add(commit, "job", parallel=True)

    assert content(made.path) == repo.files(commit)


def test_reset_makes_the_folder_exactly_the_commit(repo: Repo, trees: Worktrees) -> None:
    first = repo.commit({".gitignore": "*.o\ncache/\n", "a": "a", "dir/b": "b"})
    second = repo.commit({"a": "new", "dir/b": None, "c": "c"})
    made = trees.add(first, "job")
    job = Repo(made.path)
    job.write({"a": "edited", "untracked": "x", "x.o": "object", "cache/big": "y", "deep/er/f": "z"})
    job("add", "untracked")
    (made.path / "dir/b").unlink()
    (made.path / "empty/folder").mkdir(parents=True)
    os.mkfifo(made.path / "pipe")

    saved = save(trees, made, first)
    trees.reset(made, second, saved)

    assert content(made.path) == repo.files(second)
    assert sorted(path.name for path in made.path.iterdir()) == [".git", ".gitignore", "README.md", "a", "c"]
    assert trees.head(made) == second
    assert job("status", "--porcelain", "--ignored") == ""
    assert saved.commit is not None
    assert repo.files(saved.commit)["a"] == "edited"


def test_reset_keeps_the_caches_it_is_told_to_keep(repo: Repo, trees: Worktrees) -> None:
    commit = repo.commit({".gitignore": "node_modules/\n*.o\n"})
    made = trees.add(commit, "job")
    Repo(made.path).write({"node_modules/x/y.js": "1", "a.o": "2", "sub/node_modules/z": "3"})

    trees.reset(made, commit, save(trees, made, commit), keep=("/node_modules/",))

    assert content(made.path).keys() == {"README.md", ".gitignore", "node_modules/x/y.js"}


def test_reset_ends_whatever_the_job_began(repo: Repo, trees: Worktrees) -> None:
    base = repo.head()
    repo("checkout", "-q", "-b", "side")
    side = repo.commit({"README.md": "side\n"})
    made = trees.add(base, "job")
    job = Repo(made.path)
    job("checkout", "-q", "-b", "mine")
    mine = job.commit({"README.md": "mine\n"})
    job.run("rebase", side)
    admin = trees.repo.common_dir / "worktrees" / made.name
    assert (admin / "rebase-merge").exists()
    (admin / "index.lock").touch()

    trees.reset(made, base, save(trees, made, base))

    (row,) = [one for one in trees.repo.checkouts() if one.path == made.path]
    assert (row.operation, row.branch, row.head) == (None, None, base)
    assert not (admin / "index.lock").exists()
    assert repo.head("mine") == mine
    assert job("status", "--porcelain") == ""


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_reset_sees_through_flags_that_hide_an_edit(repo: Repo, trees: Worktrees, flag: str) -> None:
    base = repo.head()
    made = trees.add(base, "job")
    job = Repo(made.path)
    job("update-index", flag, "README.md")
    job.write({"README.md": "hidden work\n"})

    saved = save(trees, made, base)
    trees.reset(made, base, saved)

    assert saved.commit is not None
    assert repo.files(saved.commit) == {"README.md": "hidden work\n"}
    assert content(made.path) == repo.files(base)


def test_reset_survives_a_broken_index(repo: Repo, trees: Worktrees) -> None:
    base = repo.head()
    made = trees.add(base, "job")
    (trees.repo.common_dir / "worktrees" / made.name / "index").write_bytes(b"garbage")
    Repo(made.path).write({"new": "work"})

    saved = save(trees, made, base)
    trees.reset(made, base, saved)

    assert saved.commit is not None and repo.files(saved.commit)["new"] == "work"
    assert content(made.path) == repo.files(base)


def test_nothing_is_reset_or_removed_without_proof_that_it_is_saved(repo: Repo, trees: Worktrees) -> None:
    base = repo.head()
    one, other = trees.add(base, "one"), trees.add(base, "other")
    saved = save(trees, one, base)
    with pytest.raises(NotSaved, match="was not saved"):
        trees.remove(other, saved)
    with pytest.raises(NotSaved, match="was not saved"):
        trees.reset(other, base, saved)
    trees.reset(one, base, saved)
    Repo(one.path).write({"later": "work done after the proof"})

    with pytest.raises(NotSaved, match="was not saved"):
        trees.remove(one, saved)

    assert (one.path / "later").exists() and trees.exists(other)


def test_remove_takes_folder_and_notes_away_and_the_trash_goes_later(repo: Repo, trees: Worktrees) -> None:
    base = repo.head()
    made = trees.add(base, "job")
    Repo(made.path).write({"work": "kept"})

    saved = save(trees, made, base)
    trees.remove(made, saved)

    assert not made.path.exists() and not trees.exists(made)
    assert len(trees.repo.checkouts()) == 1
    assert len(list((trees.root / ".trash").iterdir())) == 1
    assert trees.empty_trash() == []
    assert list((trees.root / ".trash").iterdir()) == []
    repo("gc", "-q", "--prune=now")
    assert saved.commit is not None and repo.files(saved.commit)["work"] == "kept"


def test_a_folder_that_is_already_gone_can_be_removed(repo: Repo, trees: Worktrees) -> None:
    base = repo.head()
    made = trees.add(base, "job")
    job = Repo(made.path)
    mine = job.commit({"x": "x"})
    made.path.rename(trees.root.parent / "moved away")

    saved = save(trees, made, base)
    trees.remove(made, saved)

    assert saved.commit == mine and saved.ref is not None
    assert len(trees.repo.checkouts()) == 1


def test_the_trash_is_deleted_without_following_links(repo: Repo, trees: Worktrees, tmp_path: Path) -> None:
    base = repo.head()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    made = trees.add(base, "job")
    (made.path / "link").symlink_to(precious)
    locked = made.path / "locked"
    locked.mkdir()
    (locked / "file").touch()
    locked.chmod(0o500)

    trees.remove(made, save(trees, made, base))
    errors = trees.empty_trash()

    assert errors == []
    assert (precious / "file").read_text() == "mine"
    assert list((trees.root / ".trash").iterdir()) == []


def test_a_very_deep_tree_is_deleted(trees: Worktrees) -> None:
    trash = trees.root / ".trash"
    trash.mkdir(parents=True)
    here = os.open(trash, os.O_RDONLY)
    for _ in range(300):
        os.mkdir("d", dir_fd=here)
        deeper = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(here)

    assert trees.empty_trash() == []
    assert list(trash.iterdir()) == []


@pytest.fixture
def mounted(repo: Repo, trees: Worktrees, tmp_path: Path) -> Iterator[tuple[Worktree, Path]]:
    """A worktree with a folder of the user's mounted in it."""
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    made = trees.add(repo.head(), "job")
    point = made.path / "mount point"
    point.mkdir()
    command = ["mount", "--bind", str(precious), str(point)]
    if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield made, precious
    for place in mounts_below(tmp_path):  # wherever a failing test has moved it
        subprocess.run(["umount", str(place)], check=True)


def test_what_is_mounted_in_a_worktree_survives(repo: Repo, trees: Worktrees, mounted: tuple[Worktree, Path]) -> None:
    made, precious = mounted
    saved = save(trees, made, repo.head())

    with pytest.raises(NotSaved, match="mounted"):
        trees.remove(made, saved)
    with pytest.raises(NotSaved, match="mounted"):
        trees.reset(made, repo.head(), saved)

    assert (precious / "file").read_text() == "mine"


def test_strays_are_named_and_not_touched(repo: Repo, trees: Worktrees) -> None:
    base = repo.head()
    known, gone, user = trees.add(base, "known"), trees.add(base, "gone"), trees.root.parent / "users-own"
    repo("worktree", "add", "-q", "--detach", str(user))
    (trees.root / "left over").mkdir()
    (trees.root / "expected").mkdir()
    gone.path.rename(repo.path.parent / "elsewhere")

    found = trees.strays({"expected"})

    assert found == [
        Stray("left over", trees.root / "left over", "folder"),
        Stray(gone.name, gone.path, "entry"),
    ]
    assert trees.exists(known) and (trees.root / "left over").exists()


def test_repair_puts_the_pointer_back(repo: Repo, trees: Worktrees, tmp_path: Path) -> None:
    other = Repo.make(tmp_path / "other")
    made = trees.add(repo.head(), "job")
    pointer = made.path / ".git"
    pointer.write_text(f"gitdir: {other.path}/.git\n")

    trees.repair(made)
    assert Repo(made.path).head() == repo.head()

    pointer.unlink()
    pointer.symlink_to(other.path / ".git")
    trees.repair(made)
    assert not pointer.is_symlink() and Repo(made.path).head() == repo.head()

    pointer.unlink()
    Repo.make(made.path)
    trees.repair(made)
    assert Repo(made.path).head() == repo.head()
    assert list(made.path.glob(".git-moved-*/HEAD"))


def test_repair_needs_a_real_folder(repo: Repo, trees: Worktrees, tmp_path: Path) -> None:
    made = trees.add(repo.head(), "job")
    made.path.rename(tmp_path / "moved")
    made.path.symlink_to(repo.path)

    with pytest.raises(OrchardError):
        trees.repair(made)

    assert (repo.path / ".git").is_dir()


def test_names_that_are_not_ours_are_refused(repo: Repo, trees: Worktrees) -> None:
    for name in ("..", "../../x", "", "main", "w1234567/..", "wabcdefg\n"):
        with pytest.raises(ValueError, match="not the name"):
            trees.exists(Worktree(name, repo.path))


def test_a_users_worktree_is_never_removed_by_name(repo: Repo, trees: Worktrees) -> None:
    theirs = trees.root.parent / "waaaaaaaa"
    repo("worktree", "add", "-q", "-b", "theirs", str(theirs))
    claimed = Worktree("waaaaaaaa", trees.root / "waaaaaaaa")

    trees.remove(claimed, Saved(claimed, None, None, None, False, 0, (), False, False, "t"))

    assert Repo(theirs)("status", "--porcelain") == ""
    assert {one.branch for one in trees.repo.checkouts()} == {"main", "theirs"}


def test_a_lock_that_is_never_released_is_an_error_that_names_the_holder(
    repo: Repo, trees: Worktrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worktrees, "LOCK_TIMEOUT", 0.1)
    trees.repo.state.mkdir(exist_ok=True)

    with filelock.FileLock(trees.repo.state / "worktrees.lock"), pytest.raises(OrchardError) as caught:
        trees.add(repo.head(), "job")

    assert f"Process {os.getpid()} has been adding" in caught.value.message


@pytest.mark.parametrize("object_format", ["sha1", "sha256"])
@pytest.mark.parametrize("bare", [False, True])
def test_the_whole_life_in_every_kind_of_repository(tmp_path: Path, object_format: str, bare: bool) -> None:
    made = Repo.make(tmp_path / "r", object_format=object_format)
    place = made.path
    if bare:
        made("clone", "-q", "--bare", ".", str(tmp_path / "b.git"))
        place = tmp_path / "b.git"
    found = find_repository(place)
    trees = Worktrees(found, found.worktree_root(".worktrees"))

    worktree = trees.add(made.head(), "job")
    Repo(worktree.path).write({"new": "work"})
    saved = save(trees, worktree, made.head())
    trees.reset(worktree, made.head(), saved)
    trees.remove(worktree, save(trees, worktree, made.head()))

    assert saved.commit is not None and Repo(place).files(saved.commit)["new"] == "work"
    assert trees.empty_trash() == [] and trees.strays([]) == []


# Many at once, beside what users and their tools run.


def live_many(place: Path, count: int, threads: int) -> list[str]:
    """Add, reset and remove worktrees; returns what went wrong."""
    found = find_repository(place)
    trees = Worktrees(found, found.worktree_root(".worktrees"))
    base = found.resolve("main")[1]

    def live(number: int) -> str | None:
        try:
            worktree = trees.add(base, f"job {number}")
            (worktree.path / "new").write_text(f"{os.getpid()} {number}")
            ref = f"refs/orchard/wip/p{os.getpid()}/j{number}/1"
            saved = ensure_saved(found, worktree, ref, "saved", base)
            trees.reset(worktree, base, saved)
            trees.remove(worktree, ensure_saved(found, worktree, ref, "saved", base))
            kept = found.git("cat-file", "blob", f"{ref}:new").text
        except OrchardError as error:
            return f"{number}: {error}"
        return None if kept == f"{os.getpid()} {number}" else f"{number}: lost"

    with ThreadPoolExecutor(threads) as pool:
        return [problem for problem in pool.map(live, range(count)) if problem] + trees.empty_trash()


@contextmanager
def beside(repo: Repo, *commands: tuple[str, ...]) -> Iterator[None]:
    """Run each of these commands again and again meanwhile; at least once."""
    done = threading.Event()

    def loop(command: tuple[str, ...]) -> None:
        while not done.is_set():
            repo.run(*command)

    threads = [threading.Thread(target=loop, args=(command,)) for command in commands]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join(60)


def run_many(repo: Repo, count: int, threads: int, processes: int) -> list[str]:
    with (
        beside(repo, ("worktree", "prune", "--expire=now"), ("gc", "-q", "--prune=now")),
        multiprocessing.get_context("spawn").Pool(processes) as pool,
    ):
        jobs = [pool.apply_async(live_many, (repo.path, count // processes, threads)) for _ in range(processes)]
        return [problem for job in jobs for problem in job.get(600)]


def test_many_worktrees_beside_prune_and_gc(repo: Repo) -> None:
    problems = run_many(repo, count=24, threads=4, processes=2)

    assert problems == []
    assert repo("worktree", "list", "--porcelain").count("worktree ") == 1


@pytest.mark.parametrize("spoiled", [1, 8, 50])
def test_a_worktree_is_made_also_when_prune_is_first_again_and_again(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoiled: int
) -> None:
    """A git that prunes between the two halves of its own `worktree add`, as one that runs beside us may."""
    tries, known, real = tmp_path / "tries", repo.path / ".git" / "worktrees", shutil.which("git")
    own = tmp_path / "bin" / "git"
    own.parent.mkdir()
    own.write_text(
        f'#!/bin/sh\ncase " $* " in *" worktree add "*) echo >> {tries}\n'
        f'[ "$(wc -l < {tries})" -gt {spoiled} ] || {{ {real} "$@" >&2; rm -r {known}; exit 128; }};;\n'
        f'esac\nexec {real} "$@"\n'
    )
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{own.parent}:{os.environ['PATH']}")
    trees = Worktrees(find_repository(repo.path), tmp_path / "trees")

    if spoiled < 10:
        made = trees.add(repo.head(), "job")
        assert content(made.path) == {"README.md": "# A small repository\n"} and trees.is_ours(made)
        assert tries.read_text().count("\n") == spoiled + 1
    else:
        with pytest.raises(OrchardError, match="worktree add"):
            trees.add(repo.head(), "job")
        assert tries.read_text().count("\n") < spoiled, "whatever it is, it is not bad luck"
    assert len([*trees.root.glob("w*")]) == (spoiled < 10), "what was half made is gone"


@pytest.mark.slow
def test_two_hundred_worktrees_by_eight_threads_and_two_processes(repo: Repo) -> None:
    began = time.monotonic()

    problems = run_many(repo, count=200, threads=8, processes=2)

    print(f"200 worktrees in {time.monotonic() - began:.1f} s")
    assert problems == []
    assert repo.run("fsck", "--strict").status == 0


def test_a_large_index_is_settled_so_that_unchanged_files_are_not_read_again(
    repo: Repo, trees: Worktrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worktrees, "SETTLED_FROM", 0)
    head = repo.commit({"one.txt": "one", "two.txt": "two"})
    made = trees.add(head, "job")
    index = trees.repo.common_dir / "worktrees" / made.name / "index"
    before = index.stat().st_mtime_ns
    time.sleep(1.1)
    (made.path / "two.txt").write_text("TWO")

    trees.settle_index(made)

    assert index.stat().st_mtime_ns > before + 10**9 > (made.path / "one.txt").stat().st_mtime_ns
    assert trees.made_from(made) == head
    assert Repo(made.path)("status", "--porcelain").strip() == "M two.txt"
    after = index.stat().st_ctime_ns
    trees.settle_index(made)
    assert index.stat().st_ctime_ns == after, "once is enough"


def test_an_index_that_somebody_else_wrote_to_is_not_called_ours_by_settling_it(
    repo: Repo, trees: Worktrees, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worktrees, "SETTLED_FROM", 0)
    made = trees.add(repo.head(), "job")
    time.sleep(1.1)
    (made.path / "mine.txt").write_text("mine")
    Repo(made.path)("add", "mine.txt")

    trees.settle_index(made)

    assert trees.made_from(made) is None
