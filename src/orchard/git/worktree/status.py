"""What lies in a worktree, seen without running anything that lies there.

Two commands and one walk over the folders find all of it: `ls-files` shows submodules and the flags
that would hide an edit from git, `status` shows what differs, the walk shows what git never mentions
(repositories inside folders that are tracked, pipes and sockets, empty folders, what cannot be read).

`git add -A` and a plain `git status` start a git inside every submodule, with that submodule's own
settings; a job can put a program there. So git is told not to look into submodules, and files are
staged by name.
"""

import hashlib
import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from orchard.files import open_plain
from orchard.git.command import Blocked, Git, GitError
from orchard.git.folders import lstat, parents
from orchard.git.objects.reader import ObjectMissing
from orchard.git.pipes import ELSEWHERE, special_notes
from orchard.patterns import later
from orchard.text import escaped

PACKED_FROM = 100
"""From this many files on, their contents are stored in one pack: 10,000 take 1 s, not 5 to 15."""

ADD_TIMEOUT = 600.0

PICTURED = 1_000
"""Up to this many files and folders a second look is cheaper by ourselves than by git."""

FINGERPRINTED = 20_000
"""Ignored files and folders that a fingerprint takes in."""
PARTIAL = "partial:"
FINGERPRINTED_BYTES = 4 * 1024 * 1024

VANISHED_TRIES = 16
_VANISHED = later(
    r"nonexistent|missing|bad (tree |blob |commit )?object|unable to (read|find)|not a (valid|tree|commit)"
    r"|invalid object|No such file"
)

_SPARSE_CONFIG = "core.sparsecheckout"
_READ_BY_GIT = frozenset({b".gitignore", b".gitattributes", b".gitmodules", b".mailmap"})
"""Names in a worktree that git opens, whatever lies there."""

LOOKS_SHARE = 30
"""How much longer than a look through all refs it takes until the next one."""
SHORT_LOOK = 0.0005
"""A look that takes less than this is worth its seconds each time."""
_next_look: dict[Path, float] = {}
"""When the refs of each repository are to be looked through again."""


class Contents(Struct, frozen=True):
    """Every difference between a worktree's folder, its index and its HEAD; paths as git has them."""

    head: str | None
    changed: tuple[bytes, ...]
    """In the folder otherwise than in the index, unmerged paths included."""
    staged: tuple[bytes, ...]
    untracked: tuple[bytes, ...]
    ignored: tuple[bytes, ...]
    unmerged: tuple[bytes, ...]
    submodules: tuple[bytes, ...]
    nested: tuple[bytes, ...]
    """Folders with a `.git` of their own that are not submodules of HEAD or the index."""
    special: tuple[bytes, ...]
    """Pipes, sockets and devices: git does not store them."""
    empty_folders: bool
    hidden: bool
    """Some index entries carried flags that keep git from looking at the file."""
    moved: tuple[tuple[bytes, str], ...] = ()
    """Submodules that are at another commit than HEAD says, and that commit; a look at the folder alone finds none."""

    @property
    def clean(self) -> bool:
        """Whether index and folder hold what HEAD holds, and nothing more but ignored files."""
        return not (self.changed or self.staged or self.untracked or self.unmerged or self.moved)

    @property
    def clutter(self) -> bool:
        """Whether there is something that a checkout would leave lying around."""
        return bool(self.untracked or self.ignored or self.special or self.nested or self.empty_folders)


def look(git: Git, path: Path, *, untouched: bool = False) -> Contents:
    """Everything that differs; flags that hide edits are taken off the index that `git` names.

    `untouched`: the index is as we made it, from a tree without submodules, so that no flag can be on it.
    OSError if a folder cannot be read: what is not seen cannot be called saved. Blocked if git would wait for ever.
    """
    walked = walk_unblocked(git, path)
    submodules: list[bytes] = []
    hidden = False
    if not untouched:
        submodules, flagged = _index_entries(git)
        hidden = _unhide(git, path, flagged)
    found: dict[str, list[bytes]] = {"changed": [], "staged": [], "untracked": [], "ignored": [], "unmerged": []}
    head = _read_status(git, found)
    # What a submodule's folder holds is for `submodules_in` to say; that it is gone means nothing.
    top = os.fsencode(path) + b"/"
    kept = set(submodules)
    found["changed"] = [name for name in found["changed"] if name not in kept or _is_file(top + name)]
    nested, special, empty = walked.outside({row.rstrip(b"/") for row in found["ignored"]})
    # Git shows a repository inside an untracked folder as "folder/", and never looks into it.
    nested += [row.rstrip(b"/") for row in found["untracked"] if row.endswith(b"/")]
    below = tuple(name + b"/" for name in submodules)  # what is in those is for `submodules_in` as well
    return Contents(
        head=head,
        changed=tuple(found["changed"]),
        staged=tuple(found["staged"]),
        untracked=tuple(found["untracked"]),
        ignored=tuple(found["ignored"]),
        unmerged=tuple(found["unmerged"]),
        submodules=tuple(submodules),
        nested=tuple(sorted(one for one in {*nested} - kept if not one.startswith(below))),
        special=tuple(special),
        empty_folders=empty,
        hidden=hidden,
    )


