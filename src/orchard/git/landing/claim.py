"""A checkout of the user's that is ours for a moment: no other engine lands in it, and no other git writes there.

Two kinds of locks are held from the first look to the end.

    turn       our own, so that two landings or undos of one checkout come one after the other, in one process or two
    GitLocks   git's own `index.lock` and `HEAD.lock` of that checkout: while they exist, every git command that would
               stage, commit, switch, stash or reset fails at once with git's own words, and `git status` works

A lock of git's is a file that exists, and it says nothing about its owner. So ours are made as a second name of a file
in our own folder: whatever crashed, a lock that is the same file as that one is ours, and no other is ever removed.

`git switch` writes the index first and HEAD after it, and nothing is locked in between. A landing that finds an index
written just now, and no sign of HEAD after it, waits a moment before it takes HEAD's lock.

A checkout may have been moved since an intent was written for it, or this may be a copy of it. What counts is the claim
in which the notes lie, and so the repository that it belongs to; the paths that were written down only say what lay in
what. A linked worktree is where git's own notes say, if the folder there says in turn that it belongs to them: in a
copy of a repository these notes still name the worktree of the original.

    found_again   an intent, with every place as it is now
    Astray        a place cannot be found: nothing may be touched, and our notes must stay
"""

import errno
import fcntl
import os
import re
import shlex
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec.structs import replace

from orchard.errors import OrchardError
from orchard.git.checkout_state import points_elsewhere
from orchard.git.folders import lstat, plain_content
from orchard.git.landing.intent import Intent, read_intent
from orchard.git.repository import Repository

SWITCH_GAP = 0.1
"""How long a git command needs at most between the index and HEAD; git itself waits so long for HEAD's lock."""
_LOOK_AGAIN = 0.02
NEW_INDEX = "index.new"
"""In our notes: the index as it will be."""

STAGE_NAME = ".orchard-landing-"

_OUR_STAGE = re.compile(rf"{re.escape(STAGE_NAME)}[0-9a-f]{{12}}")
_LINKED = "worktree-"

_NO_SECOND_NAME = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_NO_FLOCK = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})
_within: dict[str, threading.Lock] = {}
_within_guard = threading.Lock()


class TurnTaken(Exception):
    """Another engine has been landing in this checkout for too long."""


def claims(repo: Repository) -> Path:
    return repo.state / "landing"


def claim_of(repo: Repository, git_dir: Path) -> Path:
    """The folder of our notes about one checkout, by the folder of git's own notes."""
    return claims(repo) / ("main" if git_dir == repo.common_dir else f"worktree-{git_dir.name}")


@contextmanager
def turn(claim: Path, wait: float) -> Iterator[None]:
    claim.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = claim.with_name(f"{claim.name}.lock")
    with _within_guard:
        own = _within.setdefault(str(place), threading.Lock())
    deadline = time.monotonic() + wait
    if not own.acquire(timeout=max(0.0, wait)):
        raise TurnTaken(str(place))
    try:
        descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _flock(descriptor, place, deadline)
            yield
        finally:
            os.close(descriptor)
    finally:
        own.release()


def _flock(descriptor: int, place: Path, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if time.monotonic() >= deadline:
                raise TurnTaken(str(place)) from error
        except OSError as error:
            if error.errno not in _NO_FLOCK:
                raise
            return  # a file system without locks: git's own locks still keep two processes apart
        else:
            return
        time.sleep(_LOOK_AGAIN)


class GitLocks:
    def __init__(self, claim: Path, git_dir: Path) -> None:
        self.claim, self.git_dir = claim, git_dir
        self.index, self.head = git_dir / "index.lock", git_dir / "HEAD.lock"

    def take(self, patience: float) -> Path | None:
        """Take both; else none of them, and the one that is in the way is returned."""
        deadline = time.monotonic() + patience
        if not self._wait_for(self.index, deadline):
            return self.index
        self._let_a_switch_end()
        if not self._wait_for(self.head, deadline):
            self.release()
            return self.head
        return None

    def hold_index(self, patience: float) -> None:
        if self._wait_for(self.index, time.monotonic() + patience):
            self._let_a_switch_end()

    def held(self) -> bool:
        """Whether both are still there and ours: a user may have removed them by hand."""
        return self.is_ours(self.index) and self.is_ours(self.head)

    def release(self) -> None:
        for lock in (self.head, self.index):
            if self.is_ours(lock):
                lock.unlink(missing_ok=True)

    def _wait_for(self, lock: Path, deadline: float) -> bool:
        while not self._try(lock):
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOOK_AGAIN)
        return True

    def _try(self, lock: Path) -> bool:
        own = self.claim / lock.name
        if not own.exists():
            own.write_text("orchard\n")
        try:
            os.link(own, lock)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_SECOND_NAME:
                raise
            return _create(own, lock)
        return True

    def _let_a_switch_end(self) -> None:
        """Wait for a git command that has written the index and is about to write HEAD."""
        deadline = time.monotonic() + SWITCH_GAP
        while (written := _changed(self.git_dir / "index")) > time.time() - SWITCH_GAP:
            if max(_changed(self.git_dir / "HEAD"), _changed(self.git_dir / "logs" / "HEAD")) >= written:
                return
            if time.monotonic() >= deadline:
                return
            time.sleep(_LOOK_AGAIN)

    def is_ours(self, lock: Path) -> bool:
        """Whether we took this lock, in this process or in one that has ended."""
        own = self.claim / lock.name
        # The new index takes the place of its lock before it takes that of the index.
        if same_file(own, lock) or (lock == self.index and same_file(self.claim / NEW_INDEX, lock)):
            return True
        with suppress(OSError):
            there = lock.lstat()
            return plain_content(own) == b"%d %d\n" % (there.st_dev, there.st_ino)
        return False


