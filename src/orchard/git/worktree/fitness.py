"""Whether a worktree that a job has left can be used again, and what in it the job wrote.

Git rewrites a file only where its index says that it must, and then only the file. What else a job did stays: rights of
files and folders, names that share one file, files that a sparse checkout took away, bytes that git stores in another
form than the job wrote. The next job has to find what a checkout of its commit gives, so a worktree that differs in
such a way is not used again, and what the job wrote is written anew.

What a worktree was set up with, so that the next job need not do it again.

Setting up leaves ignored files (copies, links, installed packages). They may stay for the next job if that begins at
the same tree and would be set up the same way, and if no job has touched them: every one of them is as it was, by
inode, size and the times that the kernel sets. What else is ignored there goes. Where any of this is not certain, all
of it goes.
"""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from orchard.errors import OrchardError
from orchard.git.command import Git, GitError
from orchard.git.folders import lstat, parents, plain_content, remove_file
from orchard.git.landing.index import BadIndex, Index, Stand, read_index
from orchard.git.objects.reader import EXECUTABLE, SYMLINK, Change, Objects
from orchard.git.repository import Repository, Worktree
from orchard.git.worktree.save import Saved
from orchard.git.worktree.status import stamp

MOST_FILES = 200_000
TIMEOUT = 120.0


class Ready(Struct, frozen=True):
    key: str
    files: dict[bytes, tuple[int, ...]]
    commit: str
    """Where the worktree stood when git ignored all of these."""


def take_stock(repo: Repository, worktree: Worktree, key: str, commit: str) -> Ready | None:
    """What setting up has left; None where it changed more than ignored files, or cannot be looked at as a whole."""
    git = repo.worktree_git(worktree.name, worktree.path)
    try:
        if git("status", "--porcelain", "-z", "--untracked-files=all", timeout=TIMEOUT).stdout:
            return None
        files = _ignored(git, worktree)
    except (GitError, OSError):
        return None
    return Ready(key, files, commit) if files is not None else None


def beside(repo: Repository, worktree: Worktree, ready: Ready, keep: Sequence[str]) -> list[bytes] | None:
    """Ignored files that setting up has not left, but for those in `keep`; None where what it left has changed."""
    git = repo.worktree_git(worktree.name, worktree.path)
    try:
        files = _ignored(git, worktree)
        if files is None or any(files.get(name) != before for name, before in ready.files.items()):
            return None
        more = files.keys() - ready.files.keys()
        if more and keep:
            patterns = [f"--exclude={pattern}" for pattern in keep]
            more -= set(git("ls-files", "-z", "--others", "--ignored", *patterns, timeout=TIMEOUT).fields)
    except (GitError, OSError):
        return None
    return sorted(more)


def stays_ignored(objects: Objects, ready: Ready, commit: str) -> bool:
    """Whether git ignores at a commit what setting up has left at another one, and has no file in its place."""
    if ready.commit == commit:
        return True
    folders = {folder for name in ready.files for folder in parents(name)}
    for change in objects.diff_trees(objects.tree_of(ready.commit), objects.tree_of(commit)):
        path = change.path
        if path == b".gitignore" or path.endswith(b"/.gitignore") or path in folders or path in ready.files:
            return False
        if not ready.files.keys().isdisjoint(parents(path)):
            return False
    return True


