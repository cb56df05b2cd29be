"""A wall without namespaces: what a thread may open, connect to and signal, and everything that it starts with it.

Landlock is part of the kernel and needs no right and no program. It knows only what is allowed: a hidden folder is one
that no rule names, so the folder around it is not named either, but each of its other entries, as deep as needed. What
appears in such a folder later is not there for the program. Rules add up, so nothing can be closed below a place that
is open: files inside of writable folders stay writable. That and what else it does not stop is told by `gaps`.

Two sets of rules are kept, one after the other, and both must allow what is done. The first hides the secrets of the
system, which are many and the same for every program; it is made once, and again when something about it has changed.
The second is the policy's.

What is written here for each version of Landlock is what the kernel is asked for at run time (`version`); an older one
gets as many of the rights as it knows.
"""

import errno
import os
import stat
import struct
import threading
from collections.abc import Iterable, Iterator, Set
from functools import cache
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from orchard.process.sandbox.ground import Account, Ground, folders_above, real_path, survey
from orchard.process.sandbox.kernel import (
    allow_file,
    allow_place,
    allow_port,
    create_ruleset,
    drop_capabilities,
    gain_no_privileges,
    keep_rules,
)
from orchard.process.sandbox.policy import Policy
from orchard.process.sandbox.secrets import secrets_of_the_system

_ASK_VERSION = 1

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE = (1 << bit for bit in range(6))
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (1 << bit for bit in range(6, 13))
REFER, TRUNCATE, IOCTL_DEV = (1 << bit for bit in range(13, 16))
BIND_TCP, CONNECT_TCP = 1, 2
ABSTRACT_SOCKETS, SIGNALS = 1, 2

READ = EXECUTE | READ_FILE | READ_DIR
WRITE = (
    READ | WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE | REFER
    | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO | MAKE_SYM
)  # fmt: skip
ALL = -1
ON_FILES = EXECUTE | READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV

RIGHTS_SINCE = ((1, (1 << 13) - 1), (2, REFER), (3, TRUNCATE), (5, IOCTL_DEV))
NETWORK_SINCE, SCOPES_SINCE = 4, 6

DEVICES: dict[str, int] = {
    **dict.fromkeys(("/dev/null", "/dev/zero", "/dev/full"), READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV),
    **dict.fromkeys(("/dev/random", "/dev/urandom"), READ_FILE),
    # Locks between processes are files here. It cannot be listed: names of others are random.
    "/dev/shm": READ_FILE | WRITE_FILE | TRUNCATE | MAKE_REG | REMOVE_FILE | REFER,
}
"""All of /dev that is there: no disks, and no terminals, whose keys could be read."""


class Grant(Struct, frozen=True):
    path: str
    rights: int
    folder: bool = True


@cache
def version() -> int:
    """Which Landlock this kernel has; 0: none, or it is switched off."""
    try:
        return create_ruleset(None, _ASK_VERSION)
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def known_rights(abi: int) -> int:
    return sum(rights for since, rights in RIGHTS_SINCE if abi >= since)


def on_the_ground(policy: Policy) -> Ground:
    """Where the places of the policy are. Protected names cannot be kept, so their placeholders are not asked for."""
    return survey(replace(policy, protected=()))


def grants(policy: Policy, ground: Ground) -> Iterator[Grant]:
    """The policy's rules: what may be read or written, by the largest folders that hold nothing hidden."""
    secrets = set(_secrets())
    places = {place.path: place for place in ground.places if place.link is None}
    table = {path: place.access for path, place in places.items() if path not in secrets or place.access != "hidden"}
    # Of what the policy hides the ground has only what exists; what is made later is hidden, too.
    hidden = map(real_path, policy.hidden)
    divided = _all_above([*hidden, *(path for path, access in table.items() if access == "hidden")])
    apart = {*table, "/dev"}
    for path, access in ({"/": "exposed"} | table).items():
        if access in ("exposed", "writable", "protected"):
            rights = WRITE if access == "writable" else READ
            yield from _parts(Grant(path, rights, path == "/" or places[path].folder), divided, apart)
    for path, rights in DEVICES.items():
        # Where a place of the policy lies in shared memory, that is a disk like others.
        if table.get(path) != "hidden" and not any(place.startswith(f"{path}/") for place in table):
            yield Grant(path, rights, path == "/dev/shm")


def system_grants(secrets: Iterable[str]) -> Iterator[Grant]:
    """The first rules: everything but the secrets of the system."""
    hidden = set(secrets)
    yield from _parts(Grant("/", ALL), _all_above(hidden), hidden)


def _secrets() -> tuple[str, ...]:
    account = Account.own()
    return secrets_of_the_system(account.user, account.groups)


def _all_above(paths: Iterable[str]) -> set[str]:
    return {"/", *(above for path in paths for above in folders_above(path))}


def _parts(whole: Grant, divided: Set[str], apart: Set[str]) -> Iterator[Grant]:
    """The place, or what is in it if something there is hidden; links lead to what has a rule of its own."""
    if whole.path not in divided:
        yield whole
        return
    try:
        with os.scandir(whole.path) as entries:
            inside = [(entry.path, entry.is_dir(follow_symlinks=False)) for entry in entries if not entry.is_symlink()]
    except OSError:
        return  # closed to us, so to the program as well
    for path, folder in inside:
        if path not in apart:
            part = Grant(path, whole.rights, folder)
            if folder:
                yield from _parts(part, divided, apart)
            else:
                yield part


