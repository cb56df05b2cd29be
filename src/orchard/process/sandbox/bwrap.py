"""A wall made by bubblewrap: namespaces and mounts, set up before the program's first instruction.

`bwrap_options` is the whole profile; it looks at nothing, so it can be read and tested as a list. It is handed over on
a descriptor (`--args FD`) and not in argv, for two reasons: every user may read the argv of a process, and the
program's environment is in there. That environment must not be bwrap's own: bwrap starts outside the wall, and an
`LD_PRELOAD` of the job's would run outside, too. So bwrap is started by its full path with `ENVIRONMENT`, and the
program gets its variables by `--setenv`.

What the flags do is told where they stand. What no flag does: see docs/sandbox.md.
"""

import os
import shutil
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from orchard.process.sandbox.ground import Ground, Place, folders_above
from orchard.process.sandbox.policy import INSIDE, READ_ONLY, Mount, Policy
from orchard.process.sandbox.scratch import is_scratch, is_shared, laid_out

ENVIRONMENT: Mapping[str, str] = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
"""All that bwrap and nsenter themselves are started with. Who looks for a job's processes by a variable adds that."""

NO_ONE = "65534"
"""What root is called behind the wall. A name only: outside it is root still, so files are as root's own mode says."""

NAMESPACES = (
    "--unshare-user",  # named, or --disable-userns has nothing to act on
    "--unshare-ipc",  # shared memory and queues of other programs
    "--unshare-pid",  # no process outside can be seen, signalled or traced; all inside end with the first
    "--unshare-uts",
    "--unshare-cgroup-try",  # old kernels have none
)
RIGHTS = (
    "--disable-userns",  # a namespace of one's own would give back mounts and every bug behind them
    "--cap-drop",  # root keeps all capabilities otherwise, and could mount the disk writable again
    "ALL",
    "--new-session",  # no terminal to type into (TIOCSTI)
    "--die-with-parent",  # nothing stays when bwrap is killed
)


@cache
def bwrap_program() -> Path | None:
    """By the system's own path: a program of that name in a job's or a repository's folder is not it."""
    found = shutil.which("bwrap", path=ENVIRONMENT["PATH"])
    return Path(found) if found else None


def bwrap_argv(bwrap: Path, policy: Policy, options: int, *, nsenter: Path | None = None) -> tuple[str, ...]:
    """What stands before the program's argv; `options` is the descriptor to read `packed(bwrap_options(...))` from.

    A job whose network a keeper keeps is put into the keeper's namespaces first, and makes its own inside of these.
    """
    wrap = (str(bwrap), "--args", str(options), "--")
    if policy.netns is None or policy.network == "on":
        return wrap
    enter = str(nsenter or "nsenter")
    return (enter, "--preserve-credentials", "--user", "--net", "-t", str(policy.netns), "--", *wrap)


def packed(options: tuple[str, ...]) -> bytes:
    return "\0".join((*options, "")).encode(errors="surrogateescape")


def bwrap_options(
    policy: Policy, ground: Ground, env: Mapping[str, str], folder: Path, *, seccomp: int | None = None
) -> tuple[str, ...]:
    """The whole profile, for a program that starts in `folder` with exactly `env`, and its own HOME and TMPDIR."""
    temporary = INSIDE if is_shared(ground) else policy.temporary
    places = laid_out(policy, ground)
    return (
        *NAMESPACES,
        *_network(policy),
        *RIGHTS,
        *(("--uid", NO_ONE, "--gid", NO_ONE) if ground.root else ()),
        *_system(ground, policy.resources.memory),
        *_mounts(places, policy.temporary),
        *(part for mount in policy.mounts for part in _at_another_path(mount)),
        *_closed(places, policy.mounts),
        *_variables({**env, "HOME": str(policy.home), "TMPDIR": str(temporary)}),
        *("--chdir", str(folder)),
        *(("--seccomp", str(seccomp)) if seccomp is not None else ()),
    )


def _network(policy: Policy) -> tuple[str, ...]:
    """Without a keeper there is a network of its own with nothing in it; with one we are in the keeper's already."""
    return ("--unshare-net",) if policy.network != "on" and policy.netns is None else ()


def _system(ground: Ground, memory: int | None) -> tuple[str, ...]:
    """The disk, read-only; processes and devices of its own. Shared memory counts as the memory that it is."""
    return (
        *("--ro-bind", "/", "/"),
        *("--proc", "/proc"),
        *(option for place in ground.proc for option in _mount(place)),
        *("--dev", "/dev"),
        *(("--size", str(memory)) if memory else ()),
        *("--perms", "1777", "--tmpfs", "/dev/shm"),
        *("--remount-ro", "/dev"),
    )


EMPTY_BYTES = "4096"
"""Hidden folders, but for those of `scratch`, refuse what is written to them, so that a program which means the user's
files is told so. A job may open its own empty folder by `chmod`, and finds room for a page in it. What has mounts in
it is read-only in the end: bubblewrap makes the folders between, as the job's own."""

OWN = ("/dev", "/dev/pts", "/dev/shm", "/proc")
"""Places that are the job's own already: a policy that hides the host's must not close these."""


def _mounts(places: tuple[Place, ...], temporary: Path) -> tuple[str, ...]:
    """Parents first, so that the deepest place has the last word, but what is empty and stays so at the very end:
    for each other mount bubblewrap reads the table of all that there are already."""
    above = {folder for place in places for folder in folders_above(place.path)}
    ordered = sorted(places, key=lambda place: place.access == "hidden" and place.folder and place.path not in above)
    own = os.fspath(temporary)
    return tuple(
        option for place in ordered for option in (("--bind", own, place.path) if is_scratch(place) else _mount(place))
    )


def _mount(place: Place) -> tuple[str, ...]:
    path = place.path
    if place.link is not None:
        return ("--symlink", place.link, path)
    if place.access in READ_ONLY:
        return ("--ro-bind", path, path)
    if place.access == "writable":
        return ("--bind", path, path)
    if path in OWN:
        return ()
    if not place.folder:
        return ("--ro-bind", "/dev/null", path)
    return ("--size", EMPTY_BYTES, "--perms", "0555", "--tmpfs", path)


def _at_another_path(mount: Mount) -> tuple[str, ...]:
    return ("--bind" if mount.writable else "--ro-bind", str(mount.source), str(mount.goal))


def _closed(places: tuple[Place, ...], mounts: tuple[Mount, ...]) -> tuple[str, ...]:
    """Hidden folders in which other mounts stand, now that these are there: nothing is written to memory in between."""
    inner = (*(place.path for place in places), *(os.fspath(mount.goal) for mount in mounts))
    above = {folder for path in inner for folder in folders_above(path)}
    empty = (place for place in places if place.access == "hidden" and place.folder and place.path in above)
    closed = (place.path for place in empty if place.path not in OWN and not is_scratch(place))
    return tuple(option for path in closed for option in ("--remount-ro", path))


def _variables(env: Mapping[str, str]) -> tuple[str, ...]:
    return ("--clearenv", *(part for name, value in env.items() for part in ("--setenv", name, value)))
