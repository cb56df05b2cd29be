"""Conflicts as values, and the ways to resolve them.

A conflict is a path and the up to three versions of it; the tree of a conflicted merge holds the rest, already merged.
A resolution is a new tree that differs from it at those paths only, which is checked in every case:

    resolve_by_side        one side's version of each path, mode and all
    extract, take_back     the versions as numbered files in a private folder, for an agent or a person to work on
    remember, recall       the same conflict is not asked about twice (`memory.py`)

Git moves a file that stands where the other side has a folder to `<path>~<commit>`; such leftovers are put back to
their own path or removed. Names never become paths: in the private folder a file is called `3.merged`, and
`manifest.json` says what it is.
"""

import base64
import json
import os
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from msgspec import Struct

from orchard.errors import OrchardError
from orchard.git.history import show_path
from orchard.git.objects.reader import GITLINK, SYMLINK, TREE, Entry, Objects
from orchard.git.repository import Repository
from orchard.git.scratch import private_file

FILE_LIMIT = 64 * 1024 * 1024
MANIFEST = "manifest.json"
TEXT_KINDS = frozenset({"content", "add/add", "modify/delete"})
"""Conflicts that someone who edits text files can resolve."""

Side = Literal["ours", "theirs"]

ConflictKind = Literal[
    "content",
    "add/add",
    "modify/delete",
    "rename",
    "directory-rename",
    "file/directory",
    "binary",
    "mode",
    "symlink",
    "submodule",
    "other",
]

# How merge-tree names its conflicts, in the order in which they tell more than the stages do.
_KINDS: tuple[tuple[str, ConflictKind], ...] = (
    ("CONFLICT (directory rename", "directory-rename"),
    ("CONFLICT (file location)", "directory-rename"),
    ("CONFLICT (rename", "rename"),
    ("CONFLICT (file/directory)", "file/directory"),
    ("CONFLICT (binary)", "binary"),
    ("CONFLICT (modify/delete)", "modify/delete"),
    ("CONFLICT (distinct", "mode"),
)


class Conflict(Struct, frozen=True):
    """A path on which the two sides do not agree; a side that has nothing there is None."""

    path: bytes
    kind: ConflictKind
    base: Entry | None
    ours: Entry | None
    theirs: Entry | None


class Message(Struct, frozen=True):
    """What merge-tree tells about some paths; `kind` is a stable word, `text` is for people."""

    paths: tuple[bytes, ...]
    kind: str
    text: str


class Merge(Struct, frozen=True):
    """What came of a merge. With conflicts the tree holds markers and must not be used as it is."""

    ours: str
    theirs: str
    tree: str
    conflicts: tuple[Conflict, ...] = ()
    messages: tuple[Message, ...] = ()

    @property
    def clean(self) -> bool:
        return not self.conflicts


class Resolution(Struct, frozen=True):
    """A tree without conflicts, and the paths that were decided to get there."""

    tree: str
    paths: tuple[bytes, ...]
    by: str = ""
    """Who decided: `ours`, `theirs`, `agent`, `hand`, `remembered`."""


def parse_merge(field: Callable[[], bytes], ours: str, theirs: str, *, clean: bool) -> Merge:
    """Read merge-tree's answer, NUL by NUL: a tree; the stages; an empty field; messages; an empty field."""
    tree = field().decode()
    stages: dict[bytes, dict[int, Entry]] = {}
    while row := field():
        about, _, path = row.partition(b"\t")
        mode, oid, stage = about.decode().split(" ")
        stages.setdefault(path, {})[int(stage)] = Entry(int(mode, 8), oid)
    messages = []
    # Some versions print advice about submodules, unasked and unmarked, in front of the last empty field.
    while (count := field()).isdigit():
        paths = tuple(field() for _ in range(int(count)))
        messages.append(Message(paths, field().decode(errors="replace"), field().decode(errors="replace").strip()))
    # Git 2.39 calls some merges clean although it tells of a conflict and leaves markers in a file.
    told = any(message.kind.startswith("CONFLICT") for message in messages)
    conflicts = () if clean and not told else _conflicts(stages, messages)
    return Merge(ours, theirs, tree, conflicts, tuple(messages))


