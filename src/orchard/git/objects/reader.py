"""Reading git's objects without a process for each.

One `git cat-file --batch-command` stays open and is asked about commits and trees; what it says never changes (an
object's name is a digest of its content), so trees and commit headers are remembered. Comparing two trees costs what
differs between them, not what they hold.

    Objects   the open reader; `close` it
"""

import re
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from orchard.errors import OrchardError
from orchard.git.command import Git, GitGone, LiveGit

TREE = 0o040000
FILE = 0o100644
EXECUTABLE = 0o100755
SYMLINK = 0o120000
GITLINK = 0o160000

REMEMBERED_ENTRIES = 200_000
REMEMBERED_COMMITS = 20_000
LARGE_TREE = 500
"""Entries; a smaller one is taken apart as a whole."""

ASKED_AT_ONCE = 200
"""Few enough that neither the questions nor the answers fill a pipe while the other side waits."""

_OID = re.compile("[0-9a-f]+")
_ROWS = {size: re.compile(rb"([0-7]+) ([^\0]+)\0(.{%d})" % size, re.DOTALL) for size in (20, 32)}
"""The entries of a tree, by the size of the names of its objects."""


class Entry(NamedTuple):
    mode: int
    oid: str

    @property
    def is_regular(self) -> bool:
        return self.mode & 0o170000 == 0o100000


class Change(NamedTuple):
    """One path where two trees differ; a path that turns from a file into a folder gives several changes."""

    path: bytes
    old: Entry | None
    new: Entry | None


class Commit(NamedTuple):
    tree: str
    parents: tuple[str, ...]


class ObjectMissing(OrchardError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"The repository has no object '{name}'.",
            hint="Run 'git fsck'; in a partial or shallow clone run 'git fetch --refetch' or 'git fetch --unshallow'.",
        )
        self.name = name


