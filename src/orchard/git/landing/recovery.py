"""What becomes of a checkout where a landing or an undo ended before it was over: it is finished or taken back.

The branch decides. Where the checkout's HEAD has reached the new commit, all files are at their places already (the
branch moves after them), and what is left is to publish the index. Where it has not, every file that we brought goes
back for the one that was there. A path that holds neither is the user's: it is left alone and named. So is one that the
user has committed otherwise on top of the new commit; the index is theirs then, too. Only locks that are ours are
removed. While a place cannot be found, nothing is touched, and our notes stay (`Astray`).

    settle       one checkout, by our notes about it; also how every landing ends, good or bad
    settle_all   every checkout that has notes: what an engine does first
    publish      the new index takes the place of the old one
"""

import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from orchard.errors import Next, parts_of
from orchard.git.command import Git
from orchard.git.filters import block_filters
from orchard.git.folders import delete_children, plain_content, write_atomically
from orchard.git.landing.claim import (
    NEW_INDEX,
    Astray,
    GitLocks,
    TurnTaken,
    claim_of,
    claims,
    found_again,
    git_dir_of,
    must_have_stage,
    same_file,
    stage_now,
    top_now,
    turn,
)
from orchard.git.landing.index import EMPTY, BadIndex, Index, read_index
from orchard.git.landing.intent import Intent, Item, Stand, mark_done, read_intent, stand
from orchard.git.landing.placement import edited_aside, kept_aside, remove_empty_folders, take_back, unlike
from orchard.git.objects.reader import SYMLINK, TREE, Entry, Objects
from orchard.git.refs import read_ref
from orchard.git.repository import Repository
from orchard.git.scratch import copy_index
from orchard.process.failpoint import failpoint

_READY, _MERGED, _STAGE, _TRASH = "index.ready", "index.merged", "stage.path", "trash-"
_TIMEOUT = 600.0
_SETTLE_WAIT = 5.0
_STILL_WAIT = 2.0
_GIT_ENDS = 0.5
"""How long a git that moves a branch may live on beside us."""


class Settled(Struct, frozen=True):
    intent: Intent | None = None
    forward: bool = False
    """The checkout is at the new commit; else it is as it was."""
    theirs: tuple[bytes, ...] = ()
    """Paths that another program has written to meanwhile: they are as they were found."""
    kept: Path | None = None
    """Where edits were put that came through a file that was open while we moved it."""
    published: bool = True
    """The index is as it should be; else another program holds it, or has staged what cannot be united with ours."""
    astray: tuple[str | Next, ...] = ()
    """Why nothing was done, and our notes are still there: the checkout, or what made way in it, was not found."""


def settle_all(repo: Repository) -> list[Settled]:
    found = []
    with suppress(FileNotFoundError):
        for claim in sorted(claims(repo).iterdir()):
            if claim.name.startswith(_TRASH):
                _remove(claim)
            elif claim.is_dir():
                # The process that holds it is alive, and will settle it.
                with suppress(TurnTaken), turn(claim, _SETTLE_WAIT):
                    try:
                        found.append(settle(repo, claim))
                    except Astray as error:
                        found.append(Settled(error.intent, astray=(f"{error.message} ", *parts_of(error.hint))))
    return [one for one in found if one.intent is not None]


def settle(repo: Repository, claim: Path) -> Settled:
    """Finish what was begun in the checkout of this claim, or take it back; then let go of it.

    Astray, and nothing has changed, while the checkout or what made way in it cannot be found.
    """
    if not claim.is_dir():
        return Settled()
    noted = read_intent(claim)
    if noted is None:
        GitLocks(claim, git_dir_of(repo, claim)).release()
        _forget(claim, _noted_stage(repo, claim))
        return Settled()
    intent = found_again(repo, claim, noted)
    if not intent.done:
        _free_branch(repo, intent)
    settled = _settle(repo, claim, intent)
    GitLocks(claim, intent.git_dir).release()
    if not intent.done:
        mark_done(claim)
    failpoint("checkout.settled")
    _forget(claim, intent.stage)
    return settled


def _settle(repo: Repository, claim: Path, intent: Intent) -> Settled:
    git = Git(repo.common_dir, intent.git_dir, cwd=repo.common_dir)
    head = git("rev-parse", "-q", "--verify", "HEAD^{commit}", ok=(0, 1, 128)).text
    # The branch had moved before we were interrupted where HEAD is at the new commit, or on top of it.
    forward = is_published(claim, intent) or head == intent.new or _descends(repo, head, intent)
    if intent.done and not forward:
        return Settled(intent)  # it was taken back, and only tidying up was left
    contents = _Contents(repo, intent)
    theirs: list[bytes] = []
    if not forward:
        must_have_stage(claim, intent)
        theirs = _take_back(intent, contents)
    elif not intent.done:
        changed = {item.path for item in unlike(intent) if not contents.are_as_meant(item)}
        theirs = sorted(changed | _committed_since(repo, intent, head))
    published = not forward or intent.done or _publish_late(repo, claim, intent, head)
    if forward:
        remove_empty_folders(intent)
    return Settled(intent, forward, tuple(theirs), _keep_edits(repo, intent, contents) if forward else None, published)


