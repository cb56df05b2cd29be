"""What a job leaves becomes one commit, or is refused with a reason.

The commit is made by plumbing: no hook runs, no filter that a job brought along, nothing inside a
submodule. Before it gets a name, every path that differs from where the job started is looked at:
a result that would make a later git run something, or write outside of its worktree, is refused.
"""

import itertools
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.git.checkout_state import operation_in, way_out_of
from orchard.git.command import Blocked, Git, GitError, lock_in_the_way
from orchard.git.history import is_ancestor
from orchard.git.objects.processes import Live
from orchard.git.objects.reader import ObjectMissing
from orchard.git.pipes import remove_links
from orchard.git.refs import RefMoved
from orchard.git.repository import Repository, Worktree
from orchard.git.worktree.fast_commit import Files, changes_of, read_files, write_tree
from orchard.git.worktree.review import LISTED, Difference, Finding, Reviewed, count_lines, judge, review
from orchard.git.worktree.status import (
    Contents,
    Left,
    display,
    look,
    picture,
    seen_as,
    stage,
    try_again,
)
from orchard.git.worktree.submodules import Submodule, named_by, submodules_in
from orchard.process.failpoint import failpoint

LISTED_PATHS = 1000
_NOT_STORED = "The job left files whose names git does not store"
_OTHER_NAMES = (
    "Have the job choose other names: no part of a path may pass for '.git', and '.gitmodules' may not be a link."
)

_BY_DEFAULT = ", and plans do not commit that unless they say so."
_TO_MOVE = "Set 'submodules: true' in the plan if jobs may move submodules; or move it yourself, before the plan."
_TO_PUSH = (
    "Push it to a branch of that remote first, from the submodule's folder in the worktree; then retry the job. Others "
    "could not fetch it."
)


class CommitInfo(Struct, frozen=True):
    name: str
    ref: str
    author: tuple[str, str]
    """Name and email, see `Repository.identity`."""
    body: str = ""
    trailers: tuple[tuple[str, str], ...] = ()
    droppings: Callable[[str], bool] | None = None
    """Which paths are files that an agent left for itself: new ones of those are no work, and stay out of it."""
    replaces: str | None = None
    """What the ref holds already: an earlier result of the same attempt, which the worktree stands at."""

    @property
    def message(self) -> str:
        trailers = "\n".join(f"{key}: {' '.join(value.split())}" for key, value in self.trailers)
        title = " ".join(self.name.split()) or "work"
        parts = (title, self.body.strip(), trailers)
        return "\n\n".join(part for part in parts if part) + "\n"


class Committed(Struct, frozen=True):
    """The result of a job is under its ref, and was read back."""

    commit: str
    changed: bool
    """False: the job left everything as it was, and `commit` is where it started."""
    added: int = 0
    modified: int = 0
    deleted: int = 0
    lines_added: int = 0
    lines_deleted: int = 0
    own_commits: bool = False
    """The job committed by itself, so that there may be more commits than the one made here."""
    left: Left | None = None
    """What the worktree holds beside what it was made from, where that is known for certain."""
    dropped: tuple[str, ...] = ()
    """What an agent left for itself, and is not in the commit; escaped for people."""

    @property
    def differs(self) -> bool:
        """Whether any file is another than where the job started: commits of its own may have changed none."""
        return self.added + self.modified + self.deleted > 0

    @property
    def counts(self) -> dict[str, int]:
        names = ("added", "modified", "deleted", "lines_added", "lines_deleted")
        return {name: getattr(self, name) for name in names}


class Refused(Struct, frozen=True):
    message: str
    hint: str
    paths: tuple[str, ...] = ()
    unfinished: bool = False
    """The job stopped in the middle of a merge, rebase or the like; an agent that finishes it makes it whole."""


class Changes(Struct, frozen=True):
    total: int
    paths: tuple[str, ...] = field(default=())
    """At most LISTED_PATHS of them, escaped for people."""
    tracked: tuple[str, ...] = field(default=())
    """Those that the commit has."""


