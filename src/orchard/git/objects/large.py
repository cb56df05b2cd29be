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

from orchard.files import held, is_hollow, open_plain
from orchard.git.repository import Repository
from orchard.process.sandbox.policy import Mount

DRIVER = "filter.lfs"
_PART, _NAME = re.compile("[0-9a-f]{2}"), re.compile("[0-9a-f]{64}")
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
    for place, name in _found(folder):
        goal = kept / "objects" / name[:2] / name[2:4] / name
        brought = goal.exists() or _copied(place, name, goal, kept / "tmp", most)
        with suppress(OSError):
            if brought:
                os.unlink(name, dir_fd=place)
            else:
                os.rename(name, f"{name}.refused", src_dir_fd=place, dst_dir_fd=place)
        if not brought:
            refused.append(name)
    return refused


def is_empty(folder: Path) -> bool:
    """Most jobs have no such folder."""
    return not os.path.lexists(folder) or next(_found(folder), None) is None


def _found(folder: Path) -> Iterator[tuple[int, str]]:
    """Files that are called as LFS calls them, each with the open folder that it is in.

    A program of the job may still run. It can put a link in the place of a folder, but not in that of an open one.
    """
    with suppress(OSError), held(folder, "objects") as top:
        for first in _names(top, _PART):
            with suppress(OSError), held(first, around=top) as outer:
                for second in _names(outer, _PART):
                    with suppress(OSError), held(second, around=outer) as place:
                        yield from ((place, name) for name in _names(place, _NAME))


def _names(place: int, fits: re.Pattern[str]) -> list[str]:
    with os.scandir(place) as found:
        return [one.name for one in found if fits.fullmatch(one.name) and not one.is_symlink()]


def _copied(place: int, name: str, goal: Path, scratch: Path, most: int | None) -> bool:
    """Whether the content is what its name says: only then it comes to have that name."""
    part = scratch / f"orchard-{secrets.token_hex(8)}"
    said = hashlib.sha256()
    try:
        scratch.mkdir(exist_ok=True)
        with open_plain(name, place) as source:
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
