"""Conflicts that a person resolves in a worktree, as git itself would leave them there.

    marked       a commit with the merge in it: its files have the usual markers, with the names of both sides
    unmerge      the index of a worktree as `git merge` leaves it, so that `git status`, `git add` and mergetools work
    leftover     what is still to be decided there
    resolution   the tree that the person made of it

A path is decided when its markers are gone, or when the person edited, replaced or removed it; what has no markers (a
binary file, one that a side deleted) can also be left as it is with `git add`, as in any merge. A person may change
more than what is in conflict, for a merge can need that; an agent may not.
"""

import re
from collections.abc import Mapping

from msgspec import Struct

from orchard.git.command import Git, GitError
from orchard.git.history import show_path
from orchard.git.merge.conflicts import BadResolution, Conflict, Merge, Resolution, rebuild
from orchard.git.objects.reader import GITLINK, Entry, Objects
from orchard.git.repository import Repository
from orchard.git.scratch import private_file

HAND = "hand"
"""Who decided, where a person did so in a worktree."""
READ_LIMIT = 64 * 1024 * 1024
"""Bytes of a file up to which it is searched for markers; git leaves none in files that large."""


class Names(Struct, frozen=True):
    """What a person calls the two sides."""

    ours: str
    theirs: str


class Left(Struct, frozen=True):
    """A path that is not decided yet."""

    path: bytes
    line: int | None = None
    """Where its first conflict marker is; None: it has none, and is as git left it."""


def refuse_impossible(merge: Merge) -> None:
    """BadResolution where nobody can resolve it by editing files."""
    links = [show_path(one.path) for one in merge.conflicts if one.kind == "submodule"]
    if links:
        raise BadResolution(
            f"Both sides moved the submodule {', '.join(links[:5])}, and that cannot be resolved in a worktree.",
            hint="Take one side's commit of it, or move the submodule yourself before the plan.",
        )
    if not any(one.path for one in merge.conflicts):
        raise BadResolution("Git reports a conflict without saying where, so there is nothing to edit.")


def marked_tree(repo: Repository, objects: Objects, merge: Merge, names: Names) -> str:
    """The tree of a merge with its markers, which name the sides as a person does."""
    changes: dict[bytes, Entry | None] = {}
    for conflict in merge.conflicts:
        entry = objects.entry(merge.tree, conflict.path)
        if entry is None or not entry.is_regular or objects.size(entry.oid) > READ_LIMIT:
            continue
        content = objects.read(entry.oid)[1]
        told = _label(content, merge, names)
        if told != content:
            oid = repo.git("hash-object", "-w", "--no-filters", "--stdin", stdin=told).text
            changes[conflict.path] = Entry(entry.mode, oid)
    return rebuild(repo, objects, merge, changes) if changes else merge.tree


def _label(content: bytes, merge: Merge, names: Names) -> bytes:
    said = {merge.ours.encode(): names.ours, merge.theirs.encode(): names.theirs}
    either = b"|".join(map(re.escape, said))

    def named(found: re.Match[bytes]) -> bytes:
        return found[1] + b" " + said[found[2]].encode(errors="replace")

    return re.sub(rb"(?m)^([<>|]+) (" + either + rb")(?=[:\r\n]|$)", named, content)


def unmerge(git: Git, merge: Merge) -> None:
    """Put the versions of every conflict into the index of a worktree, in place of what was checked out."""
    rows: list[bytes] = []
    for conflict in merge.conflicts:
        stages = [(number, one) for number, one in enumerate(_versions(conflict), 1) if one is not None]
        if stages:
            rows.append(f"0 {'0' * len(merge.tree)}\t".encode() + conflict.path)
        rows += [f"{one.mode:o} {one.oid} {number}\t".encode() + conflict.path for number, one in stages]
    git("update-index", "-z", "--index-info", stdin=b"".join(row + b"\0" for row in rows))