def _conflicts(stages: dict[bytes, dict[int, Entry]], messages: Sequence[Message]) -> tuple[Conflict, ...]:
    """One conflict per path; some (a file moved out of a folder's way, a split folder) have only a message."""
    said: dict[bytes, list[str]] = {}
    for message in messages:
        for path in message.paths:
            said.setdefault(path, []).append(message.kind)
    told = {path for message in messages if message.kind.startswith("CONFLICT") for path in message.paths[:1]}
    if not stages and not told:
        return (Conflict(b"", "other", None, None, None),)
    found = []
    for path in sorted(stages.keys() | told):
        three = stages.get(path, {})
        kind = _kind(three, said.get(path, []))
        found.append(Conflict(path, kind, three.get(1), three.get(2), three.get(3)))
    return tuple(found)


def _kind(stages: dict[int, Entry], said: Sequence[str]) -> ConflictKind:
    modes = {entry.mode for entry in stages.values()}
    if GITLINK in modes:
        return "submodule"
    if SYMLINK in modes:
        return "symlink"
    for word, kind in _KINDS:
        if any(one.startswith(word) for one in said):
            return kind
    ours, theirs = stages.get(2), stages.get(3)
    if ours is not None and theirs is not None:
        if ours.oid == theirs.oid:
            return "mode"
        return "content" if 1 in stages else "add/add"
    return "modify/delete" if 1 in stages and (ours or theirs) else "other"


class BadResolution(OrchardError):
    def __init__(self, message: str, hint: str = "Resolve it by hand, or say which side to prefer.") -> None:
        super().__init__(message, hint)


def resolve_by_side(repo: Repository, objects: Objects, merge: Merge, side: Side) -> Resolution:
    """Take one side's version of everything in conflict; what was merged without conflict stays as it is."""
    removed: set[bytes] = set()
    placed: dict[bytes, Entry] = {}
    for conflict in merge.conflicts:
        chosen = conflict.ours if side == "ours" else conflict.theirs
        if not conflict.path:
            raise BadResolution("Git reports a conflict without saying where, so no side can be taken.")
        if conflict.kind == "directory-rename" and conflict.base is None and None in (conflict.ours, conflict.theirs):
            continue  # A new file whose folder was renamed: both sides want it, where git put it.
        home, owner = own_path(merge, conflict.path)
        if conflict.base is None and conflict.ours is None and conflict.theirs is None:
            if owner is None:
                continue  # A remark about a folder; git names no version of anything.
            chosen = objects.entry(merge.tree, conflict.path) if owner == side else None
        removed.add(conflict.path)
        if chosen is not None:
            placed[home] = chosen
    for home in list(placed):
        below = objects.entry(merge.tree, home)
        if below is not None and below.mode == TREE:
            removed |= {home + b"/" + change.path for change in objects.diff_trees(None, below.oid)}
    tree = rebuild(repo, objects, merge, {**dict.fromkeys(removed), **placed})
    return Resolution(tree, tuple(sorted(removed | placed.keys())), side)


