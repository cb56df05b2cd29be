"""The index of a checkout, read and stamped without a process.

A landing has to know three things that no single git command tells: which paths are tracked, which of them git was
told to overlook, and whether an index holds exactly what it should. And when a file was moved to its place after git
wrote it, the times that git noted for it are old; with those of now, the user's next `git status` need not read it.

    read_index        the entries of an index file
    doubtful_entries  files whose edits git knows only by the time of the index
    stamp_index       note in an index how files stand on disk; nothing else in it changes
    changed_index     an index with some entries replaced, added or removed

A split index keeps most of its entries in another file: `read_index` says so, and git has to be asked to unite them.
"""

import hashlib
import os
import struct
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from orchard.errors import OrchardError
from orchard.git.folders import plain_content
from orchard.git.objects.reader import EXECUTABLE, FILE, TREE

_HEADER = struct.Struct(">4sII")
_STAT = struct.Struct(">10I")
_EDITED_AT, _MODE_AT, _SIZE_AT = 8, 24, 36
_EXTENDED, _ASSUMED, _STAGE, _NAME = 0x4000, 0x8000, 0x3000, 0x0FFF
_SKIPPED, _INTENDED = 0x4000, 0x2000
_WORD = 0xFFFFFFFF


class BadIndex(OrchardError):
    """An index file that cannot be understood."""


class IndexEntry(NamedTuple):
    mode: int
    oid: str
    at: int
    """Where in the file this entry begins."""
    second: int
    """When the file was last edited, as far as the index knows."""
    skipped: bool
    """Git was told, or a sparse checkout says, that the file need not be there."""
    intended: bool
    """`git add -N`: the file is to be added, but nothing of it is staged yet."""


class Index(NamedTuple):
    entries: Mapping[bytes, IndexEntry]
    unmerged: tuple[bytes, ...]
    folders: Mapping[bytes, IndexEntry]
    """Of a sparse index: folders that stand for all that is below them; their names end with a slash."""
    split: bool


EMPTY = Index({}, (), {}, split=False)


def doubtful_entries(index: Index, top: bytes, written: int, besides: Container[bytes]) -> list[bytes]:
    """Entries of files that were edited in the second in which the index was written, or after it, and no longer match.

    Git compares times only down to the second, and tells such an edit by the time of the index itself. In an index that
    is written later it would go unnoticed.
    """
    found = []
    for path, entry in index.entries.items():
        if entry.second < written or entry.mode not in (FILE, EXECUTABLE) or path in besides:
            continue
        try:
            content = plain_content(top + b"/" + path)
        except OSError:
            continue
        if content is None:
            continue
        digest = hashlib.sha1 if len(entry.oid) == 40 else hashlib.sha256
        if digest(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() != entry.oid:
            found.append(path)
    return found


def read_index(data: bytes, oid_size: int) -> Index:
    try:
        return _read(data, oid_size)
    except (struct.error, IndexError, ValueError) as error:
        raise BadIndex("The index cannot be read.", hint="Run 'git status' there.") from error


def _read(data: bytes, oid_size: int) -> Index:
    mark, version, count = _HEADER.unpack_from(data)
    if mark != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("no index")
    entries: dict[bytes, IndexEntry] = {}
    folders: dict[bytes, IndexEntry] = {}
    unmerged: dict[bytes, None] = {}
    at, name = _HEADER.size, b""
    for _ in range(count):
        oid_at = at + _STAT.size
        flags_at = oid_at + oid_size
        mode = int.from_bytes(data[at + _MODE_AT : at + _MODE_AT + 4], "big")
        flags = int.from_bytes(data[flags_at : flags_at + 2], "big")
        name_at, more = flags_at + 2, 0
        if flags & _EXTENDED:
            more = int.from_bytes(data[name_at : name_at + 2], "big")
            name_at += 2
        if version == 4:
            strip, name_at = _varint(data, name_at)
            end = data.index(b"\0", name_at)
            name = name[: len(name) - strip] + data[name_at:end]
            following = end + 1
        else:
            length = flags & _NAME
            end = name_at + length if length < _NAME else data.index(b"\0", name_at)
            name = data[name_at:end]
            following = at + (end - at + 8) // 8 * 8
        second = int.from_bytes(data[at + _EDITED_AT : at + _EDITED_AT + 4], "big")
        skipped, intended = bool(more & _SKIPPED), bool(more & _INTENDED)
        entry = IndexEntry(mode, data[oid_at:flags_at].hex(), at, second, skipped, intended)
        if flags & _STAGE:
            unmerged[name] = None
        elif mode == TREE:
            folders[name] = entry
        else:
            entries[name] = entry
        at = following
    return Index(entries, tuple(unmerged), folders, split=b"link" in _extensions(data, at, oid_size))


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """A number as an index of version 4 writes it, and where it ends."""
    byte = data[at]
    value = byte & 0x7F
    while byte & 0x80:
        at += 1
        byte = data[at]
        value = ((value + 1) << 7) | (byte & 0x7F)
    return value, at + 1


def _extensions(data: bytes, at: int, oid_size: int) -> list[bytes]:
    found = []
    while at + 8 <= len(data) - oid_size:
        found.append(data[at : at + 4])
        at += 8 + int.from_bytes(data[at + 4 : at + 8], "big")
    return found


def stamp_index(
    file: Path, index: Index, stands: Mapping[bytes, os.stat_result], doubtful: Iterable[bytes], oid_size: int
) -> None:
    """Write into an index how these files stand on disk, as git does when it has written them itself.

    Of the doubtful ones it forgets the size, as git does: the next `git status` looks into them.
    """
    data = bytearray(file.read_bytes())
    for path in doubtful:
        at = index.entries[path].at + _SIZE_AT
        data[at : at + 4] = bytes(4)
    for path, status in stands.items():
        entry = index.entries.get(path)
        if entry is None:
            continue
        _STAT.pack_into(data, entry.at, *_stamped(entry.mode, status))
    if any(data[-oid_size:]):  # git may have been told to leave the digest out
        data[-oid_size:] = _digest(data[:-oid_size], oid_size)
    with file.open("r+b") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())


