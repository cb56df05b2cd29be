"""Landing: the one place that moves a branch of the user's, and the one place that writes to a checkout of theirs.

A branch that nobody has checked out moves by compare-and-swap. A branch that one checkout has is fast-forwarded
there by `git merge --ff-only --no-overwrite-ignore`, which itself refuses to touch edited, untracked and ignored
files; if it refuses, nothing has changed and the reason is the answer. Nothing here stashes, cleans, forces or
resets hard, removes a lock, or runs a hook.

    land       move the branch from `old` to `new`, or say why not
    undo       move it back, or say why not
    where_is   what became of a landing that was interrupted: the answer comes from git
    push       hand the branch on to a remote

One gap is left: git offers no way to name the branch that a fast-forward is for, so a user who switches branches
within the few milliseconds between our last look and the merge could have the other branch fast-forwarded. What
happened is read back, and reported as it is. A reset, too, compares with nothing: what it took from a user who
committed within those milliseconds is given back.
"""

import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from orchard.frozen import frozen
from orchard.git.command import Git, GitError, lock_in_the_way
from orchard.git.history import is_ancestor, show_path
from orchard.git.objects import TREE, Change, Entry, Objects
from orchard.git.obstacles import find_obstacle, look, put_back
from orchard.git.refs import RefMoved, Update, update_refs
from orchard.git.repository import Checkout, Repository
from orchard.process.failpoint import failpoint

LOCK_WAIT = 2.0
PUSH_TIMEOUT = 120.0
CHECKOUT_TIMEOUT = 600.0
HISTORY_LIMIT = 10_000
TRAILER = "Orchard-Landing"
FORWARD = ("--ff-only", "--no-overwrite-ignore", "--no-autostash", "--no-squash", "--no-stat", "-q")

RefusalKind = Literal["moved", "checkout", "operation", "missing", "locked"]
Whereabouts = Literal["landed", "not-landed", "moved", "landed-elsewhere", "missing"]


@frozen
class LandedRef:
    """The branch is at the new commit; `checkout` is the folder that was fast-forwarded with it."""

    checkout: Path | None = None


@frozen
class Undone:
    """The branch is where it was before the landing."""

    checkout: Path | None = None


@frozen
class LandingRefused:
    """Nothing was changed, and why."""

    kind: RefusalKind
    reason: str
    hint: str


def land(repo: Repository, branch: str, old: str | None, new: str, message: str) -> LandedRef | LandingRefused:
    """Move a branch from `old` (None: it must not exist) to `new`; already being there is success."""
    tip = repo.branch_tip(branch)
    if tip == new:
        return LandedRef()
    refusal = _not_at(branch, tip, old)
    if refusal is not None:
        return refusal
    if old is not None and not is_ancestor(repo, old, new):
        reason = f"Commit {new:.12} does not build on {old:.12}, where branch '{branch}' is."
        return LandingRefused("moved", reason, "Run 'orchard land' to merge again.")
    place = _only_checkout(repo, branch)
    if isinstance(place, LandingRefused):
        return place
    if place is None:
        return _swap(repo, branch, old, new, message) or LandedRef()
    if old is None or place.head != old:
        return _unexpected_head(branch, place)
    return _fast_forward(repo, place, branch, old, new)


def undo(repo: Repository, branch: str, old: str | None, new: str) -> Undone | LandingRefused:
    """Take a landing back if the branch is still exactly where it put it; no edit is lost."""
    tip = repo.branch_tip(branch)
    refusal = _not_at(branch, tip, new)
    if refusal is not None:
        return refusal
    place = _only_checkout(repo, branch)
    if isinstance(place, LandingRefused):
        return place
    if place is None:
        return _swap(repo, branch, new, old, f"orchard: undo of {new:.12}") or Undone()
    if place.head != new:
        return _unexpected_head(branch, place)
    if old is None:
        reason = f"Branch '{branch}' was made by the landing and is checked out in {place.path}."
        return LandingRefused("checkout", reason, "Switch to another branch there, then undo again.")
    return _step_back(repo, place, branch, old, new)