@contextmanager
def held_still(repo: Repository, git_dir: Path) -> Iterator[None]:
    """Keep a checkout from being switched for the instant in which a branch moves that it is not on.

    Only its index is locked: a git that switches needs it. Where we land at this moment no git can switch either, and a
    lock that stays was left by a git that died, which keeps everybody else from switching as well.
    """
    claim = claim_of(repo, git_dir)
    with ExitStack() as stack:
        try:
            stack.enter_context(turn(claim, _STILL_WAIT))
            settle(repo, claim)
        except (TurnTaken, Astray):  # no git works on a checkout that does not say whose it is
            yield
            return
        claim.mkdir(mode=0o700, parents=True, exist_ok=True)
        stack.callback(settle, repo, claim)
        GitLocks(claim, git_dir).hold_index(_STILL_WAIT)
        yield


def publish(claim: Path, locks: GitLocks, known: Stand) -> bool:
    """Our index takes the place of its lock, and then of the user's index: there is one at every moment.

    False, and nothing has changed, if a user has removed our lock or written an index since.
    """
    if not locks.held() or stand(os.fsencode(locks.git_dir / "index")) != known:
        return False
    ready = claim / _READY
    ready.unlink(missing_ok=True)
    try:
        os.link(claim / NEW_INDEX, ready)
    except OSError:  # no file has two names here
        ready = claim / NEW_INDEX
    if not same_file(claim / NEW_INDEX, locks.index):
        ready.replace(locks.index)
    locks.index.replace(locks.git_dir / "index")
    return True


def _publish_late(repo: Repository, claim: Path, intent: Intent, head: str) -> bool:
    """Put our index in its place; where the user has written another one meanwhile, the landing is merged into that.

    One that they have committed from on top of the landing stays: what is not in it they have taken out.
    """
    locks = GitLocks(claim, intent.git_dir)
    if is_published(claim, intent) or publish(claim, locks, intent.index):
        return True
    if _descends(repo, head, intent):
        return True
    locks.release()
    if locks.take(_STILL_WAIT) is not None:
        return False
    index, merged = intent.git_dir / "index", claim / _MERGED
    known = stand(os.fsencode(index))
    merged.unlink(missing_ok=True)
    copy_index(index, merged)
    git = Git(repo.common_dir, intent.git_dir, cwd=intent.top, work_tree=intent.top, index=merged)
    if git("read-tree", "-i", "-m", intent.old, intent.new, ok=range(256), timeout=_TIMEOUT).status != 0:
        return False
    block_filters(git, repo.filters)("update-index", "-q", "--refresh", ok=range(256), timeout=_TIMEOUT)
    merged.replace(claim / NEW_INDEX)
    return publish(claim, locks, known)


def is_published(claim: Path, intent: Intent) -> bool:
    own = claim / NEW_INDEX
    return same_file(own, intent.git_dir / "index") or not own.exists()


def _free_branch(repo: Repository, intent: Intent) -> None:
    """Remove the lock of the branch that our git left when it was killed: no other git would write that commit."""
    lock = repo.common_dir / "refs" / "heads" / f"{intent.branch}.lock"
    deadline = time.monotonic() + _GIT_ENDS
    while _holds(lock, intent.new):
        if time.monotonic() >= deadline:
            lock.unlink(missing_ok=True)
        time.sleep(0.02)


def _holds(lock: Path, commit: str) -> bool:
    try:
        return plain_content(lock) == f"{commit}\n".encode()
    except OSError:
        return False


class _Contents:
    """Files told by what git would store for them, where inodes say nothing: in a copy every file has another."""

    def __init__(self, repo: Repository, intent: Intent) -> None:
        self._repo, self._intent = repo, intent

    @cached_property
    def _git(self) -> Git:
        intent = self._intent
        git = Git(self._repo.common_dir, intent.git_dir, cwd=intent.top, work_tree=intent.top)
        return block_filters(git, self._repo.filters)

    def is_new(self, item: Item, where: bytes) -> bool:
        return item.new is not None and bool(stand(where)) and blob_of(self._git, item, where) == item.new

    def is_old(self, item: Item, where: bytes) -> bool:
        return item.old is not None and bool(stand(where)) and blob_of(self._git, item, where) == item.old

    def are_as_meant(self, item: Item) -> bool:
        aside = kept_aside(self._intent, item)
        hidden = self._intent.hidden(item.path)
        brought = not item.will or (not hidden and self.is_new(item, self._intent.place(item)))
        return brought and (not item.was or (aside is not None and self.is_old(item, aside)))


