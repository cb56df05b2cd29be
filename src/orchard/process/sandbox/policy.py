"""What a program may reach, as a value: the same for every kind of wall, and for programs that ask before they act.

A place is a folder or a file by its absolute path. Of all the places that hold a path the deepest one decides what may
be done with it; of two with the same path the one that stands later in `ORDER`. So a hidden home may have an exposed
toolchain in it, with a writable cache in that, with a protected file in that. A path in no place is as the
disk's root is: it may be read.

Nothing here looks at the disk, so two things are left to those who build a wall: links (paths are compared as they are
written: see `ground.survey`), and protected names that do not exist yet (see `ground.make_placeholders`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from msgspec import Struct

from orchard.errors import OrchardError

Network = Literal["on", "off", "proxy"]
"""on: the host's network as it is; proxy: nothing but our proxy; off: nothing."""

Level = Literal["bwrap", "landlock", "off"]
"""Which wall: namespaces and mounts, rules of the kernel for files and sockets, or none."""

Access = Literal["hidden", "exposed", "writable", "protected", "socket"]
"""Nothing is there; may be read; may be written; may be read although all around it may be written; may be
connected to."""

ORDER: tuple[Access, ...] = ("hidden", "exposed", "writable", "protected", "socket")
READ_ONLY: tuple[Access, ...] = ("exposed", "protected", "socket")

INSIDE = Path("/tmp")
"""Where programs find their temporary folder behind a wall with mounts."""


class SandboxError(OrchardError):
    """A wall that cannot be built as it was asked for."""


class Resources(Struct, frozen=True, kw_only=True):
    """What a program and its children may use: bytes and counts; None is no limit."""

    memory: int | None = None
    processes: int | None = None
    files: int | None = None
    disk: int | None = None


class Mount(Struct, frozen=True):
    """A folder that programs find at another path than where it is; only a wall with mounts can do that."""

    source: Path
    goal: Path
    writable: bool = False


class Policy(Struct, frozen=True, kw_only=True):
    """What one program may reach."""

    home: Path
    """What `HOME` is inside; it is writable, so it stands in `writable`, or below what does."""
    temporary: Path
    """A private folder, writable in the same way. It is what `TMPDIR` is inside, or what stands at `/tmp`: see
    `scratch`."""
    writable: tuple[Path, ...] = ()
    """Folders: worktree, private temporary folder, agent home, `allowed_folders`."""
    protected: tuple[Path, ...] = ()
    """Files or folders inside of writable ones that stay as they are, also where they do not exist yet."""
    hidden: tuple[Path, ...] = ()
    """Places of which nothing is there: home, temporary and runtime folders, our state, other worktrees."""
    exposed: tuple[Path, ...] = ()
    """To be read, although it is below something hidden: toolchains, `.git`."""
    mounts: tuple[Mount, ...] = ()
    """Over all places, in this order."""
    sockets: tuple[Path, ...] = ()
    """Unix sockets that may be connected to."""
    network: Network = "on"
    proxy_port: int | None = None
    """The TCP port of 127.0.0.1 that may be connected to under `network: proxy`."""
    netns: int | None = None
    """The process that keeps the network namespace in which the program runs."""
    resources: Resources = Resources()

    def __post_init__(self) -> None:
        goals = (mount.goal for mount in self.mounts)
        for path in (self.home, self.temporary, *goals, *(path for path, _ in self.places())):
            if not path.is_absolute() or ".." in path.parts:
                raise SandboxError(f"The wall cannot hold '{path}': it takes absolute paths without '..' only.")

    def places(self) -> Iterator[tuple[Path, Access]]:
        """Every place with what is allowed there, later ones over earlier ones of the same path."""
        yield from ((path, "hidden") for path in self.hidden)
        yield from ((path, "exposed") for path in self.exposed)
        yield from ((path, "writable") for path in self.writable)
        yield from ((path, "protected") for path in self.protected)
        yield from ((path, "socket") for path in self.sockets)

    def access(self, path: Path) -> Access:
        """What may be done with a path; `exposed` where no place holds it, for the root of the disk may be read.

        What is protected can be written no more, and is shown no more than it would be else."""
        table = dict(self.places())
        found = [table[place] for place in (path, *path.parents) if place in table]
        outside: Access = next((access for access in found if access != "protected"), "exposed")
        return outside if found[:1] != ["protected"] or outside == "hidden" else "protected"

    def may_read(self, path: Path) -> bool:
        return self.access(path) != "hidden"

    def may_write(self, path: Path) -> bool:
        return self.access(path) == "writable"
