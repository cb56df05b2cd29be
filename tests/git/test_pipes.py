"""A pipe in place of a file that we read ourselves, in a folder of git's that any job can write to, keeps nobody."""

import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from orchard.engine.server.address import ADDRESS_FILE, LOCK_FILE, PLACE_FILE, is_at_work, refuse_copy
from orchard.errors import OrchardError
from orchard.git.checkout_state import branch_to_come_back_to, points_elsewhere
from orchard.git.command import Blocked
from orchard.git.folders import DEPTH, _delete, exclude
from orchard.git.landing.checkout import BranchMoved
from orchard.git.landing.intent import first_look
from orchard.git.landing.obstacles import LandingRefused
from orchard.git.pipes import remove_blocked_notes, special_notes
from orchard.git.refs import _remove_old_lock, read_log
from orchard.git.repository import Repository, Worktree
from orchard.git.worktree.commit import CommitInfo, Refused, commit_work
from orchard.git.worktree.save import CannotSave, Witness, ensure_saved, still_holds
from orchard.git.worktree.status import Picture
from orchard.git.worktree.worktrees import Worktrees
from orchard.testing import Repo
from tests.git.test_landing import Scene, make_scene
from tests.process.sandbox.walled import ORDINARY

INFO = CommitInfo("Build it", "refs/orchard/keep/p1/build/1", ("Ada Tester", "ada@example.com"))
LONGEST = 15.0