class Objects:
    """The objects of one repository, read through one process that is started when first needed.

    Safe to use from several threads. New objects are seen at once; a reader that died is started again.
    """

    def __init__(self, git: Git) -> None:
        # A replacement object (`git replace`) would make us see what a merge does not see.
        self._git = git.with_environment(GIT_NO_REPLACE_OBJECTS="1")
        self._lock = threading.Lock()
        self._reader: LiveGit | None = None
        self._trees: OrderedDict[str, dict[bytes, Entry]] = OrderedDict()
        self._entries = 0
        self._near: _Parsed | None = None
        self.entries_parsed = 0
        """How many entries of trees were taken apart so far: those that a tree shares with the one before are not."""
        self._commits: OrderedDict[str, Commit] = OrderedDict()

    def __enter__(self) -> "Objects":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def read(self, name: str) -> tuple[str, bytes]:
        found = self._asked("contents", [checked(name)])[0]
        if found is None:
            raise ObjectMissing(name)
        return found.kind, found.content

    def size(self, name: str) -> int:
        """How many bytes the object's content has, without reading it."""
        found = self._asked("info", [checked(name)])[0]
        if found is None:
            raise ObjectMissing(name)
        return found.size

    def exists(self, name: str) -> bool:
        """Whether the object can be read, without reading its content."""
        return self.missing([name]) is None

    def resolve(self, ref: str) -> str | None:
        """What a ref holds now, by its full name; None if there is no such ref."""
        if not ref.startswith("refs/") or any(character <= " " for character in ref):
            raise ValueError(f"{ref!r} is not the full name of a ref")
        found = self._asked("info", [ref])[0]
        return found.name if found is not None else None

    def missing(self, names: Sequence[str]) -> str | None:
        """The first of these objects that cannot be read now, whatever was remembered of it."""
        for start in range(0, len(names), ASKED_AT_ONCE):
            some = names[start : start + ASKED_AT_ONCE]
            for name, found in zip(some, self._asked("info", [checked(name) for name in some]), strict=True):
                if found is None:
                    return name
        return None

    def new_objects(self, old: str, new: str) -> list[str]:
        """The trees and blobs of one tree that another does not hold at the same place, submodules left out."""
        found, waiting = [], [(old, new)]
        while waiting:
            before_tree, after_tree = waiting.pop()
            if before_tree == after_tree:
                continue
            found.append(after_tree)
            before = self.tree_entries(before_tree) if before_tree else {}
            for name, entry in self.tree_entries(after_tree).items():
                left = before.get(name)
                if entry == left or entry.mode == GITLINK:
                    continue
                if entry.mode == TREE:
                    waiting.append((left.oid if left is not None and left.mode == TREE else "", entry.oid))
                else:
                    found.append(entry.oid)
        return found

    def commit(self, name: str) -> Commit:
        with self._lock:
            known = self._commits.get(name)
        if known is not None:
            return known
        kind, data = self.read(name)
        if kind != "commit":
            raise OrchardError(f"Object {name} is a {kind}, not a commit.")
        commit = _parse_commit(data)
        with self._lock:
            self._commits[name] = commit
            if len(self._commits) > REMEMBERED_COMMITS:
                self._commits.popitem(last=False)
        return commit

    def tree_of(self, commit: str) -> str:
        return self.commit(commit).tree

    def parents(self, commit: str) -> tuple[str, ...]:
        return self.commit(commit).parents

    def tree_entries(self, tree: str) -> Mapping[bytes, Entry]:
        """What a tree holds, by name, in git's order."""
        with self._lock:
            known = self._trees.get(tree)
            if known is not None:
                self._trees.move_to_end(tree)
                return known
            near = self._near
        kind, data = self.read(tree)
        if kind != "tree":
            raise OrchardError(f"Object {tree} is a {kind}, not a tree.")
        parsed = _parse_tree(data, len(tree) // 2, near)
        entries = dict(parsed.rows)
        with self._lock:
            self.entries_parsed += parsed.fresh
            if len(parsed.rows) >= LARGE_TREE:
                self._near = parsed
            if tree not in self._trees:
                self._trees[tree] = entries
                self._entries += len(entries)
            while self._entries > REMEMBERED_ENTRIES and len(self._trees) > 1:
                self._entries -= len(self._trees.popitem(last=False)[1])
        return entries

    def entry(self, tree: str, path: bytes) -> Entry | None:
        """What stands at a path, or None; a path through a file is None too."""
        found: Entry | None = Entry(TREE, tree)
        for part in path.split(b"/"):
            if found is None or found.mode != TREE:
                return None
            found = self.tree_entries(found.oid).get(part)
        return found

    def diff_trees(self, old: str | None, new: str | None) -> Iterator[Change]:
        """Every path, below all folders, where two trees differ; None is the empty tree."""
        # A stack of our own: a tree may be nested deeper than Python likes to call itself.
        waiting: list[tuple[bytes, str | None, str | None]] = [(b"", old, new)]
        while waiting:
            prefix, before_tree, after_tree = waiting.pop()
            before = self.tree_entries(before_tree) if before_tree is not None else {}
            after = self.tree_entries(after_tree) if after_tree is not None else {}
            for name in {name for name, _ in before.items() ^ after.items()}:
                left, right = before.get(name), after.get(name)
                left_tree = left.oid if left is not None and left.mode == TREE else None
                right_tree = right.oid if right is not None and right.mode == TREE else None
                if left_tree is not None or right_tree is not None:
                    waiting.append((prefix + name + b"/", left_tree, right_tree))
                left_file, right_file = None if left_tree else left, None if right_tree else right
                if left_file is not None or right_file is not None:
                    yield Change(prefix + name, left_file, right_file)

    def renames(self, old: str, new: str) -> dict[bytes, bytes]:
        """Files that git takes for renamed between two trees: the new path, and the old one."""
        rows = self._git("diff-tree", "-r", "-z", "--raw", "-M", "-l2000", "--diff-filter=R", old, new, "--").fields
        return dict(zip(rows[2::3], rows[1::3], strict=True))

    def _asked(self, command: str, names: Sequence[str]) -> "list[_Found | None]":
        with self._lock:
            # The first try may meet a reader that died since the last question.
            for last in (False, True):
                try:
                    return self._answers(command, names)
                except GitGone:
                    self._drop()
                    if last:
                        raise
                except BaseException:
                    self._drop()  # A half-read answer must not become the next one's.
                    raise
        raise AssertionError("unreachable")

    def _answers(self, command: str, names: Sequence[str]) -> "list[_Found | None]":
        if self._reader is None:
            self._reader = LiveGit(self._git, "cat-file", "--batch-command")
        reader = self._reader
        reader.say("".join(f"{command} {name}\n" for name in names).encode())
        found: list[_Found | None] = []
        for _ in names:
            words = reader.read_until(b"\n").split(b" ")
            if len(words) != 3:
                found.append(None)  # "<name> missing"
                continue
            data = b"" if command == "info" else reader.read_exactly(int(words[2]) + 1)[:-1]
            found.append(_Found(words[0].decode(), words[1].decode(), data, int(words[2])))
        return found

    def _drop(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None


class _Found(NamedTuple):
    name: str
    kind: str
    content: bytes
    size: int


def checked(name: str) -> str:
    """The same name, which must be an oid."""
    if not _OID.fullmatch(name):
        raise ValueError(f"{name!r} is not an object name")
    return name


def _parse_commit(data: bytes) -> Commit:
    tree, parents = "", []
    for line in data.split(b"\n\n", 1)[0].split(b"\n"):
        key, _, value = line.partition(b" ")
        if key == b"tree":
            tree = value.decode()
        elif key == b"parent":
            parents.append(value.decode())
        else:
            break
    return Commit(tree, tuple(parents))


class _Parsed(NamedTuple):
    """A tree taken apart: its bytes, its entries in order, where each begins, and how many of them were parsed."""

    data: bytes
    rows: list[tuple[bytes, Entry]]
    starts: list[int]
    fresh: int


def _parse_tree(data: bytes, oid_size: int, near: _Parsed | None = None) -> _Parsed:
    """Take a tree apart; runs of entries that stand in `near` too, byte for byte, are taken from there.

    A commit changes a few files of a folder, however many there are, and a folder may have very many.
    """
    if near is None:
        return _parse_whole_tree(data, oid_size)
    known = near
    rows: list[tuple[bytes, Entry]] = []
    starts: list[int] = []
    at = here = fresh = 0
    while at < len(data):
        if here < len(known.starts):
            begin = known.starts[here]
            end = begin + _shared(known.data, begin, data, at)
            after = len(known.starts) if end == len(known.data) else bisect_right(known.starts, end) - 1
            rows += known.rows[here:after]
            starts += [start - begin + at for start in known.starts[here:after]]
            at += (end if after == len(known.starts) else known.starts[after]) - begin
            here = after
            if at == len(data):
                break
        row = _ROWS[oid_size].match(data, at)
        if row is None:
            raise OrchardError("A tree of the repository is damaged.")
        name = row[2]
        starts.append(at)
        at = row.end()
        rows.append((name, _entry(row[1], row[3])))
        fresh += 1
        while here < len(known.rows) and known.rows[here][0] <= name:
            here += 1
    return _Parsed(data, rows, starts, fresh)


def _parse_whole_tree(data: bytes, oid_size: int) -> _Parsed:
    found: list[tuple[bytes, bytes, bytes]] = _ROWS[oid_size].findall(data)
    ends = list(accumulate(len(mode) + len(name) + oid_size + 2 for mode, name, _ in found))
    if (ends[-1] if ends else 0) != len(data):
        raise OrchardError("A tree of the repository is damaged.")
    rows = [(name, _entry(mode, oid)) for mode, name, oid in found]
    return _Parsed(data, rows, [0, *ends[:-1]] if ends else [], len(rows))


def _entry(mode: bytes, oid: bytes) -> Entry:
    number = int(mode, 8)
    # Old trees know 100664; git itself reads it as 100644.
    return Entry(FILE if number == 0o100664 else number, oid.hex())


def _shared(one: bytes, at: int, other: bytes, there: int) -> int:
    """How many bytes two texts have in common from these places on; it takes as long as there are some."""
    most = min(len(one) - at, len(other) - there)
    low, step = 0, 64
    while low < most:
        step = min(step, most - low)
        if one[at + low : at + low + step] == other[there + low : there + low + step]:
            low, step = low + step, step * 2
        elif step == 1:
            break
        else:
            most, step = low + step - 1, max(1, step // 2)
    return low
