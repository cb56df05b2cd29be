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
from collections.abc import Iterator
from contextlib import suppress
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from msgspec import Struct

from orchard.errors import OrchardError
from orchard.files import held, is_hollow, open_plain, read_plain
from orchard.git.command import Git, GitError
from orchard.git.objects.lengths import Room, refuse_many_paths
from orchard.git.repository import Repository
from orchard.git.scratch import SCRATCH
from orchard.process.sandbox.policy import Mount
from orchard.process.sandbox.wall import Wall

FOLDER = "GIT_OBJECT_DIRECTORY"
"""The variable by which a job's git finds where to write."""
_FOLDERS, _LOOSE = re.compile("[0-9a-f]{2}|pack"), re.compile("[0-9a-f]{38}|[0-9a-f]{62}")
_PACK = re.compile(r"pack-[0-9a-f]{40,64}\.pack")
Found = tuple[str, str]
"""The folder that an object or a pack is in, and its name there."""
LARGEST = 2 << 30
"""Bytes that are brought in at once, as they are on disk and also as git unpacks them."""
_TOO_MUCH = f"It is more than {LARGEST >> 30} GiB."
_BLOCK = 1 << 20
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
        with suppress(FileExistsError), held(folder, "info") as info:
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
        brought = _bring(repo, folder, found, ours)
    except (GitError, OSError, OrchardError) as error:
        why = error.message if isinstance(error, OrchardError) else error.strerror or str(error)
        return Brought(refused=why)
    finally:
        shutil.rmtree(ours, ignore_errors=True)
    _remove(folder, found)
    return brought


def _remove(folder: Path, found: list[Found]) -> None:
    """Through no link: a program of the job may still run, and put one in the place of a folder."""
    for inner, files in groupby(found, key=itemgetter(0)):
        with suppress(OSError), held(folder, inner) as place:
            for _, name in files:
                with suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=place)


def _bring(repo: Repository, folder: Path, found: list[Found], ours: Path) -> Brought:
    """What is there is copied first, and every length looked at: only then git reads any of it."""
    if _size(folder, found) > LARGEST:
        raise OrchardError(_TOO_MUCH)
    names: list[str] = []
    room, left = Room(LARGEST, 32 if repo.object_format == "sha256" else 20), LARGEST
    for inner, files in groupby(found, key=itemgetter(0)):
        (ours / inner).mkdir(exist_ok=True)
        with held(folder, inner) as place:
            for _, name in files:
                left -= _copy(place, name, ours / inner / name, left)
                room.take(ours / inner / name, packed=inner == "pack")
                names += [inner + name] if inner != "pack" else []
    git = repo.git.with_environment(**variables(ours, repo))
    for pack in sorted((ours / "pack").glob("*.pack")):
        git("index-pack", str(pack), timeout=_TIMEOUT)
        listed = git("show-index", stdin=pack.with_suffix(".idx").read_bytes(), timeout=_TIMEOUT).stdout
        names += [line.split()[1].decode() for line in listed.splitlines()]
    refuse_many_paths(git, {*names}, room.oid_size)
    wanted = "".join(f"{name}\n" for name in sorted({*names})).encode()
    made = git("pack-objects", "-q", str(ours / "new"), stdin=wanted, timeout=_TIMEOUT).text
    _publish(repo.git, ours / f"new-{made}.pack", repo.common_dir / "objects" / "pack")
    return Brought(len({*names}))


def _size(folder: Path, found: list[Found]) -> int:
    whole = 0
    for inner, files in groupby(found, key=itemgetter(0)):
        with held(folder, inner) as place:
            whole += sum(os.stat(name, dir_fd=place, follow_symlinks=False).st_size for _, name in files)
    return whole


def _copy(place: int, name: str, goal: Path, most: int) -> int:
    """In pieces, and only what is worth it: a job can make a file of any length that takes no room."""
    with open_plain(name, place) as source:
        found = os.fstat(source.fileno())
        if found.st_size > most:
            raise OrchardError(_TOO_MUCH)
        if is_hollow(found):
            raise OrchardError(f"The file of {name} consists of holes.")
        copied = 0
        with goal.open("xb") as out:
            while copied <= most and (block := source.read(_BLOCK)):
                out.write(block)
                copied += len(block)
    return copied


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


def _found(folder: Path) -> Iterator[Found]:
    """What looks like an object or a pack; nothing where a link stands in the place of a folder, also if it came there
    just now: each is opened by its name in the one around it."""
    with suppress(OSError), held(folder) as top:
        for inner in _names(top, _FOLDERS, folders=True):
            with suppress(OSError), held(inner, around=top) as place:
                yield from ((inner, name) for name in _names(place, _PACK if inner == "pack" else _LOOSE))


def _names(place: int, fits: re.Pattern[str], *, folders: bool = False) -> list[str]:
    with os.scandir(place) as found:
        rows = [one for one in found if fits.fullmatch(one.name)]
        is_wanted = (lambda one: one.is_dir(follow_symlinks=False)) if folders else _is_file
        return [one.name for one in rows if is_wanted(one)]


def _is_file(entry: os.DirEntry[str]) -> bool:
    return entry.is_file(follow_symlinks=False)