def commit_work(
    repo: Repository,
    worktree: Worktree,
    base: str,
    info: CommitInfo,
    live: Live | None = None,
    *,
    made_from: str | None = None,
    stays: bool = True,
    submodules: bool = False,
) -> Committed | Refused:
    """Turn what a job left in its worktree, and what it committed itself, into one result.

    `made_from`: the commit we made the worktree's index from, if no other git wrote to it since. `stays`:
    an agent goes on in this worktree, so its HEAD and index have to follow; otherwise they may stay behind.
    `submodules`: the job may move them to other commits that their remotes have.
    """
    if live is None:
        with Live(repo) as own:
            return commit_work(repo, worktree, base, info, own, made_from=made_from, stays=stays, submodules=submodules)
    git = repo.worktree_git(worktree.name, worktree.path)
    if (unusable := _unusable(worktree, git)) is not None:
        return unusable
    plain = made_from == base and live.is_plain(base)
    try:
        seen = picture(worktree.path, git.git_dir / "index") if plain and not stays else None
        contents = look(git, worktree.path, untouched=plain)
        left = seen_as(worktree.path, contents, seen) if plain and not stays else None
    except Blocked as blocked:
        names = tuple(display(name) for name in blocked.names)
        said = f"The job left a pipe, socket or device where git expects a file: {', '.join(names[:5])}"
        return Refused(said, "Have the job remove it.", names)
    except (GitError, OSError) as error:
        return Refused(f"The worktree cannot be read: {error}", "Retry the job with '--fresh'.")
    head = contents.head or base
    unfinished = _unfinished(git.git_dir, contents) or _nested(contents)
    if unfinished is not None:
        return unfinished
    links = _links(repo, worktree, contents, (base, head), may_move=submodules)
    if isinstance(links, Refused):
        return links
    if not is_ancestor(repo, base, head):
        return Refused(
            f"The job moved HEAD to {head:.12}, which does not build on the commit it was given, {base:.12}",
            "Have the job commit on top of what it was given, or not commit at all.",
        )
    moved = tuple((one.name, at) for one, at in links if one.moved or one.name in contents.staged)
    contents, dropped = _without_droppings(git, replace(contents, moved=moved), info)
    left = None if dropped else left
    if contents.clean and head == base:
        return Committed(base, changed=False, dropped=dropped, left=left)
    places = {one.name: at for one, at in links}
    work = _Work(repo, live, worktree, base, head, info, plain and head == base, stays, left, places)
    result = _commit_once_more_if_objects_vanished(work, contents)
    return replace(result, dropped=dropped) if isinstance(result, Committed) else result


def _unusable(worktree: Worktree, git: Git) -> Refused | None:
    """Why git cannot work in the folder at all; links and locks that the job left among git's notes go first."""
    if worktree.path.is_symlink() or not worktree.path.is_dir():
        # Behind a link lies what is not the job's to commit.
        return Refused(f"The job's folder {worktree.path} is gone.", "Retry the job with '--fresh'.")
    try:
        remove_links(git.git_dir)
    except OSError as error:
        return Refused(f"Git's notes on the worktree cannot be read: {error.strerror}", "Retry the job with '--fresh'.")
    for name in ("index.lock", "HEAD.lock"):  # of a git that the job's end has killed
        (git.git_dir / name).unlink(missing_ok=True)
    return None


def _nested(contents: Contents) -> Refused | None:
    if not contents.nested:
        return None
    names = tuple(display(name) for name in contents.nested)
    said = f"The job left git repositories inside its folder ({', '.join(names[:5])})."
    return Refused(said, "Have the job remove their '.git', or put them outside of the worktree.", names)


def _links(
    repo: Repository, worktree: Worktree, contents: Contents, commits: tuple[str, str], *, may_move: bool
) -> list[tuple[Submodule, str]] | Refused:
    """The submodules that the job may have moved, and the commits that they are at; or why one may not stay so.

    `commits` are the one that the job was given and its HEAD.
    """
    base, head = commits
    places: list[tuple[Submodule, str]] = []
    try:
        for one in submodules_in(repo, worktree, contents.submodules, head):
            if one.problem is not None or one.at is None:
                said = f"Submodule {one.shown} {one.problem}, and plans do not commit what is in submodules."
                return Refused(said, "Change submodules in commits of their own, and push those.", (one.shown,))
            if not may_move and one.moved:
                return Refused(f"Submodule {one.shown} is at another commit{_BY_DEFAULT}", _TO_MOVE, (one.shown,))
            if may_move and one.at != named_by(repo.git, base, one.name) and not one.is_held:
                said = f"Submodule {one.shown} is at commit {one.at:.12}, which no remote of it has."
                return Refused(said, _TO_PUSH, (one.shown,))
            places += [(one, one.at)] if may_move else []
    except (GitError, OSError) as error:
        return Refused(f"A submodule cannot be looked into: {error}", "Retry the job with '--fresh'.")
    return places


