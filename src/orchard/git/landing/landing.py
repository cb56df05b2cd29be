"""Landing: the one place that moves a branch of the user's.

A branch that is not checked out moves by compare-and-swap, at a moment when no checkout is being switched to it.
A branch that one checkout has moves together with that checkout, see `checkout`; if it cannot, nothing has changed
and the reason is the answer. Nothing here stashes, cleans, forces or resets, removes a lock of another program, or
runs a hook.

    land       move the branch from `old` to `new`, or say why not
    undo       move it back, or say why not
    revert     move it on, to a commit that takes a landing back, or say why not
    where_is   what became of a landing that was interrupted: the answer comes from git
    was_undone the same of an undo

What is told is what git says when all is over: a landing has happened if the branch was read back at that very commit.
A name that stands for another branch (a symbolic ref) is followed first: the branch that it means is what moves.
"""

import re
from contextlib import ExitStack, suppress
from typing import Literal

from msgspec.structs import replace

from orchard.errors import Next, OrchardError, SystemRefused
from orchard.git.command import Git, GitError, lock_in_the_way
from orchard.git.history import is_ancestor
from orchard.git.landing.checkout import BranchMoved, Move, move_checkout
from orchard.git.landing.claim import Astray, none_astray
from orchard.git.landing.intent import DamagedNotes
from orchard.git.landing.obstacles import LAND, REVERT, UNDO, LandingRefused
from orchard.git.landing.recovery import held_still
from orchard.git.refs import RefMoved, Update, move_ref, read_log
from orchard.git.repository import Checkout, Repository, is_true
from orchard.process.failpoint import failpoint

HISTORY_LIMIT = 10_000
TRAILER = "Orchard-Landing"
UNDO_MESSAGE = "orchard: undo of"

Whereabouts = Literal["landed", "not-landed", "moved", "landed-elsewhere", "missing"]


def land(repo: Repository, branch: str, old: str | None, new: str, message: str) -> BranchMoved | LandingRefused:
    """Move a branch from `old` (None: it must not exist) to `new`; already being there is success."""
    branch = repo.meant_branch(branch)
    tip = repo.branch_tip(branch)
    if tip == new:
        return BranchMoved()
    refusal = _not_at(branch, tip, old)
    if refusal is not None:
        return refusal
    if old is not None and not is_ancestor(repo, old, new):
        reason = f"Commit {new:.12} does not build on {old:.12}, where branch '{branch}' is."
        return LandingRefused("moved", reason, ("Run '", LAND, "' to merge again."))
    return _move(repo, branch, old, new, message, LAND)


def moved_since(repo: Repository, branch: str, new: str) -> LandingRefused | None:
    """Whether a branch is elsewhere than its landing left it; a look that changes nothing."""
    branch = repo.meant_branch(branch)
    return _not_at(branch, repo.branch_tip(branch), new)


def undo(repo: Repository, branch: str, old: str | None, new: str) -> BranchMoved | LandingRefused:
    refusal = moved_since(repo, branch, new)
    if refusal is not None:
        return refusal
    branch = repo.meant_branch(branch)
    return _move(repo, branch, new, old, f"{UNDO_MESSAGE} {new:.12}", UNDO)


def revert(repo: Repository, branch: str, tip: str, new: str) -> BranchMoved | LandingRefused:
    """Move a branch from where it is to a commit on top, which takes a landing back."""
    branch = repo.meant_branch(branch)
    refusal = _not_at(branch, repo.branch_tip(branch), tip)
    return refusal or _move(repo, branch, tip, new, f"{UNDO_MESSAGE} a landing, by {new:.12}", REVERT)