class Stand(NamedTuple):
    """A file as an index is to know it."""

    mode: int
    oid: str
    status: os.stat_result


def changed_index(data: bytes, stands: Mapping[bytes, Stand | None], oid_size: int) -> bytes:
    """An index in which these paths stand like this, or not at all; BadIndex where only git can write it.

    What git may add to an index to be faster is left out; it does so again.
    """
    index = read_index(data, oid_size)
    rows = {path: data[entry.at : _end(data, entry.at, path, oid_size)] for path, entry in index.entries.items()}
    version, end = int.from_bytes(data[4:8], "big"), _HEADER.size + sum(map(len, rows.values()))
    needed = [name for name in _extensions(data, end, oid_size) if name[:1].islower()]
    skipped = any(entry.skipped or entry.intended for entry in index.entries.values())
    if version not in (2, 3) or needed or skipped or index.unmerged or index.folders:
        raise BadIndex("The index has more in it than files.", hint="Run 'git status' there.")
    for path, stand in stands.items():
        rows.pop(path, None)
        if stand is not None:
            row = _STAT.pack(*_stamped(stand.mode, stand.status)) + bytes.fromhex(stand.oid)
            row += min(len(path), _NAME).to_bytes(2, "big") + path
            rows[path] = row + bytes(8 - len(row) % 8)
    made = _HEADER.pack(b"DIRC", version, len(rows)) + b"".join(rows[path] for path in sorted(rows))
    return made + (_digest(made, oid_size) if any(data[-oid_size:]) else bytes(oid_size))


def _end(data: bytes, at: int, path: bytes, oid_size: int) -> int:
    """Where an entry of an index of version 2 or 3 ends."""
    flags_at = at + _STAT.size + oid_size
    extended = int.from_bytes(data[flags_at : flags_at + 2], "big") & _EXTENDED
    used = _STAT.size + oid_size + (4 if extended else 2) + len(path)
    return at + (used + 8) // 8 * 8


def _stamped(mode: int, status: os.stat_result) -> list[int]:
    seconds = [part for time in (status.st_ctime_ns, status.st_mtime_ns) for part in divmod(time, 10**9)]
    row = (*seconds, status.st_dev, status.st_ino, mode, status.st_uid, status.st_gid, status.st_size)
    return [number & _WORD for number in row]


def _digest(content: bytes | bytearray, oid_size: int) -> bytes:
    made = hashlib.sha1 if oid_size == 20 else hashlib.sha256
    return made(content, usedforsecurity=False).digest()
