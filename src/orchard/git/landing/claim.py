"""A checkout of the user's that is ours for a moment: nobody else lands in it, and no other git writes there.

Two kinds of locks are held from the first look to the end.

    turn       our own, so that two landings or undos of one checkout come one after the other, in one process or two
    GitLocks   git's own `index.lock` and `HEAD.lock` of that checkout: while they exist, every git command that would
               stage, commit, switch, stash or reset fails at once with git's own words, and `git status` works

A lock of git's is a file that exists, and it says nothing about its owner. So ours are made as a second name of a file
in our own folder: whatever crashed, a lock that is the same file as that one is ours, and no other is ever removed.

`git switch` writes the index first and HEAD after it, and nothing is locked in between. Whoever finds an index that was
written just now, and no sign of HEAD after it, waits a moment before he takes HEAD's lock.
"""

import errno
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchard.git.folders import plain_content
from orchard.git.repository import Repository

SWITCH_GAP = 0.1
"""How long a git command needs at most between the index and HEAD; git itself waits so long for HEAD's lock."""
_LOOK_AGAIN = 0.02
NEW_INDEX = "index.new"
"""In our notes: the index as it will be."""

_NO_SECOND_NAME = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK, errno.EXDEV})
_NO_FLOCK = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EINVAL})
_within: dict[str, threading.Lock] = {}
_within_guard = threading.Lock()


class TurnTaken(Exception):
    """Somebody else has been landing in this checkout for too long."""


def claims(repo: Repository) -> Path:
    return repo.state / "landing"


def claim_of(repo: Repository, git_dir: Path) -> Path:
    """The folder of our notes about one checkout, by the folder of git's own notes."""
    return claims(repo) / ("main" if git_dir == repo.common_dir else f"worktree-{git_dir.name}")


@contextmanager
def turn(claim: Path, wait: float) -> Iterator[None]:
    """Wait until nobody else lands in the checkout of this claim; TurnTaken if that takes too long."""
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

    def hold_index(self, patience: float) -> bool:
        """Take the index alone, when no command is between the index and HEAD."""
        if not self._wait_for(self.index, time.monotonic() + patience):
            return False
        self._let_a_switch_end()
        return True

    def held(self) -> bool:
        """Whether both are still there and ours: somebody may have removed them by hand."""
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
        own = self._own(lock)
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

    def _own(self, lock: Path) -> Path:
        return self.claim / lock.name

    def is_ours(self, lock: Path) -> bool:
        """Whether we took this lock, in this process or in one that has ended."""
        own = self._own(lock)
        # The new index takes the place of its lock before it takes that of the index.
        if same_file(own, lock) or (lock == self.index and same_file(self.claim / NEW_INDEX, lock)):
            return True
        with suppress(OSError):
            there = lock.lstat()
            return plain_content(own) == b"%d %d\n" % (there.st_dev, there.st_ino)
        return False


def same_file(one: Path, other: Path) -> bool:
    try:
        left, right = one.lstat(), other.lstat()
    except OSError:
        return False
    return (left.st_dev, left.st_ino) == (right.st_dev, right.st_ino)


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
