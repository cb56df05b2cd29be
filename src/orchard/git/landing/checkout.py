"""A checkout of the user's goes from one commit to another: all of it, or nothing, whatever dies whenever.

No git command writes there. `git merge --ff-only`, `reset --keep` and `read-tree -u` obey settings that change what
lands, overwrite ignored files, and leave half of the files behind when they are killed or the disk is full, with no
note of which. So git prepares everything somewhere else, and what happens in the checkout is nothing but renames:

    1  our own lock; then `index.lock` and `HEAD.lock` of that checkout, held to the end      (`claim`)
    2  look: the branch is checked out, nothing is under way, no other file is in the way      (`obstacles`, git)
    3  stage: git writes the new index and every new file into a folder beside the checkout, on its file system, with
       the user's filters; whatever can fail for space, filters or names fails here
    4  intent: every path with its old and new content is written down, durably                (`intent`)
    5  place: each new file changes places with the old one                                    (`placement`)
    6  the branch moves by compare-and-swap
    7  the new index takes the place of its lock, and then of the index
    8  read back; the intent is marked as done; locks and stage go

Until 6 everything can be taken back, and from 6 on everything is there to be finished: the branch decides. `settle`
does either, path by path; it is called for whatever goes wrong in these steps, before the next landing in that
checkout, and when an engine starts. Going back (an undo) is the same with the commits exchanged.

HEAD's lock stays ours while the branch moves, although git wants to write HEAD's log then: that git is given a folder
with a HEAD of its own, and the line is added to HEAD's log by us.
"""

import errno
import os
import re
import secrets
import stat
import time
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from orchard.errors import Hint, Next
from orchard.files import read_plain
from orchard.git.checkout_state import operation_in
from orchard.git.command import Git, GitError
from orchard.git.folders import lstat
from orchard.git.landing.claim import STAGE_NAME, GitLocks, TurnTaken, claim_of, turn
from orchard.git.landing.index import BadIndex, doubtful_entries, stamp_index
from orchard.git.landing.intent import Intent, Item, mark_done, read_intent, stand, stand_of, write_intent
from orchard.git.landing.obstacles import UNDO, LandingRefused, RefusalKind, in_the_way
from orchard.git.landing.placement import Theirs, place, verify
from orchard.git.landing.recovery import Settled, note_stage, publish, settle
from orchard.git.landing.stage import TIMEOUT, Blocked, Staged, Stager
from orchard.git.objects.reader import Objects
from orchard.git.refs import RefMoved, Update, move_ref, read_ref
from orchard.git.repository import Checkout, Repository
from orchard.process.failpoint import failpoint

LOCK_WAIT = 2.0
TURN_WAIT = 60.0
_UNWRITTEN = re.compile("unable to write|write error|No space left")
_NO_HEAD = "ref: refs/orchard/none\n"


class Move(Struct, frozen=True):
    """A checkout, and the two commits it goes from and to; `git` is the one for its files."""

    repo: Repository
    git: Git
    place: Checkout
    branch: str
    old: str
    new: str
    message: str
    again: Next

    @property
    def ref(self) -> str:
        return f"refs/heads/{self.branch}"

    def refuse(self, kind: RefusalKind, reason: str, hint: Hint = "") -> LandingRefused:
        return LandingRefused(kind, reason, hint or ("Run 'git status' there, then '", self.again, "'."))


class BranchMoved(Struct, frozen=True):
    """The branch is where it was to go, forth or back; `checkout` is the folder that has followed it."""

    checkout: Path | None = None
    kept: Path | None = None
    """Where edits lie that came through a file that was open while it made way."""
    unfinished: str = ""
    """Why a checkout is half-way although the branch has moved: the next engine brings it to its end."""


def move_checkout(move: Move) -> BranchMoved | LandingRefused:
    claim = claim_of(move.repo, move.place.git_dir)
    try:
        with turn(claim, TURN_WAIT):
            settle(move.repo, claim)
            outside = move.place.path.stat().st_dev != claim.parent.stat().st_dev
            done = _try(move, claim, _stage(move, claim, outside=outside))
            if done is None:  # one file system, but two mounts
                done = _try(move, claim, _stage(move, claim, outside=True))
    except TurnTaken:
        reason = f"Another landing or undo is under way in {move.place.path}."
        return move.refuse("locked", reason, "Wait for it to end, then try again.")
    except (OSError, GitError) as error:  # nothing was begun, or it could not be put right
        if read_ref(move.git, move.ref) == move.new:
            return BranchMoved(None, unfinished=_reason(move, error).reason)
        return _why(move, error, half_way=read_intent(claim) is not None)
    return done or _scattered(move)


def _stage(move: Move, claim: Path, *, outside: bool) -> Path:
    """A folder on the file system of the checkout: among git's files if they are there, else in the checkout itself."""
    name = f"{STAGE_NAME}{secrets.token_hex(6)}"
    return move.place.path / name if outside else claim / name


