"""The ground that a wall is built on: where the places of a policy really are, and what stands there.

A wall is made of mounts, and a mount covers a file or folder, never a name. Four things follow.

- Links are resolved first. A link that is exposed inside something hidden stays one, and what it leads to is exposed.
- A folder above a protected file could be moved away and another one put in its place; one above a hidden file could
  be moved to where it is not hidden the next time. So every folder between a writable place and another one is pinned:
  it is mounted on itself, and what is mounted cannot be renamed.
- A name that does not exist cannot be covered. `make_placeholders` puts an empty folder there, of which git sees
  nothing; `remove_placeholders` takes it away. A mount ends when the host removes what is below it, so the second is
  called when the last program behind the wall is gone, not after each. Until then no program of the host's may
  replace a protected file, either.
- A name that is a link cannot be covered. What it leads to is protected where the job may write to it, and else left
  as it is: a link to a secret must not bring it in. The name is a gap, and is told.

All of it is done at each start of a program, so paths are plain text here: comparing hundreds of `Path`s takes longer
than asking the disk about them.
"""

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Literal

from msgspec import Struct

from orchard.process.sandbox.policy import READ_ONLY, Access, Policy, SandboxError
from orchard.process.sandbox.secrets import secrets_of_the_system

SECONDS = 5.0
"""How long it is believed where a place is that no job can write to."""

PROC_READ_ONLY = ("sys", "sysrq-trigger", "fs")
"""What the kernel lets user 0 write without any capability; `core_pattern` runs a program as root on the host.
(`irq` and `bus` are covered by bubblewrap itself.)"""
PROC_HIDDEN = (
    "acpi", "asound", "scsi", "kcore", "keys", "timer_list", "latency_stats", "sched_debug", "kpageflags", "kpagecount",
    "kpagecgroup",
)  # fmt: skip
"""What the kernel tells user 0 without any capability."""

Kind = Literal["folder", "file", "link", "missing"]
"""What stands at a path, looked at without following a link; a socket or device is a file to a mount."""


class Place(Struct, frozen=True):
    """One thing to mount."""

    path: str
    access: Access
    folder: bool
    link: str | None = None
    """Not a mount but a link to here, made in an empty place."""


class Ground(Struct, frozen=True, kw_only=True):
    places: tuple[Place, ...]
    """Parents before what is in them, and nothing that changes nothing."""
    proc: tuple[Place, ...] = ()
    """What is read-only or hidden in `/proc` for root, of what this kernel has."""
    gaps: tuple[Path, ...] = ()
    """Protected names that stay unprotected, for they are links or behind one."""
    root: bool = False
    """Whether it is root who starts programs here."""


