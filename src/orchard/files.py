"""Small files, read and written with care: what lies at a path may be a link, a pipe, or anything that a job put there.

open_plain     a file that really is one; no link is followed, no pipe waited for
read_plain     what is in it
is_hollow      whether most of it is holes
held           a folder that really is one, open; what is in it is then reached by names that no link can lead astray
read_below     what is in a plain file below a folder in which a job may have put links
write_below    the same for writing: what stands in the way is set aside
read_own       the same, of a file that nobody but the user could have written
replace_whole  a file that only the user can read; a reader finds the old one or the new one, whole
file_system    on which kind of file system a path is
"""

import errno
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from io import BufferedReader
from pathlib import Path

NOT_A_FILE = "it is not a file"
NOT_OURS = "others can write to it"
NOT_PRIVATE = "others can read it"
_NOT_LARGE, _HOLLOW = 16 << 20, 16


def open_plain(path: str | bytes | Path, around: int | None = None) -> BufferedReader:
    """A plain file, open for reading, in the open folder `around` where that is given; OSError where there is none."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=around)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(0, NOT_A_FILE, os.fsdecode(path))
    return os.fdopen(handle, "rb")


def read_plain(path: str | bytes | Path, most: int = -1) -> bytes:
    """The first `most` bytes of a plain file, or all of it; OSError where there is none."""
    with open_plain(path) as file:
        return file.read(most)


@contextmanager
def held(folder: Path | str, *inner: str, around: int | None = None) -> Iterator[int]:
    """A folder, or one that is so far inside of it, opened name by name: OSError where a link stands for one of them.

    `around`: the open folder that holds it. How the way to it leads there is the caller's to know.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    place = os.open(folder, flags, dir_fd=around)
    try:
        for name in inner:
            outer = place
            try:
                place = os.open(name, flags, dir_fd=outer)
            finally:
                if place != outer:
                    os.close(outer)
        yield place
    finally:
        os.close(place)


def open_below(top: Path, name: str) -> BufferedReader:
    """A plain file below a folder, open for reading; OSError where there is none, or a link on the way."""
    *folders, last = name.split("/")
    with held(top, *folders) as place:
        return open_plain(last, place)


def read_below(top: Path, name: str, most: int = -1) -> bytes:
    with open_below(top, name) as file:
        return file.read(most)


def write_below(top: Path, name: str, content: bytes, *, durable: bool = False, aside: bool = True) -> Path:
    """Replace a file below a folder in one step, in folders that only the user can enter.

    A job may write there between two steps of ours. Whatever it has put in the place of a folder gets another name, so
    that nothing is written where it leads; without `aside` that is an OSError. `top` itself nobody can replace.
    """
    *folders, last = name.split("/")
    with made_below(top, *folders, aside=aside) as place:
        fresh = f".{last}.{secrets.token_hex(6)}.new"
        handle = os.open(
            fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=place
        )
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                if durable:
                    file.flush()
                    os.fsync(handle)
            try:
                os.replace(fresh, last, src_dir_fd=place, dst_dir_fd=place)
            except IsADirectoryError:
                _set_aside(last, place, aside)
                os.replace(fresh, last, src_dir_fd=place, dst_dir_fd=place)
        except BaseException:
            with suppress(OSError):
                os.unlink(fresh, dir_fd=place)
            raise
        if durable:
            os.fsync(place)
    return top / name


@contextmanager
def made_below(top: Path, *folders: str, aside: bool = True) -> Iterator[int]:
    """A folder below another one, open, made where it is missing; what stands in the way gets another name."""
    with ExitStack() as opened:
        place = opened.enter_context(held(top))
        for name in folders:
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=place)
            try:
                inner = opened.enter_context(held(name, around=place))
            except OSError:
                _set_aside(name, place, aside)
                os.mkdir(name, 0o700, dir_fd=place)
                inner = opened.enter_context(held(name, around=place))
            place = inner
        yield place


def _set_aside(name: str, place: int, wanted: bool) -> None:
    if not wanted:
        raise OSError(errno.EEXIST, "something else is in the way", name)
    os.rename(name, f"{name}.aside-{secrets.token_hex(4)}", src_dir_fd=place, dst_dir_fd=place)


def is_hollow(found: os.stat_result) -> bool:
    """Whether a large file is mostly holes: whoever copies or reads it pays for what its writer never wrote.

    A file system that compresses may count few blocks for an honest file, so there is room for that.
    """
    return found.st_size > _NOT_LARGE and found.st_blocks * 512 < found.st_size // _HOLLOW


def read_own(path: Path, most: int, *, private: bool = False) -> bytes:
    """The first `most` bytes of a plain file that only the user can write, or with `private` only the user can read."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(0, NOT_A_FILE)
        if found.st_uid != os.getuid() or found.st_mode & 0o022:
            raise OSError(0, NOT_OURS)
        if private and found.st_mode & 0o077:
            raise OSError(0, NOT_PRIVATE)
        return file.read(most)


def replace_whole(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Replace a file in one step; two processes that do so at once both leave a good one.

    `durable`: it is on the disk when this returns, also if the machine loses its power then.
    """
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(handle)
    fresh.replace(path)
    if durable:
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """See that the names in a folder are on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def file_system(path: Path) -> str:
    """The type of the file system that holds a path (`ext4`); empty where it cannot be told."""
    place = Path(os.path.realpath(path))
    try:
        if sys.platform == "linux":
            return mounted_type(Path("/proc/self/mountinfo").read_bytes(), place)
        import psutil  # heavy, and only needed where there is no /proc

        rows = [(Path(part.mountpoint), part.fstype) for part in psutil.disk_partitions(all=True)]
    except OSError:
        return ""
    holding = [(len(mount.parts), kind) for mount, kind in rows if place.is_relative_to(mount)]
    return max(holding, default=(0, ""))[1]


def mounted_type(mountinfo: bytes, place: Path) -> str:
    """The type of the innermost mount above `place`; of two on one point the later hides the earlier."""
    best, kind = 0, ""
    for line in mountinfo.splitlines():
        words = line.split(b" ")
        if b"-" not in words[6:]:
            continue
        mount = Path(os.fsdecode(words[4].decode("unicode_escape").encode("latin-1")))
        if len(mount.parts) >= best and place.is_relative_to(mount):
            best, kind = len(mount.parts), os.fsdecode(words[words.index(b"-", 6) + 1])
    return kind
