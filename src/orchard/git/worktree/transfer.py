"""What was done in one worktree, brought into another one in which an agent is at work.

    merge_onto     the merge, in memory: both sides began at the same commit
    transfer       the merge, what it changes, and what is in its way
    write_changes  the paths that differ, and nothing else, written into the worktree
    tree_now       what a worktree holds now, for whoever looks at it
    picture_of     a checkout of the user's as a commit, for whoever begins with what lies there

A conflict is a value, and so is a file that lies in the way: then nothing is written at all. Git itself checks, before
it writes the first file, that none of those it would replace was changed since it was last looked at. The index of the
folder is not touched: the agent at work there finds files that changed, and decides what becomes of them.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from orchard.git.command import Git, GitError
from orchard.git.merge.account import Trees, check
from orchard.git.merge.conflicts import Merge
from orchard.git.objects.processes import Live
from orchard.git.objects.reader import GITLINK, TREE, Change, Objects
from orchard.git.refs import hold
from orchard.git.repository import Checkout, Repository, Worktree
from orchard.git.scratch import commit_index, copy_index, private_file
from orchard.git.worktree.fast_commit import changes_of
from orchard.git.worktree.status import ADD_TIMEOUT, look, stage


def merge_onto(live: Live, start: str, ours: str, theirs: str) -> Merge:
    """Merge `theirs`, which was made on `start`, with what `ours` holds, which came from there as well.

    In git's eyes `ours` need not descend from `start` (it is a picture of a worktree that went on), so a commit is made
    that does. Nothing holds it, and nothing needs it when the merge is made.
    """
    objects, merger = live.objects, live.merger
    tree = objects.tree_of
    mine = merger.commit(tree(ours), (start,), "orchard: the folder as it is", when=0, durable=False)
    merge = merger.merge(mine, theirs)
    check(objects, Trees((tree(start),), tree(ours), tree(theirs), merge.tree, merge.conflicts))
    return merge


def changed_paths(live: Live, ours: str, tree: str) -> list[Change]:
    """What has to be written into a worktree that holds the commit `ours` to make it hold a tree."""
    return changes_of(live.objects, (live.objects.tree_of(ours), tree))


def in_the_way(live: Live, folder: Path, ours: str, changes: Sequence[Change]) -> list[bytes]:
    """Paths that are to be written but where something lies that git does not know, such as an ignored file."""
    before = live.objects.tree_of(ours)
    new = [change.path for change in changes if change.old is None and change.new is not None]
    return [path for path in new if _is_taken(live.objects, before, os.fsencode(folder), path)]


class Transfer(Struct, frozen=True):
    """What a merge would write into a folder; nothing is written where there are conflicts."""

    merge: Merge
    changes: Sequence[Change] = ()
    in_the_way: Sequence[tuple[bytes, str]] = ()
    """Paths at which whoever works in the folder has to do something first, and what."""


def transfer(live: Live, folder: Path, start: str, ours: str, theirs: str) -> Transfer:
    """Merge `theirs`, made on `start`, with a folder that holds `ours`, and look whether it can be written there."""
    merge = merge_onto(live, start, ours, theirs)
    if merge.conflicts:
        return Transfer(merge)
    changes = changed_paths(live, ours, merge.tree)
    taken = [(path, "in the way") for path in in_the_way(live, folder, ours, changes)]
    # What lies in a submodule is for its own git to change: nothing of ours writes there.
    moved = ((one.path, one.new.oid) for one in changes if one.new is not None and one.new.mode == GITLINK)
    taken += [(path, f"submodule: check out {oid} there, then pull again") for path, oid in moved]
    return Transfer(merge, changes, taken)


def write_changes(live: Live, at: Git, ours: str, tree: str) -> None:
    """Make the folder of `at` hold a tree; GitError, and nothing written, if it does not hold the commit `ours`."""
    repo, before = live.repo, live.objects.tree_of(ours)
    with private_file(repo) as index:
        git = at.with_index(index)
        git("read-tree", before)
        # What is not as the index says is found again below, where it matters.
        git("update-index", "-q", "--refresh", ok=(0, 1), timeout=ADD_TIMEOUT)
        git("read-tree", "-m", "-u", before, tree, timeout=ADD_TIMEOUT)


def tree_now(repo: Repository, worktree: Worktree) -> str:
    """The tree of what a worktree of ours holds now; its files and its index are not touched, and no ref is made."""
    with private_file(repo) as index:
        git = repo.worktree_git(worktree.name, worktree.path).with_index(index)
        if not copy_index(git.git_dir / "index", index):
            git("read-tree", "HEAD")
        stage(git, worktree.path, look(git, worktree.path))
        return git("write-tree").text


def picture_of(repo: Repository, checkout: Checkout, ref: str, message: str) -> str:
    """A commit that holds what a checkout of the user's holds now; its index and its files are not touched."""
    with private_file(repo) as index:
        git = repo.checkout_git(checkout).with_index(index)
        head = git("rev-parse", "-q", "--verify", "HEAD^{commit}").text
        if not copy_index(checkout.git_dir / "index", index):
            git("read-tree", "HEAD")
        git("add", "-A", timeout=ADD_TIMEOUT)
        commit = commit_index(git, [head], message)
        hold(repo.git, ref, commit, head)
    return commit


def is_busy(error: GitError) -> bool:
    """Whether git refused because a file is not what it was when it was last looked at."""
    return "not uptodate" in error.stderr or "overwritten" in error.stderr or "lose untracked" in error.stderr


def _is_taken(objects: Objects, before: str, top: bytes, path: bytes) -> bool:
    """Whether something that no commit holds lies at a path or on the way to it."""
    parts = path.split(b"/")
    for length in range(1, len(parts) + 1):
        name = b"/".join(parts[:length])
        try:
            mode = os.lstat(top + b"/" + name).st_mode
        except FileNotFoundError:
            return False
        known = objects.entry(before, name)
        if known is not None and known.mode != TREE:
            return False  # the merge takes it away, and git looks whether it was edited
        if not stat.S_ISDIR(mode) or length == len(parts):
            return True
    return False