def extract(objects: Objects, merge: Merge, folder: Path) -> None:
    """Write every version of every conflicted file into an empty folder; `<n>.merged` is the one to edit.

    Removing `<n>.merged` means deleting the file, where one side did so.
    """
    difficult = [conflict for conflict in merge.conflicts if conflict.kind not in TEXT_KINDS]
    if difficult:
        shown = ", ".join(f"{show_path(one.path)} ({one.kind})" for one in difficult[:5])
        raise BadResolution(f"These conflicts are not about text, so a person has to decide: {shown}.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise BadResolution(f"The folder {folder} is not empty.", hint="Give an empty folder.")
    rows = []
    for number, conflict in enumerate(merge.conflicts, 1):
        merged = objects.entry(merge.tree, conflict.path)
        versions = {"base": conflict.base, "ours": conflict.ours, "theirs": conflict.theirs, "merged": merged}
        for name, entry in versions.items():
            if entry is not None:
                (folder / f"{number}.{name}").write_bytes(objects.read(entry.oid)[1])
        path = base64.b64encode(conflict.path).decode()
        rows.append({"file": f"{number}.merged", "path": show_path(conflict.path), "raw": path, "kind": conflict.kind})
    (folder / MANIFEST).write_text(json.dumps({"conflicts": rows}, indent=2) + "\n")


def take_back(repo: Repository, objects: Objects, merge: Merge, folder: Path) -> Resolution:
    """Read what became of the extracted files; whatever is not a plain, complete answer fails."""
    names = ("base", "ours", "theirs", "merged")
    known = {f"{number}.{name}" for number in range(1, len(merge.conflicts) + 1) for name in names} | {MANIFEST}
    extra = sorted(entry.name for entry in folder.iterdir() if entry.name not in known)
    if extra:
        raise BadResolution(f"There are files that do not belong here: {', '.join(map(repr, extra[:5]))}.")
    changes: dict[bytes, Entry | None] = {}
    for number, conflict in enumerate(merge.conflicts, 1):
        content = _read_plain(folder / f"{number}.merged")
        if content is None and conflict.kind != "modify/delete":
            raise BadResolution(f"The resolved version of {show_path(conflict.path)} is missing.")
        changes[conflict.path] = None if content is None else _store(repo, objects, conflict, content)
    return Resolution(rebuild(repo, objects, merge, changes), tuple(sorted(changes)), "agent")


def own_path(merge: Merge, path: bytes) -> tuple[bytes, Side | None]:
    """Where a file belongs that git moved to `<path>~<commit>`, and whose it is."""
    found = re.fullmatch(rb"(?s)(.*)~([0-9a-f]{40,64})(_[0-9]+)?", path)
    label = found[2].decode() if found else ""
    if found is None or label not in (merge.ours, merge.theirs):
        return path, None
    return found[1], "ours" if label == merge.ours else "theirs"


def merged_mode(conflict: Conflict) -> int:
    """The mode that a resolved file has: what changed it wins, ours where both did."""
    ours, theirs = conflict.ours, conflict.theirs
    if ours is None or theirs is None:
        entry = ours or theirs or conflict.base
        assert entry is not None
        return entry.mode
    return theirs.mode if conflict.base is not None and ours.mode == conflict.base.mode else ours.mode


def _read_plain(file: Path) -> bytes | None:
    """A file that is really one; a link, a pipe or a folder in its place is refused, not followed."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BadResolution(f"{file.name} cannot be read: {error.strerror}.") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > FILE_LIMIT:
            raise BadResolution(f"{file.name} is not a plain file, or it is too large.")
        parts = []
        while part := os.read(descriptor, 1 << 20):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def _store(repo: Repository, objects: Objects, conflict: Conflict, content: bytes) -> Entry:
    """Keep a resolved file as an object, unless it still has markers that neither side brought."""
    sides = [objects.read(entry.oid)[1] for entry in (conflict.ours, conflict.theirs) if entry is not None]
    before = {line for side in sides for line in side.splitlines()}
    for line in content.splitlines():
        if re.match(rb"(<<<<<<<|>>>>>>>|\|\|\|\|\|\|\|)( |$)", line) and line not in before:
            raise BadResolution(f"There are conflict markers left in {show_path(conflict.path)}.")
    # `--no-filters`: the bytes are what is in the repository, not what a checkout shows.
    oid = repo.git("hash-object", "-w", "--no-filters", "--stdin", stdin=content).text
    return Entry(merged_mode(conflict), oid)


def rebuild(repo: Repository, objects: Objects, merge: Merge, changes: Mapping[bytes, Entry | None]) -> str:
    zero = "0" * len(merge.tree)
    # Removals first: a folder has to be gone before a file can take its place.
    rows = [f"0 {zero}\t".encode() + path for path, entry in changes.items() if entry is None]
    rows += [f"{one.mode:o} {one.oid}\t".encode() + path for path, one in changes.items() if one is not None]
    with private_file(repo) as index:
        git = repo.git.with_index(index)
        git("read-tree", merge.tree, timeout=600)
        git("update-index", "-z", "--index-info", stdin=b"".join(row + b"\0" for row in rows))
        tree = git("write-tree", timeout=600).text
    verify(objects, merge.tree, tree, changes)
    return tree


def verify(objects: Objects, before: str, after: str, changes: Mapping[bytes, Entry | None]) -> None:
    """BadResolution unless two trees differ by these changes and nothing else."""
    for change in objects.diff_trees(before, after):
        if change.path not in changes or change.new != changes[change.path]:
            raise BadResolution(f"The resolution would also change {show_path(change.path)}.")
