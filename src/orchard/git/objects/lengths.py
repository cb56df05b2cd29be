"""How long objects of strangers are once git unpacks them, told before git does.

A few megabytes can be gigabytes once they are unpacked: zeros compress well, and a delta may copy its base many times.
Git unpacks all of it to check it, outside of every limit of the job. Every object says at its start how long it is, and
git unpacks no more than that, so the sum of what they say is a bound.

Three small trees can be a commit of a million paths, if each names the next one a hundred times. What looks at such a
commit needs memory and minutes for all of them. So the paths of each new commit are counted (`refuse_many_paths`), each
tree once, and it may have only so many more than what it builds on.
"""

import mmap
import re
import zlib
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from msgspec import Struct

from orchard.errors import OrchardError
from orchard.git.command import Git

_HEADER = re.compile(rb"[a-z]{1,16} (\d{1,18})\0")
_START = 4096
"""Bytes of a loose object in which its header is found; git writes it into the first hundred or so."""
_NAME = 32
_BLOCK = 64 * 1024
_OFFSET, _REFERENCE = 6, 7
"""The kinds of deltas in a pack: from a base at another place in it, and from one by its name."""


MOST_OBJECTS = 2_000_000
DELTAS = 4
"""So many times as much may be made by deltas: honest packs hold many versions of the same files."""
_LONGEST = 10
"""Bytes of a number in a pack."""


class Room:
    """What may still be unpacked. `oid_size`: the bytes of an object's name."""

    def __init__(self, most: int, oid_size: int) -> None:
        self._most, self.oid_size = most, oid_size
        self._left, self._made, self._objects = most, DELTAS * most, MOST_OBJECTS

    def take(self, file: Path, *, packed: bool) -> None:
        """Count what is in a file; OrchardError where it is too much, or does not say how much it is."""
        if not packed:
            with file.open("rb") as opened:
                self._left = self._without(self._left, _declared(opened.read(_START)))
        elif file.stat().st_size:
            with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
                self._count_pack(data)

    def _without(self, left: int, length: int | None) -> int:
        self._objects -= 1
        if self._objects < 0:
            raise OrchardError(f"It is more than {MOST_OBJECTS:,} objects.")
        if length is None:
            raise OrchardError("An object does not say how long it is.")
        if length > left:
            raise OrchardError(f"It is more than {self._most >> 30} GiB once git unpacks it.")
        return left - length

    def _count_pack(self, data: mmap.mmap) -> None:
        """Every entry has to be unpacked to find where the next one begins, but no further than it says it goes."""
        at = 12
        for _ in range(int.from_bytes(data[8:12], "big")):
            kind, length, at = _entry(data, at)
            at += self.oid_size if kind == _REFERENCE else 0
            self._left = self._without(self._left, length)
            start, at = _unpacked(data, at, length)
            if kind in (_OFFSET, _REFERENCE):
                self._made = self._without(self._made, _result(start))


def _unpacked(data: mmap.mmap, at: int, length: int) -> tuple[bytes, int]:
    """The first bytes of an entry, and where the next one begins."""
    stream, start, seen = zlib.decompressobj(), b"", 0
    taken = data[at : at + min(_BLOCK, length + 64)]
    while taken and not stream.eof:
        at += len(taken)
        try:
            part = stream.decompress(taken, _BLOCK)
            while True:
                seen += len(part)
                start += part[: _NAME - len(start)]
                if seen > length:
                    raise OrchardError("An object is longer than it says.")
                if not stream.unconsumed_tail or stream.eof:
                    break
                part = stream.decompress(stream.unconsumed_tail, _BLOCK)
        except zlib.error as error:
            raise OrchardError("A pack is damaged.") from error
        taken = data[at : at + _BLOCK]
    if not stream.eof:
        raise OrchardError("A pack is damaged.")
    return start, at - len(stream.unused_data)


def _declared(start: bytes) -> int | None:
    """The length that the beginning of a loose object names."""
    try:
        found = _HEADER.match(zlib.decompressobj().decompress(start, _NAME))
    except zlib.error:
        return None
    return int(found[1]) if found is not None else None


def _entry(data: mmap.mmap, at: int) -> tuple[int, int, int]:
    """The kind of an entry of a pack, its length, and where its content begins."""
    try:
        first = data[at]
        kind, length, shift = first >> 4 & 7, first & 15, 4
        while data[at] & 128 and shift < 7 * _LONGEST:
            at += 1
            length |= (data[at] & 127) << shift
            shift += 7
        at += 1
        if kind == _OFFSET:
            at = next(place for place in range(at, at + _LONGEST) if not data[place] & 128) + 1
    except (IndexError, StopIteration) as error:
        raise OrchardError("A pack is damaged.") from error
    return kind, length, at


