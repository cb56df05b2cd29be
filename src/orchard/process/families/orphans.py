"""Orphans among our descendants: they come to us, so none of them can get out of sight (Linux).

A process that asks for it (`become_subreaper`) becomes the parent of whatever its descendants leave
behind. Its children are then a short list that the kernel keeps, where a look at every process takes
long and is never quite up to date.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterable, Iterator

from orchard.process.families.exits import send, wait_exit
from orchard.process.families.identity import Identity, identity_of
from orchard.process.families.table import LINUX, Stat, all_processes, children_of, own_children, read_stat

QUIET_LOOKS = 2
KILL_WAIT = 0.25
LAST_RESORT = 5.0
"""How long we go on after the grace before we give up on what even SIGKILL does not end."""

WALLS = (b"bwrap", b"nsenter")
"""Programs that stand around others: asked to end, they would take those with them at once. They end with them."""

_PR_SET_CHILD_SUBREAPER = 36

_leaders: dict[int, str] = {}
_subreaper = False


@contextlib.contextmanager
def leading(pid: int, token: str = "") -> Iterator[None]:
    """Inside the `with` this child of ours leads the family of a token, and is not waited for."""
    _leaders[pid] = token
    try:
        yield
    finally:
        _leaders.pop(pid, None)


def leaders() -> dict[int, str]:
    """Who leads a family now, and the token of that."""
    return _leaders.copy()


def is_subreaper() -> bool:
    return _subreaper


def become_subreaper() -> bool:
    global _subreaper  # noqa: PLW0603 (it is the process that becomes one)
    if LINUX:
        import ctypes  # only the engine needs it, once

        _subreaper = bool(ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    return _subreaper


def children() -> frozenset[int]:
    return frozenset(stat.pid for stat in _own_children())


def _own_children() -> list[Stat]:
    pids = own_children()
    if pids is None:
        me = os.getpid()
        return [stat for stat in all_processes() if stat.parent == me]
    return [stat for pid in pids if (stat := read_stat(pid)) is not None]


def end_adopted(known: Iterable[int]) -> int:
    """End the orphans that came to us and that no family claims: they hid from every sweep.

    While another engine of this process has a family at work none is ended: an orphan may be that family's.
    """
    if _leaders:
        return 0
    ended = quiet = 0
    deadline = time.monotonic() + LAST_RESORT
    while quiet < QUIET_LOOKS and time.monotonic() < deadline:
        found = adopted(known)
        quiet = 0 if found else quiet + 1
        for identity in found:
            ended += send(identity, signal.SIGKILL)
            wait_exit(identity, KILL_WAIT)
    return ended


def adopted(known: Iterable[int]) -> list[Identity]:
    """Children of ours that nobody started on purpose; those that have ended already are buried.

    `known` must hold the pid of every child that was started on purpose in a session of its own:
    one that is neither known nor in our session came to us as an orphan.
    """
    ours, me, expected = os.getsid(0), os.getpid(), frozenset(known)
    living = []
    for stat in _own_children():
        if stat.parent == me and stat.session != ours and stat.pid not in expected:
            bury(stat)
            if not stat.dead:
                living.append(identity_of(stat))
    return living


def strangers(known: Iterable[int]) -> list[Stat]:
    """Orphans that came to us, living and dead, while families are at work; none is buried, as `adopted` does it.

    One of them may be a leader that was started a moment ago. `known` is as there.
    """
    ours, me, expected = os.getsid(0), os.getpid(), {*known, *_leaders.copy()}
    found = _own_children()
    return [stat for stat in found if stat.parent == me and stat.session != ours and stat.pid not in expected]


def has_strangers(known: Iterable[int]) -> bool:
    """Whether one of those lives, with no look at the children that are helpers in our own session."""
    ours, pids = os.getsid(0), own_children()
    if pids is not None and all(_session_of(pid) in (None, ours) for pid in {*pids} - {*known} - _leaders.keys()):
        return False
    return any(not stat.dead for stat in strangers(known))


def left_alone(leader: Identity | None) -> bool:
    """Whether an ended leader certainly leaves nobody, told by our own children instead of every process.

    Orphans among our descendants come to us. So a process that is left is our child now, or hangs below one: and
    our children are the leaders of families, or helpers in our own session, which no program can enter. What other
    threads have started are such helpers, or a leader behind a wall: orphans are put where the main thread's children
    are.
    """
    if not _subreaper or leader is None or leader.pid not in _leaders:
        return False
    pids, ours = own_children(helpers=False), os.getsid(0)
    if pids is None:
        return False
    return _has_ended(leader.pid) and all(
        pid in _leaders or _session_of(pid) in (None, ours) or _buried(pid) for pid in pids
    )


def ending_walls(leader: Identity | None) -> tuple[Identity, ...]:
    """What an ended leader that was a wall leaves for a moment: the first process inside, orphaned to us.

    The kernel ends all that is in there before this one, and takes mounts and namespaces down with it, which lasts
    milliseconds. Waiting for it is cheaper than a look at every process, and then there is nothing to look for.
    """
    if not _subreaper or leader is None or leader.pid not in _leaders or not _has_ended(leader.pid):
        return ()
    wall = read_stat(leader.pid)
    if wall is None or wall.name not in WALLS:
        return ()
    stats = (read_stat(pid) for pid in own_children(helpers=False) or () if pid not in _leaders)
    return tuple(identity_of(stat) for stat in stats if stat is not None and not stat.dead and stat.name in WALLS)


def begun(wall: int) -> bool | None:
    """Whether what a wall stands around has begun, or never will; None while the wall is stopped."""
    for _ in WALLS * 2:  # they stand in each other
        stat = read_stat(wall)
        if stat is None or stat.dead or stat.name not in WALLS:
            return True
        if stat.stopped:
            return None
        inside = children_of(wall)
        if not inside:
            return False
        wall = inside[-1]
    return False


def _buried(pid: int) -> bool:
    """Whether an orphan that came to us has ended: then nothing hangs below it. A wall leaves such ones behind."""
    stat = read_stat(pid)
    if stat is None or not stat.dead:
        return stat is None
    bury(stat)
    return True


def _has_ended(pid: int) -> bool:
    """Whether a child that was not waited for has ended, with all its threads."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return False


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


class Orphans:
    """Orphans that came to us, told by our own children: a list that none can slip through.

    A process that forks and leaves, again and again, may be gone before it is looked at and its child too
    young for the same look. But each leaves itself to us when it ends. So nobody is left when no orphan lives
    and none has died since the look before.
    """

    def __init__(self) -> None:
        self._dead: set[int] = set()

    def restless(self) -> bool:
        """Whether there may be a process that was not seen."""
        pids = own_children() if _subreaper else None
        if pids is None:
            return False
        ours = os.getsid(0)
        strange = [stat for pid in pids if pid not in _leaders and (stat := read_stat(pid)) and stat.session != ours]
        dead = {stat.pid for stat in strange if stat.dead}
        new, self._dead = dead - self._dead, dead
        return bool(new) or len(dead) < len(strange)


def bury(stat: Stat) -> None:
    """Wait for an orphan that has ended: no other process will."""
    if stat.dead and stat.parent == os.getpid():
        with contextlib.suppress(ChildProcessError):
            os.waitpid(stat.pid, os.WNOHANG)