def where_is(repo: Repository, branch: str, landing_id: str, old: str | None, new: str) -> Whereabouts:
    tip = repo.branch_tip(branch)
    if tip is None:
        return "missing" if old is not None else "not-landed"
    if is_ancestor(repo, new, tip):
        return "landed"
    if tip == old:
        return "not-landed"
    since = [f"^{old}"] if old is not None else []
    # Not `git log`, which gives up where a setting for its colors or dates makes no sense.
    words = ("rev-list", "--no-commit-header", "--format=%B", "--encoding=UTF-8", f"--max-count={HISTORY_LIMIT}")
    messages = repo.git(*words, tip, *since, "--", timeout=300).stdout
    # A squash by a forge indents the message or makes it a list, so the line is searched, not the trailer block.
    mark = rb"(?m)^[\s*-]*" + re.escape(f"{TRAILER}: {landing_id}".encode()) + rb"\s*$"
    return "landed-elsewhere" if re.search(mark, messages) else "moved"


def was_undone(repo: Repository, branch: str, old: str | None, new: str) -> bool:
    """Whether an undo has happened, also where the user has gone on since: the branch's log has our line."""
    tip = repo.branch_tip(branch)
    if tip == old:
        return True
    if tip is None or old is None or is_ancestor(repo, new, tip):
        return False
    return (old, f"{UNDO_MESSAGE} {new:.12}") in read_log(repo.git, f"refs/heads/{branch}", HISTORY_LIMIT)


def _not_at(branch: str, tip: str | None, expected: str | None) -> LandingRefused | None:
    if tip == expected:
        return None
    if tip is None:
        return LandingRefused(
            "missing", f"Branch '{branch}' does not exist any more.", f"Make it again, at {expected:.12}."
        )
    where = f"not at {expected:.12}" if expected is not None else "but should not exist yet"
    return LandingRefused("moved", f"Branch '{branch}' is at {tip:.12}, {where}.", "Look at 'git log' of the branch.")


def _only_checkout(repo: Repository, branch: str) -> Checkout | LandingRefused | None:
    """The one checkout that has the branch; a refusal if it is busy, out of reach, or not the only one."""
    if repo.main_top is None and _hides_checkout(repo, branch):
        reason = (
            f"Branch '{branch}' seems to be checked out beside {repo.common_dir}, but the setting core.bare is true."
        )
        hint = f"Run: git --git-dir='{repo.common_dir}' config core.bare false"
        return LandingRefused("checkout", reason, hint)
    # Git forgets a checkout that is prunable: its folder is gone, and no lock holds it.
    places = [one for one in repo.checkouts() if one.branch == branch and not one.bare and not one.prunable]
    for one in places:
        if one.operation is not None:
            reason = f"A {one.operation} of branch '{branch}' is under way in {one.path}"
            return LandingRefused("operation", reason, f"Finish or abort the {one.operation} there.")
        if one.ours:
            whose = f" ({one.label})" if one.label else ""
            reason = f"Branch '{branch}' is checked out in the worktree of a job, {one.path}{whose}"
            hint = f"Wait for that job to end, or, if it failed: git -C '{one.path}' checkout --detach"
            return LandingRefused("checkout", reason, hint)
        if not one.path.is_dir():
            reason = f"Branch '{branch}' is checked out in {one.path}, which cannot be reached."
            return LandingRefused(
                "checkout", reason, "Mount it, or run 'git worktree unlock' and 'git worktree prune'."
            )
    if len(places) > 1:
        listed = " and ".join(str(one.path) for one in places)
        reason = f"Branch '{branch}' is checked out more than once: in {listed}"
        return LandingRefused("checkout", reason, "Switch all but one of them to another branch.")
    return places[0] if places else None


def _hides_checkout(repo: Repository, branch: str) -> bool:
    """Whether a repository that calls itself bare has an index: then something has set `core.bare` by mistake."""
    if repo.common_dir.name != ".git" or not (repo.common_dir / "index").exists():
        return False
    git = Git(repo.common_dir, repo.common_dir, cwd=repo.common_dir)
    return git("symbolic-ref", "-q", "HEAD", ok=(0, 1)).text == f"refs/heads/{branch}"


