"""What a checkout will hold, prepared by git beside it: the new index, and every new file.

Git is asked twice, with an index of our own. First it looks, with the checkout as its work tree and told to change
nothing: is every file that changes exactly the old one, and does nothing that the user staged get lost? Then it merges
and writes, with an empty folder for its work tree: it takes every file for missing, so exactly those files appear there
that a fast-forward would write, with modes, links, line ends and filters, and without those that a sparse checkout
leaves out. Filters run in the user's folder all the same, and attributes that only the checkout has are copied first.

What it has made is then compared with the two commits, path by path. Nothing that git was configured to do can make
something else of it.
"""

import os
import re
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from orchard.errors import Next
from orchard.files import read_plain
from orchard.git.command import Git, GitError
from orchard.git.filters import as_set, run_in_checkout
from orchard.git.folders import behind_link, lstat, parents
from orchard.git.landing.claim import NEW_INDEX
from orchard.git.landing.index import EMPTY, Index, read_index
from orchard.git.landing.intent import Item, Stand, first_look, stand
from orchard.git.landing.obstacles import LandingRefused, find_obstacle, in_the_way
from orchard.git.objects.reader import GITLINK, Change, Entry, Objects

TIMEOUT = 600.0
_NAMED = re.compile(rb"(?m)^error: .*?'(.*)'.*$")
_MOST_ATTRIBUTES = 100 * 1024 * 1024
"""Git reads no larger file of attributes either."""
_UNPRINTABLE = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]")
"""What git shows as a question mark when it complains."""


class Staged(NamedTuple):
    items: tuple[Item, ...]
    emptied: tuple[tuple[bytes, int], ...]
    made: tuple[bytes, ...]
    entries: Index


class Blocked(Exception):
    """Something is in the way; nothing was touched."""

    def __init__(self, refusal: LandingRefused) -> None:
        super().__init__(refusal.reason)
        self.refusal = refusal


