"""Large files that a job's git LFS wrote: kept in a folder of the job's, and brought to the repository's after a look.

LFS keeps content beside git's objects, in `lfs`, by the name of its SHA-256; what git keeps is a note with that name. A
commit of a job's whose notes name content that nobody else has would lose it. So the job's LFS has a folder of its
own in the place of the repository's, as git has for objects. The repository's stands where LFS looks for content by
itself: beside the objects that `objects/info/alternates` names.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from orchard.files import is_hollow, open_plain
from orchard.git.folders import entries
from orchard.git.repository import Repository
from orchard.process.sandbox.policy import Mount

DRIVER = "filter.lfs"
_NAME = re.compile("[0-9a-f]{64}")
_BLOCK = 1 << 20


def store(repo: Repository) -> Path | None:
    """Where the repository keeps large files; None: it has none, or elsewhere."""
    folder = repo.common_dir / "lfs"
    return folder if folder.is_dir() and not folder.is_symlink() and not repo.config(r"^lfs\.storage$") else None


def mounts(folder: Path, kept: Path, seen_at: Path) -> tuple[Mount, ...]:
    """The job's folder in the place of the repository's, and that one beside the place where objects are seen."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    return Mount(kept, seen_at.parent / "lfs"), Mount(folder, kept, writable=True)


def bring_in(kept: Path, folder: Path, most: int | None = None) -> list[str]:
    """Bring what is new to the repository's; the names of what is not what it is called, which loses that name.

    What is mostly holes, or has more than `most` bytes, is not read at all.
    """
    refused = []
    for path in _found(folder):
        goal = kept / "objects" / path.name[:2] / path.name[2:4] / path.name
        brought = goal.exists() or _copied(path, goal, kept / "tmp", most)
        with suppress(OSError):
            path.unlink() if brought else path.rename(path.with_name(f"{path.name}.refused"))
        if not brought:
            refused.append(path.name)
    return refused


def is_empty(folder: Path) -> bool:
    """Most jobs have no such folder."""
    return not os.path.lexists(folder) or next(_found(folder), None) is None


def _found(folder: Path) -> Iterator[Path]:
    """Files that are called as LFS calls them, in folders that are no links."""
    top = folder / "objects"
    if folder.is_symlink() or top.is_symlink():
        return
    for first in entries(top):
        for second in entries(first.path) if first.is_dir(follow_symlinks=False) else ():
            for one in entries(second.path) if second.is_dir(follow_symlinks=False) else ():
                if _NAME.fullmatch(one.name) and one.is_file(follow_symlinks=False):
                    yield Path(one.path)


def _copied(path: Path, goal: Path, scratch: Path, most: int | None) -> bool:
    """Whether the content is what its name says: only then it comes to have that name."""
    part = scratch / f"orchard-{secrets.token_hex(8)}"
    said = hashlib.sha256()
    try:
        scratch.mkdir(exist_ok=True)
        with open_plain(path) as source:
            found = os.fstat(source.fileno())
            if is_hollow(found) or (most is not None and found.st_size > most):
                return False
            with part.open("xb") as out:
                while block := source.read(_BLOCK):
                    said.update(block)
                    out.write(block)
                out.flush()
                os.fsync(out.fileno())
        if said.hexdigest() != goal.name:
            return False
        goal.parent.mkdir(parents=True, exist_ok=True)
        part.replace(goal)
    except OSError:
        return False
    finally:
        part.unlink(missing_ok=True)
    return True
