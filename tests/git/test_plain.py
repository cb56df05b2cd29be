"""Work committed without git gives the same trees as with it, and only where nothing stands between."""

import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from msgspec.structs import replace

from orchard.errors import OrchardError
from orchard.git.folders import remove_file
from orchard.git.objects.processes import Live
from orchard.git.refs import Update
from orchard.git.repository import Repository, Worktree, find_repository
from orchard.git.worktree import save as wip
from orchard.git.worktree import status as contents_module
from orchard.git.worktree.commit import CommitInfo, Committed, commit_work
from orchard.git.worktree.fast_commit import Storage, holds, read_files, write_tree
from orchard.git.worktree.save import Saved, ensure_saved
from orchard.git.worktree.status import look, picture
from orchard.git.worktree.worktrees import ProofIsOld, Worktrees
from orchard.testing import Repo

REF = "refs/orchard/keep/p/j/1"
WIP = "refs/orchard/wip/p/j/1"
INFO = CommitInfo("Work", REF, ("Ada", "ada@example.com"))
NAMES = ["a", "b.txt", "deep/er/c", "deep/d", "sp ace", "new\nline", 'quo"te', "-dash", "caf\u00e9", "deep.x", "deep-y"]


def save(trees: Worktrees, live: Live, worktree: Worktree, base: str) -> Saved:
    made_from, left = trees.made_from(worktree), trees.left_by(worktree)
    return ensure_saved(trees.repo, worktree, WIP, "saved", base, live, made_from=made_from, held_by=REF, left=left)


def commit(
    trees: Worktrees, live: Live, worktree: Worktree, base: str, *, stays: bool = False, replaces: bool = False
) -> Committed:
    made_from = trees.made_from(worktree)
    info = replace(INFO, replaces=base) if replaces else INFO
    done = commit_work(trees.repo, worktree, base, info, live, made_from=made_from, stays=stays)
    assert isinstance(done, Committed), done
    if made_from is not None:
        trees.note_index(worktree, made_from, done.left)
    return done


def test_random_changes_give_the_tree_that_git_makes_of_them(repo: Repo, trees: Worktrees, live: Live) -> None:
    seed = int(os.environ.get("ORCHARD_SEED", random.randrange(10**9)))
    for number in range(seed, seed + 40):
        luck = random.Random(number)
        repo.write({name: str(luck.random()) * luck.randrange(9) for name in luck.sample(NAMES, 6)})
        base = repo.commit()
        worktree = trees.add(base, "job")
        change_at_random(luck, worktree.path)

        contents = look(trees.repo.worktree_git(worktree.name, worktree.path), worktree.path)
        files = read_files(worktree.path, contents)
        assert files is not None
        made = write_tree(live.objects, live.loose, live.objects.tree_of(base), files)

        job = Repo(worktree.path)
        job("add", "-A")
        assert made == job("write-tree").strip(), f"ORCHARD_SEED={number}"
        assert holds(live.objects, live.loose, files, (live.objects.tree_of(base), made))
    assert repo.run("fsck", "--strict").status == 0


def change_at_random(luck: random.Random, top: Path) -> None:
    for name in luck.sample(NAMES, 5):
        place = top / name
        kind = luck.choice(["write", "delete", "mode", "folder", "file"])
        if kind == "delete" and place.is_file():
            place.unlink()
        elif kind == "folder" and place.is_file():
            place.unlink()
            place.mkdir()
            (place / "inside").write_text("inside")
        elif kind == "mode" and place.is_file():
            place.chmod(0o755)
        elif not place.is_dir() and all(not parent.is_file() for parent in place.parents):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(str(luck.random()))


