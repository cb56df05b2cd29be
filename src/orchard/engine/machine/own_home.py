"""What a program behind a wall finds at `~`: its own home, with links to what the wall opens of the user's.

`HOME` is a folder of the job's. A tool looks for `~/.nvm/nvm.sh` or `~/.cache/tool` there, so each place below the
user's home that may be read or written has a link at the same place in this one. A link and not a mount: it shows what
the wall shows at its end and nothing more (credentials that are hidden inside of an exposed folder stay hidden), costs
nothing at each start, and is the same behind every wall.

Folders to which tools add programs (`~/.cargo/bin`, `~/.local/lib`) stay the job's own, with a link for each entry: so
`cargo install` and `pip install --user` work in a job, and what they install is the job's.

Programs have written in that home since: whatever stands at a name stays, and no link on the way is followed.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from msgspec import Struct

MOST = 1000
"""Entries of a folder that get a link each; a larger one is linked as a whole."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Opened(Struct, frozen=True):
    path: Path
    grows: int = 0
    """So many levels of folders stay the job's own, the place itself among them."""


Links = Mapping[tuple[str, ...], tuple[tuple[str, str], ...]]
"""By the folders that they are in: names, and where they lead."""


def links_to(users: Path, opened: Iterable[Opened]) -> Links:
    """The links that a home needs; of places inside of each other the outermost has one."""
    below = {one.path.relative_to(users): one for one in opened if users in one.path.parents}
    linked: set[Path] = set()
    found: dict[tuple[str, ...], list[tuple[str, str]]] = {}
    for place in sorted(below, key=lambda path: len(path.parts)):
        if linked.isdisjoint(place.parents):
            if not below[place].grows:
                linked.add(place)
            for folder, name, target in _links(place.parent.parts, place.name, below[place].path, below[place].grows):
                found.setdefault(folder, []).append((name, target))
    return {folder: tuple(links) for folder, links in found.items()}


def _links(folder: tuple[str, ...], name: str, target: Path, grows: int) -> Iterator[tuple[tuple[str, ...], str, str]]:
    entries = _entries(target) if grows else None
    if entries is None:
        yield folder, name, str(target)
        return
    for entry in entries:
        yield from _links((*folder, name), entry, target / entry, grows - 1)


def furnish(home: Path, links: Links) -> None:
    """Make those that are missing."""
    with suppress(OSError), _held(home) as top:
        for folder, inside in links.items():
            with suppress(OSError), _inside(top, folder) as place:
                for name, target in inside:
                    with suppress(FileExistsError):
                        os.symlink(target, name, dir_fd=place)


def _entries(folder: Path) -> list[str] | None:
    """None for what is to be linked as a whole."""
    if folder.is_symlink():
        return None
    try:
        found = os.listdir(folder)  # noqa: PTH208 — the names alone
    except OSError:
        return None
    return found if len(found) <= MOST else None


@contextmanager
def _held(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, _FOLDER)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _inside(top: int, names: tuple[str, ...]) -> Iterator[int]:
    """The folder of that path, made where it is missing; OSError where something else is in the way."""
    descriptor = os.dup(top)
    try:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=descriptor)
            inner = os.open(name, _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def put(home: Path, name: str, content: bytes) -> None:
    """Put a file there, where nothing of that name is."""
    *folders, last = name.split("/")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(OSError), _held(home) as top, _inside(top, tuple(folders)) as folder:
        file = os.open(last, flags, 0o644, dir_fd=folder)
        try:
            os.write(file, content)
        finally:
            os.close(file)