class Stager:
    """Prepares one checkout: `git` is the one for its files, `claim` the folder of our notes about it."""

    def __init__(self, git: Git, claim: Path, stage: Path, again: Next) -> None:
        assert git.work_tree is not None
        self.top, self.claim, self.stage, self.again = git.work_tree, claim, stage, again
        self.file = claim / NEW_INDEX
        self.git = git.with_index(self.file)
        self.files = stage / "new"

    def prepare(self, objects: Objects, old: str, new: str) -> Staged:
        changes = sorted(objects.diff_trees(objects.tree_of(old), objects.tree_of(new)))
        before = self._copy_index(len(old) // 2)
        if before.unmerged:
            reason = f"There are unmerged files in {self.top}: {os.fsdecode(before.unmerged[0])}"
            raise Blocked(LandingRefused("checkout", reason, ("Resolve them, then run '", self.again, "'.")))
        paths = {change.path for change in changes}
        sparse = bool(before.folders) or any(entry.skipped for entry in before.entries.values())
        self._must_be_free(changes, before, frozenset() if sparse else paths)
        looked = {path: self._first_look(path) for path in paths}
        self._ask_git(changes, old, new)
        self._write(old, new, self._untracked_attributes(changes, before))
        after = self.read_index(len(old) // 2)
        self._compare(objects, changes, after)
        written = {path for path in paths if self._is_new(path)}
        self._must_be_free(changes, before, written)
        items = tuple(self._item(change, before, after, looked[change.path]) for change in changes)
        items += tuple(self._missing(before, after, paths))
        links = [one.path for one in changes if one.new is not None and one.new.mode == GITLINK]
        submodules = [path for path in links if self._is_new(path)]
        made = _folders([item.path for item in items if item.will], self.top, submodules=submodules)
        return Staged(items, tuple(self._emptied(items)), made, after)

    # -------------------------------------------------------------------------------- the index

    def _copy_index(self, oid_size: int) -> Index:
        """The user's index becomes ours, with its time: git compares that with the times of files."""
        index = self.git.git_dir / "index"
        try:
            status, data = index.stat(), read_plain(os.path.realpath(index))
        except FileNotFoundError:
            return EMPTY
        self.file.write_bytes(data)
        os.utime(self.file, ns=(status.st_atime_ns, status.st_mtime_ns))
        return self.read_index(oid_size)

    def read_index(self, oid_size: int) -> Index:
        """What our index holds; one that is split is united in a copy."""
        index = read_index(self.file.read_bytes(), oid_size)
        if not index.split:
            return index
        flat, status = self.claim / "index.flat", self.file.stat()
        flat.write_bytes(self.file.read_bytes())
        os.utime(flat, ns=(status.st_atime_ns, status.st_mtime_ns))
        git = self.git.with_index(flat).with_config(core__splitIndex="false")
        git("update-index", "--no-split-index", "--force-write-index", timeout=TIMEOUT)
        return read_index(flat.read_bytes(), oid_size)._replace(split=True)

    # -------------------------------------------------------------------------------- looking

    def _must_be_free(self, changes: Sequence[Change], index: Index, written: frozenset[bytes] | set[bytes]) -> None:
        found = find_obstacle(self.git, changes, index.entries, written, self.again)
        if found is not None:
            raise Blocked(found)

    def _first_look(self, path: bytes) -> Stand:
        if not self._is_here(path):
            return ()
        where = self._here(path)
        status = lstat(where)
        return () if status is None or stat.S_ISDIR(status.st_mode) else first_look(where, status)

    def _ask_git(self, changes: Sequence[Change], old: str, new: str) -> None:
        """Whether all files that change are exactly those of `old`, as git sees it."""
        look = ("read-tree", "-n", "-m", "-u", old, new)
        done = self.git(*look, ok=range(256), timeout=TIMEOUT)
        if done.status != 0:
            # It believed the times of files; the contents may be the same for all that.
            self.git("update-index", "-q", "--refresh", ok=range(256), timeout=TIMEOUT)
            done = self.git(*look, ok=range(256), timeout=TIMEOUT)
        if done.status == 0:
            return
        rows = self.git("diff-index", "-z", "--name-only", old, "--", ok=range(256), timeout=TIMEOUT).fields
        paths = {change.path for change in changes}
        real = {_UNPRINTABLE.sub(b"?", path): path for path in paths}
        named = [real.get(path, path) for path in _NAMED.findall(done.stderr) if path]
        listed = dict.fromkeys([*named, *(path for path in rows if path in paths)])
        if not listed:
            raise GitError(("read-tree",), self.top, done.status, done.stderr.decode(errors="replace"))
        raise Blocked(in_the_way(self.git, list(listed), self.again))

    # -------------------------------------------------------------------------------- writing

    def _write(self, old: str, new: str, attributes: Mapping[bytes, bytes]) -> None:
        self.files.mkdir(parents=True)
        (self.stage / "old").mkdir()
        for path, content in attributes.items():
            place = Path(os.fsdecode(self._new(path)))
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        # Git looks at the checkout no more: to it, all files are missing.
        config = {**self.git.config, **run_in_checkout(self.top, self.git.config), **self._named_attributes()}
        git = replace(self.git, work_tree=self.files, cwd=self.files, config=config)
        done = git("read-tree", "-m", "-u", old, new, ok=range(256), timeout=TIMEOUT)
        if done.status != 0:
            said = as_set(done.stderr, self.top)
            raise GitError(("read-tree",), self.top, done.status, said.decode(errors="replace"))

    def _untracked_attributes(self, changes: Sequence[Change], index: Index) -> dict[bytes, bytes]:
        """Files of attributes that git reads in the checkout because its index has none there."""
        paths = [change.path for change in changes if change.new is not None]
        paths += [path for path, entry in index.entries.items() if entry.skipped]  # a sparse checkout may grow
        folders = {b""}
        for path in paths:
            while (path := path.rpartition(b"/")[0]) not in folders:
                folders.add(path)
        known = {change.path for change in changes} | index.entries.keys()
        places = (folder + b"/.gitattributes" if folder else b".gitattributes" for folder in folders)
        found = [path for path in places if path not in known and self._is_here(path)]
        read = {path: _read_below(self.top, path) for path in found}
        return {path: content for path, content in read.items() if content is not None}

    def _named_attributes(self) -> dict[str, str]:
        """The user's own file of attributes, if its name is meant from the checkout on."""
        named = self.git("config", "-z", "--type=path", "--get", "core.attributesFile", ok=(0, 1)).fields
        return {"core.attributesFile": str(self.top / os.fsdecode(named[0]))} if named and named[0] else {}

    def _compare(self, objects: Objects, changes: Sequence[Change], index: Index) -> None:
        for change in changes:
            if _entry(objects, index, change.path) != change.new:
                reason = f"git made another index than was meant, at {os.fsdecode(change.path)}"
                raise GitError(("read-tree",), self.top, 0, f"error: {reason}")

    def _item(self, change: Change, before: Index, after: Index, looked: Stand) -> Item:
        path = change.path
        will = self._staged(path)
        held, stays = before.entries.get(path), after.entries.get(path)
        if will:
            self._inherit_group(path)
            return Item(path, change.old, change.new, looked, will)
        tracked = held is not None and not held.skipped and held.mode != GITLINK
        goes = change.new is None or change.new.mode == GITLINK or (stays is not None and stays.skipped)
        if held is not None and held.skipped and looked and stays is not None:
            reason = f"{os.fsdecode(path)} lies outside of your sparse checkout of {self.top}, but is there."
            raise Blocked(LandingRefused("checkout", reason, ("Remove it, then run '", self.again, "'.")))
        is_new = change.new is not None and change.new.mode != GITLINK
        if is_new and not goes and held is not None and Entry(held.mode, held.oid) != change.new:
            raise GitError(("read-tree",), self.top, 0, f"error: git did not write {os.fsdecode(path)}")
        return Item(path, change.old, change.new, looked if tracked and goes else (), ())

    def _missing(self, before: Index, after: Index, known: set[bytes]) -> list[Item]:
        """Files beside the changes that git has written: a sparse checkout that has become larger."""
        found = []
        start = os.fsencode(self.files)
        for folder, folders, names in os.walk(start):
            for name in [*names, *folders]:  # a link that leads to a folder is told among the folders
                path = (folder + b"/" + name)[len(start) + 1 :]
                entry = after.entries.get(path)
                if path in known or entry is None or entry.mode == GITLINK or self._is_here(path):
                    continue
                found.append(Item(path, None, Entry(entry.mode, entry.oid), (), self._staged(path)))
        return found

    def _emptied(self, items: Sequence[Item]) -> list[tuple[bytes, int]]:
        """Folders that stand where a file comes, the deepest first."""
        start = os.fsencode(self.top) + b"/"
        found = []
        for item in items:
            if item.will and self._is_here(item.path) and stat.S_ISDIR(os.lstat(start + item.path).st_mode):
                for folder, _, _ in os.walk(start + item.path, topdown=False):
                    found.append((folder[len(start) :], stat.S_IMODE(os.lstat(folder).st_mode)))
        return found

    def _inherit_group(self, path: bytes) -> None:
        """In a folder that gives its group to new files, the new file gets it, too."""
        folder = os.path.dirname(self._here(path))  # noqa: PTH120 (bytes)
        if behind_link(os.fsencode(self.top), path):
            return
        with suppress(OSError):
            status = os.stat(folder)  # noqa: PTH116 (bytes)
            if status.st_mode & stat.S_ISGID:
                os.chown(self._new(path), -1, status.st_gid, follow_symlinks=False)

    def _here(self, path: bytes) -> bytes:
        return os.fsencode(self.top) + b"/" + path

    def _is_here(self, path: bytes) -> bool:
        """Whether anything stands at a path of the checkout; what lies behind a link stands at another."""
        return not behind_link(os.fsencode(self.top), path) and os.path.lexists(self._here(path))

    def _new(self, path: bytes) -> bytes:
        return os.fsencode(self.files) + b"/" + path

    def _is_new(self, path: bytes) -> bool:
        """The same of what git has written."""
        return not behind_link(os.fsencode(self.files), path) and os.path.lexists(self._new(path))

    def _staged(self, path: bytes) -> Stand:
        found = stand(self._new(path)) if self._is_new(path) else ()
        return () if found and stat.S_ISDIR(int(found[0])) else found


def _entry(objects: Objects, index: Index, path: bytes) -> Entry | None:
    """What an index holds at a path, also where one entry stands for a whole folder."""
    entry = index.entries.get(path)
    if entry is not None:
        return Entry(entry.mode, entry.oid)
    for name in parents(path) if index.folders else ():
        folder = index.folders.get(name + b"/")
        if folder is not None:
            return objects.entry(folder.oid, path[len(name) + 1 :])
    return None


def _folders(paths: Sequence[bytes], top: Path, *, submodules: Sequence[bytes]) -> tuple[bytes, ...]:
    """Folders that these paths need and that are not there (or are a file or a link that goes), outermost first."""
    start = os.fsencode(top) + b"/"
    known: dict[bytes, bool] = {}
    for path in (*paths, *(one + b"/" for one in submodules)):
        for folder in parents(path):
            if folder not in known:
                where = start + folder
                above = known.get(folder.rpartition(b"/")[0], False)
                known[folder] = above or not os.path.isdir(where) or os.path.islink(where)  # noqa: PTH112, PTH114
    return tuple(sorted((folder for folder, missing in known.items() if missing), key=lambda one: one.count(b"/")))


def _read_below(top: Path, path: bytes) -> bytes | None:
    """A file as git reads its attributes: no link is followed on the way, and what is no file is nothing."""
    *folders, name = path.split(b"/")
    opened: list[int] = []
    try:
        opened.append(os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        for folder in folders:
            opened.append(
                os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=opened[-1])
            )
        opened.append(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=opened[-1]))
        status = os.fstat(opened[-1])
        if not stat.S_ISREG(status.st_mode) or status.st_size > _MOST_ATTRIBUTES:
            return None
        with open(opened[-1], "rb", closefd=False) as file:
            return file.read(_MOST_ATTRIBUTES)
    except OSError:
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)