def test_a_folder_that_nobody_needs_is_neither_staged_nor_checked_out_again(
    repo: Repo, trees: Worktrees, live: Live, worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = repo.head()
    (worktree.path / "new" / "er").mkdir(parents=True)
    (worktree.path / "new" / "er" / "x.txt").write_text("x\n")

    done = commit(trees, live, worktree, base)
    saved = save(trees, live, worktree, done.commit)
    trees.reset(worktree, base, saved)

    assert (done.added, done.lines_added) == (1, 1)
    assert repo.files(done.commit)["new/er/x.txt"] == "x\n"
    assert (saved.commit, saved.new_files) == (None, (b"new/er/x.txt",))
    assert not (worktree.path / "new").exists()
    assert Repo(worktree.path)("status", "--porcelain") == ""
    assert trees.head(worktree) == base


def test_a_folder_that_did_not_change_is_not_looked_at_by_git_again(
    repo: Repo, trees: Worktrees, live: Live, worktree: Worktree, monkeypatch: pytest.MonkeyPatch
) -> None:
    (worktree.path / "x").write_text("x\n")
    done = commit(trees, live, worktree, repo.head())

    def never(*_: object, **__: object) -> None:
        raise AssertionError("git was asked")

    monkeypatch.setattr(wip, "look", never)

    assert save(trees, live, worktree, done.commit).new_files == (b"x",)


def test_any_change_below_a_folder_changes_its_picture(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    file = tmp_path / "deep" / "er" / "x"
    file.write_text("x")
    taken = [picture(tmp_path)]
    changes: list[Callable[[], object]] = [
        lambda: file.write_text("y"),
        lambda: file.chmod(0o755),
        (tmp_path / "deep" / "new").touch,
        lambda: (tmp_path / "deep" / "new").rename(tmp_path / "new"),
        (tmp_path / "empty").mkdir,
        lambda: (tmp_path / "link").symlink_to("x"),
        lambda: os.utime(file, ns=(1, 1)),
    ]

    for change in changes:
        change()
        taken.append(picture(tmp_path))

    assert len(set(taken)) == len(taken)


def test_a_folder_with_too_much_in_it_has_no_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents_module, "PICTURED", 3)
    for name in "abc":
        (tmp_path / name).touch()
    assert picture(tmp_path) is not None

    (tmp_path / "d").touch()

    assert picture(tmp_path) is None


def test_a_folder_that_stays_stands_at_the_result(repo: Repo, trees: Worktrees, live: Live, worktree: Worktree) -> None:
    (worktree.path / "a").write_text("edited\n")
    (worktree.path / "x").write_text("x")

    done = commit(trees, live, worktree, repo.head(), stays=True)

    job = Repo(worktree.path)
    assert job("status", "--porcelain") == ""
    assert job.head() == done.commit
    assert (done.added, done.modified, done.lines_added, done.lines_deleted) == (1, 1, 2, 1)


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize("late", ["another file", "an edit", "a new mode", "an ignored file"])
def test_what_came_after_the_commit_is_seen(
    repo: Repo,
    trees: Worktrees,
    live: Live,
    worktree: Worktree,
    monkeypatch: pytest.MonkeyPatch,
    late: str,
    large: bool,
) -> None:
    if large:
        monkeypatch.setattr(contents_module, "PICTURED", 0)
    base = repo.head()
    (worktree.path / "x").write_text("x\n")
    done = commit(trees, live, worktree, base)
    changed = worktree.path / {"another file": "y", "an ignored file": "y.o"}.get(late, "x")
    if late == "a new mode":
        changed.chmod(0o755)
    else:
        changed.write_text("z\n")

    saved = save(trees, live, worktree, done.commit)
    if changed.name != "x":  # what was committed is read again at once, all else before the reset
        with pytest.raises(ProofIsOld):
            trees.reset(worktree, base, saved)
        assert changed.read_text() == "z\n"
        saved = ensure_saved(trees.repo, worktree, WIP, "saved", base)
    trees.reset(worktree, base, saved)

    assert Repo(worktree.path)("status", "--porcelain", "--ignored") == ""
    assert saved.commit is not None and saved.new_files is None
    kept = repo.files(saved.commit)
    assert kept.get(changed.name) == {"a new mode": "x\n", "an ignored file": None}.get(late, "z\n")


def test_whoever_goes_on_in_a_folder_is_not_overlooked(
    repo: Repo, trees: Worktrees, live: Live, worktree: Worktree
) -> None:
    (worktree.path / "x").write_text("x\n")
    done = commit(trees, live, worktree, repo.head())
    assert trees.left_by(worktree) is not None

    trees.repair(worktree)  # as before every program and every turn of an agent
    (worktree.path / "y").write_text("y\n")

    saved = save(trees, live, worktree, done.commit)
    assert saved.commit is not None
    assert repo.files(saved.commit)["y"] == "y\n"


def test_a_result_that_no_ref_holds_is_saved_once_more(
    repo: Repo, trees: Worktrees, live: Live, worktree: Worktree
) -> None:
    base = repo.head()
    (worktree.path / "x").write_text("x\n")
    done = commit(trees, live, worktree, base)
    repo("update-ref", "-d", REF)

    saved = save(trees, live, worktree, done.commit)

    assert saved.commit is not None
    assert repo.files(saved.commit)["x"] == "x\n"


@pytest.mark.parametrize("kind", ["blob", "tree", "commit"])
def test_what_a_gc_took_before_it_had_a_ref_is_written_again(
    repo: Repo, trees: Worktrees, live: Live, worktree: Worktree, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    (worktree.path / "deep").mkdir()
    (worktree.path / "deep" / "x").write_text("x\n")
    move = live.results.move
    taken: list[str] = []

    def late(updates: Sequence[Update], message: str) -> None:
        move(updates, message)
        name = {"blob": f"{REF}:deep/x", "tree": f"{REF}:deep", "commit": REF}[kind]
        if not taken:
            taken.append(repo("rev-parse", name).strip())
            (repo.path / ".git" / "objects" / taken[0][:2] / taken[0][2:]).unlink()

    monkeypatch.setattr(live.results, "move", late)

    done = commit(trees, live, worktree, repo.head())

    assert taken
    assert repo.head(REF) == done.commit
    assert repo.files(done.commit)["deep/x"] == "x\n"
    assert repo.run("fsck", "--strict").status == 0


def test_an_index_that_the_job_wrote_to_is_looked_at_by_git(
    repo: Repo, trees: Worktrees, live: Live, worktree: Worktree
) -> None:
    assert trees.made_from(worktree) == repo.head()
    (worktree.path / "y.o").write_text("added by force")
    Repo(worktree.path)("add", "-f", "y.o")

    assert trees.made_from(worktree) is None
    assert repo.files(commit(trees, live, worktree, repo.head()).commit)["y.o"] == "added by force"


@pytest.mark.parametrize("kind", ["link", "linked folder", "pipe", "attributes", "large", "many"])
def test_what_is_not_plain_is_left_to_git(trees: Worktrees, worktree: Worktree, kind: str) -> None:
    top = worktree.path
    if kind == "link":
        (top / "x").symlink_to("a")
    elif kind == "linked folder":
        (top / "dir").rename(top / "other")
        (top / "dir").symlink_to("other")
    elif kind == "pipe":
        (top / "a").unlink()
        os.mkfifo(top / "a")
    elif kind == "attributes":
        (top / "dir" / ".gitattributes").write_text("* text\n")
    elif kind == "large":
        (top / "x").write_bytes(bytes(5_000_000))
    else:
        for number in range(101):
            (top / f"x{number}").touch()

    contents = look(trees.repo.worktree_git(worktree.name, top), top)

    assert read_files(top, contents) is None


@pytest.mark.parametrize("setting", ["core.autocrlf=input", "core.fileMode=false", "core.attributesFile=/nowhere"])
def test_settings_that_change_what_is_stored_are_respected(repo: Repo, repository: Repository, setting: str) -> None:
    assert Storage(repository).is_plain()

    repo("config", *setting.split("="))

    assert not Storage(find_repository(repo.path)).is_plain()


def test_attributes_of_the_repository_are_respected(repo: Repo, repository: Repository, live: Live) -> None:
    plain = repo.commit({"a": "a"})
    with_attributes = repo.commit({"deep/.gitattributes": "* text"})

    assert live.is_plain(plain)
    assert not live.is_plain(with_attributes)
    (repository.common_dir / "info" / "attributes").write_text("* text\n")
    assert not Storage(repository).is_plain()


def test_a_setting_that_is_made_between_two_jobs_counts_for_the_second(
    repo: Repo, trees: Worktrees, live: Live, worktree: Worktree
) -> None:
    first = commit(trees, live, worktree, repo.head())
    repo("config", "core.autocrlf", "true")
    second = trees.add(first.commit, "next")
    (second.path / "x.txt").write_bytes(b"one\r\ntwo\r\n")

    done = commit(trees, live, second, first.commit)

    assert live.objects.read(repo("rev-parse", f"{done.commit}:x.txt").strip())[1] == b"one\ntwo\n"


def _write(place: Path, text: str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


@pytest.mark.parametrize(
    "place",
    [
        "repo/.git/config", "repo/.git/info/attributes", "home/.gitconfig", "home/.config/git/config",
        "home/.config/git/attributes", "system", "included",
    ],
)  # fmt: skip
def test_whatever_decides_how_files_are_stored_is_asked_again_when_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", str(tmp_path / "system"))
    repo = Repo.make(tmp_path / "repo")
    _write(tmp_path / "included", "[core]\n\tabbrev = 12\n")
    repo("config", "include.path", str(tmp_path / "included"))
    file, base = tmp_path / place, repo.head()
    before = file.read_text() if file.exists() else None

    with Live(find_repository(repo.path)) as live:
        assert live.is_plain(base) and live.is_plain(base)
        _write(file, "* text\n" if place.endswith("attributes") else f"{before or ''}[core]\n\tautocrlf = true\n")
        assert not live.is_plain(base) and not live.is_plain(base)
        file.unlink() if before is None else file.write_text(before)
        assert live.is_plain(base)


def test_nobody_is_asked_again_while_nothing_changes(repo: Repo, live: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    assert live.is_plain(repo.head())
    base = repo.head()

    def never(*_: object, **__: object) -> None:
        raise AssertionError("git was asked")

    monkeypatch.setattr("orchard.git.command.subprocess.Popen", never)

    assert all(live.is_plain(base) for _ in range(3))


def test_an_object_that_a_power_cut_left_empty_is_written_again(repo: Repo, live: Live) -> None:
    name = live.loose.write("blob", b"there again", durable=False)
    place = repo.path / ".git" / "objects" / name[:2] / name[2:]
    place.chmod(0o644)
    place.write_bytes(b"")

    assert live.loose.write("blob", b"there again") == name
    assert repo("cat-file", "-p", name) == "there again"


def test_an_object_that_exists_is_young_again(repo: Repo, live: Live) -> None:
    name = live.loose.write("blob", b"old")
    place = repo.path / ".git" / "objects" / name[:2] / name[2:]
    os.utime(place, (1, 1))

    live.loose.write("blob", b"old")
    repo("prune", "--expire=1.hour.ago")

    assert repo("cat-file", "-p", name) == "old"


def test_a_shared_repository_keeps_its_rights(repo: Repo) -> None:
    repo("config", "core.sharedRepository", "group")
    before = os.umask(0o077)
    try:
        with Live(find_repository(repo.path)) as live:
            name = live.loose.write("blob", b"for the group")
    finally:
        os.umask(before)

    assert repo("cat-file", "-p", name) == "for the group"
    assert (repo.path / ".git" / "objects" / name[:2] / name[2:]).stat().st_mode & 0o040


def test_removing_a_file_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_text("kept")
    (tmp_path / "top" / "dir").symlink_to(tmp_path / "outside")

    with pytest.raises(OSError):
        remove_file(tmp_path / "top", b"dir/x")

    assert (tmp_path / "outside" / "x").read_text() == "kept"


def test_the_same_proof_is_not_taken_twice(repo: Repo, trees: Worktrees, live: Live, worktree: Worktree) -> None:
    base = repo.head()
    (worktree.path / "x").write_text("x\n")
    saved = save(trees, live, worktree, commit(trees, live, worktree, base).commit)
    trees.reset(worktree, base, saved)
    (worktree.path / "x").write_text("precious\n")

    with pytest.raises(OrchardError, match="was not saved"):
        trees.reset(worktree, base, saved)

    assert (worktree.path / "x").read_text() == "precious\n"
