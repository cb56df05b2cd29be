"""Ignored folders of the user's checkout, such as `node_modules`, copied into a worktree.

The copy shares its blocks with the original where the file system can (a reflink), and is written out elsewhere. It is
never a hard link: a job that writes to such a file in place would write to the user's. Nothing comes along that git
would add to the job's change, and no link that leads out of the checkout.
"""

import errno
import fcntl
import os
import shutil
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from orchard.errors import UsageError
from orchard.files import open_plain
from orchard.git.dependencies.inventory import Inventory, inventory
from orchard.git.dependencies.virtual_env import LARGEST, may_name_place, moved
from orchard.git.folders import behind_link
from orchard.git.repository import Repository, Worktree
from orchard.git.worktree.setup import git_of_checkout, ignored_in, is_inside, make_parents
from orchard.git.worktree.status import display

LISTED = 3
SPARE = 256 << 20
"""Bytes that a copy leaves free on the disk."""
_FICLONE = 0x40049409
_CANNOT = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EINVAL, errno.EXDEV, errno.ENOSYS, errno.EPERM, errno.ETXTBSY)
_AT_ONCE = 128 * 1024


class Copies(Struct, frozen=True):
    copied: tuple[str, ...] = ()
    files: int = 0
    skipped: tuple[tuple[str, str], ...] = ()
    """Names of which nothing was copied, and why."""
    partly: tuple[tuple[str, str], ...] = ()
    """Names of which something was left out, and what."""


def copy_folders(
    repo: Repository, top: Path | None, worktree: Worktree, names: Sequence[str], roots: Sequence[Path] = ()
) -> Copies:
    """Copy these paths of the checkout at `top`; `roots` are the folders of ours in which worktrees are."""
    copied: list[str] = []
    skipped: list[tuple[str, str]] = []
    partly: list[tuple[str, str]] = []
    files, writer = 0, _Writer()
    for name in dict.fromkeys(one.strip("/") for one in names):
        why = _cannot_copy(repo, top, name, roots)
        if why is None and top is not None:
            why, found = _copy(repo, top, worktree, name, writer)
            files += len(found.files) if found is not None and why is None else 0
            if found is not None and why is None and found.left_out:
                partly.append((name, _said(found.left_out)))
        if why is None:
            copied.append(name)
        else:
            skipped.append((name, why))
    return Copies(tuple(copied), files, tuple(skipped), tuple(partly))


def copied_files(
    repo: Repository, top: Path | None, names: Sequence[str], roots: Sequence[Path] = ()
) -> tuple[tuple[bytes, tuple[int, ...]], ...]:
    """What `copy_folders` would copy, each with what changes as soon as the file does."""
    found: list[tuple[bytes, tuple[int, ...]]] = []
    for name in dict.fromkeys(one.strip("/") for one in names):
        if top is not None and _cannot_copy(repo, top, name, roots) is None:
            found += inventory(top, name).stamps
    return tuple(found)


def _cannot_copy(repo: Repository, top: Path | None, name: str, roots: Sequence[Path]) -> str | None:
    if top is None:
        return "there is no checkout to copy from"
    if not is_inside(name):
        return "it is not the name of something inside the checkout"
    place = top / name
    if behind_link(os.fsencode(top), os.fsencode(name)) or place.is_symlink():
        return "it is a link, or behind one"
    if not (place.is_dir() or place.is_file()):
        return "there is no such folder or file in the checkout"
    if any(root.is_relative_to(place) or place.is_relative_to(root) for root in roots):
        return "the worktrees themselves are there"
    # Git answers of a folder in which it tracks a file that it does not ignore it.
    return None if ignored_in(git_of_checkout(repo, top), [os.fsencode(name)]) else "git does not ignore it"


def _copy(
    repo: Repository, top: Path, worktree: Worktree, name: str, writer: "_Writer"
) -> tuple[str | None, Inventory | None]:
    """Copy one path; what speaks against it, and what was found there."""
    target = worktree.path / name
    if not make_parents(worktree.path, os.fsencode(name)) or os.path.lexists(target):
        return "its place is taken", None
    found = inventory(top, name)
    git = repo.worktree_git(worktree.name, worktree.path)
    if (top / name).is_dir():
        target.mkdir(0o700)
    else:
        target.touch(0o600)
    # Where git ignores a folder as a whole, no pattern takes back a file in it.
    ignored = ignored_in(git, [os.fsencode(name)])
    if target.is_dir():
        target.rmdir()
    else:
        target.unlink()
    if not ignored:
        return "git does not ignore it in the worktree", None
    writer.write(found, top, worktree.path)
    return None, found