class Picture(Struct, frozen=True):
    """What changes as soon as anything below a folder does."""

    digest: bytes
    odd: tuple[bytes, ...]
    """Files and folders with other rights than git gives them here, and files with a second name."""


class Left(Struct, frozen=True):
    """What a folder was found to hold, and what tells whether it holds just that later on."""

    contents: Contents
    picture: Picture | None
    """From before it was looked at; None: there is too much in it."""
    stamps: bytes = b""
    """Of what differs, from before that was read; empty where there is a picture."""


def picture(path: Path, index: Path | None = None) -> Picture | None:
    """A picture of a folder; None where there is too much to look at, as the index of the folder may tell at once.

    Only the kernel sets the time of a change: where two pictures are the same, nothing happened between.
    """
    if index is not None and indexed(index) > PICTURED:
        return None
    rows: list[bytes] = []
    odd: list[bytes] = []
    folders = [os.fsencode(path)]
    usual = usual_modes(path)
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                mode, place = found.st_mode, entry.path
                rows.append(b"%s\0%d %d %d %d %d" % (place, *stamp(found)))
                if stat.S_ISDIR(mode):
                    folders.append(place)
                elif found.st_nlink != 1 and stat.S_ISREG(mode):
                    odd.append(place)
                if mode not in usual and not stat.S_ISLNK(mode):
                    odd.append(place)
                if len(rows) > PICTURED:
                    return None
    return Picture(hashlib.sha256(b"\0".join(sorted(rows))).digest(), tuple(sorted(odd)))


def indexed(index: Path) -> int:
    """How many files an index lists, by its header; 0 where that cannot be told."""
    with suppress(OSError), open_plain(index) as file:
        header = file.read(12)
        return int.from_bytes(header[8:12], "big") if header[:4] == b"DIRC" else 0
    return 0


def seen_as(path: Path, contents: Contents, seen: Picture | None) -> Left:
    """What was found in a folder just now; `seen` is its picture from before the look."""
    return Left(contents, seen, stamps(path, contents) if seen is None else b"")


def stamps(path: Path, contents: Contents) -> bytes:
    """What changes as soon as a program writes to a file that differs from what HEAD holds."""
    digest = hashlib.sha256()
    top = os.fsencode(path) + b"/"
    for name in sorted({*contents.changed, *contents.untracked, *contents.staged}):
        found = lstat(top + name)
        digest.update(name + b"\0-\n" if found is None else b"%s\0%d %d %d %d %d\n" % (name, *stamp(found)))
    return digest.digest()


def stamp(found: os.stat_result) -> tuple[int, int, int, int, int]:
    """What differs as soon as a program writes to a file or replaces it."""
    return found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def usual_modes(path: Path) -> frozenset[int]:
    """The modes that git gives to files and folders of a worktree, by those of the worktree and its `.git`."""
    try:
        plain = stat.S_IMODE((path / ".git").lstat().st_mode)
        folder = path.lstat().st_mode
    except OSError:
        return frozenset()
    return frozenset({folder, stat.S_IFREG | plain, stat.S_IFREG | plain | (plain & 0o444) >> 2})


def fingerprint(
    git: Git,
    path: Path,
    but: Callable[[str], bool] = lambda name: False,
    inside: Callable[[tuple[bytes, ...]], Iterable[bytes]] = lambda submodules: (),
) -> str:
    """What differs as soon as a program has changed something in a folder: files, their contents, HEAD, the index.

    Of large files, and of what is ignored, only sizes and times are looked at. New files that `but` names are left out.
    What `inside` tells of submodules is taken in. Where not all of it was looked at, it begins with `PARTIAL`.
    """
    contents = look(git, path)
    digest = hashlib.sha256(repr((contents.head, contents.staged, contents.ignored, contents.special)).encode())
    top = os.fsencode(path) + b"/"
    untracked = (name for name in contents.untracked if not but(os.fsdecode(name)))
    for name in sorted({*contents.changed, *untracked, *contents.staged}):
        digest.update(name + b"\0" + _content(top + name) + b"\n")
    for told in inside(contents.submodules):
        digest.update(told)
    seen, waiting = 0, [top + name for name in contents.ignored]
    while waiting and seen < FINGERPRINTED:
        place = waiting.pop().rstrip(b"/")
        seen += 1
        digest.update(place + b"\0" + _stamp(place) + b"\n")
        with suppress(OSError), os.scandir(place) as entries:
            waiting += sorted(entry.path for entry in entries)
    return f"{PARTIAL if waiting else ''}{digest.hexdigest()}"