def same_file(one: Path, other: Path) -> bool:
    left, right = lstat(one), lstat(other)
    return left is not None and right is not None and os.path.samestat(left, right)


def _create(own: Path, lock: Path) -> bool:
    """A lock on a file system where no file has two names; which one it is, is noted."""
    try:
        descriptor = os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    status = os.fstat(descriptor)
    os.close(descriptor)
    own.write_bytes(b"%d %d\n" % (status.st_dev, status.st_ino))
    return True


def _changed(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0


# ------------------------------------------------------------------------------------ where it is now


class Astray(OrchardError):
    """Where a landing or an undo was interrupted cannot be found; `intent` is what was written down about it."""

    def __init__(self, intent: Intent, claim: Path, missing: str, remedy: str) -> None:
        given_up = f"If that checkout is as it should be, or gone for good: rm -r {shlex.quote(str(claim))}"
        super().__init__(
            f"A landing or an undo in {intent.top} was interrupted and cannot be settled: {missing}.",
            hint=f"{remedy} {given_up}",
        )
        self.intent = intent


def git_dir_of(repo: Repository, claim: Path) -> Path:
    if claim.name == "main":
        return repo.common_dir
    return repo.notes_on(claim.name.removeprefix(_LINKED))


def found_again(repo: Repository, claim: Path, intent: Intent) -> Intent:
    git_dir = git_dir_of(repo, claim)
    top = _main_top(repo, intent.top, intent.git_dir) if git_dir == repo.common_dir else _linked_top(git_dir)
    if top is None:
        missing = f"no folder is known that says it is the checkout of {git_dir}"
        remedy = "Where it was moved, run 'git worktree repair' in it; where it is not mounted, mount it."
        raise Astray(intent, claim, missing, remedy)
    stage = stage_now(claim, top, intent.stage, inside=intent.stage.parent == intent.top)
    if stage is None:
        raise Astray(intent, claim, f"{intent.stage} is no folder of ours", "Look with 'git status' there.")
    return replace(intent, top=top, git_dir=git_dir, stage=stage)


def top_now(repo: Repository, claim: Path) -> Path | None:
    git_dir = git_dir_of(repo, claim)
    return _main_top(repo) if git_dir == repo.common_dir else _linked_top(git_dir)


def stage_now(claim: Path, top: Path, noted: Path, *, inside: bool) -> Path | None:
    """The stage of that name, in the checkout or among our notes; None if it is none of ours.

    A note that a full disk cut short names another folder, and a program that can write here could name any.
    """
    if not _OUR_STAGE.fullmatch(noted.name):
        return None
    return (top if inside else claim) / noted.name


def must_have_stage(claim: Path, intent: Intent) -> None:
    """Astray if the folder is missing that holds what made way: without it no engine can say how far that came."""
    for folder in (intent.stage, intent.stage / "new", intent.stage / "old"):
        if not folder.is_dir():
            missing = f"the folder {folder} with the files that made way is missing"
            raise Astray(intent, claim, missing, "Bring it back, or look with 'git status' what differs there.")


def none_astray(repo: Repository, branch: str) -> None:
    """Astray if a checkout went from one commit of this branch to another and is lost half-way.

    If the branch moved on without it, no engine could tell any more by the branch how far it came.
    """
    with suppress(FileNotFoundError):
        for claim in sorted(claims(repo).iterdir()):
            intent = read_intent(claim)
            if intent is not None and not intent.done and intent.branch == branch:
                found_again(repo, claim, intent)


def _main_top(repo: Repository, noted: Path | None = None, noted_git_dir: Path | None = None) -> Path | None:
    """The top of the main checkout; what was noted counts only where git's folder is still the one that was noted."""
    top = repo.main_top
    if top is None and noted_git_dir == repo.common_dir:
        top = noted
    return top if top is not None and top.is_dir() and not points_elsewhere(top, repo.common_dir) else None


def _linked_top(git_dir: Path) -> Path | None:
    """Where git says that a linked worktree is, if the folder there names these very notes of git's."""
    try:
        told = plain_content(git_dir / "gitdir")
        if told is None or b"\0" in told:
            return None
        link = Path(os.path.normpath(git_dir / os.fsdecode(told.rstrip(b"\n"))))
        back = plain_content(link)
        if link.name != ".git" or back is None or not back.startswith(b"gitdir:") or b"\0" in back:
            return None
        owner = link.parent / os.fsdecode(back.removeprefix(b"gitdir:").strip())
        return link.parent if owner.resolve() == git_dir.resolve() else None
    except OSError:
        return None