def kind_of(path: str) -> Kind:
    """What we may not look at is missing: the program behind the wall has no more rights than we have."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return "missing"
    if stat.S_ISLNK(mode):
        return "link"
    return "folder" if stat.S_ISDIR(mode) else "file"


class Account(Struct, frozen=True):
    """Who starts programs behind the wall: what he may read and others may not is not for them."""

    user: int
    groups: frozenset[int] = frozenset()

    @staticmethod
    def own() -> "Account":
        return Account(os.geteuid(), frozenset({os.getegid(), *os.getgroups()}))


def survey(policy: Policy, account: Account | None = None) -> Ground:
    """Look where everything is, secrets of the system among it; a writable place or a socket that is not there is an
    error, and so is a protected name without its placeholder."""
    account = account or Account.own()
    secrets = secrets_of_the_system(account.user, account.groups)
    table, links, gaps = _real_places(policy, secrets)
    kinds = {path: kind_of(path) for path in table}
    places = {
        path: Place(path, access, kinds[path] == "folder") for path, access in table.items() if kinds[path] != "missing"
    }
    kept: dict[str, Place] = {}
    for path in sorted(places, key=_depth):
        place, around = places[path], _around(path, table)
        if _same_effect(place.access, around[1]):
            del table[path]  # what is in it must be pinned up to the place that is mounted
            continue
        if place.access != "writable" and around[1] == "writable":
            kept |= {pin: Place(pin, "writable", True) for pin in _between(around[0], path) if pin not in kept}
        kept[path] = place
    for path, target in links.items():
        if path not in kept and _around(path, table)[1] == "hidden":
            kept[path] = Place(path, "exposed", False, target)
    return Ground(
        places=tuple(sorted(kept.values(), key=lambda place: _depth(place.path))),
        proc=_proc(root=account.user == 0),
        gaps=tuple(map(Path, dict.fromkeys(gaps))),
        root=account.user == 0,
    )


@cache
def _proc(*, root: bool) -> tuple[Place, ...]:
    """For an ordinary user nothing of it is open."""
    wanted: dict[str, Access] = {**dict.fromkeys(PROC_READ_ONLY, "exposed"), **dict.fromkeys(PROC_HIDDEN, "hidden")}
    found = [(f"/proc/{name}", access, kind_of(f"/proc/{name}")) for name, access in wanted.items() if root]
    return tuple(Place(path, access, kind == "folder") for path, access, kind in found if kind in ("folder", "file"))


def _real_places(policy: Policy, secrets: Iterable[str]) -> tuple[dict[str, Access], dict[str, str], list[str]]:
    """Real paths with what is allowed there, links to keep with what they lead to, and gaps."""
    table: dict[str, Access] = dict.fromkeys(secrets, "hidden")
    links: dict[str, str] = {}
    reals: dict[str, str] = {}
    open_to_job = frozenset(where for path in policy.writable for where in _look(os.fspath(path), reals)[:2])
    for place, access in policy.places():
        if access == "protected":
            continue
        path = os.fspath(place)
        real, here, kind = _seen(path) if access in ("hidden", "exposed") else _look(path, reals)
        if kind == "missing" and access in ("writable", "socket"):
            raise SandboxError(f"'{path}' is not there, so it cannot be opened to a program behind the wall.")
        if real != here and access in ("exposed", "writable") and not open_to_job.isdisjoint(folders_above(here)):
            continue  # a link that an earlier job may have put there
        if kind in ("missing", "link"):
            continue  # there is nothing to hide or to show; a link that is still one leads in a circle
        table[real] = access
        if real != here and access in ("exposed", "socket"):
            links[here] = real
    gaps: list[str] = []
    writable = frozenset(path for path, access in table.items() if access == "writable")
    for path in sorted(map(os.fspath, policy.protected), key=_depth):
        gaps += _links_on_the_way(path, writable, reals)
        standing = _standing_for(path, _here(path, reals), table)
        if standing is not None and _open_to_writing(standing, table):
            table[standing] = "protected"
    return table, links, gaps


def _open_to_writing(path: str, table: Mapping[str, Access]) -> bool:
    """Whether the job could write there at all. A name may lead out of its worktree, by a link that a repository or a
    job has put there: to mount what is hidden or read-only already could only show more of it."""
    return (table[path] if path in table else _around(path, table)[1]) == "writable"


def _standing_for(path: str, here: str, table: Mapping[str, Access]) -> str | None:
    """What has to be mounted so that a protected name stays as it is; `here` is where the name really is."""
    kind = kind_of(here)
    if kind == "link":
        return None if kind_of(os.path.realpath(here)) in ("missing", "link") else os.path.realpath(here)
    if kind != "missing":
        return here
    if _around(here, table)[1] != "writable":
        return None
    standing, kind = _standing(here)
    if kind == "folder":
        raise SandboxError(
            f"The protected name '{path}' does not exist, and has no placeholder.",
            hint="This is a bug: placeholders are made before the first program is started.",
        )
    return standing  # a file where a folder would have to be: as long as it stays, the name cannot be made


def _depth(path: str) -> int:
    return path.count("/") if path != "/" else 0


def folders_above(path: str) -> Iterator[str]:
    """The folder that it is in, the one around that, and so on to the root."""
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        yield path


def _inside(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder != "/" else f"/{name}"


def _here(path: str, reals: dict[str, str]) -> str:
    """Where a name really is, whatever stands there; `reals` is what was found so far about folders."""
    folder, _, name = path.rpartition("/")
    folder = folder or "/"
    if folder not in reals:
        reals[folder] = os.path.realpath(folder)
    return _inside(reals[folder], name) if name else "/"


def _look(path: str, reals: dict[str, str]) -> tuple[str, str, Kind]:
    """What a path leads to, where its own name really is, and what stands at the end."""
    here = _here(path, reals)
    kind = kind_of(here)
    if kind != "link":
        return here, here, kind
    real = os.path.realpath(path)
    return real, here, kind_of(real)


_SEEN: dict[str, tuple[float, tuple[str, str, Kind]]] = {}
_MOST = 4096


def forget() -> None:
    """Look at every place again: for tests, which change the ground faster than people do."""
    _SEEN.clear()


def _seen(path: str) -> tuple[str, str, Kind]:
    """The same, as it was a moment ago: a hundred places that hold for all programs are not looked for each time.

    What was missing is looked for again: it may have been made since, and then has to be hidden at once."""
    now = time.monotonic()
    known = _SEEN.get(path)
    if known is None or known[0] < now or known[1][2] == "missing":
        if len(_SEEN) > _MOST:
            _SEEN.clear()
        _SEEN[path] = known = (now + SECONDS, _look(path, {}))
    return known[1]


def real_path(path: Path) -> str:
    """What the path of a hidden or exposed place leads to, whether it is there or not."""
    return _seen(os.fspath(path))[0]


def _standing(path: str) -> tuple[str, Kind]:
    """The path, or the nearest one above it that exists."""
    while (kind := kind_of(path)) == "missing" and path != "/":
        path = path.rpartition("/")[0] or "/"
    return path, kind


def _links_on_the_way(path: str, writable: frozenset[str], reals: dict[str, str]) -> list[str]:
    """Which names below a writable place could be replaced because they are links."""
    direct = _here(path, reals) == path  # then no name but the last can be a link
    found = []
    for step in (path,) if direct else (path, *folders_above(path)):
        if step == "/":
            break
        here = _here(step, reals)
        if kind_of(here) == "link" and not writable.isdisjoint(folders_above(here)):
            found.append(here)
    return found


def _around(path: str, table: Mapping[str, Access]) -> tuple[str, Access]:
    """The place that holds this one; the root of the disk may be read."""
    for above in folders_above(path):
        if above in table:
            return above, table[above]
    return "/", "exposed"


def _same_effect(inner: Access, outer: Access) -> bool:
    """A socket can be connected to wherever it can be seen."""
    if inner == "socket":
        return outer != "hidden"
    return inner == outer or (inner in READ_ONLY and outer in READ_ONLY)


def _between(outer: str, inner: str) -> list[str]:
    """Folders that are around the inner one and in the outer one, the deepest first."""
    return list(takewhile(lambda above: above != outer, folders_above(inner)))


# ----------------------------------------------------------------------------------- placeholders


def make_placeholders(policy: Policy) -> tuple[Path, ...]:
    """Put empty folders where protected names are missing in writable places; these are they, outermost first."""
    made: list[Path] = []
    real = {os.path.realpath(path): access for path, access in policy.places()}
    for path in policy.protected:
        here = _here(os.fspath(path), {})
        if kind_of(here) != "missing" or _around(here, real)[1] != "writable":
            continue
        standing, kind = _standing(here)
        if kind != "folder":
            continue  # a file is in the way, and is protected in its place
        for folder in map(Path, reversed([here, *_between(standing, here)])):
            folder.mkdir(mode=0o755)
            made.append(folder)
    return tuple(made)


def remove_placeholders(made: Iterable[Path]) -> None:
    """Take them away again, if they are still empty; to be called when no program runs behind the wall any more."""
    for folder in sorted(made, key=lambda path: -len(path.parts)):
        try:
            folder.rmdir()
        except OSError:
            continue  # not empty, or gone: then it is no longer ours