def _content(place: bytes) -> bytes:
    try:
        file = open_plain(place)
    except OSError:
        return _stamp(place)
    with file:
        found = os.fstat(file.fileno())
        if found.st_size > FINGERPRINTED_BYTES:
            return _stamp(place)
        return b"%o " % found.st_mode + hashlib.sha256(file.read(FINGERPRINTED_BYTES)).digest()


def _stamp(place: bytes) -> bytes:
    found = lstat(place)
    return b"-" if found is None else b"%d %d %d" % (found.st_mode, found.st_size, found.st_mtime_ns)


def stage(git: Git, path: Path, contents: Contents) -> tuple[bytes, ...]:
    """Bring the index that `git` names in line with the folder; returns the files whose names git does not store."""
    top = os.fsencode(path)
    wanted = set(contents.changed) | set(contents.untracked)
    # A tracked file that a pipe or a folder has replaced is gone as far as git can tell, and so is one whose folder
    # became a link: what is found behind that is something else.
    links: dict[bytes, bool] = {b"": False}
    gone = {name for name in wanted if _is_behind_link(top, name, links) or not _storable(top + b"/" + name)}
    _update_index(git, ("--force-remove",), gone)
    refused = _update_index(git, ("--add", "--remove", "--replace"), wanted - gone)
    if contents.moved:
        rows = b"".join(b"160000 %s\t%s\0" % (commit.encode(), name) for name, commit in contents.moved)
        git("update-index", "-z", "--index-info", stdin=rows)
    return refused


def try_again(error: GitError | ObjectMissing | OSError, number: int) -> bool:
    """Whether to hash everything once more, after a short wait, because objects vanished under us.

    `git gc --prune=now`, run by a user, deletes what has no name yet. One more try is always
    made, also for a damaged index; further ones only if git says that an object is not there.
    """
    if number == 0:
        return True
    vanished = isinstance(error, ObjectMissing) or (isinstance(error, GitError) and _VANISHED.search(error.stderr))
    again = number < VANISHED_TRIES and bool(vanished)
    if again:
        time.sleep(min(0.02 * 2**number, 0.5))
    return again


def display(path: bytes) -> str:
    """A path for people: what is not printable is escaped."""
    return escaped(path.decode(errors="backslashreplace"))


def _update_index(git: Git, options: tuple[str, ...], paths: Iterable[bytes]) -> tuple[bytes, ...]:
    """Have git look at these paths; returns those that it passed over.

    `update-index` ignores names that could be `.git` somewhere: it says so and ends with 0. With `--verbose` it prints
    a line for each path that it did something with, and every other one was ignored. Git ends its pack before each such
    line, and syncs it, so it is asked for them only where it ignored something.
    """
    names = sorted(paths)
    if not names:
        return ()
    rows = b"".join(name + b"\0" for name in names)
    if len(names) >= PACKED_FROM:
        # Files above this size go into one pack, written and synced once; loose ones cost a sync each.
        git = git.with_config(core__bigFileThreshold="1")
    done = git("update-index", *options, "-z", "--stdin", stdin=rows, timeout=ADD_TIMEOUT)
    if b"gnoring path" not in done.stderr:
        return ()
    done = git("update-index", "--verbose", *options, "-z", "--stdin", stdin=rows, timeout=ADD_TIMEOUT)
    verb = b"remove" if "--force-remove" in options else b"add"
    place, missing = 0, []
    for name in names:
        line = b"%s '%s'\n" % (verb, name)
        if done.stdout.startswith(line, place):
            place += len(line)
        else:
            missing.append(name)
    return tuple(missing)


def _is_file(path: bytes) -> bool:
    return os.path.lexists(path) and (Path(os.fsdecode(path)).is_symlink() or not Path(os.fsdecode(path)).is_dir())


def _is_behind_link(top: bytes, name: bytes, known: dict[bytes, bool]) -> bool:
    """Whether a folder on the way to this name is a link by now."""
    near = name.rpartition(b"/")[0]
    if near not in known:  # from the top on, and not by calling itself: a job nests folders deeper than the stack
        behind = known.get(b"", False)
        for folder in (*parents(near), near):
            if folder not in known:
                known[folder] = behind or Path(os.fsdecode(top + b"/" + folder)).is_symlink()
            behind = known[folder]
    return known[near]


def _storable(path: bytes) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return True  # deleted, which is what update-index will find too
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _index_entries(git: Git) -> tuple[list[bytes], list[bytes]]:
    """The submodules of the index, and the paths that git was told not to look at."""
    submodules, flagged = [], []
    for row in git("ls-files", "-v", "-s", "-z").fields:
        # "H 100644 <oid> 0\t<path>"; the letter is small for assume-unchanged and S for skip-worktree.
        facts, _, name = row.partition(b"\t")
        if facts[2:8] == b"160000":
            submodules.append(name)
        if facts[:1] == b"S" or facts[:1].islower():
            flagged.append(name)
    return submodules, flagged


