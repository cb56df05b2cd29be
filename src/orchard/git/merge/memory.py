"""Resolutions, remembered: the same conflict is not asked about twice.

    by file    an agent's version of a file, found by the three versions that met, whatever the path and the commits
    whole      all that was decided in a merge, also that files are gone, found by all of its conflicts and their paths

What a person resolved by hand is apart from what agents did (`HAND`): it counts whatever the plan says of conflicts. A
person may have changed other files as well; those are changed again only where they are as they were then.

A whole resolution is kept as a git tree, so that nothing of it can be lost: `manifest` says what its files are.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from orchard.git.merge.by_hand import HAND, beside
from orchard.git.merge.conflicts import TEXT_KINDS, Conflict, Merge, Resolution, merged_mode, own_path, rebuild
from orchard.git.objects.reader import GITLINK, Entry, Objects
from orchard.git.refs import ANY, PREFIX, Update, job_ref_part, list_refs, read_ref, update_refs
from orchard.git.repository import Repository

SHARED = "__shared__"
"""In place of a plan, for resolutions that have landed: every plan of the repository may use them."""
WHOLE = "whole"
MANIFEST = "manifest"


def conflict_key(conflict: Conflict) -> str:
    """The same three versions make the same key, whatever the path and the commits, and whichever side came first."""
    base, *sides = (_said(entry) for entry in (conflict.base, conflict.ours, conflict.theirs))
    said = "|".join([base, *sorted(sides)])
    return hashlib.sha256(f"{conflict.kind}|{said}".encode()).hexdigest()


def _said(entry: Entry | None) -> str:
    return f"{entry.mode:o} {entry.oid}" if entry is not None else "-"


def remember(repo: Repository, plan: str, key: str, oid: str) -> None:
    update_refs(repo.git, [Update(_memory(plan, key), oid, ANY)], "orchard: resolution")


def recall(repo: Repository, plan: str, key: str) -> str | None:
    return read_ref(repo.git, _memory(plan, key))


def remember_all(repo: Repository, objects: Objects, plan: str, merge: Merge, resolution: Resolution) -> None:
    """Keep every file of a resolution that was made by editing text, and the whole where files say too little."""
    told = 0
    for conflict in merge.conflicts if not beside(merge, resolution) else ():
        entry = objects.entry(resolution.tree, conflict.path)
        if conflict.kind in TEXT_KINDS and entry is not None and entry.is_regular:
            remember(repo, plan, conflict_key(conflict), entry.oid)
            told += 1
    if resolution.by == HAND or told < len(merge.conflicts):
        kind = HAND if resolution.by == HAND else WHOLE
        remember(repo, plan, f"{kind}/{_whole_key(merge)}", _store(repo, objects, merge, resolution))


def resolve_from_memory(repo: Repository, objects: Objects, plan: str, merge: Merge) -> Resolution | None:
    """What an agent or a person decided about these conflicts before."""
    for kind in (HAND, WHOLE):
        if (found := _recall_whole(repo, objects, plan, merge, kind)) is not None:
            return found
    changes: dict[bytes, Entry | None] = {}
    for conflict in merge.conflicts:
        oid = recall(repo, plan, conflict_key(conflict)) if conflict.kind in TEXT_KINDS else None
        if oid is None or not objects.exists(oid):
            return None
        changes[conflict.path] = Entry(merged_mode(conflict), oid)
    return Resolution(rebuild(repo, objects, merge, changes), tuple(sorted(changes)), "remembered")


def resolve_as_by_hand(repo: Repository, objects: Objects, plan: str, merge: Merge) -> Resolution | None:
    """What a person decided in a worktree about just these conflicts."""
    return _recall_whole(repo, objects, plan, merge, HAND)


def share_memory(repo: Repository, plan: str) -> None:
    """Let other plans use what was resolved in this one: it has passed validation and landed."""
    prefix = _memory(plan, "")
    found = list_refs(repo.git, prefix.rstrip("/"))
    update_refs(
        repo.git,
        [Update(_memory(SHARED, ref.removeprefix(prefix)), oid, ANY) for ref, oid in found.items()],
        "orchard: resolution",
    )


def has_shared_memory(repo: Repository) -> bool:
    """Whether a plan that begins now may find conflicts that were resolved before, by plans that landed."""
    return bool(list_refs(repo.git, _memory(SHARED, "").rstrip("/")))


def _memory(plan: str, key: str) -> str:
    return f"{PREFIX}/resolutions/{job_ref_part(plan)}/{key}"


# ------------------------------------------------------------------------------------ whole resolutions


def _neutral(merge: Merge, path: bytes) -> bytes:
    """A path without the commit that git puts into the name of a file that it moved out of the way."""
    home, owner = own_path(merge, path)
    return path if owner is None else home + b"~" + owner.encode()


def _whole_key(merge: Merge) -> str:
    rows = sorted(
        b"|".join([one.kind.encode(), _neutral(merge, one.path), *(_said(e).encode() for e in _versions(one))])
        for one in merge.conflicts
    )
    return hashlib.sha256(b"\0".join(rows)).hexdigest()


def _versions(conflict: Conflict) -> tuple[Entry | None, ...]:
    return conflict.base, conflict.ours, conflict.theirs


def _store(repo: Repository, objects: Objects, merge: Merge, resolution: Resolution) -> str:
    rows, listed = list[bytes](), list[dict[str, Any]]()
    in_conflict = {one.path for one in merge.conflicts}
    for number, path in enumerate(resolution.paths):
        entry = objects.entry(resolution.tree, path)
        row: dict[str, Any] = {"path": base64.b64encode(_neutral(merge, path)).decode(), "gone": entry is None}
        if path not in in_conflict:
            row["before"] = _said(objects.entry(merge.tree, path))
        if entry is not None:
            sort = "commit" if entry.mode == GITLINK else "blob"
            rows.append(f"{entry.mode:06o} {sort} {entry.oid}\t{number}".encode())
        listed.append(row)
    manifest = repo.git("hash-object", "-w", "--stdin", stdin=json.dumps(listed).encode()).text
    rows.append(f"100644 blob {manifest}\t{MANIFEST}".encode())
    return repo.git("mktree", "-z", stdin=b"".join(row + b"\0" for row in rows)).text


def _recall_whole(repo: Repository, objects: Objects, plan: str, merge: Merge, kind: str) -> Resolution | None:
    kept = recall(repo, plan, f"{kind}/{_whole_key(merge)}")
    if kept is None or not objects.exists(kept):
        return None
    here = {_neutral(merge, one.path): one.path for one in merge.conflicts}
    changes: dict[bytes, Entry | None] = {}
    try:
        for path, entry, before in _kept(objects, kept):
            place = here.get(path, path)
            if before is not None and before != _said(objects.entry(merge.tree, place)):
                return None
            changes[place] = entry
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None  # not as we wrote it
    return Resolution(rebuild(repo, objects, merge, changes), tuple(sorted(changes)), "remembered")


def _kept(objects: Objects, tree: str) -> Iterator[tuple[bytes, Entry | None, str | None]]:
    entries = objects.tree_entries(tree)
    listed = json.loads(objects.read(entries[MANIFEST.encode()].oid)[1])
    for number, row in enumerate(listed):
        entry = None if row["gone"] else entries[str(number).encode()]
        yield base64.b64decode(row["path"]), entry, row.get("before")