def index_stamp(admin: Path) -> tuple[int, ...]:
    """What differs as soon as a program writes to an index: only the kernel sets the time of a change."""
    found = lstat(f"{admin}/index")
    return () if found is None else (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _ignored(git: Git, worktree: Worktree) -> dict[bytes, tuple[int, ...]] | None:
    rows = git("ls-files", "-z", "--others", "--ignored", "--exclude-standard", timeout=TIMEOUT).fields
    # A name with a slash at its end is a repository of its own, of which git tells nothing.
    if len(rows) > MOST_FILES or any(row.endswith(b"/") for row in rows):
        return None
    top = os.fsencode(worktree.path) + b"/"
    return {row: stamp(os.lstat(top + row)) for row in rows}


class Unfit(OrchardError):
    """A worktree is not as a checkout would have left it, so the next job gets another one."""

    def __init__(self, folder: Path, why: str) -> None:
        super().__init__(f"The worktree {folder} is not used again: {why}.", hint="Another one is made.")


def refuse_unfit(git_dir: Path, saved: Saved) -> None:
    """Raise `Unfit` if something that git would leave as it is has rights, or a second name, of a job's making."""
    if saved.submodules is not None:
        raise Unfit(saved.worktree.path, "it has submodules, which would show the next job what this one had")
    odd = saved.seen.picture.odd if saved.seen is not None and saved.seen.picture is not None else ()
    if odd:
        folder, index = saved.worktree.path, _index(git_dir, len(saved.head or "") // 2)
        if index is None:
            raise Unfit(folder, "its index cannot be read")
        if (found := _tracked(os.fsencode(folder) + b"/", odd, index)) is not None:
            shown = os.fsdecode(found)
            raise Unfit(folder, f"{shown} has other rights, or another name, than git would have given it")


def takes_away(git_dir: Path, oid_size: int) -> bool:
    """Whether an index tells git to have no file where it has one: a sparse checkout did that, perhaps a job's."""
    index = _index(git_dir, oid_size)
    return index is None or bool(index.folders) or any(entry.skipped for entry in index.entries.values())


def _index(git_dir: Path, oid_size: int) -> Index | None:
    try:
        return read_index(plain_content(git_dir / "index") or b"", oid_size)
    except (BadIndex, OSError):
        return None


def _tracked(top: bytes, odd: tuple[bytes, ...], index: Index) -> bytes | None:
    """The first of these paths that git has a file at, or below."""
    known = {*index.entries, *(folder for name in index.entries for folder in parents(name))}
    return next((path.removeprefix(top) for path in odd if path.removeprefix(top) in known), None)


def refuse_unclean(git: Git, folder: Path, timeout: float) -> None:
    """Raise `Unfit` if git finds something in a worktree that it has just checked out and complained about."""
    left = git("status", "--porcelain", "--untracked-files=all", "--ignore-submodules=dirty", "-z", timeout=timeout)
    if left.fields:
        raise Unfit(folder, f"git could not make it clean: {os.fsdecode(left.fields[0])}")


def is_detached_at(git_dir: Path, commit: str) -> bool:
    """Whether HEAD is this commit, and no branch that the next commit would move."""
    return plain_content(git_dir / "HEAD") == f"{commit}\n".encode()


def remove_written(git: Git, top: Path, commit: str, timeout: float) -> None:
    """Remove the files of the index that are not those of a commit that was checked out: git then writes them anew."""
    rows = git("diff-index", "--cached", "--no-renames", "-z", "--raw", commit, "--", timeout=timeout).fields
    for facts, name in zip(rows[::2], rows[1::2], strict=True):
        # ":100644 100644 <old> <new> M"; a submodule's folder is not ours to remove.
        if facts.split(b" ")[1] not in (b"000000", b"160000") and not (top / os.fsdecode(name)).is_dir():
            remove_file(top, name)


def stand_of(top: Path, change: Change) -> Stand | None:
    """How a changed file stands in a worktree; OSError if it is not as a checkout would have written it."""
    if change.new is None:
        return None
    place = top / os.fsdecode(change.path)
    found, plain = place.lstat(), stat.S_IMODE((top / ".git").lstat().st_mode)
    entered = plain | (plain & 0o444) >> 2
    wanted = entered if change.new.mode == EXECUTABLE else plain
    odd = not stat.S_ISREG(found.st_mode) or found.st_nlink != 1 or stat.S_IMODE(found.st_mode) != wanted
    folders = place.parents[: len(place.relative_to(top).parts) - 1]
    if (odd and change.new.mode != SYMLINK) or any(folder.lstat().st_mode & 0o777 != entered for folder in folders):
        raise OSError(f"{place} is not as git would have written it")
    return Stand(change.new.mode, change.new.oid, found)
