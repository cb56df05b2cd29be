"""How much a program and its children may use, and which of these limits really hold here.

A cgroup counts a program with everything that it starts, however often it forks. It can be had where the system has
given us a part of the tree (cgroup v2), which is found by putting a process into a group of ours. Everywhere else there
are only limits of each single process: they stop a program that runs away, not one that means to. No limit of the
number of processes is among them: the one that there is counts all of the user's, so the second job could not start.

Limits are set when the program has just been started, by us and from outside: the limits of a process are those of all
its threads, so they cannot be set before. What it may have started in the meantime gets them as well.
"""

import os
import resource
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from itertools import count
from pathlib import Path
from typing import Literal

from msgspec import Struct

from orchard.process.sandbox.policy import Resources

CONTROLLERS = ("memory", "pids")
_PREFIX = "orchard-"
_numbers = count(1)


class Delegation(Struct, frozen=True):
    """The part of the tree of cgroups that is ours, or why there is none."""

    folder: Path | None = None
    controllers: frozenset[str] = frozenset()
    reason: str = ""


class InForce(Struct, frozen=True):
    """What limits a program here."""

    by: Literal["cgroup", "process", "nothing"]
    words: tuple[str, ...]
    """A sentence for each kind of limit, whether one is set or not."""
    asked: tuple[str, ...] = ()
    """Only the sentences about limits that are set."""
    weak: tuple[str, ...] = ()
    """Those of them about limits that do not hold, or for each process by itself only, for want of a cgroup."""
    unset: tuple[str, ...] = ()
    """The kinds that nobody has limited."""


@cache
def delegation() -> Delegation:
    """Found by a real trial, once per process."""
    return find_delegation(CONTROLLERS)


def find_delegation(wanted: Iterable[str]) -> Delegation:
    """The nearest group above us in which we can make others with the wanted controllers; some of them are enough."""
    own = _own_group()
    if own is None:
        return Delegation(reason="this system has no cgroup v2")
    mount, folder = own
    reason = ""
    for candidate in (folder, *folder.parents):
        if not candidate.is_relative_to(mount):
            break
        try:
            return Delegation(candidate, _trial(candidate, frozenset(wanted)))
        except OSError as error:
            reason = reason or f"{candidate}: {error.strerror}"
    return Delegation(reason=f"no cgroup is delegated to us ({reason})")