def _unhide(git: Git, path: Path, flagged: list[bytes]) -> bool:
    """Take those flags off that hide a file, and leave those that a sparse checkout has put there."""
    if not flagged:
        return False
    sparse = git("config", "--type=bool", "--get", _SPARSE_CONFIG, ok=(0, 1)).text == "true"
    top = os.fsencode(path) + b"/"
    hiding = [name for name in flagged if not sparse or os.path.lexists(top + name)]
    for option in ("--no-assume-unchanged", "--no-skip-worktree"):
        _update_index(git, (option,), hiding)
    return bool(hiding)


def _read_status(git: Git, found: dict[str, list[bytes]]) -> str | None:
    """Sort the rows of `status --porcelain=v2`, and return HEAD."""
    options = ("--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--ignored=matching")
    rows = iter(git("status", *options, "--no-renames", "--ignore-submodules=dirty", timeout=ADD_TIMEOUT).fields)
    head = None
    for row in rows:
        kind = row[:2]
        if row.startswith(b"# branch.oid "):
            head = None if row.endswith(b"(initial)") else row[13:].decode()
        elif kind == b"? ":
            found["untracked"].append(row[2:])
        elif kind == b"! ":
            found["ignored"].append(row[2:])
        elif kind == b"u ":
            name = row.split(b" ", 10)[10]
            found["unmerged"].append(name)
            found["changed"].append(name)
        elif kind == b"1 ":
            name = row.split(b" ", 8)[8]
            if row[2:3] != b".":
                found["staged"].append(name)
            if row[3:4] != b".":
                found["changed"].append(name)
    return head


class _Walked(Struct, frozen=True):
    """What a walk over all folders found that git does not mention."""

    nested: list[bytes]
    special: list[bytes]
    empty: list[bytes]
    """Folders with nothing in them, each with a slash at its end."""

    def outside(self, ignored: set[bytes]) -> tuple[list[bytes], list[bytes], bool]:
        """Repositories, special files, and whether there are empty folders, without what is ignored."""

        def counts(name: bytes) -> bool:
            parts = name.rstrip(b"/").split(b"/")
            return not any(b"/".join(parts[:number]) in ignored for number in range(1, len(parts) + 1))

        if not ignored:
            return self.nested, self.special, bool(self.empty)
        special = [name for name in self.special if name in ignored or counts(name)]
        return [one for one in self.nested if counts(one)], special, any(counts(one) for one in self.empty)


def _walk(path: Path) -> _Walked:
    found = _Walked([], [], [])
    folders = [b""]
    top = os.fsencode(path)
    while folders:
        folder = folders.pop()
        with os.scandir(top + b"/" + folder) as entries:
            alone = True
            for entry in entries:
                alone = False
                if entry.name == b".git":
                    # The file at the top is ours, and points to what git keeps for this worktree.
                    if folder or entry.is_dir(follow_symlinks=False):
                        found.nested.append(folder.rstrip(b"/") or b".")
                elif entry.is_file(follow_symlinks=False):  # first: nearly all of them are
                    continue
                elif entry.is_dir(follow_symlinks=False):
                    folders.append(folder + entry.name + b"/")
                elif not entry.is_symlink():
                    found.special.append(folder + entry.name)
            if alone:
                found.empty.append(folder)
    return found


def walk_unblocked(git: Git, path: Path) -> _Walked:
    """Walk over all folders; Blocked if git would wait for ever at something in them, or in its own."""
    refuse_blocked_notes(git)
    walked = _walk(path)
    if blocking := sorted(name for name in walked.special if name.rpartition(b"/")[2].lower() in _READ_BY_GIT):
        raise Blocked(path, blocking)
    return walked


def refuse_blocked_notes(git: Git, *, thorough: bool = False) -> None:
    """Raise `Blocked` if what git keeps about a worktree, or about the repository, holds a pipe or device.

    A repository has a folder of refs for every job that ever ran there. So unless `thorough`, those are looked through
    only once in a while; a git that meets a pipe there in between is stopped and says so.
    """
    if git.git_dir != git.common_dir and (found := special_notes(git.git_dir)):
        raise Blocked(git.git_dir, found)
    began = time.monotonic()
    every = thorough or began >= _next_look.get(git.common_dir, 0.0)
    if found := special_notes(git.common_dir, ELSEWHERE if every else ELSEWHERE | {b"refs", b"logs"}):
        raise Blocked(git.common_dir, found)
    if every:
        ended = time.monotonic()
        _next_look[git.common_dir] = ended + LOOKS_SHARE * max(0.0, ended - began - SHORT_LOOK)
