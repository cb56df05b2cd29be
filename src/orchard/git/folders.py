"""Careful handling of folders whose content somebody else wrote.

Links are removed, never followed; nothing on the other side of a mount point is touched; a tree that
is deeper than the stack is taken apart in pieces.
"""

import errno
import os
import re
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from orchard.git.landing.exchange import swap

DEPTH = 60
"""Below this a folder is moved up before it goes on: each level holds an open descriptor."""

_NO_PLAIN_FILE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO})
"""What opening says of nothing, of a link and of a socket."""


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


def behind_link(top: bytes, path: bytes) -> bool:
    """Whether a link stands for a folder on the way from `top` to a path: then what is found there lies elsewhere."""
    end = path.find(b"/")
    while end >= 0:
        try:
            mode = os.lstat(top + b"/" + path[:end]).st_mode
        except OSError:
            return False
        if stat.S_ISLNK(mode):
            return True
        end = path.find(b"/", end + 1)
    return False


def delete_children(folder: Path) -> list[str]:
    """Delete everything in a folder; what could not be deleted is said, not raised."""
    errors: list[str] = []
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
        while new := [name for name in _names(top) if name not in tried]:
            for name in new:
                tried.add(name)
                if mounted := mounts_below(folder / name):
                    errors.append(f"{folder / name}: {mounted[0]} is mounted in it")
                    continue
                _delete((top, name), (top, device), 0, errors)
    finally:
        os.close(top)
    return errors


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
    written to the disk at once by some file systems, and whoever does it waits for that.
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


def plain_content(where: bytes | Path) -> bytes | None:
    """What is in a plain file; None where there is none. A pipe in its place does not keep us, no link is followed."""
    try:
        descriptor = os.open(where, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in _NO_PLAIN_FILE:
            return None
        raise
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(descriptor)


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as entries:
        return [entry.name for entry in entries]


def _delete(what: tuple[int, str], top: tuple[int, int], depth: int, errors: list[str]) -> None:
    """Delete an entry of an open folder; `top` is the descriptor and device of where we began."""
    parent, name = what
    try:
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if not stat.S_ISDIR(status.st_mode):
            os.unlink(name, dir_fd=parent)
        elif status.st_dev != top[1]:
            errors.append(f"{name}: it is on another file system")
        elif depth > DEPTH:
            os.rename(name, f"deep-{secrets.token_hex(8)}", src_dir_fd=parent, dst_dir_fd=top[0])
        else:
            _delete_folder(what, top, depth, errors)
    except FileNotFoundError:
        pass  # another process of ours empties the same trash
    except OSError as error:
        errors.append(f"{name}: {error.strerror}")


def _delete_folder(what: tuple[int, str], top: tuple[int, int], depth: int, errors: list[str]) -> None:
    parent, name = what
    with suppress(OSError):  # a job may have taken our own right to write away
        os.chmod(name, 0o700, dir_fd=parent)
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        before = len(errors)
        for entry in _names(folder):
            _delete((folder, entry), top, depth + 1, errors)
    finally:
        os.close(folder)
    if len(errors) == before:
        os.rmdir(name, dir_fd=parent)