def _take_back(intent: Intent, contents: _Contents) -> list[bytes]:
    index = EMPTY
    if stand(os.fsencode(intent.git_dir / "index")) != intent.index:
        # A user has removed our lock and gone on: what they took over is theirs.
        with suppress(OSError, BadIndex):
            index = read_index(plain_content(intent.git_dir / "index") or b"", len(intent.new) // 2)
    kept = tuple(item for item in intent.items if not _taken_over(index, item))
    return take_back(replace(intent, items=kept), contents.is_new, contents.is_old)


def _taken_over(index: Index, item: Item) -> bool:
    entry = index.entries.get(item.path)
    return entry is not None and item.new is not None and Entry(entry.mode, entry.oid) == item.new


def blob_of(git: Git, item: Item, where: bytes) -> Entry | None:
    status = os.lstat(where)
    if stat.S_ISLNK(status.st_mode):
        target = os.readlink(where)  # noqa: PTH115 (bytes)
        size = max(len(entry.oid) for entry in (item.old, item.new) if entry is not None)
        digest = hashlib.sha1 if size == 40 else hashlib.sha256
        return Entry(SYMLINK, digest(b"blob %d\0" % len(target) + target, usedforsecurity=False).hexdigest())
    if not stat.S_ISREG(status.st_mode):
        return None
    done = git("hash-object", b"--path=" + item.path, "--", where, ok=(0, 128), timeout=_TIMEOUT)
    return Entry(0o100755 if status.st_mode & 0o100 else 0o100644, done.text) if done.status == 0 else None


def _keep_edits(repo: Repository, intent: Intent, contents: _Contents) -> Path | None:
    """Save what was written to an old file after it had made way for the new one."""
    folder = None
    for item, aside in edited_aside(intent):
        if stand(aside)[1] != item.was[1] and contents.is_old(item, aside):
            continue  # a copy of it
        folder = folder or repo.state / "kept" / secrets.token_hex(6)
        goal = folder / os.fsdecode(item.path)
        goal.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.replace(aside, os.fsencode(goal))  # noqa: PTH105 (bytes)
    return folder


def _descends(repo: Repository, head: str, intent: Intent) -> bool:
    """Whether HEAD was brought on from the new commit.

    An undo goes back to a commit that the old one descends from: there it also counts that neither HEAD nor the branch
    has the old one any more.
    """
    if head in ("", intent.old, intent.new) or not _is_in(repo, intent.new, head):
        return False
    if _is_in(repo, intent.old, intent.new):
        return True
    tip = read_ref(repo.git, f"refs/heads/{intent.branch}")
    return tip is not None and not _is_in(repo, intent.old, head) and not _is_in(repo, intent.old, tip)


def _is_in(repo: Repository, commit: str, other: str) -> bool:
    return repo.git("merge-base", "--is-ancestor", commit, other, ok=(0, 1, 128)).status == 0


def _committed_since(repo: Repository, intent: Intent, head: str) -> set[bytes]:
    """Paths that hold something else in a commit that was made on top."""
    if not _descends(repo, head, intent):
        return set()
    with Objects(repo.git) as objects:
        tree = objects.tree_of(head)
        held = {item: objects.entry(tree, item.path) for item in intent.items}
    # A folder in the place of a file is no entry of its own.
    return {item.path for item, one in held.items() if (None if one and one.mode == TREE else one) != item.new}


def _forget(claim: Path, stage: Path | None) -> None:
    if stage is not None:
        _remove(stage)
    # A git that outlived its engine may still be writing there: it must not find the notes of the next landing.
    trash = claim.with_name(f"{_TRASH}{secrets.token_hex(6)}")
    with suppress(FileNotFoundError):
        claim.rename(trash)
        _remove(trash)


def _remove(folder: Path) -> None:
    delete_children(folder)
    with suppress(OSError):
        folder.rmdir()


def note_stage(claim: Path, stage: Path) -> None:
    """Say where the stage will be, before it is there."""
    write_atomically(claim / _STAGE, os.fsencode(stage), 0o600)


def _noted_stage(repo: Repository, claim: Path) -> Path | None:
    """A stage in the checkout, as it is now, of which nothing else is noted; one among our notes goes with them."""
    try:
        noted = plain_content(claim / _STAGE)
    except OSError:
        return None
    top = top_now(repo, claim)
    if top is None or noted is None or b"\0" in noted:
        return None
    return stage_now(claim, top, Path(os.fsdecode(noted)), inside=True)