def _move(
    repo: Repository, branch: str, old: str | None, new: str | None, message: str, again: Next
) -> BranchMoved | LandingRefused:
    """Move the branch, and the checkout that has it; None is a branch that does not exist."""
    refused: OrchardError
    try:
        return _moved(repo, branch, old, new, message, again)
    except (DamagedNotes, Astray) as error:
        refused = error
    except OSError as error:  # not even our notes can be read: the next settlement will have to
        refused = SystemRefused(error)
    with suppress(OSError):  # of a disk that fails for good, the next settlement will tell
        if repo.branch_tip(branch) == new:
            return BranchMoved()  # whatever failed came after the move
    return LandingRefused("checkout", refused.message, refused.hint or "")


def _moved(
    repo: Repository, branch: str, old: str | None, new: str | None, message: str, again: Next
) -> BranchMoved | LandingRefused:
    place = _only_checkout(repo, branch)
    if isinstance(place, LandingRefused):
        return place
    if place is None:
        none_astray(repo, branch)
        return _swap(repo, branch, old, new, message) or BranchMoved()
    if old is None or place.head != old:
        reason = f"The checkout {place.path} of branch '{branch}' is at another commit than the branch."
        return LandingRefused("checkout", reason, "Run 'git status' there.")
    if new is None:
        reason = f"Branch '{branch}' was made by the landing and is checked out in {place.path}."
        return LandingRefused("checkout", reason, "Switch to another branch there, then undo again.")
    git = _git_in(repo, place, new)
    if isinstance(git, LandingRefused):
        return git
    failpoint("checkout.before")
    done = move_checkout(Move(repo, git, place, branch, old, new, message, again))
    failpoint("checkout.after")
    return done


def _swap(repo: Repository, branch: str, old: str | None, new: str | None, message: str) -> LandingRefused | None:
    """Compare and swap a branch that is not checked out, while no git can switch to it."""
    failpoint("branch.before-swap")
    with ExitStack() as stack:
        for one in repo.checkouts():
            if not one.bare and not one.ours and not one.prunable:
                stack.enter_context(held_still(repo, one.git_dir))
            if repo.checked_out_in(one.git_dir) == branch and not one.bare and not one.prunable:
                reason = f"{one.path} has just been switched to branch '{branch}'."
                return LandingRefused("moved", reason, "Try again.")
        try:
            move_ref(repo.git, Update(f"refs/heads/{branch}", new, old), message)
            failpoint("branch.after-swap")
        except RefMoved as error:
            if error.actual != new:
                return _not_at(branch, error.actual, old)
        except GitError as error:
            lock = lock_in_the_way(error.stderr)
            if lock is None:
                raise
            reason = f"Another git command is at work on branch '{branch}', or one died: {lock} exists."
            return LandingRefused("locked", reason, error.hint or "")
    return None


def _git_in(repo: Repository, place: Checkout, new: str) -> Git | LandingRefused:
    """Git in the user's checkout, with the filters that were configured when the repository was opened.

    A filter is a program that runs when files are written, and a job can set one in the repository's config. One that
    turned up since is not run; and as leaving it out would write wrong files, nothing is written at all.
    """
    git = repo.checkout_git(place)
    said = repo.config(r"^(filter\.|merge\.verifysignatures$)")
    known = {key.rpartition(".")[0] for key, _ in repo.filters}
    if is_true(said.pop("merge.verifysignatures", None)):
        done = repo.git("verify-commit", new, ok=range(256))
        if done.status != 0:
            reason = f"The setting merge.verifySignatures is on, and commit {new:.12} has no good signature."
            return LandingRefused("checkout", reason, "Set commit.gpgSign, or turn merge.verifySignatures off.")
    strange = sorted({key.rpartition(".")[0] for key in said} - known)
    if strange:
        reason = f"The setting '{strange[0]}' appeared in the config while orchard was running."
        return LandingRefused(
            "checkout", reason, ("If it is yours, restart orchard: '", Next("stop_daemon"), "', then land again.")
        )
    # "keep": what the user's index caches is theirs to decide.
    return replace(git, config={**git.config, **dict(repo.filters), "core.untrackedCache": "keep"})
