"""Objects that a job's own git wrote: kept in a folder of the job's, and brought into the repository after a look.

A job behind a wall cannot write to the repository's objects. Its git gets a folder of its own and reads the
repository's beside it. Behind a wall with mounts that folder stands in the place of the repository's (`mounts`), so
that git needs to be told nothing and other repositories of the job are as they always are; behind one without,
variables name it (`variables`), and they hold for every git of the job. `bring_in` brings what it wrote into the
repository before our own git looks at the worktree: an index or a HEAD may name objects that exist nowhere else.

The folder is a stranger's. Git is never pointed at it, since a file in it could name further folders to read from. What
looks like an object or a pack is copied into a folder of ours, and git reads, packs and checks that (`--strict`).
"""

import os
import re
import secrets
import shutil
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import groupby
from pathlib import Path

from msgspec import Struct

from orchard.errors import OrchardError
from orchard.files import is_hollow, open_plain, read_plain
from orchard.git.command import Git, GitError
from orchard.git.folders import entries
from orchard.git.repository import Repository
from orchard.git.scratch import SCRATCH
from orchard.process.sandbox.policy import Mount
from orchard.process.sandbox.wall import Wall

FOLDER = "GIT_OBJECT_DIRECTORY"
"""The variable by which a job's git finds where to write."""
_FOLDER, _LOOSE = re.compile("[0-9a-f]{2}"), re.compile("[0-9a-f]{38}|[0-9a-f]{62}")
_PACK = re.compile(r"pack-[0-9a-f]{40,64}\.pack")
LARGEST = 2 << 30
"""Bytes that are brought in at once."""
_HEADER, _BLOCK = 64, 1 << 20
_TIMEOUT = 600.0


class Brought(Struct, frozen=True):
    objects: int = 0
    refused: str | None = None
    """Why some of them stayed where they are."""


def variables(folder: Path, repo: Repository) -> dict[str, str]:
    """What a job's git is told so that it writes there."""
    return {
        FOLDER: str(folder),
        "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(repo.common_dir / "objects"),
    }


def mounts(folder: Path, repo: Repository, seen_at: Path) -> tuple[Mount, ...]:
    """The folder in the place of the repository's objects, and these at a path that the folder's notes name."""
    objects = repo.common_dir / "objects"
    said = "".join(f"{path}\n" for path in (seen_at, *alternates(repo)))
    try:
        # Through no link: behind the weaker wall a job may have put one in the place of a folder.
        with suppress(FileExistsError), _held(folder) as top, _held("info", top) as info:
            note = os.open("alternates", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=info)
            with os.fdopen(note, "w", encoding="utf-8", errors="surrogateescape") as file:
                file.write(said)
    except OSError as error:
        raise OrchardError(
            f"The folder {folder}, which was made for the git of a job, is another one now: {error.strerror}.",
            hint="Look into it, and remove it; then retry the job.",
        ) from error
    return (
        Mount(objects, seen_at),
        Mount(folder, objects, writable=True),
        Mount(folder / "info", objects / "info"),
    )


def alternates(repo: Repository) -> tuple[Path, ...]:
    """Folders where the repository reads further objects (`git clone --shared`), those that they name in turn among
    them.

    Jobs cannot write these notes, but they may come with a repository that somebody packed: what does not look like a
    folder of objects is left out, for whatever is named here can be read behind a wall.
    """
    found: dict[Path, None] = {}
    waiting = [repo.common_dir / "objects"]
    for _ in range(_DEEPEST):
        named = [path for objects in waiting for path in _named_by(objects)]
        waiting = [path for path in dict.fromkeys(named) if path not in found and _is_objects(path)]
        found |= dict.fromkeys(waiting)
    return tuple(found)


_DEEPEST = 5
"""Git itself follows no more than so many in a row."""
_ALTERNATES_BYTES = 64 * 1024


def _named_by(objects: Path) -> Iterator[Path]:
    """Relative paths begin at the folder that names them."""
    try:
        said = os.fsdecode(read_plain(objects / "info" / "alternates", _ALTERNATES_BYTES))
    except OSError:
        return
    for line in said.splitlines():
        if line and not line.startswith(("#", '"')) and "\0" not in line:
            yield Path(os.path.realpath(objects / line))


def _is_objects(path: Path) -> bool:
    return path.name == "objects" and (path / "pack").is_dir() and (path / "info").is_dir()


def folder_of(wall: Wall, repo: Repository) -> Path | None:
    """Where the git of programs behind this wall writes."""
    named = wall.env.get(FOLDER)
    mounted = (mount.source for mount in wall.policy.mounts if mount.goal == repo.common_dir / "objects")
    return Path(named) if named else next(mounted, None)


def is_empty(folder: Path) -> bool:
    """Whether a job's git wrote nothing there; most jobs never use git themselves."""
    return next(_found(folder), None) is None