def where_is(repo: Repository, branch: str, landing_id: str, old: str | None, new: str) -> Whereabouts:
    """What became of a landing, by looking at the branch only; see the recovery table in the design."""
    tip = repo.branch_tip(branch)
    if tip is None:
        return "missing" if old is not None else "not-landed"
    if is_ancestor(repo, new, tip):
        return "landed"
    if tip == old:
        return "not-landed"
    since = [f"^{old}"] if old is not None else []
    words = ("log", "-z", "--format=%B", "--encoding=UTF-8", f"--max-count={HISTORY_LIMIT}", tip, *since, "--")
    messages = repo.git(*words, timeout=300).stdout
    # A squash by a forge indents the message or makes it a list, so the line is searched, not the trailer block.
    mark = rb"(?m)^[\s*-]*" + re.escape(f"{TRAILER}: {landing_id}".encode()) + rb"\s*$"
    return "landed-elsewhere" if re.search(mark, messages.replace(b"\0", b"\n")) else "moved"


def push(repo: Repository, branch: str, remote: str | None = None) -> tuple[bool, str]:
    """Push a branch to the same name on a remote (None: where git would push it); never forced, never asks."""
    if remote is None:
        remote = _push_remote(repo, branch)
    if remote == ".":
        said = f"Branch '{branch}' follows a branch of this repository, so git knows no remote to push it to."
        return False, f"{said} Name one: git config branch.{branch}.pushRemote REMOTE"
    ref = f"refs/heads/{branch}"
    try:
        done = repo.git("push", "--", remote, f"{ref}:{ref}", ok=range(256), timeout=PUSH_TIMEOUT)
    except GitError as error:
        return False, error.message
    said_text = done.stderr.decode(errors="replace").strip()
    return done.status == 0, said_text or ("pushed" if done.status == 0 else f"git ended with status {done.status}")


def _push_remote(repo: Repository, branch: str) -> str:
    """The remote that git itself would push a branch to."""
    said = repo.config(r"^(branch\..*\.(push)?remote|remote\.pushdefault)$")
    keys = (f"branch.{branch}.pushremote", "remote.pushdefault", f"branch.{branch}.remote")
    return next((said[key] for key in keys if said.get(key)), "origin")


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
    # Git forgets a checkout that is prunable: its folder is gone, and nobody holds it with a lock.
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


def _unexpected_head(branch: str, place: Checkout) -> LandingRefused:
    reason = f"The checkout {place.path} of branch '{branch}' is at another commit than the branch."
    return LandingRefused("checkout", reason, "Run 'git status' there.")


def _swap(repo: Repository, branch: str, old: str | None, new: str | None, message: str) -> LandingRefused | None:
    failpoint("branch.before-swap")
    try:
        update_refs(repo.git, [Update(f"refs/heads/{branch}", new, old)], message)
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


def _fast_forward(repo: Repository, place: Checkout, branch: str, old: str, new: str) -> LandedRef | LandingRefused:
    git = _git_in(repo, place)
    if isinstance(git, LandingRefused):
        return git
    changes = _changes(repo, old, new)
    refusal = _locks(repo, place, branch, LOCK_WAIT) or _obstacle(repo, git, place, changes, new)
    if refusal is not None:
        return refusal
    if git("symbolic-ref", "-q", "HEAD", ok=(0, 1)).text != f"refs/heads/{branch}":
        return LandingRefused("moved", f"{place.path} has just been switched to another branch.", "Land again.")
    try:
        staged, original = _staged(git), _original(git)
    except GitError as error:
        return _in_the_way(place, error.stderr.encode(), "orchard land")
    files = look(place.path, changes)
    failpoint("checkout.before-forward")
    done = git("merge", *FORWARD, new, ok=range(256), timeout=CHECKOUT_TIMEOUT)
    failpoint("checkout.after-forward")
    tip = repo.branch_tip(branch)
    if tip == new or (tip not in (None, old) and is_ancestor(repo, new, tip)):  # they may have built on it already
        return LandedRef(place.path)
    if done.status == 0 or tip != old:
        return LandingRefused("moved", f"Branch '{branch}' moved while it was landing.", "Run 'git log' and look.")
    if _staged(git) != staged:
        _take_files_back(git, new, old)
    else:
        put_back(repo, git, place.path, changes, files)
    _put_back_original(git, original)
    return _locks(repo, place, branch, 0.0) or _in_the_way(place, done.stderr, "orchard land")


