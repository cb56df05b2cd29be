"""What lies below a path of the user's checkout: every file, folder and link, looked at without following any link."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from orchard.errors import UsageError
from orchard.git.dependencies.virtual_env import SETTINGS, is_interpreter
from orchard.git.folders import entries
from orchard.git.worktree.status import stamp

MAX_FILES = 200_000
MAX_BYTES = 8 << 30


class Inventory(Struct, frozen=True):
    """Paths are relative to the top of the checkout."""

    folders: tuple[tuple[bytes, os.stat_result], ...]
    files: tuple[tuple[bytes, os.stat_result], ...]
    links: tuple[tuple[bytes, bytes], ...]
    """Links with what they say; all of them lead to something in the checkout, or to the Python of a `.venv`."""
    left_out: tuple[bytes, ...]
    """Links that lead elsewhere, pipes and sockets, repositories of their own, and what is mounted there."""
    stamps: tuple[tuple[bytes, tuple[int, ...]], ...]
    """What changes as soon as one of the files or links does."""

    @property
    def size(self) -> int:
        return sum(found.st_size for _, found in self.files)

    @property
    def environments(self) -> frozenset[bytes]:
        """The folders that are virtual environments of Python."""
        split = (name.rpartition(b"/") for name, _ in self.files)
        return frozenset(folder for folder, _, last in split if last == SETTINGS)


def inventory(top: Path, name: str) -> Inventory:
    """What is at a path and below it; UsageError where that is more than we copy."""
    base, first = os.fsencode(top), os.fsencode(name)
    found = os.lstat(base + b"/" + first)
    folders: list[tuple[bytes, os.stat_result]] = []
    files: list[tuple[bytes, os.stat_result]] = []
    links: list[tuple[bytes, os.stat_result]] = []
    left_out: list[bytes] = []
    size = 0
    for path, one in _walk(base, first, found):
        kind = stat.S_IFMT(one.st_mode)
        if path.rpartition(b"/")[2] == b".git" or one.st_dev != found.st_dev:
            left_out.append(path)
        elif kind == stat.S_IFDIR:
            folders.append((path, one))
        elif kind == stat.S_IFREG:
            files.append((path, one))
            size += one.st_size
        elif kind == stat.S_IFLNK:
            links.append((path, one))
        else:
            left_out.append(path)
        _check_bounds(name, len(files) + len(links), size)
    kept, out = _sorted_links(top, [path for path, _ in links])
    stamps = tuple((path, stamp(one)) for path, one in (*files, *links))
    return Inventory(tuple(folders), tuple(files), kept, (*left_out, *out), stamps)


def _walk(base: bytes, first: bytes, found: os.stat_result) -> Iterator[tuple[bytes, os.stat_result]]:
    """The path itself, then what is below it, each folder before what it holds."""
    yield first, found
    waiting = [first] if stat.S_ISDIR(found.st_mode) else []
    while waiting:
        folder = waiting.pop()
        for entry in entries(base + b"/" + folder):
            try:
                one = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # gone since it was listed
            path = folder + b"/" + entry.name
            if stat.S_ISDIR(one.st_mode) and entry.name != b".git" and one.st_dev == found.st_dev:
                waiting.append(path)
            yield path, one


def _check_bounds(name: str, count: int, size: int) -> None:
    hint = (
        "Name less in 'worktree.copy'; 'worktree.link' shares a folder with your checkout, and 'setup' can install it."
    )
    if count > MAX_FILES:
        raise UsageError(f"'{name}' of 'worktree.copy' holds more than {MAX_FILES:,} files.", hint=hint)
    if size > MAX_BYTES:
        raise UsageError(f"'{name}' of 'worktree.copy' holds more than {MAX_BYTES >> 30} GiB.", hint=hint)


def _sorted_links(top: Path, paths: list[bytes]) -> tuple[tuple[tuple[bytes, bytes], ...], tuple[bytes, ...]]:
    """Links that may be made in a worktree, and the others."""
    base = os.fsencode(top)
    real = os.path.realpath(base)
    kept: list[tuple[bytes, bytes]] = []
    out: list[bytes] = []
    for path in paths:
        try:
            said = os.fsencode((top / os.fsdecode(path)).readlink())
        except OSError:
            continue
        if _stays_inside(base, real, path, said) or is_interpreter(base, real, path, said):
            kept.append((path, said))
        else:
            out.append(path)
    return tuple(kept), tuple(out)


def _stays_inside(base: bytes, real: bytes, path: bytes, said: bytes) -> bool:
    """Whether a link leads to the same place of any checkout: by what it says, and by where it leads here."""
    if said.startswith(b"/"):
        return False
    meant = os.path.normpath(b"./" + path.rpartition(b"/")[0] + b"/" + said)
    if meant.split(b"/")[0] in (b"..", b".git", b"."):
        return False
    return os.path.realpath(base + b"/" + path).startswith(real + b"/")