@pytest.fixture(autouse=True)
def nothing_hangs() -> Iterator[None]:
    """Whoever waits for a pipe is interrupted, so that a missing protection is a failure and no standstill."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"somebody has been waiting for {LONGEST:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def scene(repo: Repo) -> Scene:
    return make_scene(repo)


def put_pipe(place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    os.mkfifo(place)
    return place


def locks(scene: Scene) -> list[Path]:
    git_dir = scene.repository.common_dir
    return [place for name in ("index.lock", "HEAD.lock") if os.path.lexists(place := git_dir / name)]


def test_a_landing_goes_through_although_the_log_of_head_is_a_pipe(scene: Scene) -> None:
    pipe = put_pipe(scene.repository.common_dir / "logs" / "HEAD")

    assert scene.land() == BranchMoved(scene.repo.path)

    assert scene.repo.head("main") == scene.new and locks(scene) == [] and pipe.is_fifo()
    pipe.unlink()
    assert scene.repo("status", "--porcelain") == ""


def test_nothing_is_written_to_whoever_reads_a_pipe_in_place_of_the_log_of_head(scene: Scene) -> None:
    pipe = put_pipe(scene.repository.common_dir / "logs" / "HEAD")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert scene.land() == BranchMoved(scene.repo.path)
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


@pytest.mark.parametrize("name", ["logs/refs/heads/main", "index"])
def test_a_landing_that_cannot_be_beside_a_pipe_is_refused_and_leaves_no_lock(scene: Scene, name: str) -> None:
    pipe = put_pipe(scene.repository.common_dir / name)

    assert isinstance(scene.land(), LandingRefused)

    assert scene.repo.head("main") == scene.old and locks(scene) == [] and pipe.is_fifo()


def test_the_log_of_a_ref_that_is_a_pipe_tells_nothing(repo: Repo, repository: Repository) -> None:
    assert read_log(repository.git, "refs/heads/main", 5)
    put_pipe(repository.common_dir / "logs" / "refs" / "heads" / "main")

    assert read_log(repository.git, "refs/heads/main", 5) == set()


def test_a_lock_that_is_a_pipe_stays(repository: Repository) -> None:
    pipe = put_pipe(repository.common_dir / "refs" / "heads" / "main.lock")
    os.utime(pipe, (0, 0))

    assert not _remove_old_lock(repository.git, [], f"fatal: Unable to create '{pipe}': File exists.")
    assert pipe.is_fifo()


def test_a_pipe_in_a_checkout_is_looked_at_without_reading(tmp_path: Path) -> None:
    pipe = put_pipe(tmp_path / "file")

    assert first_look(os.fsencode(pipe), pipe.lstat())[4] == "unreadable"


@pytest.mark.parametrize("name", ["rebase-merge/head-name", "rebase-apply/head-name", "BISECT_START"])
def test_a_note_on_the_branch_to_come_back_to_may_be_a_pipe(repository: Repository, name: str) -> None:
    put_pipe(repository.common_dir / name)

    assert branch_to_come_back_to(repository.common_dir) is None


def test_a_checkout_whose_pointer_is_a_pipe_says_nothing_of_whose_it_is(tmp_path: Path) -> None:
    put_pipe(tmp_path / "top" / ".git")

    assert not points_elsewhere(tmp_path / "top", tmp_path / "git")


def test_a_pointer_behind_a_link_still_tells_whose_a_checkout_is(tmp_path: Path) -> None:
    (tmp_path / "top").mkdir()
    (tmp_path / "pointer").write_text(f"gitdir: {tmp_path / 'other'}\n")
    (tmp_path / "top" / ".git").symlink_to(tmp_path / "pointer")

    assert points_elsewhere(tmp_path / "top", tmp_path / "git")
    assert not points_elsewhere(tmp_path / "top", tmp_path / "other")


@pytest.mark.parametrize("linked", [False, True])
def test_what_git_overlooks_is_not_noted_in_a_pipe(repository: Repository, tmp_path: Path, linked: bool) -> None:
    place = repository.common_dir / "info" / "exclude"
    pipe = put_pipe(tmp_path / "pipe" if linked else place)
    if linked:
        place.unlink(missing_ok=True)
        place.symlink_to(pipe)

    with pytest.raises(OrchardError, match="is not a file") as told:
        exclude(repository.common_dir, "/.worktrees/")

    assert str(pipe) in told.value.message and pipe.is_fifo()


@pytest.mark.parametrize("name", ["gitdir", "locked"])
def test_worktrees_are_told_from_strays_although_notes_on_them_are_pipes(
    trees: Worktrees, worktree: Worktree, name: str
) -> None:
    put_pipe(trees.repo.common_dir / "worktrees" / worktree.name / name)

    assert trees.is_ours(worktree)
    assert {stray.name for stray in trees.strays([])} == ({worktree.name} if name == "gitdir" else set())


def test_a_worktree_whose_head_became_a_pipe_is_not_as_it_was(trees: Worktrees, worktree: Worktree) -> None:
    git = trees.repo.worktree_git(worktree.name, worktree.path)
    put_pipe(git.git_dir / "HEAD")

    assert not still_holds(git, worktree.path, Witness(Picture(b"", ())), git.git_dir / "copy", untouched=True)


def test_a_pipe_in_place_of_the_pointer_of_a_submodule_is_work_that_nothing_holds(repo: Repo, trees: Worktrees) -> None:
    repo("update-index", "--add", "--cacheinfo", f"160000,{repo.head()},sub")
    repo("commit", "-q", "-m", "a submodule")
    worktree = trees.add(repo.head(), "job")
    put_pipe(worktree.path / "sub" / ".git")
    (worktree.path / "x.txt").write_text("x")

    done = commit_work(trees.repo, worktree, repo.head(), INFO)
    with pytest.raises(CannotSave, match="submodule sub"):
        ensure_saved(trees.repo, worktree, "refs/orchard/wip/p1/build/1", "stopped", repo.head())

    assert isinstance(done, Refused) and done.paths == ("sub",)


@pytest.mark.parametrize("name", ["HEAD", "gitdir", "commondir", "locked"])
def test_a_pipe_among_the_notes_on_one_worktree_does_not_keep_the_next_from_being_made(
    repo: Repo, trees: Worktrees, worktree: Worktree, name: str
) -> None:
    pipe = put_pipe(trees.repo.common_dir / "worktrees" / worktree.name / name)

    made = trees.add(repo.head(), "the next job")

    assert trees.head(made) == repo.head() and not pipe.is_fifo()


def test_a_git_that_meets_a_pipe_among_the_notes_on_a_worktree_is_stopped_by_name(
    trees: Worktrees, worktree: Worktree
) -> None:
    put_pipe(trees.repo.common_dir / "worktrees" / worktree.name / "HEAD")

    with pytest.raises(Blocked, match=f"worktrees/{worktree.name}/HEAD"):
        trees.repo.git("worktree", "list")


def test_a_pipe_among_the_notes_on_a_worktree_of_the_users_is_named_before_another_is_made(
    repo: Repo, trees: Worktrees
) -> None:
    repo("worktree", "add", "-q", str(repo.path.parent / "mine"), "-b", "mine")
    pipe = put_pipe(trees.repo.common_dir / "worktrees" / "mine" / "HEAD")

    with pytest.raises(Blocked, match="worktrees/mine/HEAD"):
        trees.add(repo.head(), "job")

    assert pipe.is_fifo() and [entry.name for entry in trees.root.iterdir()] == []


def _copied(state: Path) -> None:
    refuse_copy(state)


def _at_work(state: Path) -> None:
    assert not is_at_work(state)


@pytest.mark.parametrize(("name", "ask"), [(ADDRESS_FILE, _at_work), (LOCK_FILE, _at_work), (PLACE_FILE, _copied)])
def test_pipes_among_the_notes_of_an_engine_keep_nobody(tmp_path: Path, name: str, ask: Callable[[Path], None]) -> None:
    put_pipe(tmp_path / name)

    ask(tmp_path)


def as_ordinary_user(act: Callable[[], bool]) -> bool:
    """Whether something holds for a user who may not read everything."""
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(ORDINARY, ORDINARY, ORDINARY)
                os.setresuid(ORDINARY, ORDINARY, ORDINARY)
            os._exit(0 if act() else 1)
        except BaseException:
            os._exit(2)
    return os.waitpid(pid, 0)[1] == 0


def test_a_pipe_in_a_folder_that_cannot_be_listed_is_found_and_taken_away() -> None:
    """Git would open it by its name, and wait for ever."""

    def act() -> bool:
        with tempfile.TemporaryDirectory(dir="/tmp") as place:
            notes = Path(place)
            (notes / "logs" / "deep").mkdir(parents=True)
            os.mkfifo(notes / "logs" / "deep" / "HEAD")
            (notes / "logs" / "deep").chmod(0o300)
            (notes / "logs").chmod(0o300)
            (notes / "closed").mkdir(mode=0)
            found = special_notes(notes)
            remove_blocked_notes(notes)
            mended = special_notes(notes) == [] and (notes / "logs" / "deep").is_dir()
            gone = not (notes / "logs" / "deep" / "HEAD").exists()
            (notes / "closed").chmod(0o700)
            return found == [b"logs"] and mended and gone

    assert as_ordinary_user(act)


def test_who_deletes_a_folder_changes_nothing_that_a_link_in_its_place_leads_to(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir(mode=0o755)
    (tmp_path / "trash").mkdir()
    (tmp_path / "trash" / "swapped").symlink_to(tmp_path / "theirs")
    errors: list[str] = []
    trash = os.open(tmp_path / "trash", os.O_RDONLY)
    for depth in (0, DEPTH + 1):
        _delete(trash, ("swapped", True), (trash, os.fstat(trash).st_dev), depth, errors)
    os.close(trash)

    assert (tmp_path / "theirs").stat().st_mode & 0o777 == 0o755 and errors