def bring_in(repo: Repository, folder: Path) -> Brought:
    """Bring what lies there into the repository and take it away there; what git refuses stays, with the reason."""
    found = list(_found(folder))
    if not found:
        return Brought()
    ours = repo.state / SCRATCH / f"{os.getpid()}-{secrets.token_hex(8)}"
    (ours / "pack").mkdir(mode=0o700, parents=True)
    try:
        brought = _bring(repo, found, ours)
    except (GitError, OSError, OrchardError) as error:
        why = error.message if isinstance(error, OrchardError) else error.strerror or str(error)
        return Brought(refused=why)
    finally:
        shutil.rmtree(ours, ignore_errors=True)
    _remove(folder, found)
    return brought


def _remove(folder: Path, found: list[Path]) -> None:
    """Through no link: a program of the job may still run, and put one in the place of a folder."""
    for inner, files in groupby(found, key=lambda path: path.parent.name):
        with suppress(OSError), _held(folder) as top, _held(inner, top) as place:
            for path in files:
                with suppress(FileNotFoundError):
                    os.unlink(path.name, dir_fd=place)


@contextmanager
def _held(folder: Path | str, around: int | None = None) -> Iterator[int]:
    place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=around)
    try:
        yield place
    finally:
        os.close(place)


def _bring(repo: Repository, found: list[Path], ours: Path) -> Brought:
    if sum(path.lstat().st_size for path in found) > LARGEST:
        raise OrchardError(f"It is more than {LARGEST >> 30} GiB.")
    names: list[str] = []
    git = repo.git.with_environment(**variables(ours, repo))
    for path in found:
        if path.parent.name != "pack":
            (ours / path.parent.name).mkdir(exist_ok=True)
            _copy(path, ours / path.parent.name / path.name)
            names.append(path.parent.name + path.name)
            continue
        pack = ours / "pack" / path.name
        _copy(path, pack)
        git("index-pack", str(pack), timeout=_TIMEOUT)
        listed = git("show-index", stdin=pack.with_suffix(".idx").read_bytes(), timeout=_TIMEOUT).stdout
        names += [line.split()[1].decode() for line in listed.splitlines()]
    wanted = "".join(f"{name}\n" for name in sorted({*names})).encode()
    made = git("pack-objects", "-q", str(ours / "new"), stdin=wanted, timeout=_TIMEOUT).text
    _publish(repo.git, ours / f"new-{made}.pack", repo.common_dir / "objects" / "pack")
    return Brought(len({*names}))


def _copy(path: Path, goal: Path) -> None:
    """In pieces, and only what is worth it: a job can make a file of any length that takes no room, and an object of
    any length that is small because it is compressed."""
    with open_plain(path) as source:
        if is_hollow(os.fstat(source.fileno())):
            raise OrchardError(f"The file of {path.name} consists of holes.")
        start = source.read(_HEADER)
        if path.parent.name != "pack" and _declared(start) > LARGEST:
            raise OrchardError(f"The object {path.name} says that it has more than {LARGEST >> 30} GiB.")
        source.seek(0)
        left = LARGEST
        with goal.open("xb") as out:
            while left > 0 and (block := source.read(min(_BLOCK, left))):
                out.write(block)
                left -= len(block)


def _declared(start: bytes) -> int:
    """The length that the beginning of a loose object names; what cannot be read is left to git."""
    try:
        words = zlib.decompressobj().decompress(start, _HEADER).partition(b"\0")[0].split(b" ")
        return int(words[1])
    except (zlib.error, ValueError, IndexError):
        return 0


def _publish(git: Git, pack: Path, goal: Path) -> None:
    """Check the pack and what it links to in the repository, and move it there.

    Its index makes it count, so that comes last; both are on the disk before, for an index or a ref names these objects
    next.
    """
    pack.with_suffix(".idx").unlink()
    git("index-pack", "--strict", str(pack), timeout=_TIMEOUT)
    goal.mkdir(exist_ok=True)
    name = pack.name.replace("new-", "pack-")
    for suffix in (".pack", ".idx"):
        part = pack.with_suffix(suffix)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        part.chmod(0o444)
        part.replace((goal / name).with_suffix(suffix))


def _found(folder: Path) -> Iterator[Path]:
    """What looks like an object or a pack; nothing where a link stands in the place of the folder."""
    if folder.is_symlink():
        return
    for entry in entries(folder):
        if not entry.is_dir(follow_symlinks=False):
            continue
        fits = _PACK if entry.name == "pack" else _LOOSE if _FOLDER.fullmatch(entry.name) else None
        if fits is None:
            continue
        yield from (
            Path(one.path)
            for one in entries(entry.path)
            if fits.fullmatch(one.name) and one.is_file(follow_symlinks=False)
        )