def _own_group() -> tuple[Path, Path] | None:
    """Where the tree is mounted, and our own group in it."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(errors="surrogateescape").splitlines()
        groups = Path("/proc/self/cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return None
    mounted = [line.split() for line in mounts if " - cgroup2 " in line]
    inside = [line.removeprefix("0::/") for line in groups if line.startswith("0::/")]
    if not mounted or not inside:
        return None
    mount = Path(mounted[0][4])
    return mount, mount / inside[0]


def _trial(folder: Path, wanted: frozenset[str]) -> frozenset[str]:
    """Put a process into a group here; which of the wanted controllers the group has."""
    _sweep(folder)
    here = frozenset((folder / "cgroup.subtree_control").read_text().split())
    if missing := wanted - here:
        with suppress(OSError):
            (folder / "cgroup.subtree_control").write_text(" ".join(f"+{one}" for one in sorted(missing)))
        here = frozenset((folder / "cgroup.subtree_control").read_text().split())
    if wanted and not wanted & here:
        raise OSError(0, f"it has no controller of {' and '.join(sorted(wanted))}")
    group = _make(folder)
    try:
        with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
            try:
                (group / "cgroup.procs").write_text(str(process.pid))
            finally:
                process.kill()
    finally:
        group.rmdir()
    return wanted & here


def _make(folder: Path) -> Path:
    group = folder / f"{_PREFIX}{os.getpid()}-{next(_numbers)}"
    group.mkdir()
    return group


def _sweep(folder: Path) -> None:
    """Take away the groups whose programs are gone; the kernel refuses it for all others."""
    for group in folder.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            group.rmdir()


def hold(pid: int, limits: Resources, where: Delegation | None = None) -> None:
    """Put a program that has just been started, and what it has started since, under its limits."""
    if limits == Resources():
        return
    where = delegation() if where is None else where
    group = _group(where, limits)
    single = list(_of_each_process(limits, where))
    held: set[int] = set()
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        held.add(one)
        try:
            if group is not None:
                (group / "cgroup.procs").write_text(str(one))
            for kind, most in single:
                hard = resource.prlimit(one, kind)[1]
                value = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.prlimit(one, kind, (value, value))
        except (ProcessLookupError, FileNotFoundError):
            continue  # it has ended
        # Looked at after its limits are set: what it starts from now on inherits them.
        waiting += [child for child in _children(one) if child not in held]


def _group(where: Delegation, limits: Resources) -> Path | None:
    if where.folder is None:
        return None
    _sweep(where.folder)
    group = _make(where.folder)
    if limits.memory is not None and "memory" in where.controllers:
        (group / "memory.max").write_text(str(limits.memory))
        with suppress(OSError):  # without swap there is nothing to forbid
            (group / "memory.swap.max").write_text("0")
    if limits.processes is not None and "pids" in where.controllers:
        (group / "pids.max").write_text(str(limits.processes))
    return group


def _of_each_process(limits: Resources, where: Delegation) -> Iterator[tuple[int, int]]:
    if limits.memory is not None and "memory" not in where.controllers:
        # Not the address space: JavaScript and Go reserve much more of it than they use, and die without.
        yield resource.RLIMIT_DATA, limits.memory
    if limits.files is not None:
        yield resource.RLIMIT_NOFILE, limits.files
    if limits.disk is not None:
        yield resource.RLIMIT_FSIZE, limits.disk


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError):
                found += map(int, (task / "children").read_text().split())
    return found


def in_force(limits: Resources, where: Delegation | None = None) -> InForce:
    """What holds here, and what does not, for `doctor` and `status`."""
    where = delegation() if where is None else where
    found = dict(_words(limits, where))
    words = tuple(f"{kind}: {said or 'no limit is set'}." for kind, said in found.items())
    asked = tuple(f"{kind}: {said}." for kind, said in found.items() if said is not None)
    unset = tuple(kind for kind, said in found.items() if said is None)
    if limits == Resources():
        return InForce("nothing", words, unset=unset)
    needs = {"Memory": "memory", "Processes": "pids"}
    lacking = [kind for kind, controller in needs.items() if controller not in where.controllers]
    weak = tuple(f"{kind}: {found[kind]}." for kind in lacking if found[kind] is not None)
    return InForce("cgroup" if where.controllers else "process", words, asked, weak, unset)


def _words(limits: Resources, where: Delegation) -> Iterator[tuple[str, str | None]]:
    """Every kind of limit with what holds; None: none is set."""
    why = where.reason or "the controller is not there"
    memory = processes = files = disk = None
    if limits.memory is not None:
        among = "all processes of a program together (cgroup)"
        held = among if "memory" in where.controllers else f"each process, not for all together: {why}"
        memory = f"at most {_size(limits.memory)} for {held}"
    if limits.processes is not None:
        uncounted = f"{why}, and the system's own limit would count all processes of the user"
        held = f"at most {limits.processes} (cgroup)"
        processes = held if "pids" in where.controllers else f"not limited to {limits.processes}: {uncounted}"
    if limits.files is not None:
        files = f"at most {limits.files} for each process"
    if limits.disk is not None:
        disk = f"no file larger than {_size(limits.disk)}; the sum of all files is not limited"
    yield from (("Memory", memory), ("Processes", processes), ("Open files", files), ("Disk", disk))


def _size(number: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if number >= unit:
            return f"{number / unit:.3g} {name}"
    return f"{number} bytes"