def is_untouched(git: Git) -> bool:
    """Whether a worktree is as it was checked out, so that an engine died before it could unmerge the index there."""
    if git("ls-files", "-u", "-z").fields or git("ls-files", "--resolve-undo", "-z").fields:
        return False
    return not git("status", "--porcelain", "-z", "--no-renames", timeout=600).fields


def _versions(conflict: Conflict) -> tuple[Entry | None, ...]:
    return conflict.base, conflict.ours, conflict.theirs


def leftover(repo: Repository, git: Git, objects: Objects, merge: Merge, marked: str) -> list[Left]:
    """What a person has not decided in a worktree of `marked`; nothing there is changed by looking."""
    open_paths = _unmerged(git)
    found: list[Left] = []
    now = _now(repo, git, [one.path for one in merge.conflicts if one.path], marked)
    for conflict in merge.conflicts:
        entry = now.get(conflict.path)
        line = _marker(objects, conflict, merge, entry) if entry is not None and entry.is_regular else None
        same = entry == objects.entry(marked, conflict.path)
        gone = entry is None and conflict.ours is None and conflict.theirs is None  # from where both sides moved it
        if line is not None or (same and not gone and conflict.path in open_paths):
            found.append(Left(conflict.path, line))
    return found


def _unmerged(git: Git) -> set[bytes]:
    rows = git("ls-files", "-u", "-z").fields
    return {row.partition(b"\t")[2] for row in rows}


def _now(repo: Repository, git: Git, paths: list[bytes], marked: str) -> Mapping[bytes, Entry]:
    """What the worktree has at these paths, by an index of our own."""
    with private_file(repo) as index:
        aside = git.with_index(index)
        aside("read-tree", marked, timeout=600)
        names = b"".join(path + b"\0" for path in paths)
        try:
            aside("update-index", "--add", "--remove", "--replace", "-z", "--stdin", stdin=names, timeout=600)
        except GitError as error:
            raise BadResolution(
                f"Git cannot read what is in the worktree: {error.stderr.strip() or error}",
                hint="Leave plain files, links or nothing where the conflicts were.",
            ) from error
        rows = aside("ls-files", "-s", "-z").fields
    wanted, found = set(paths), dict[bytes, Entry]()
    for row in rows:
        about, _, path = row.partition(b"\t")
        if path in wanted:
            mode, oid, _ = about.decode().split(" ")
            found[path] = Entry(int(mode, 8), oid)
    return found


def _marker(objects: Objects, conflict: Conflict, merge: Merge, entry: Entry) -> int | None:
    """The number of the first line that is a conflict marker which neither side brought."""
    if objects.size(entry.oid) > READ_LIMIT:
        return None
    sides = [one for one in (conflict.ours, conflict.theirs) if one is not None and one.is_regular]
    known = {line for one in sides for line in objects.read(one.oid)[1].splitlines()}
    content = objects.read(entry.oid)[1]
    if b"\0" in content[:8000]:
        return None  # git writes no markers into such a file
    for number, line in enumerate(content.splitlines(), 1):
        if re.match(rb"(<{7,}|>{7,}|\|{7,})( |$)", line) and line not in known:
            return number
    return None


def resolution(objects: Objects, merge: Merge, marked: str, tree: str) -> Resolution:
    """What a person made of a marked tree: every path in conflict is decided, and whatever else changed with it."""
    paths = {one.path for one in merge.conflicts if one.path}
    for change in objects.diff_trees(marked, tree):
        if change.new is not None and change.new.mode == GITLINK:
            raise BadResolution(
                f"{show_path(change.path)} is a git repository of its own now, and cannot be a part of the resolution.",
                hint="Move it out of the worktree.",
            )
        paths.add(change.path)
    return Resolution(tree, tuple(sorted(paths)), HAND)


def beside(merge: Merge, found: Resolution) -> list[bytes]:
    """What a person changed that was not in conflict."""
    return sorted(set(found.paths) - {one.path for one in merge.conflicts})
