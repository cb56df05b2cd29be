"""Careful handling of folders whose content a job or a user wrote.

Links are removed, never followed; nothing on the other side of a mount point is touched; a tree that
is deeper than the stack is taken apart in pieces.

And renames that overwrite nothing: `os.rename` replaces whatever stands at its goal, also what a program put there a
moment ago. The kernel can do better (`renameat2` of Linux, `renamex_np` of macOS). Where the file system cannot, a
second name is made, which fails if the name is taken, and the first one is removed; changing places has no such
substitute, and the caller takes two steps.

    swap   two files change places at once; False where that cannot be done here, and then nothing was changed
    put    a file of ours goes to a free name; FileExistsError if it is taken
    take   whatever stands at a name goes to a place that is ours alone
"""

import errno
import os
import re
import secrets
import stat
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import AnyStr

from orchard.errors import OrchardError
from orchard.files import read_plain

DEPTH = 60
"""Below this a folder is moved up before it goes on: each level holds an open descriptor."""

_NO_PLAIN_FILE = frozenset({0, errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
"""What `read_plain` says of a folder or a pipe, and opening of nothing, of a link and of a socket."""

_CURRENT = -100
_NO_REPLACE, _SWAP = (4, 2) if sys.platform == "darwin" else (1, 2)
# A file system that does not know the flag says EINVAL; a kernel that does not know the call says ENOSYS, and a filter
# around a container may say EPERM.
_CANNOT = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM})