def _result(start: bytes) -> int | None:
    """How long what a delta makes is: the second number in it, after the length of its base."""
    numbers: list[int] = []
    value = shift = 0
    for byte in start:
        value |= (byte & 127) << shift
        shift += 7
        if not byte & 128:
            numbers.append(value)
            value = shift = 0
            if len(numbers) == 2:
                return numbers[1]
    return None


MORE_PATHS = 200_000
"""So many paths more than its parents may a commit of a job's have."""
_DEEPEST = 500
_TREES = 256 << 20
"""Bytes of all trees that are read for that."""
_FOLDER = b"40000"
_SECONDS = 600.0


class _Tree(Struct, frozen=True):
    files: int
    folders: Counter[str]


def refuse_many_paths(git: Git, names: Collection[str], oid_size: int) -> None:
    """OrchardError where one of these new commits has far more paths than the commits that it builds on."""
    commits = {name: _links(text) for name, text in _read(git, names, b"commit")}
    parents = {parent for _, above in commits.values() for parent in above} - commits.keys()
    known = {name: _links(text)[0] for name, text in _read(git, parents, b"commit")}
    paths = _paths(git, {*known.values(), *(tree for tree, _ in commits.values())}, oid_size)
    most = MORE_PATHS + max((paths[tree] for tree in known.values()), default=0)
    if any(paths[tree] > most for tree, _ in commits.values()):
        raise OrchardError(
            f"A commit of it has more than {MORE_PATHS:,} paths that what it builds on does not have.",
            hint="Commit fewer files, or have git ignore them.",
        )


def _links(commit: bytes) -> tuple[str, list[str]]:
    """The tree of a commit, and its parents."""
    rows = [line.split(b" ") for line in commit.partition(b"\n\n")[0].split(b"\n")]
    tree = next((row[1].decode() for row in rows if row[0] == b"tree" and len(row) > 1), "")
    return tree, [row[1].decode() for row in rows if row[0] == b"parent" and len(row) > 1]


def _paths(git: Git, tops: set[str], oid_size: int) -> dict[str, int]:
    """How many files each tree holds, all folders included."""
    found: dict[str, _Tree] = {}
    waiting, left = set(tops), _TREES
    for _ in range(_DEEPEST):
        for name, text in _read(git, waiting, b"tree", left):
            left -= len(text)
            found[name] = _tree(text, oid_size)
        found |= {name: _Tree(0, Counter()) for name in waiting - found.keys()}  # what is missing, git refuses
        waiting = {folder for name in waiting for folder in found[name].folders} - found.keys()
        if not waiting:
            return _summed(found)
    raise OrchardError(f"A commit of it has more than {_DEEPEST} folders in each other.")


def _tree(text: bytes, oid_size: int) -> _Tree:
    """Entries are `mode name`, NUL, and the bytes of a name of an object."""
    files, folders, at = 0, Counter[str](), 0
    while (end := text.find(b"\0", at)) >= 0:
        if text[at:end].split(b" ", 1)[0].lstrip(b"0") == _FOLDER:
            folders[text[end + 1 : end + 1 + oid_size].hex()] += 1
        else:
            files += 1
        at = end + 1 + oid_size
    return _Tree(files, folders)


def _summed(trees: dict[str, _Tree]) -> dict[str, int]:
    paths: dict[str, int] = {}
    entered: set[str] = set()
    stack = list(trees)
    while stack:
        name, tree = stack[-1], trees[stack[-1]]
        unknown = [folder for folder in tree.folders if folder not in paths]
        if name in paths or not unknown:
            stack.pop()
            paths[name] = tree.files + sum(paths[folder] * times for folder, times in tree.folders.items())
        elif name in entered:  # no tree can hold itself, unless its name is made up
            raise OrchardError("A folder is in itself.")
        else:
            entered.add(name)
            stack += unknown
    return paths


def _read(git: Git, names: Iterable[str], kind: bytes, most: int = _TREES) -> Iterator[tuple[str, bytes]]:
    """Those of the objects that are of a kind, with their content."""
    asked = "".join(f"{name}\n" for name in sorted({*names})).encode()
    rows = [row.split() for row in git("cat-file", "--batch-check", stdin=asked, timeout=_SECONDS).stdout.splitlines()]
    wanted = [(row[0], int(row[2])) for row in rows if len(row) == 3 and row[1] == kind]
    if sum(size for _, size in wanted) > most:
        raise OrchardError(f"Its commits and folders have more than {_TREES >> 20} MiB.")
    said = git("cat-file", "--batch", stdin=b"".join(name + b"\n" for name, _ in wanted), timeout=_SECONDS).stdout
    at = 0
    for name, size in wanted:
        at = said.index(b"\n", at) + 1
        yield name.decode(), said[at : at + size]
        at += size + 1
