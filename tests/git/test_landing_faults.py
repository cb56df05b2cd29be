"""A disk that is full, or that fails, in the middle of a landing: the checkout is whole, and what is said is true.

The disks are real: a small file system in memory that holds the checkout and git's files, or the checkout alone. It is
full from the beginning, with room for so many pages, or gets full at a named place. Errors of a disk come from Python's
own audit events: the nth time that the landing opens, renames, links or removes something, the system says no.
"""

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from orchard.git.landing import checkout
from orchard.git.landing.checkout import BranchMoved
from orchard.git.landing.claim import claim_of
from orchard.git.landing.landing import land, undo
from orchard.git.landing.obstacles import LandingRefused
from orchard.git.landing.recovery import Settled, settle, settle_all
from orchard.git.repository import Repository, find_repository
from orchard.process import failpoint
from orchard.testing import Repo
from tests.git.test_landing import Scene, picture
from tests.git.test_landing_steps import at
from tests.proof.faults_disk import mount, unmount

PAGE = 4096
FILES = 12
DISK = 8 * 1024 * 1024
EDITS = " M README.md\n?? notes.txt\n"
Outcome = BranchMoved | LandingRefused


@dataclass(frozen=True)
class Ground:
    """A scene on a small disk, with edits of the user's that are not in the way."""

    scene: Scene
    disk: Path
    pictures: dict[str, dict[str, str]]
    """What the checkout has to hold, by commit."""

    @property
    def top(self) -> Path:
        return self.scene.repo.path

    def act(self, verb: str) -> Outcome:
        scene = self.scene
        if verb == "land":
            return land(scene.repository, "main", scene.old, scene.new, "m")
        return undo(scene.repository, "main", scene.old, scene.new)

    def leave_room(self, room: int) -> None:
        """Take all but so much of the disk."""
        found = os.statvfs(self.disk)
        with self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, found.f_bavail * found.f_frsize - room))

    def make_room(self) -> None:
        self._filler.unlink(missing_ok=True)

    @property
    def _filler(self) -> Path:
        return self.disk / "filler"

    def check(self, commit: str) -> None:
        """Branch, index and files are exactly this commit and the user's edits, and nothing of ours lies around."""
        repo = self.scene.repo
        assert repo.head("main") == repo.head() == commit
        assert picture(self.top) == self.pictures[commit]
        assert (
            repo("--no-optional-locks", "status", "--porcelain") == EDITS
        )  # on a full disk it cannot note what it saw
        common = self.scene.repository.common_dir
        assert [one for one in common.rglob("*.lock") if common / "orchard" not in one.parents] == []
        assert Path("canary").exists(), "the folder that the program runs in was emptied"

    def check_tidy(self) -> None:
        """Nothing of ours lies around when the next engine has begun."""
        settle_all(self.scene.repository)
        left = list((self.scene.repository.common_dir / "orchard" / "landing").glob("*"))
        assert [one.name for one in left if one.suffix != ".lock"] == []


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to run in that may be lost: a note that was cut short once made us empty it."""
    (tmp_path / "cwd").mkdir()
    (tmp_path / "cwd" / "canary").touch()
    monkeypatch.chdir(tmp_path / "cwd")


def make_ground(disk: Path, common: Path) -> Ground:
    """Files that change, go and come, enough of them to fill some pages; `common` is where git keeps its own."""
    repo = Repo.make(common)
    names = [f"d/{number}.txt" for number in range(FILES)]
    old = repo.commit({name: f"old {name}\n" for name in names} | {"gone/a.txt": "a\n", "gone/b.txt": "b\n"})
    repo("checkout", "-q", "--detach")
    changed: dict[str, str | None] = {name: f"new {name}\n" for name in names}
    new = repo.commit(changed | {"gone/a.txt": None, "gone/b.txt": None, "n/c.txt": "c\n" * PAGE})
    if disk in common.parents:
        repo("checkout", "-q", "main")
    else:
        repo("worktree", "add", "-q", str(disk / "checkout"), "main")
        repo = Repo(disk / "checkout")
    repo.write({"README.md": "mine\n", "notes.txt": "mine\n"})
    pictures = {}
    for commit in (new, old):
        repo("checkout", "-q", "--detach", commit)
        pictures[commit] = picture(repo.path)
    repo("checkout", "-q", "main")
    return Ground(Scene(repo, find_repository(repo.path), old, new), disk, pictures)


@contextmanager
def small_disk(place: Path) -> Iterator[Path]:
    place.mkdir()
    mount("-t", "tmpfs", "-o", f"size={DISK}", "none", place)
    try:
        yield place
    finally:
        unmount(place)


@pytest.fixture(params=["with git", "checkout alone"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ground]:
    with small_disk(tmp_path / "disk") as disk:
        yield make_ground(disk, disk / "repo" if request.param == "with git" else tmp_path / "repo")


def ends(ground: Ground, verb: str) -> tuple[str, str]:
    """Where a verb starts and where it leads."""
    old, new = ground.scene.old, ground.scene.new
    return (old, new) if verb == "land" else (new, old)


def try_with(ground: Ground, verb: str, room: int) -> Outcome:
    """One landing with so much room, and what must hold after it, with the disk full and with room again."""
    start, goal = ends(ground, verb)
    ground.leave_room(room)
    outcome = ground.act(verb)
    ground.check(start if isinstance(outcome, LandingRefused) else goal)
    if isinstance(outcome, LandingRefused):
        assert "space" in outcome.reason or "write" in outcome.reason, outcome
    ground.make_room()
    ground.check(start if isinstance(outcome, LandingRefused) else goal)
    ground.check_tidy()
    return outcome


@pytest.mark.parametrize("pages", [0, 1, 9])
def test_a_landing_for_which_there_is_no_room_changes_nothing_and_goes_through_later(
    ground: Ground, pages: int
) -> None:
    refused = try_with(ground, "land", pages * PAGE)

    assert isinstance(refused, LandingRefused)
    assert isinstance(ground.act("land"), BranchMoved)
    ground.check(ground.scene.new)


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["land", "undo"])
def test_whatever_the_room_a_landing_is_whole_or_has_not_happened(ground: Ground, verb: str) -> None:
    if verb == "undo":
        ground.act("land")
    refused, room = 0, 0
    while isinstance(try_with(ground, verb, room), LandingRefused):
        refused, room = refused + 1, room + PAGE

    assert refused >= FILES
    ground.check(ends(ground, verb)[1])


PLACES = ("locked", "staged", "intended", "before-rename", "after-rename", "placed", "swapped", "published")


@pytest.mark.parametrize("place", PLACES)
def test_a_disk_that_gets_full_during_a_landing_leaves_the_checkout_whole(
    ground: Ground, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patches:
        at(f"checkout.{place}", lambda: ground.leave_room(0), patches, nth=3 if place.endswith("rename") else 1)
        outcome = ground.act("land")

    ground.check(ground.scene.old if isinstance(outcome, LandingRefused) else ground.scene.new)
    ground.make_room()
    assert isinstance(ground.act("land"), BranchMoved)
    ground.check(ground.scene.new)


@pytest.mark.parametrize("note", ["", ".", "{cwd}", "{top}", "{top}/d", "..", "/\0/.orchard-landing-012345678901"])
def test_a_note_of_ours_that_names_another_folder_removes_nothing(plain: "Ground", note: str) -> None:
    claim = claim_of(plain.scene.repository, plain.scene.repository.common_dir)
    claim.mkdir(parents=True)
    (claim / "stage.path").write_text(note.format(cwd=Path.cwd(), top=plain.top))

    settle_all(plain.scene.repository)

    plain.check(plain.scene.old)


# ------------------------------------------------------------------------------------ a disk that fails

OPERATIONS = frozenset(
    {"open", "os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir", "os.utime", "os.chmod", "os.truncate"}
)


class Faults:
    """Lets the nth operation on a file below a folder fail, and all after it where the disk is gone."""

    def __init__(self) -> None:
        self._folder, self._left, self._code, self._gone = "", 0, 0, False
        self.hit = self._what = ""
        sys.addaudithook(self._hear)

    @contextmanager
    def armed(self, folder: Path, nth: int, code: int, *, gone: bool, what: str = "") -> Iterator[None]:
        self._what = what
        self._folder, self._left, self._code, self._gone, self.hit = str(folder), nth, code, gone, ""
        try:
            yield
        finally:
            self._folder = ""

    def _hear(self, event: str, args: tuple[object, ...]) -> None:
        if not self._folder or event not in OPERATIONS or not isinstance(args[0], str | bytes):
            return
        name = os.fsdecode(args[0])
        if name.startswith(self._folder) and self._what in f"{event} {name}":
            self._left -= 1
            if self._left == 0 or (self._left < 0 and self._gone):
                self.hit = self.hit or f"{event} {name}"
                raise OSError(self._code, os.strerror(self._code), name)


@pytest.fixture(scope="module")
def faults() -> Faults:
    return Faults()  # an audit hook stays for as long as Python lives, so there is one


@pytest.fixture
def plain(tmp_path: Path) -> Ground:
    return make_ground(tmp_path, tmp_path / "repo")


def fail_at(ground: Ground, faults: Faults, verb: str, nth: int, code: int, *, gone: bool = False) -> bool:
    """One landing with a failure, and what must hold when the next engine has looked after it; False: it had none."""
    start, goal = ends(ground, verb)
    with faults.armed(ground.top, nth, code, gone=gone):
        outcome = ground.act(verb)
    if not faults.hit:
        return False
    if gone:
        settle_all(ground.scene.repository)
    happened = ground.scene.repo.head("main") == goal
    assert happened != isinstance(outcome, LandingRefused), f"after {faults.hit}: {outcome}"
    try:
        ground.check(goal if happened else start)
        ground.check_tidy()
    except AssertionError as error:
        raise AssertionError(f"after {faults.hit}: {error}") from error
    if happened:
        ground.act("undo" if verb == "land" else "land")
    return True


@pytest.mark.parametrize("nth", [3, 17, 29, 41, 53])
def test_one_operation_that_fails_leaves_the_checkout_whole(plain: Ground, faults: Faults, nth: int) -> None:
    assert fail_at(plain, faults, "land", nth, errno.EIO)


def test_a_lock_that_cannot_be_removed_at_once_is_removed_all_the_same(plain: Ground, faults: Faults) -> None:
    lock = plain.scene.repository.common_dir / "HEAD.lock"
    with faults.armed(plain.top, 1, errno.EIO, gone=False, what=f"os.remove {lock}"):
        landed = plain.act("land")

    assert faults.hit and isinstance(landed, BranchMoved)
    plain.check(plain.scene.new)


@pytest.mark.parametrize("nth", [20, 45, 55])
def test_a_disk_that_is_gone_for_a_while_leaves_a_checkout_that_the_next_engine_makes_whole(
    plain: Ground, faults: Faults, nth: int
) -> None:
    assert fail_at(plain, faults, "land", nth, errno.EIO, gone=True)


@pytest.mark.slow
@pytest.mark.parametrize("gone", [False, True])
@pytest.mark.parametrize("verb", ["land", "undo"])
def test_whichever_operation_fails_the_checkout_is_whole(plain: Ground, faults: Faults, verb: str, gone: bool) -> None:
    if verb == "undo":
        plain.act("land")
    nth = 1
    while fail_at(plain, faults, verb, nth, errno.ENOSPC if nth % 2 else errno.EIO, gone=gone):
        nth += 1

    assert nth > 50


@pytest.mark.parametrize("verb", ["land", "undo"])
def test_an_error_after_the_branch_has_moved_does_not_deny_that_it_moved(plain: Ground, verb: str) -> None:
    scene = plain.scene
    scene.repo("checkout", "-q", "-b", "elsewhere")
    if verb == "undo":
        assert isinstance(plain.act("land"), BranchMoved)
    failpoint.rearm("branch.after-swap:1:error")
    try:
        done = plain.act(verb)
    finally:
        failpoint.rearm(None)

    assert isinstance(done, BranchMoved), done
    assert scene.repo.head("main") == (scene.new if verb == "land" else scene.old)


@pytest.mark.parametrize("verb", ["land", "undo"])
def test_a_checkout_that_could_not_follow_is_told_and_made_whole_by_the_next_settlement(
    plain: Ground, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene = plain.scene
    if verb == "undo":
        assert isinstance(plain.act("land"), BranchMoved)
    goal = scene.new if verb == "land" else scene.old

    def fail(repo: Repository, claim: Path) -> Settled:
        """A disk that fails for good as soon as the branch has moved."""
        if scene.repo.head("main") == goal:
            raise OSError(errno.EIO, "Input/output error")
        return settle(repo, claim)

    with monkeypatch.context() as failing:
        failing.setattr(checkout, "settle", fail)
        failpoint.rearm("checkout.swapped:1:error")
        try:
            done = plain.act(verb)
        finally:
            failpoint.rearm(None)

    assert isinstance(done, BranchMoved) and done.checkout is None
    assert "Input/output error" in done.unfinished
    settle_all(scene.repository)
    plain.check(goal)