def _step_back(repo: Repository, place: Checkout, branch: str, old: str, new: str) -> Undone | LandingRefused:
    git = _git_in(repo, place)
    if isinstance(git, LandingRefused):
        return git
    changes = _changes(repo, new, old)
    refusal = _locks(repo, place, branch, LOCK_WAIT) or _obstacle(repo, git, place, changes, old)
    if refusal is not None:
        return refusal
    if git("diff-index", "--cached", "--quiet", new, "--", ok=(0, 1)).status == 1:
        # `reset --keep` would take them out of the index, and with them what only the index holds.
        reason = f"There are staged changes in {place.path}"
        return LandingRefused("checkout", reason, "Commit or unstage them, then undo again.")
    blocking = _would_be_overwritten(repo, place.path, old, new)
    if blocking:
        reason = f"The undo would overwrite files in {place.path} that git does not track: {_some(blocking)}"
        return LandingRefused("checkout", reason, "Move them away, then undo again.")
    if git("symbolic-ref", "-q", "HEAD", ok=(0, 1)).text != f"refs/heads/{branch}":
        return LandingRefused("moved", f"{place.path} has just been switched to another branch.", "Undo again.")
    staged, files = _staged(git), look(place.path, changes)
    failpoint("checkout.before-back")
    done = git("reset", "--keep", "-q", old, "--", ok=range(256), timeout=CHECKOUT_TIMEOUT)
    theirs = _original(git) if done.status == 0 else new
    failpoint("checkout.after-back")
    if theirs not in (new, old, ""):
        return _give_back(git, branch, theirs)
    tip = repo.branch_tip(branch)
    if tip == old or (done.status == 0 and tip is not None and not is_ancestor(repo, new, tip)):
        return Undone(place.path)
    if tip != new:
        return LandingRefused("moved", f"Branch '{branch}' moved during the undo.", "Run 'git log' and look.")
    if _staged(git) != staged:
        _take_files_back(git, old, new)
    else:
        put_back(repo, git, place.path, changes, files)
    return _locks(repo, place, branch, 0.0) or _in_the_way(place, done.stderr, "orchard undo")


def _give_back(git: Git, branch: str, theirs: str) -> LandingRefused:
    """Put a branch back where the user had moved it just before it was reset: a reset compares with nothing."""
    done = git("merge", *FORWARD, theirs, ok=range(256), timeout=CHECKOUT_TIMEOUT)
    hint = "Run 'git log' and look." if done.status == 0 else f"Run 'git reset --keep {theirs:.12}' there."
    return LandingRefused("moved", f"Branch '{branch}' moved to {theirs:.12} during the undo.", hint)


def _git_in(repo: Repository, place: Checkout) -> Git | LandingRefused:
    """Git in the user's checkout, with the filters that were configured when the repository was opened.

    A filter is a program that runs when files are written, and a job can set one in the repository's config. One that
    turned up since is not run; and as leaving it out would write wrong files, nothing is written at all.
    """
    git = repo.checkout_git(place)
    known = {key.rpartition(".")[0] for key, _ in repo.filters}
    strange = sorted({key.rpartition(".")[0] for key in repo.config(r"^filter\.")} - known)
    if strange:
        reason = f"The setting '{strange[0]}' appeared in the config while orchard was running."
        return LandingRefused("checkout", reason, "If it is yours, restart orchard: 'orchard stop', then land again.")
    # "keep": what the user's index caches is theirs to decide.
    return replace(git, config={**git.config, **dict(repo.filters), "core.untrackedCache": "keep"})


def _locks(repo: Repository, place: Checkout, branch: str, patience: float) -> LandingRefused | None:
    """Wait for another git that is at work on this checkout or branch to finish; its lock is never removed.

    The locks of refs count as well: git writes all the files before it finds that it cannot move the branch.
    """
    ref = repo.common_dir / "refs" / "heads" / branch
    locks = (place.git_dir / "index.lock", place.git_dir / "HEAD.lock", ref.with_name(f"{ref.name}.lock"))
    deadline = time.monotonic() + patience
    while found := [lock for lock in locks if os.path.lexists(lock)]:
        if time.monotonic() >= deadline:
            reason = f"Another git command is at work in {place.path}, or one died there: {found[0]} exists."
            return LandingRefused("locked", reason, f"If no git command is running, remove it: rm '{found[0]}'")
        time.sleep(0.05)
    return None


def _staged(git: Git) -> bytes:
    """The whole index, to see whether a command that failed has changed it."""
    return git("ls-files", "-s", "-z", timeout=CHECKOUT_TIMEOUT).stdout