def _without_droppings(git: Git, contents: Contents, info: CommitInfo) -> tuple[Contents, tuple[str, ...]]:
    """What a worktree holds without the new files that an agent left for itself, and their names.

    Those that it put into the index are taken out of there again; they stay in the worktree.
    """
    mine = info.droppings
    if mine is None:
        return contents, ()
    untracked = {name for name in contents.untracked if mine(os.fsdecode(name))}
    staged = [name for name in contents.staged if mine(os.fsdecode(name))]
    if staged:
        literal = [f":(literal){os.fsdecode(name)}" for name in staged]
        rows = git("ls-tree", "-r", "-z", "--name-only", contents.head or "HEAD", "--", *literal).fields
        staged = [name for name in staged if name not in set(rows)]
    if staged:
        git("update-index", "-z", "--force-remove", "--stdin", stdin=b"\0".join(staged) + b"\0")
    gone = untracked | set(staged)
    if not gone:
        return contents, ()
    less = replace(
        contents,
        untracked=tuple(name for name in contents.untracked if name not in gone),
        staged=tuple(name for name in contents.staged if name not in gone),
        changed=tuple(name for name in contents.changed if name not in gone),
    )
    return less, tuple(display(name) for name in sorted(gone))[:LISTED_PATHS]


def _unfinished(git_dir: Path, contents: Contents) -> Refused | None:
    """The refusal of work that ended in the middle of something of git's.

    What lies in the files then is half of one side and half of another, and HEAD lacks what was still to come.
    """
    operation = operation_in(git_dir)
    if operation is None and not contents.unmerged:
        return None
    names = tuple(display(name) for name in contents.unmerged)
    what = f"in the middle of a git {operation}" if operation else "with conflicts that are not resolved"
    listed = f" (unmerged: {', '.join(names[:5])})" if names else ""
    way_out = (
        f"finish it, or give it up with '{way_out_of(operation)}'" if operation else "resolve them and 'git add' them"
    )
    hint = f"Have the job {way_out}. To do it by hand: in the worktree, then retry the job."
    return Refused(f"The job ended {what}{listed}, so its work is not whole.", hint, names, unfinished=True)


def worktree_changes(
    repo: Repository, worktree: Worktree, droppings: Callable[[str], bool] = lambda _: False
) -> Changes:
    contents = look(repo.worktree_git(worktree.name, worktree.path), worktree.path)
    new = (name for name in contents.untracked if not droppings(os.fsdecode(name)))
    tracked = {*contents.changed, *contents.staged}
    names = sorted({*tracked, *new})
    shown = tuple(display(name) for name in names[:LISTED_PATHS])
    return Changes(len(names), shown, tuple(display(name) for name in sorted(tracked)[:LISTED_PATHS]))


class _Work(Struct, frozen=True):
    repo: Repository
    live: Live
    worktree: Worktree
    base: str
    head: str
    info: CommitInfo
    plain: bool
    stays: bool
    left: Left | None
    moved: Mapping[bytes, str]
    """Where the submodules are that the job may have moved."""

    @property
    def git(self) -> Git:
        return self.repo.worktree_git(self.worktree.name, self.worktree.path)


def _commit_once_more_if_objects_vanished(work: _Work, contents: Contents) -> Committed | Refused:
    """A `gc --prune=now` beside us can delete objects before they have a name: hash everything again then."""
    for number in itertools.count():
        try:
            if number:
                # The open processes may remember packs that are gone.
                work.live.close()
                work.git("read-tree", "--reset", work.head)
                found = replace(look(work.git, work.worktree.path), moved=contents.moved)
                contents, _ = _without_droppings(work.git, found, work.info)
                work = replace(work, plain=False)
            return _commit(work, contents)
        except (GitError, ObjectMissing) as error:
            if not try_again(error, number):
                said = f"Git cannot commit the work: {_last_words(error)}"
                return Refused(said, "Look at the worktree, then retry the job.")
    raise AssertionError("the last try returns")