def _try(move: Move, claim: Path, stage: Path) -> BranchMoved | LandingRefused | None:
    """All steps, and whatever comes of them is settled; None if files cannot be renamed from there."""
    locks = GitLocks(claim, move.place.git_dir)
    refusal: LandingRefused | None = None
    across = False
    try:
        claim.mkdir(mode=0o700, parents=True, exist_ok=True)
        note_stage(claim, stage)
        refusal = _locked(move, locks) or _steps(move, claim, locks, stage)
    except (OSError, GitError, BadIndex, Blocked, Theirs, RefMoved) as error:
        across = isinstance(error, OSError) and error.errno == errno.EXDEV
        refusal = _why(move, error)
    finally:
        settled = _put_right(move.repo, claim)
    if across:
        return None
    return _outcome(move, refusal, settled)


def _put_right(repo: Repository, claim: Path) -> Settled:
    """Settle, and try again where that fails: whatever it is, a checkout that stays half-way is worse."""
    try:
        return settle(repo, claim)
    except (OSError, GitError):
        return settle(repo, claim)


def _outcome(move: Move, refusal: LandingRefused | None, settled: Settled) -> BranchMoved | LandingRefused:
    if refusal is None:
        return BranchMoved(move.place.path, settled.kept)
    if settled.intent is not None and read_ref(move.repo.git, move.ref) == move.new:
        # Something failed after the branch had moved. It was finished, or the checkout went elsewhere meanwhile.
        return BranchMoved(move.place.path if settled.forward and settled.published else None, settled.kept)
    return refusal


# ------------------------------------------------------------------------------------ the steps


def _locked(move: Move, locks: GitLocks) -> LandingRefused | None:
    """Take git's locks; wait a moment for a git command that is at work, and never remove a lock of another program."""
    deadline = time.monotonic() + LOCK_WAIT
    lock = locks.take(LOCK_WAIT)
    ref = move.repo.common_dir / "refs" / "heads" / f"{move.branch}.lock"
    while lock is None and os.path.lexists(ref):
        if time.monotonic() >= deadline:
            lock = ref
        time.sleep(0.02)
    if lock is None:
        return None
    reason = f"Another git command is at work in {move.place.path}, or one died there: {lock} exists."
    return move.refuse("locked", reason, f"If no git command is running, remove it: rm '{lock}'")


def _steps(move: Move, claim: Path, locks: GitLocks, stage: Path) -> LandingRefused | None:
    failpoint("checkout.locked")
    refusal = _elsewhere(move)
    if refusal is not None:
        return refusal
    index = stand(os.fsencode(move.place.git_dir / "index"))
    if not stage.is_relative_to(claim):  # then it lies in the checkout, and is none of `git status`'s business
        stage.mkdir(mode=0o700)
        (stage / ".gitignore").write_text("*\n")
    stager = Stager(move.git, claim, stage, move.again)
    with Objects(move.repo.git) as objects:
        staged = stager.prepare(objects, move.old, move.new)
    failpoint("checkout.staged")
    intent = Intent(
        move.place.path, move.place.git_dir, move.branch, move.old, move.new, stage, index,
        staged.items, staged.emptied, staged.made,
    )  # fmt: skip
    write_intent(claim, intent)
    failpoint("checkout.intended")
    place(intent)
    changed = verify(intent)
    if changed is not None:
        raise Theirs(changed)
    _stamp(move, stager, staged, intent)
    failpoint("checkout.placed")
    if not locks.held() or stand(os.fsencode(move.place.git_dir / "index")) != index:
        return _unlocked(move, locks)
    _swap(move, claim)
    failpoint("checkout.swapped")
    if not publish(claim, locks, index):
        return _unlocked(move, locks)
    failpoint("checkout.published")
    return _read_back(move, claim, intent)


def _unlocked(move: Move, locks: GitLocks) -> LandingRefused:
    return move.refuse("moved", f"Another program or a person removed the lock {locks.index} during the landing.")


def _elsewhere(move: Move) -> LandingRefused | None:
    """Whether the checkout has left the branch, moved it, or begun something, before we had its locks."""
    git_dir = move.place.git_dir
    operation = operation_in(git_dir)
    if operation is not None:
        reason = f"A {operation} of branch '{move.branch}' is under way in {move.place.path}"
        return move.refuse("operation", reason, f"Finish or abort the {operation} there.")
    if move.repo.checked_out_in(git_dir) != move.branch:
        reason = f"{move.place.path} has just been switched to another branch."
        return move.refuse("moved", reason, ("Run '", move.again, "' again."))
    tip = read_ref(move.repo.git, move.ref)
    return None if tip == move.old else _moved(move, tip)


