"""The steps of a landing in a checkout, each taken at its worst moment: nothing of the user's is lost."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from orchard.git import folders
from orchard.git.landing import checkout, intent, placement
from orchard.git.landing.checkout import BranchMoved
from orchard.git.landing.claim import claim_of
from orchard.git.landing.landing import land, undo
from orchard.git.landing.obstacles import LandingRefused
from orchard.git.landing.recovery import settle_all
from orchard.git.repository import find_repository
from orchard.process import failpoint
from orchard.testing import Repo
from tests.git.test_landing import Scene, make_scene, picture, state


@pytest.fixture
def scene(repo: Repo) -> Scene:
    return make_scene(repo)


def at(place: str, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch, nth: int = 1) -> None:
    """Do something just when the landing comes through a place."""
    passed = [0]

    def pass_by(name: str) -> None:
        if name == place:
            passed[0] += 1
            if passed[0] == nth:
                act()

    for module in (checkout, placement):
        monkeypatch.setattr(module, "failpoint", pass_by)


def killed_at(scene: Scene, place: str, verb: str = "land", nth: int = 1) -> None:
    """A process of its own that lands, and is killed at a place."""
    call = {
        "land": f"land(repo, 'main', {scene.old!r}, {scene.new!r}, 'm')",
        "undo": f"undo(repo, 'main', {scene.old!r}, {scene.new!r})",
    }[verb]
    code = (
        "from pathlib import Path\n"
        "from orchard.git.landing.landing import land, undo\n"
        "from orchard.git.repository import find_repository\n"
        f"repo = find_repository(Path({str(scene.repo.path)!r}))\n{call}\n"
    )
    env = {**os.environ, failpoint.VARIABLE: f"{place}:{nth}:kill"}
    done = subprocess.run([sys.executable, "-c", code], env=env, timeout=60, check=False, capture_output=True)
    assert done.returncode == -9, done.stderr.decode()


BEFORE_THE_BRANCH = ("locked", "staged", "intended", "before-rename", "after-rename", "placed")
AFTER_THE_BRANCH = ("swapped", "published", "settled")


@pytest.mark.parametrize("place", BEFORE_THE_BRANCH)
def test_a_landing_that_dies_before_the_branch_moves_is_taken_back(scene: Scene, place: str) -> None:
    before, state_before = picture(scene.repo.path), state(scene.repo)

    killed_at(scene, f"checkout.{place}", nth=3 if place.endswith("rename") else 1)
    settle_all(scene.repository)

    assert (picture(scene.repo.path), state(scene.repo)) == (before, state_before)
    assert scene.repo("status", "--porcelain") == ""
    assert isinstance(scene.land(), BranchMoved)


@pytest.mark.parametrize("place", AFTER_THE_BRANCH)
def test_a_landing_that_dies_after_the_branch_moved_is_finished(scene: Scene, place: str) -> None:
    killed_at(scene, f"checkout.{place}")
    settle_all(scene.repository)

    assert scene.repo.head("main") == scene.new
    assert scene.repo("status", "--porcelain") == ""
    assert list(scene.repo.path.rglob("*.lock")) == [
        claim_of(scene.repository, scene.repo.path / ".git").with_suffix(".lock")
    ]


@pytest.mark.parametrize("place", ("after-rename", "swapped"))
def test_an_undo_that_dies_is_taken_back_or_finished(scene: Scene, place: str) -> None:
    scene.land()

    killed_at(scene, f"checkout.{place}", "undo", nth=2 if place == "after-rename" else 1)
    settle_all(scene.repository)

    assert scene.repo.head("main") == (scene.new if place == "after-rename" else scene.old)
    assert scene.repo("status", "--porcelain") == ""


def test_the_next_landing_settles_what_a_crash_left(scene: Scene) -> None:
    killed_at(scene, "checkout.after-rename", nth=2)

    assert scene.land() == BranchMoved(scene.repo.path)
    assert scene.repo("status", "--porcelain") == ""


def test_files_edited_after_a_crash_are_left_alone_and_named(scene: Scene) -> None:
    killed_at(scene, "checkout.placed")
    scene.repo.write({"a.txt": "mine\n"})

    (found,) = settle_all(scene.repository)

    assert found.theirs == (b"a.txt",)
    assert scene.repo("status", "--porcelain") == " M a.txt\n"
    assert (scene.repo.path / "a.txt").read_text() == "mine\n"
    assert (scene.repo.path / "gone.txt").exists() and not (scene.repo.path / "new.txt").exists()


def test_after_a_crash_a_file_is_known_by_its_content_where_its_inode_says_nothing(scene: Scene) -> None:
    killed_at(scene, "checkout.placed")
    for name in ("a.txt", "new.txt"):
        where = scene.repo.path / name
        content = where.read_bytes()
        where.unlink()
        where.write_bytes(content)

    (found,) = settle_all(scene.repository)

    assert found.theirs == ()
    assert scene.repo("status", "--porcelain") == ""


def test_a_lock_of_somebody_else_is_not_removed_after_a_crash(scene: Scene) -> None:
    killed_at(scene, "checkout.locked")
    lock = scene.repo.path / ".git/index.lock"
    lock.unlink()
    lock.write_text("theirs")

    settle_all(scene.repository)

    assert lock.read_text() == "theirs"
    assert not (scene.repo.path / ".git/HEAD.lock").exists()


LAST_MOMENT = ("staged", "intended", "before-rename")


@pytest.mark.parametrize("place", LAST_MOMENT)
@pytest.mark.parametrize("name", ["a.txt", "gone.txt", "new.txt", "new/deep.txt", "run.sh"])
def test_an_edit_in_the_last_moment_is_kept_and_stops_the_landing(
    scene: Scene,
    place: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = picture(scene.repo.path)
    at(f"checkout.{place}", lambda: scene.repo.write({name: "mine\n"}), monkeypatch)

    refused = scene.land()

    assert isinstance(refused, LandingRefused) and refused.kind == "checkout"
    assert name in refused.reason
    assert (scene.repo.path / name).read_text() == "mine\n"
    after = picture(scene.repo.path)
    assert {one for one in before.keys() | after.keys() if before.get(one) != after.get(one)} == {name}
    assert scene.repo.head("main") == scene.old


def test_an_edit_between_the_look_and_the_exchange_comes_back(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = folders.swap
    calls: list[bytes] = []

    def late(one: bytes, other: bytes) -> bool:
        if not calls:
            Path(os.fsdecode(other)).write_text("mine\n")
        calls.append(other)
        return real(one, other)

    monkeypatch.setattr(placement, "swap", late)

    refused = scene.land()

    assert isinstance(refused, LandingRefused)
    assert Path(os.fsdecode(calls[0])).read_text() == "mine\n"
    assert len(scene.repo("status", "--porcelain").splitlines()) == 1


def test_an_edit_while_a_landing_is_taken_back_is_kept(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    killed_at(scene, "checkout.placed")
    real = folders.swap
    calls: list[bytes] = []

    def late(one: bytes, other: bytes) -> bool:
        if not calls:
            Path(os.fsdecode(other)).write_text("mine\n")
        calls.append(other)
        return real(one, other)

    monkeypatch.setattr(placement, "swap", late)

    (found,) = settle_all(scene.repository)

    assert os.fsencode(scene.repo.path) + b"/" + found.theirs[0] == calls[0]
    assert Path(os.fsdecode(calls[0])).read_text() == "mine\n"
    assert len(scene.repo("status", "--porcelain").splitlines()) == 1


def test_what_a_program_writes_to_a_file_that_it_has_open_is_kept(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (scene.repo.path / "a.txt").open("r+") as held:

        def write() -> None:
            held.write("written late")
            held.flush()

        at("checkout.swapped", write, monkeypatch)
        landed = scene.land()

    assert isinstance(landed, BranchMoved) and landed.kept is not None
    assert (landed.kept / "a.txt").read_text().startswith("written late")
    assert scene.repo("status", "--porcelain") == ""


@pytest.mark.parametrize("place", ["staged", "placed", "swapped"])
def test_while_a_landing_is_under_way_git_refuses_to_switch_commit_and_stage(
    scene: Scene,
    place: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene.repo("branch", "other")
    refused: list[int] = []
    commands = (
        ("switch", "other"), ("switch", "-c", "fresh"), ("commit", "--allow-empty", "-m", "x"), ("add", "."),
        ("stash",), ("checkout", "--detach"), ("reset", "-q"),
    )  # fmt: skip

    def user() -> None:
        scene.repo.write({"README.md": "mine\n"})
        refused.extend(scene.repo.run(*words).status for words in commands)

    at(f"checkout.{place}", user, monkeypatch)

    assert scene.land() == BranchMoved(scene.repo.path)
    assert all(refused) and len(refused) == len(commands)
    assert scene.repo("status", "--porcelain") == " M README.md\n"
    assert scene.repo.head("other") == scene.old


def test_a_branch_that_moves_while_its_files_are_placed_gets_its_files_back(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mine = scene.repo("commit-tree", "-p", scene.old, "-m", "mine", f"{scene.old}^{{tree}}").strip()

    def move() -> None:
        (scene.repo.path / ".git/refs/heads/main").write_text(f"{mine}\n")

    before = picture(scene.repo.path)
    at("checkout.placed", move, monkeypatch)

    refused = scene.land()

    assert isinstance(refused, LandingRefused) and refused.kind == "moved"
    assert scene.repo.head("main") == mine
    assert picture(scene.repo.path) == before


def test_two_landings_and_undos_at_once_come_one_after_the_other(scene: Scene) -> None:
    done: list[object] = []

    def go(number: int) -> None:
        act = scene.land if number % 2 else lambda: undo(scene.repository, "main", scene.old, scene.new)
        done.append(act())

    for _ in range(4):
        threads = [threading.Thread(target=go, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert scene.repo("status", "--porcelain") == ""
    assert len(done) == 16
    assert all(isinstance(one, BranchMoved | LandingRefused) for one in done)


def test_whoever_waits_too_long_for_another_landing_is_told(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkout, "TURN_WAIT", 0.1)
    claim = claim_of(scene.repository, scene.repository.common_dir)
    claim.parent.mkdir(parents=True)
    lock = f"{claim}.lock"
    code = f"import fcntl, time; f = open({lock!r}, 'w'); fcntl.flock(f, 2); print(1, flush=True); time.sleep(60)"
    other = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    with other:
        assert other.stdout is not None and other.stdout.readline()
        before = picture(scene.repo.path)
        refused = scene.land()
        other.kill()

    assert isinstance(refused, LandingRefused) and refused.kind == "locked" and "under way" in refused.reason
    assert picture(scene.repo.path) == before
    assert scene.land() == BranchMoved(scene.repo.path)


def test_without_an_exchange_in_one_step_the_landing_takes_two(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(folders, "_call", lambda: lambda source, goal, flag: 38)

    assert scene.land() == BranchMoved(scene.repo.path)
    assert undo(scene.repository, "main", scene.old, scene.new) == BranchMoved(scene.repo.path)
    assert scene.repo("status", "--porcelain") == ""


def test_where_git_keeps_its_files_on_another_file_system_the_stage_is_in_the_checkout(repo: Repo) -> None:
    shared = Path("/dev/shm")
    if not os.access(shared, os.W_OK) or shared.stat().st_dev == repo.path.stat().st_dev:
        pytest.skip("there is one file system only")
    folder = Path(tempfile.mkdtemp(dir=shared))
    try:
        old = repo.commit({"a.txt": "old\n"})
        repo("checkout", "-q", "--detach")
        new = repo.commit({"a.txt": "new\n", "b.txt": "b\n"})
        repo("checkout", "-q", "main")
        shutil.move(repo.path / ".git", folder / "git")
        (repo.path / ".git").write_text(f"gitdir: {folder / 'git'}\n")
        repo("config", "core.worktree", str(repo.path))

        outcome = land(find_repository(repo.path), "main", old, new, "m")

        assert outcome == BranchMoved(repo.path)
        assert repo("status", "--porcelain", "--ignored") == ""
        assert sorted(one.name for one in repo.path.iterdir()) == [".git", "README.md", "a.txt", "b.txt"]
    finally:
        shutil.rmtree(folder)


def test_a_name_that_stands_for_a_branch_moves_that_branch_and_its_checkout(scene: Scene) -> None:
    scene.repo("symbolic-ref", "refs/heads/alias", "refs/heads/main")

    landed = land(scene.repository, "alias", scene.old, scene.new, "m")

    assert landed == BranchMoved(scene.repo.path)
    assert scene.repo("symbolic-ref", "refs/heads/alias").strip() == "refs/heads/main"
    assert scene.repo("status", "--porcelain") == ""
    assert undo(scene.repository, "alias", scene.old, scene.new) == BranchMoved(scene.repo.path)
    assert scene.repo("status", "--porcelain") == ""


def test_a_checkout_that_stands_on_another_name_of_the_branch_follows(scene: Scene) -> None:
    scene.repo("symbolic-ref", "refs/heads/alias", "refs/heads/main")
    scene.repo("symbolic-ref", "HEAD", "refs/heads/alias")

    assert scene.land() == BranchMoved(scene.repo.path)
    assert scene.repo("status", "--porcelain") == ""
    assert scene.repo("symbolic-ref", "--no-recurse", "HEAD").strip() == "refs/heads/alias"


def test_the_logs_of_the_branch_and_of_head_tell_of_the_landing(scene: Scene) -> None:
    scene.land()

    for name in ("main", "HEAD"):
        assert scene.repo("log", "-g", "-1", "--format=%H %gs", name) == f"{scene.new} orchard: landing\n"


def test_a_filter_runs_in_the_users_folder_with_the_paths_it_is_used_to(repo: Repo, tmp_path: Path) -> None:
    script = repo.path / "turn.sh"
    script.write_text("#!/bin/sh\nrev\n")
    script.chmod(0o755)
    for key, value in (("clean", "./turn.sh"), ("smudge", "./turn.sh"), ("required", "true")):
        repo("config", f"filter.turn.{key}", value)
    old = repo.commit({".gitattributes": "*.flt filter=turn\n", "a.flt": "cba\n"})
    repo("checkout", "-q", "--detach")
    new = repo.commit({"a.flt": "zyx\n", "b.flt": "321\n"})
    repo("checkout", "-q", "main")

    assert land(find_repository(repo.path), "main", old, new, "m") == BranchMoved(repo.path)
    assert (repo.path / "b.flt").read_text() == "321\n"
    assert repo("show", "HEAD:b.flt") == "123\n"
    assert repo("status", "--porcelain") == ""


def test_the_intent_holds_every_path_with_its_old_and_new_content(
    scene: Scene,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[intent.Intent | None] = []
    claim = claim_of(scene.repository, scene.repository.common_dir)
    at("checkout.intended", lambda: found.append(intent.read_intent(claim)), monkeypatch)

    scene.land()

    (noted,) = found
    assert noted is not None
    shown = {os.fsdecode(item.path): (item.old, item.new) for item in noted.items}
    names = scene.repo("diff", "--name-only", scene.old, scene.new).split()
    assert sorted(shown) == sorted(names)
    for name, (before, after) in shown.items():
        for commit, entry in ((scene.old, before), (scene.new, after)):
            row = scene.repo("ls-tree", commit, "--", name).split()
            assert (entry is None and not row) or (entry is not None and row[2] == entry.oid)


def test_the_intent_is_on_disk_before_the_first_file_moves(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = claim_of(scene.repository, scene.repository.common_dir)
    real, synced = os.fsync, list[int]()
    found: list[bool] = []

    def note(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_ino)
        real(descriptor)

    def look() -> None:
        file, folder = (claim / intent.FILE_NAME).stat().st_ino, claim.stat().st_ino
        found.append(file in synced and folder in synced[synced.index(file) :])

    monkeypatch.setattr(os, "fsync", note)
    at("checkout.before-rename", look, monkeypatch)

    assert scene.land() == BranchMoved(scene.repo.path)
    assert found == [True]


def test_a_git_that_makes_another_index_than_was_meant_is_found_out_before_a_file_moves(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git, folder = shutil.which("git"), tmp_path / "gits"
    folder.mkdir()
    script = f'#!/bin/sh\n{git} "$@" || exit\ncase "$*" in \'read-tree -m -u \'*) {git} rm -q --cached a.txt;; esac\n'
    (folder / "git").write_text(script)
    (folder / "git").chmod(0o755)
    before, state_before = picture(scene.repo.path), state(scene.repo)

    with monkeypatch.context() as patches:
        patches.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        refused = scene.land()

    assert isinstance(refused, LandingRefused) and "another index" in refused.reason
    assert (picture(scene.repo.path), state(scene.repo)) == (before, state_before)