def lstat(path: str | bytes | Path) -> os.stat_result | None:
    """What stands at a path itself, be it a link; None where nothing does, or it cannot be seen."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def entries(folder: AnyStr | os.PathLike[AnyStr]) -> list[os.DirEntry[AnyStr]]:
    """What is in a folder; nothing where it cannot be read."""
    try:
        with os.scandir(folder) as found:
            return list(found)
    except OSError:
        return []


def walk(top: AnyStr) -> Iterator[tuple[AnyStr, list[AnyStr], list[AnyStr]]]:
    """As `os.walk`, from the top down, which before Python 3.12 calls itself for each level of folders."""
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as found:
                rows = [(entry, _is_folder(entry)) for entry in found]
        except OSError:
            continue
        inner = [entry for entry, is_folder in rows if is_folder]
        yield folder, [entry.name for entry in inner], [entry.name for entry, is_folder in rows if not is_folder]
        waiting += [entry.path for entry in reversed(inner) if not entry.is_symlink()]


def _is_folder(entry: os.DirEntry[AnyStr]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


def weigh(folder: Path, most: int) -> tuple[int, int]:
    """How many files a folder holds, and their bytes; from `most` files on no more are looked at."""
    files = size = 0
    for place, _, names in walk(str(folder)):
        for name in names:
            files += 1
            with suppress(OSError):
                size += os.lstat(os.path.join(place, name)).st_size  # noqa: PTH118 (many of them)
        if files >= most:
            break
    return files, size


def mounts_below(path: Path) -> list[Path]:
    """The mount points at or below a folder. A bind mount has its own device number only sometimes."""
    try:
        rows = Path("/proc/self/mountinfo").read_bytes().splitlines()
    except OSError:
        return []  # not Linux: the check of device numbers has to do
    inside = os.fsencode(os.path.realpath(path))
    points = [re.sub(rb"\\(\d{3})", lambda code: bytes([int(code[1], 8)]), row.split(b" ")[4]) for row in rows]
    return [Path(os.fsdecode(point)) for point in points if point == inside or point.startswith(inside + b"/")]


def links_out_of(home: Path, path: Path) -> list[Path]:
    """The links on the way from a folder to a path below it, where they lead out of that folder."""
    if path.is_absolute() or ".." in path.parts or (home / path).resolve().is_relative_to(home):
        return []
    return [place for place in (path, *path.parents) if (home / place).is_symlink() and place != Path()]


def parents(path: bytes) -> Iterator[bytes]:
    """The folders on the way to a path, the outermost first."""
    end = path.find(b"/")
    while end >= 0:
        yield path[:end]
        end = path.find(b"/", end + 1)


def behind_link(top: bytes, path: bytes) -> bool:
    """Whether a link stands for a folder on the way from `top` to a path: then what is found there lies elsewhere."""
    for folder in parents(path):
        found = lstat(top + b"/" + folder)
        if found is None or stat.S_ISLNK(found.st_mode):
            return found is not None
    return False


def delete_children(folder: Path, *, threads: int = os.cpu_count() or 1) -> list[str]:
    """Delete everything in a folder; what could not be deleted is said, not raised."""
    errors: list[str] = []
    real = Path(os.path.realpath(folder))

    def delete(child: tuple[str, bool]) -> None:
        place = real / child[0]
        if mounted := next((point for point in mounts if point.is_relative_to(place)), None):
            errors.append(f"{folder / child[0]}: {mounted} is mounted in it")
        else:
            _delete(top, child, (top, device), 0, errors)

    try:
        top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return []
    except OSError as error:
        return [f"{folder}: {error.strerror}"]
    try:
        device = os.fstat(top).st_dev
        tried: set[str] = set()
        # Deep folders are moved here while we work, so look again until nothing new turns up.
        while new := [child for child in _children(top) if child[0] not in tried]:
            tried.update(name for name, _ in new)
            mounts = mounts_below(folder)
            if threads == 1:
                for child in new:
                    delete(child)
            else:
                with ThreadPoolExecutor(min(len(new), threads), "orchard-delete") as pool:
                    list(pool.map(delete, new))
    finally:
        os.close(top)
    return errors


def remove_tree(folder: Path) -> list[str]:
    """Remove a folder with everything in it, however deep; what could not be removed is said, not raised.

    `shutil.rmtree` calls itself for each level: a job that nests a thousand folders would end the engine with it.
    Most such folders are small, and to start threads takes longer than to empty them.
    """
    found = lstat(folder)
    if found is None:
        return []
    try:
        if not stat.S_ISDIR(found.st_mode):
            folder.unlink(missing_ok=True)
            return []
        with suppress(OSError):
            folder.chmod(0o700)
        failed = delete_children(folder, threads=1)
        if not failed:
            folder.rmdir()
    except OSError as error:
        failed = [f"{folder}: {error}"]
    return failed


def remove_file(top: Path, name: bytes) -> None:
    """Remove a file below `top`, and the folders that hold nothing without it; a link on the way is not followed."""
    *folders, last = name.split(b"/")
    opened = [os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)]
    try:
        for folder in folders:
            opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[-1]))
        with suppress(FileNotFoundError):
            os.unlink(last, dir_fd=opened[-1])
        for parent, folder in zip(reversed(opened[:-1]), reversed(folders), strict=True):
            os.rmdir(folder, dir_fd=parent)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
            raise
    finally:
        for descriptor in opened:
            os.close(descriptor)


def remove_special(top: Path, name: bytes) -> None:
    """Remove a pipe, socket or device that was seen below `top`, unless something else is there by now."""
    place = top / os.fsdecode(name)
    with suppress(FileNotFoundError):
        mode = place.lstat().st_mode
        plain = stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)
        if not plain and not behind_link(os.fsencode(top), name):
            place.unlink()


def write_atomically(path: Path, content: bytes, mode: int, *, durable: bool = True) -> None:
    """Replace a file in one step.

    Where it need not be durable, the two change places, and the old one is removed: what is renamed over a file is
    written to the disk at once by some file systems, and the writer waits for that.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(6)}")
    try:
        with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            if durable:
                os.fsync(file.fileno())
        if durable or not (path.exists() and swap(os.fsencode(beside), os.fsencode(path))):
            beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def exclude(common_dir: Path, pattern: str) -> None:
    """Have git overlook a path in every checkout, by a line in `info/exclude`; the rest of the file stays."""
    escaped = re.sub(r"([\\*?\[])", r"\\\1", pattern).encode(errors="surrogateescape")
    place = Path(os.path.realpath(common_dir / "info" / "exclude"))
    mode, before = 0o644, b""
    try:
        with suppress(FileNotFoundError):
            before, mode = read_plain(place), place.stat().st_mode & 0o777
        if escaped in before.splitlines():
            return
        joint = b"" if not before or before.endswith(b"\n") else b"\n"
        place.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(place, before + joint + escaped + b"\n", mode)
    except OSError as error:
        raise OrchardError(
            f"Git cannot be told to overlook the worktrees: {place} cannot be written ({error.strerror}).",
            hint="Make it a file that you can write, or set 'worktree_root' to a folder outside of the repository.",
        ) from error