def _last_words(error: GitError | ObjectMissing) -> str:
    """What git gave up on, and before it the cause, which git names first."""
    if isinstance(error, ObjectMissing):
        return error.message
    lock = lock_in_the_way(error.stderr)
    if lock is not None:
        return f"{lock} exists."
    lines = error.stderr.strip().splitlines() or [str(error)]
    cause = [line for line in lines if line.startswith(("error: ", "fatal: "))]
    return "; ".join(dict.fromkeys((*cause[:1], lines[-1])))


def _commit(work: _Work, contents: Contents) -> Committed | Refused:
    repo, base, head, info = work.repo, work.base, work.head, work.info
    files = read_files(work.worktree.path, contents) if work.plain else None
    if files is not None:
        tree, reviewed = _written(work, files)
    else:
        tree, reviewed = _staged(work, contents)
    if isinstance(reviewed, Finding):
        return Refused(reviewed.message, reviewed.hint, reviewed.paths)
    if reviewed.total == 0 and head == base:
        return Committed(base, changed=False)
    commit = head
    if not contents.clean:
        commit = _make(work, tree, durable=files is None)
    failpoint("keep.before-hold")
    try:
        work.live.hold(info.ref, commit, base, info.replaces if info.replaces == head else None)
    except RefMoved as moved:
        # We may have been here before, and been killed before HEAD moved: the same work with an older date.
        if moved.actual is None or not _is_same_work(repo.git, moved.actual, (tree, head)):
            raise
        commit = moved.actual
    failpoint("keep.after-hold")
    # Not earlier: HEAD's log would name a commit that a gc might have deleted meanwhile.
    if files is not None and work.stays:
        stage(work.git, work.worktree.path, contents)
    if files is None or work.stays:
        work.live.set_head(work.worktree.name, commit)
    counts = (reviewed.added, reviewed.modified, reviewed.deleted)
    lines = (reviewed.lines_added, reviewed.lines_deleted)
    left = work.left if files is not None else None
    return Committed(commit, True, *counts, *lines, own_commits=head != base, left=left)


def _make(work: _Work, tree: str, *, durable: bool) -> str:
    """The commit, on disk with everything in it: what was written by ourselves is synced here, all at once."""
    merger, info, objects = work.live.merger, work.info, work.live.objects
    when = int(time.time())
    commit = merger.commit(tree, (work.head,), info.message, when=when, author=info.author, durable=durable)
    if not durable:
        work.live.loose.harden([commit, *objects.new_objects(objects.tree_of(work.head), tree)])
    return commit


def _staged(work: _Work, contents: Contents) -> tuple[str, Reviewed | Finding]:
    """The tree by way of the worktree's index."""
    if contents.clean:
        tree = work.live.objects.tree_of(work.head)
    else:
        refused = stage(work.git, work.worktree.path, contents)
        if refused:
            names = tuple(display(path) for path in refused)
            return "", Finding(f"{_NOT_STORED}: {', '.join(names[:5])}", _OTHER_NAMES, names[:LISTED])
        tree = work.git("write-tree").text
    return tree, review(work.repo, work.base, tree, work.moved)


def _written(work: _Work, files: Files) -> tuple[str, Reviewed | Finding]:
    """The tree by writing what is new in it."""
    objects = work.live.objects
    before = objects.tree_of(work.base)
    tree = write_tree(objects, work.live.loose, before, files)
    changes = changes_of(objects, (before, tree))
    if any(change.old is not None for change in changes):
        return tree, review(work.repo, work.base, tree)
    new = [Difference(one.path, "000000", f"{one.new.mode:06o}", one.new.oid, "A") for one in changes if one.new]
    lines = sum(count_lines(file[1]) for file in files.values() if file is not None)
    return tree, judge(work.repo, tree, new, (lines, 0))


def _is_same_work(git: Git, commit: str, expected: tuple[str, str]) -> bool:
    names = (f"{commit}^{{tree}}", f"{commit}^@", f"{expected[0]}^{{tree}}")
    found = git("rev-parse", *names, ok=(0, 128)).text.split()
    return found == [found[-1], expected[1], found[-1]] if len(found) == 3 else False