def restrict(policy: Policy, ground: Ground, outputs: Iterable[int] = ()) -> None:
    """Put this thread behind the wall for good, and everything that it starts.

    `outputs` are open files to which a program may write by their names, too: a shell does so for `> /dev/stderr`.
    """
    rules = _rules(policy, ground, outputs)
    try:
        gain_no_privileges()
        drop_capabilities()
        _system.keep()
        keep_rules(rules)
    finally:
        os.close(rules)


def give_up_abstract_sockets() -> None:
    """Keep this thread, and what it starts, from the abstract UNIX sockets of others; everything else stays open."""
    rules = create_ruleset(struct.pack("=QQQ", 0, 0, ABSTRACT_SOCKETS))
    try:
        gain_no_privileges()
        keep_rules(rules)
    finally:
        os.close(rules)


def _rules(policy: Policy, ground: Ground, outputs: Iterable[int]) -> int:
    abi = version()
    handled = known_rights(abi)
    network = BIND_TCP | CONNECT_TCP if policy.network != "on" and abi >= NETWORK_SINCE else 0
    size = 24 if abi >= SCOPES_SINCE else 16 if abi >= NETWORK_SINCE else 8
    attributes = struct.pack("=QQQ", handled, network, ABSTRACT_SOCKETS | SIGNALS)[:size]
    rules = _ruleset(attributes, grants(policy, ground), handled)
    try:
        for output in outputs:
            if stat.S_ISREG(os.fstat(output).st_mode):  # a pipe has no place on the disk, and needs no rule
                allow_file(rules, output, (WRITE_FILE | TRUNCATE) & handled)
        if network and policy.network == "proxy" and policy.proxy_port is not None:
            allow_port(rules, policy.proxy_port, CONNECT_TCP)
    except BaseException:
        os.close(rules)
        raise
    return rules


def _ruleset(attributes: bytes, allowed: Iterable[Grant], handled: int) -> int:
    rules = create_ruleset(attributes)
    try:
        for grant in allowed:
            rights = grant.rights & handled & (-1 if grant.folder else ON_FILES)
            if rights:
                allow_place(rules, grant.path, rights, folder=grant.folder)
    except BaseException:
        os.close(rules)
        raise
    return rules


class _System:
    """The rules that hide the secrets of the system, kept open for the next start."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: object = None
        self._rules: int | None = None

    def keep(self) -> None:
        secrets = _secrets()
        if not secrets:
            return
        # What came into a folder or left it changes the folder's time: then the rules are made again.
        seen = (secrets, [_last_change(path) for path in sorted(_all_above(secrets))])
        with self._lock:
            if self._rules is None or self._seen != seen:
                handled = known_rights(version())
                fresh = _ruleset(struct.pack("=Q", handled), system_grants(secrets), handled)
                if self._rules is not None:
                    os.close(self._rules)
                self._rules, self._seen = fresh, seen
            keep_rules(self._rules)


def _last_change(folder: str) -> tuple[int, int] | None:
    try:
        status = os.stat(folder)  # noqa: PTH116 — a dozen at each start
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


_system = _System()


def gaps(policy: Policy, abi: int | None = None) -> tuple[str, ...]:
    """What this wall does not stop although the policy says so, in words; `abi` is the kernel's unless said."""
    return (*_always_open(policy), *_open_by_age(policy, version() if abi is None else abi))


def _always_open(policy: Policy) -> Iterator[str]:
    names = ", ".join(path.name for path in policy.protected)
    if names:
        yield f"Protected files inside of writable folders can be changed: {names}."
    inside = [path for path in policy.exposed if any(path.is_relative_to(folder) for folder in policy.writable)]
    if inside:
        yield f"Read-only places inside of writable folders can be changed: {', '.join(map(str, inside))}."
    if policy.sockets:
        yield "Every UNIX socket that this user may connect to can be connected to, not only those of the policy."
        if policy.network == "proxy":
            yield "A program can wait for connections on a TCP port that the system chooses."
    if not any(Path("/dev/shm").is_relative_to(place) for place in policy.hidden):
        yield "Shared memory (/dev/shm) is the machine's: who knows a name there can open it."
    yield "Names, sizes and times of hidden files can be asked for by who knows or watches the path."
    yield "Modes, times and attributes of this user's own files can be changed everywhere."
    yield "Processes of the machine can be seen with their command lines, and their priority can be changed."


def _open_by_age(policy: Policy, abi: int) -> Iterator[str]:
    if abi < 2:
        yield "Files cannot be moved from one folder to another (Linux 5.19 can)."
    if abi < 3:
        yield "Every file of this user's can be emptied (Linux 6.2 stops that)."
    if abi < NETWORK_SINCE and policy.network == "proxy":
        yield "Every TCP address can be connected to, not only the proxy (Linux 6.7 stops that)."
    if abi < 5:
        yield "Devices that are open already take every command (Linux 6.10 stops that)."
    if abi < SCOPES_SINCE:
        yield "Signals reach every process of this user's (Linux 6.12 stops that)."
        if policy.sockets:
            yield "Abstract UNIX sockets of the machine can be connected to (Linux 6.12 stops that)."