def _stamp(move: Move, stager: Stager, staged: Staged, intent: Intent) -> None:
    """The index notes when the files were written: renaming has changed one of their times."""
    written = int(intent.index[3]) if intent.index else 0
    if staged.entries.split:
        os.utime(stager.file, ns=(written, written))  # by which git tells what it has to look into
        stager.git("update-index", "-q", "--refresh", ok=range(256), timeout=TIMEOUT)
        return
    stands = {item.path: _as_placed(intent, item) for item in intent.items if item.will}
    others = doubtful_entries(staged.entries, os.fsencode(intent.top), written // 10**9, stands)
    ours = {path: status for path, status in stands.items() if status is not None}
    # What a user wrote since the last look must show as an edit: noted as it stands now, it would be taken for ours.
    edited = [path for path in stands if path not in ours and path in staged.entries.entries]
    stamp_index(stager.file, staged.entries, ours, [*others, *edited], len(move.new) // 2)


def _as_placed(intent: Intent, item: Item) -> os.stat_result | None:
    """How a file stands that is still the one we put there; None: it is not, or not any more."""
    status = lstat(intent.place(item))
    return status if status is not None and stand_of(status)[:4] == item.will[:4] else None


def _swap(move: Move, claim: Path) -> None:
    """Compare and swap the branch, with HEAD's lock in our hands."""
    update = Update(move.ref, move.new, move.old)
    if (move.repo.common_dir / "reftable").is_dir():
        move_ref(move.git, update, move.message)  # there HEAD has no lock file
        return
    folder = claim / "git"
    folder.mkdir(exist_ok=True)
    (folder / "HEAD").write_text(_NO_HEAD)
    (folder / "commondir").write_bytes(os.fsencode(move.repo.common_dir) + b"\n")
    move_ref(Git(move.repo.common_dir, folder, cwd=move.repo.common_dir), update, move.message)
    with suppress(OSError):
        _log_head(move)


def _log_head(move: Move) -> None:
    """HEAD's log gets the line that git has just written to the branch's."""
    log = move.repo.common_dir / "logs" / move.ref
    head = move.place.git_dir / "logs" / "HEAD"
    line = read_plain(log).rstrip(b"\n").rpartition(b"\n")[2] + b"\n"
    if not line.startswith(f"{move.old} {move.new} ".encode()):
        return
    descriptor = os.open(head, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.write(descriptor, line)
    finally:
        os.close(descriptor)


def _read_back(move: Move, claim: Path, intent: Intent) -> LandingRefused | None:
    tip = read_ref(move.repo.git, move.ref)
    if tip != move.new or move.repo.checked_out_in(move.place.git_dir) != move.branch:
        return move.refuse("moved", f"Branch '{move.branch}' moved while it was landing.", "Run 'git log' and look.")
    mark_done(claim)
    return None


# ------------------------------------------------------------------------------------ why not


def _why(move: Move, error: Exception, *, half_way: bool = False) -> LandingRefused:
    refusal = _reason(move, error)
    if half_way:
        whole = ("Put that right, then run '", move.again, "': it begins by making the checkout whole.")
        return move.refuse(refusal.kind, f"{refusal.reason}. Its files could not be put back so far.", whole)
    return refusal


def _reason(move: Move, error: Exception) -> LandingRefused:
    top = move.place.path
    if isinstance(error, OSError):
        where = f" ({error.filename})" if error.filename else ""
        reason = f"The system refused to update {top}: {error.strerror or error}{where}"
        return move.refuse("checkout", reason, ("Put that right, then run '", move.again, "'."))
    if isinstance(error, Blocked):
        return error.refusal
    if isinstance(error, Theirs):
        return in_the_way(move.git, [error.path], move.again)
    if isinstance(error, RefMoved):
        return _moved(move, error.actual)
    if isinstance(error, GitError):
        said = [line for line in error.stderr.splitlines() if re.match("(fatal|error): ", line)]
        hint: Hint = (
            ("Is there room on that disk? Make some, then run '", move.again, "'.")
            if _UNWRITTEN.search(error.stderr)
            else ""
        )
        return move.refuse("checkout", f"Git refused to update {top}: {said[0] if said else error.message}", hint)
    return move.refuse("checkout", f"The index of {top} cannot be read.")


def _scattered(move: Move) -> LandingRefused:
    reason = f"{move.place.path} lies on several file systems, and Orchard cannot exchange files between them."
    by_hand: Hint = (f"Run 'git merge --ff-only {move.new}' there, then '", move.again, "'.")
    if move.again == UNDO:
        by_hand = f"Take it back by hand: run 'git reset --keep {move.new}' there."
    return move.refuse("checkout", reason, by_hand)


def _moved(move: Move, tip: str | None) -> LandingRefused:
    where = f"at {tip:.12}" if tip else "gone"
    return move.refuse("moved", f"Branch '{move.branch}' is {where}, not at {move.old:.12}.")
