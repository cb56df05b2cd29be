"""What a new worktree needs besides the commit: ignored files of the user's, copied or linked.

A fresh worktree has no `.env` and no `node_modules`. What the settings (the repository's `.worktreeinclude` among
them, once the user has agreed to it) name is brought over from the user's checkout, under rules that keep both sides
safe: only what git ignores there and here (so that none of it ends in a commit), never through a link, never over a
file that exists, never without bound.
"""

import os
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from orchard.errors import UsageError
from orchard.files import open_plain
from orchard.git.command import Git
from orchard.git.folders import behind_link, exclude
from orchard.git.repository import Repository, Worktree
from orchard.git.scratch import private_file
from orchard.git.worktree.status import display, stamp
from orchard.git.worktree.worktrees import Worktrees

MAX_FILES = 10_000
MAX_BYTES = 1024 * 1024 * 1024


class Linked(Struct, frozen=True):
    linked: tuple[str, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()


def copy_included(
    repo: Repository, top: Path | None, worktree: Worktree, patterns: Sequence[str], roots: Sequence[Path] = ()
) -> list[str]:
    """Copy ignored files that match from the checkout at `top`; returns their names.

    `roots` are folders of ours inside the checkout, which are not looked into.
    """
    if top is None:
        return []
    names = [
        name for name in included_names(repo, top, patterns, roots) if not behind_link(os.fsencode(worktree.path), name)
    ]
    names = ignored_in(repo.worktree_git(worktree.name, worktree.path), names)
    _check_size(top, names)
    return [display(name) for name in names if _copy(top, worktree.path, name)]


def included_files(
    repo: Repository, top: Path | None, patterns: Sequence[str], roots: Sequence[Path] = ()
) -> tuple[tuple[bytes, tuple[int, ...]], ...]:
    """What `copy_included` would look at, each with what changes as soon as the file does."""
    found: list[tuple[bytes, tuple[int, ...]]] = []
    if top is None:
        return ()
    for name in included_names(repo, top, patterns, roots):
        with suppress(OSError):
            found.append((name, stamp(os.lstat(os.fsencode(top) + b"/" + name))))
    return tuple(found)


def included_names(repo: Repository, top: Path, patterns: Sequence[str], roots: Sequence[Path]) -> list[bytes]:
    if not patterns:
        return []
    main = git_of_checkout(repo, top)
    wanted = [pattern.encode(errors="surrogateescape") for pattern in patterns]
    return ignored_in(main, _matching(repo, main, wanted, roots))


def link_folders(trees: Worktrees, top: Path | None, worktree: Worktree, names: Sequence[str]) -> Linked:
    linked: list[str] = []
    skipped: list[tuple[str, str]] = []
    for name in names:
        reason = "there is no checkout to link to" if top is None else _cannot_link(trees.repo, top, name)
        if top is not None and reason is None:
            reason = _link(trees, top, worktree, name.strip("/"))
        if reason is None:
            linked.append(name)
        else:
            skipped.append((name, reason))
    return Linked(tuple(linked), tuple(skipped))


def git_of_checkout(repo: Repository, top: Path) -> Git:
    git_dir = repo.common_dir
    if top != repo.main_top:
        git_dir = next((one.git_dir for one in repo.checkouts() if one.path == top), git_dir)
    return Git(repo.common_dir, git_dir, cwd=top, work_tree=top)


def _matching(repo: Repository, git: Git, patterns: Sequence[bytes], roots: Sequence[Path]) -> list[bytes]:
    """Files in the checkout that are not tracked and match the patterns."""
    ours = [root.relative_to(git.cwd) for root in roots if root.is_relative_to(git.cwd)]
    pathspecs = [f":(exclude,literal){root}" for root in ours]
    with private_file(repo) as file:
        file.write_bytes(b"\n".join(patterns) + b"\n")
        options = ("--others", "--ignored", f"--exclude-from={file}")
        rows = git("ls-files", "-z", *options, "--", ".", *pathspecs, timeout=120).fields
    # A name with a slash at its end is a repository of its own.
    return [row for row in rows if not row.endswith(b"/")]


def ignored_in(git: Git, names: list[bytes]) -> list[bytes]:
    if not names:
        return []
    rows = b"".join(name + b"\0" for name in names)
    return git("check-ignore", "-z", "--stdin", stdin=rows, ok=(0, 1), timeout=120).fields


def _check_size(top: Path, names: list[bytes]) -> None:
    hint = "Name fewer files in .worktreeinclude or 'worktree.include'; folders can be shared by 'worktree.link'."
    if len(names) > MAX_FILES:
        raise UsageError(f"{len(names)} files would be copied into each worktree; {MAX_FILES} is the limit.", hint=hint)
    size = sum(os.lstat(os.fsencode(top) + b"/" + name).st_size for name in names)
    if size > MAX_BYTES:
        raise UsageError(f"{size >> 20} MiB would be copied into each worktree; 1024 MiB is the limit.", hint=hint)


def _copy(top: Path, folder: Path, name: bytes) -> bool:
    """Copy one file; False if it is none, or if its place is taken or behind a link."""
    source, target = top / os.fsdecode(name), folder / os.fsdecode(name)
    if behind_link(os.fsencode(top), name) or not make_parents(folder, name):
        return False
    try:
        original = open_plain(source)
    except OSError:
        return False  # a link, no file, or gone since it was listed
    with original:
        status = os.fstat(original.fileno())
        mode = stat.S_IMODE(status.st_mode) & 0o777
        try:
            writing = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        except FileExistsError:
            return False
        with os.fdopen(writing, "wb") as copy:
            shutil.copyfileobj(original, copy, 1024 * 1024)
            copy.flush()
            os.fchmod(writing, mode)
            os.utime(writing, ns=(status.st_atime_ns, status.st_mtime_ns))
    return True


def make_parents(top: Path, name: bytes) -> bool:
    """Make the folders above a file, unless something else stands in their place."""
    for parent in _parents(name):
        folder = top / parent
        if not os.path.lexists(folder):
            folder.mkdir(0o755)
        elif folder.is_symlink() or not folder.is_dir():
            return False
    return True


def _parents(name: bytes) -> list[Path]:
    """The folders above a file, the uppermost first."""
    return list(Path(os.fsdecode(name)).parents)[-2::-1]


def _cannot_link(repo: Repository, top: Path, name: str) -> str | None:
    if not is_inside(name):
        return "it is not the name of a folder inside the checkout"
    folder = folder_to_link(top, name)
    if folder is None:
        return "there is no such folder in the checkout"
    if not ignored_in(git_of_checkout(repo, top), [os.fsencode(folder.relative_to(top))]):
        return "git does not ignore it"
    return None


def is_inside(name: str) -> bool:
    parts = name.strip("/").split("/")
    return not name.startswith("/") and not any(part in ("", ".", "..") or part.lower() == ".git" for part in parts)


def folder_to_link(top: Path, name: str) -> Path | None:
    """The folder of a checkout that a name means; None: it means none, or a link is on the way to it."""
    folder = top / name.strip("/")
    if not is_inside(name) or behind_link(os.fsencode(top), os.fsencode(name)):
        return None
    return folder if folder.is_dir() and not folder.is_symlink() else None


def _link(trees: Worktrees, top: Path, worktree: Worktree, name: str) -> str | None:
    target = worktree.path / name
    if not make_parents(worktree.path, os.fsencode(name)) or os.path.lexists(target):
        return "its place is taken"
    target.symlink_to(top / name)
    # A pattern that ends in a slash ignores the folder but not a link of that name.
    if not ignored_in(trees.repo.worktree_git(worktree.name, worktree.path), [os.fsencode(name)]):
        with trees.lock():
            exclude(trees.repo.common_dir, f"/{name}")
    return None