def _said(names: Sequence[bytes]) -> str:
    shown = ", ".join(display(name) for name in names[:LISTED])
    return f"{shown} and {len(names) - LISTED:,} more" if len(names) > LISTED else shown


class _Writer:
    """Writes copies, in the quickest way that the file system has turned out to know."""

    def __init__(self) -> None:
        self._clones = self._in_kernel = sys.platform == "linux"

    def write(self, found: Inventory, top: Path, folder: Path) -> None:
        source, goal = os.fsencode(top) + b"/", os.fsencode(folder) + b"/"
        environments, to_write = found.environments, found.size
        for name, _ in found.folders:
            (folder / os.fsdecode(name)).mkdir(0o700)
        checked = False
        for name, one in found.files:
            if environments and one.st_size <= LARGEST and may_name_place(environments, name):
                self._move(source + name, goal + name, (source[:-1], goal[:-1]))
            else:
                self._copy(source + name, goal + name)
            if not self._clones and not checked:
                _check_room(folder, to_write)
                checked = True
        for name, said in found.links:
            (folder / os.fsdecode(name)).symlink_to(os.fsdecode(said))
        for name, one in reversed(found.folders):
            (folder / os.fsdecode(name)).chmod(stat.S_IMODE(one.st_mode) & 0o777 | 0o700)

    def _copy(self, source: bytes, goal: bytes) -> None:
        try:
            original = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # gone, or another thing, since it was listed
        try:
            found = os.fstat(original)
            if not stat.S_ISREG(found.st_mode):
                return
            copy = os.open(goal, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                if found.st_size:
                    self._fill(original, copy, found.st_size)
                os.fchmod(copy, stat.S_IMODE(found.st_mode) & 0o777)
                os.utime(copy, ns=(found.st_atime_ns, found.st_mtime_ns))
            finally:
                os.close(copy)
        finally:
            os.close(original)

    def _fill(self, original: int, copy: int, size: int) -> None:
        if self._clones and _cloned(original, copy):
            return
        self._clones = False
        if size <= _AT_ONCE:
            data = os.read(original, _AT_ONCE)
            if len(data) <= size and os.write(copy, data) == len(data):
                return
            os.lseek(original, 0, os.SEEK_SET)
            os.ftruncate(copy, 0)
            os.lseek(copy, 0, os.SEEK_SET)
        if self._in_kernel and _copied_in_kernel(original, copy):
            return
        self._in_kernel = False
        with os.fdopen(os.dup(original), "rb") as reading, os.fdopen(os.dup(copy), "wb") as writing:
            shutil.copyfileobj(reading, writing, 1 << 20)

    def _move(self, source: bytes, goal: bytes, places: tuple[bytes, bytes]) -> None:
        """Copy a file in which an environment says where it is, with the new place in it."""
        try:
            with open_plain(source) as file:
                content, mode = file.read(), os.fstat(file.fileno()).st_mode
        except OSError:
            return
        new = moved(content, *places)
        if new is None:
            self._copy(source, goal)
            return
        copy = os.open(goal, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(copy, "wb") as writing:
            writing.write(new)
            os.fchmod(copy, stat.S_IMODE(mode) & 0o777)


def _cloned(original: int, copy: int) -> bool:
    """Have two files share their blocks until one of them is written to; False where the file system cannot."""
    try:
        fcntl.ioctl(copy, _FICLONE, original)
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        return False
    return True


def _copied_in_kernel(original: int, copy: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        while os.copy_file_range(original, copy, 1 << 30):
            pass
    except OSError as error:
        if error.errno not in _CANNOT or os.lseek(copy, 0, os.SEEK_CUR):
            raise
        return False
    return True


def _check_room(folder: Path, size: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < size + SPARE:
        raise UsageError(
            f"'worktree.copy' would write {size >> 20} MiB into {folder}, where {free >> 20} MiB are free.",
            hint="Free some space, or name less in 'worktree.copy'.",
        )