def plain_content(where: bytes | Path) -> bytes | None:
    """What is in a plain file; None where there is none. A pipe in its place does not keep us, no link is followed."""
    try:
        return read_plain(where)
    except OSError as error:
        if error.errno in _NO_PLAIN_FILE:
            return None
        raise


def _children(folder: int) -> list[tuple[str, bool]]:
    """The names in an open folder, and which of them are folders."""
    with os.scandir(folder) as entries:
        return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]


def _delete(parent: int, child: tuple[str, bool], top: tuple[int, int], depth: int, errors: list[str]) -> None:
    """Delete an entry of an open folder; `top` is the descriptor and device of where we began."""
    name, is_folder = child
    try:
        if not is_folder:
            os.unlink(name, dir_fd=parent)
        elif os.stat(name, dir_fd=parent, follow_symlinks=False).st_dev != top[1]:
            errors.append(f"{name}: it is on another file system")
        elif depth > DEPTH:
            with suppress(OSError):  # who moves a folder to another one writes to it
                make_ours(name, parent)
            os.rename(name, f"deep-{secrets.token_hex(8)}", src_dir_fd=parent, dst_dir_fd=top[0])
        else:
            _delete_folder(parent, name, top, depth, errors)
    except FileNotFoundError:
        pass  # another process of ours empties the same trash
    except OSError as error:
        errors.append(f"{name}: {error.strerror}")


def make_ours(name: str, around: int | None = None) -> None:
    """Give us back all rights in a folder of ours, which a job may have taken away; never in one that a link leads to,
    also if that came there just now."""
    if not hasattr(os, "O_PATH"):
        os.chmod(name, 0o700, dir_fd=around, follow_symlinks=False)
        return
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=around)
    try:
        os.chmod(f"/proc/self/fd/{place}", 0o700)  # noqa: PTH101 (it stands for the folder that is open)
    finally:
        os.close(place)


def _delete_folder(parent: int, name: str, top: tuple[int, int], depth: int, errors: list[str]) -> None:
    with suppress(OSError):
        make_ours(name, parent)
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    failed: list[str] = []
    try:
        for child in _children(folder):
            _delete(folder, child, top, depth + 1, failed)
    finally:
        os.close(folder)
        errors += failed
    if not failed:
        os.rmdir(name, dir_fd=parent)


# ------------------------------------------------------------------------ renames


def swap(one: bytes, other: bytes) -> bool:
    code = _call()(one, other, _SWAP)
    if code in _CANNOT:
        return False
    if code:
        raise OSError(code, os.strerror(code), os.fsdecode(other))
    return True


def put(source: bytes, goal: bytes) -> None:
    """Move a file to a free name.

    Only from a place of ours: where it takes two steps, the name that is removed must still be ours. A process
    that dies between them leaves one file with both names.
    """
    code = _call()(source, goal, _NO_REPLACE)
    if code in _CANNOT:
        os.link(source, goal, follow_symlinks=False)
        os.unlink(source)  # noqa: PTH108 (bytes)
    elif code:
        raise OSError(code, os.strerror(code), os.fsdecode(goal))


def take(source: bytes, goal: bytes) -> None:
    os.rename(source, goal)  # noqa: PTH104 (bytes)


@cache
def _call() -> Callable[[bytes, bytes, int], int]:
    """The kernel's own rename with flags; it answers 0, or the number of the error."""
    import ctypes  # only a landing pays for it

    library = ctypes.CDLL(None, use_errno=True)
    name = "renamex_np" if sys.platform == "darwin" else "renameat2"
    function = getattr(library, name, None)
    if function is None:
        return lambda source, goal, flag: errno.ENOSYS

    def rename(source: bytes, goal: bytes, flag: int) -> int:
        words = (source, goal) if sys.platform == "darwin" else (_CURRENT, source, _CURRENT, goal)
        return 0 if function(*words, ctypes.c_uint(flag)) == 0 else ctypes.get_errno()

    return rename