def _original(git: Git) -> str:
    """Where the user's last reset, rebase or merge began; they may still want to go back there."""
    return git("rev-parse", "-q", "--verify", "ORIG_HEAD", ok=(0, 1)).text


def _put_back_original(git: Git, before: str) -> None:
    """A merge writes ORIG_HEAD before it finds out that it has to refuse."""
    now = _original(git)
    if now != before:
        words = ("ORIG_HEAD", before, now) if before else ("-d", "ORIG_HEAD", now)
        git("update-ref", *words, ok=range(256))


def _take_files_back(git: Git, there: str, back: str) -> None:
    """Undo what a command wrote before it failed to move the branch.

    Only files that are still exactly as it wrote them are touched: `read-tree -m` refuses all others.
    """
    git("read-tree", "-m", "-u", there, back, ok=range(256), timeout=CHECKOUT_TIMEOUT)


def _obstacle(repo: Repository, git: Git, place: Checkout, changes: Sequence[Change], to: str) -> LandingRefused | None:
    found = find_obstacle(repo, git, place.path, changes, to)
    return None if found is None else LandingRefused("checkout", found.reason, found.hint)


def _changes(repo: Repository, before: str, after: str) -> list[Change]:
    with Objects(repo.git) as objects:
        return list(objects.diff_trees(objects.tree_of(before), objects.tree_of(after)))


def _would_be_overwritten(repo: Repository, top: Path, old: str, new: str) -> list[bytes]:
    """Files that git does not track, at paths that going back to `old` would make again.

    `reset --keep` spares untracked files but not ignored ones, so this has to be known before.
    """
    with Objects(repo.git) as objects:
        before, after = objects.tree_of(new), objects.tree_of(old)
        made = [one.path for one in objects.diff_trees(before, after) if one.old is None and one.new is not None]
        found: list[bytes] = []
        for path in made:
            parts = path.split(b"/")
            for depth in range(1, len(parts) + 1):
                name = b"/".join(parts[:depth])
                tracked = objects.entry(before, name)
                if tracked is None:
                    found += _blocks(top, name, is_last=depth == len(parts))
                elif tracked.mode == TREE and depth == len(parts):
                    found += _untracked_below(objects, tracked, top, name)
        return sorted(set(found))


def _blocks(top: Path, name: bytes, *, is_last: bool) -> list[bytes]:
    try:
        mode = os.lstat(os.path.join(os.fsencode(top), name)).st_mode  # noqa: PTH118
    except (FileNotFoundError, NotADirectoryError):
        return []
    # An untracked folder may be filled, unless the path itself has to become a file.
    return [] if stat.S_ISDIR(mode) and not is_last else [name]


def _untracked_below(objects: Objects, tree: Entry, top: Path, name: bytes) -> list[bytes]:
    """What stands in a folder that has to make way for a file, and is not tracked."""
    start = os.path.join(os.fsencode(top), name)  # noqa: PTH118
    found = []
    for folder, folders, names in os.walk(start):
        links = [one for one in folders if os.path.islink(os.path.join(folder, one))]  # noqa: PTH114, PTH118
        for one in [*names, *links]:
            inside = os.path.relpath(os.path.join(folder, one), start)  # noqa: PTH118
            if objects.entry(tree.oid, inside) is None:
                found.append(name + b"/" + inside)
    return found


def _in_the_way(place: Checkout, stderr: bytes, command: str) -> LandingRefused:
    """Git's refusal; the files that it names are on lines that start with a tab."""
    lines = stderr.splitlines()
    names = [line[1:].strip() for line in lines if line.startswith(b"\t")]
    # `reset --keep` names them in another way.
    names += [found[1] for line in lines if (found := re.match(rb"error: Entry '(.*)' not uptodate", line))]
    if names:
        reason = f"Your files in {place.path} are in the way: {_some(names)}"
        return LandingRefused("checkout", reason, f"Commit or move them, then run '{command}'.")
    said = [line for line in stderr.decode(errors="replace").splitlines() if re.match("(fatal|error): ", line)]
    reason = f"Git refused to update {place.path}: {said[0] if said else 'it gave no reason'}"
    return LandingRefused("checkout", reason, f"Run 'git status' there, then '{command}'.")


def _some(paths: Sequence[bytes]) -> str:
    shown = ", ".join(show_path(path) for path in paths[:3])
    return shown if len(paths) <= 3 else f"{shown} and {len(paths) - 3} more"
