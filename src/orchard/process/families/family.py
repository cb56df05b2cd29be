"""Everything that one started program has left running, and how it is ended.

A process group is not enough: a child that calls `setsid` leaves it, and coding agents give every
shell a session of its own. So a family is whatever carries proof of its origin:

    token      the environment it was started with holds the attempt's token, or one that was made from it (`TOKEN~x`)
    session    it is in the session or group of the leader, or in one that a holder of the token opened
    output     its standard output or standard error is the attempt's log
    mark       it inherited the resource limit that the program was started with (`marks`)
    descent    its parent is one of the family

A process that is older than the leader is never family, and neither are we, our ancestors, and
children of ours that carry another token. Parents are not drawn in: the parent of an orphan may be
the user's session manager.

Ending is a ladder: SIGTERM (to what is behind a wall, not to the wall), a grace, SIGKILL, and looking again until two
looks in a row find nobody (one look is not atomic: a process can be forked behind it while its parent leaves in front
of it). The ladder only decides; two drivers climb it, one for the event loop and one for recovery.
"""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Collection, Generator
from pathlib import Path
from typing import Any

from msgspec import Struct

from orchard.process.families.brakes import is_held
from orchard.process.families.exits import exit_notice, send, wait_exit
from orchard.process.families.identity import START_TOLERANCE, Identity, boot_id, identity_of, is_same
from orchard.process.families.marks import carries, read_mark
from orchard.process.families.orphans import (
    KILL_WAIT,
    LAST_RESORT,
    QUIET_LOOKS,
    WALLS,
    Orphans,
    bury,
    ending_walls,
    left_alone,
)
from orchard.process.families.table import (
    UNKNOWN,
    FileKey,
    Stat,
    all_processes,
    ancestors,
    file_key,
    read_stat,
    read_token,
    writes_to,
)

_DOUBT_WAIT, _LONGEST_DOUBT = 0.005, 0.5
_HELD_WAIT, _LONGEST_HELD = 0.05, 60.0
"""Seconds between looks at those who are held still, and after which they are ended all the same."""


def members(token: str, leader: Identity | None = None, log: Path | None = None) -> list[Identity]:
    return [identity_of(stat) for stat in look(token, leader, log).living]


class Look(Struct, frozen=True):
    living: tuple[Stat, ...] = ()
    orphans: tuple[Stat, ...] = ()
    """Zombies that were orphaned to us: no other process will ever wait for them."""
    unsure: bool = False
    """A process was in the middle of `exec`, and so had nothing to show: look again."""

    @property
    def cpu_seconds(self) -> float:
        """CPU time of all that live, and of the children they have waited for."""
        return sum(stat.cpu_seconds for stat in self.living)


def look(token: str, leader: Identity | None, log: Path | None, also: Collection[Identity] = ()) -> Look:
    """The family as rows of the process table; `also` are processes already known to belong to it."""
    if leader is not None and leader.boot != boot_id():
        return Look()
    oldest = leader.started - START_TOLERANCE if leader is not None else 0.0
    # Those who must never get a signal from us: ourselves, our ancestors, and init.
    barred = {0, 1, os.getpid(), *ancestors()}
    young = {stat.pid: stat for stat in all_processes(oldest) if stat.pid not in barred}
    living = [stat for stat in young.values() if not stat.dead]

    proof = _Proof(token.encode(), leader, file_key(log) if log is not None else None, also)
    tokens = {stat.pid: read_token(stat.pid) for stat in living}
    sessions = _sessions(proof, tokens, young)
    family = {stat.pid: stat for stat in living if _belongs(stat, tokens[stat.pid], sessions, proof)}
    orphans = (stat for stat in young.values() if stat.dead and _is_orphan(stat, sessions, proof))
    found = _with_descendants(family, living)
    # Who went away before its token was read may have left somebody behind.
    gone = any(token is None and read_stat(pid) is None for pid, token in tokens.items())
    unsure = not found and (gone or UNKNOWN in tokens.values())
    return Look(found, tuple(orphans), unsure)


def cpu_of_families(tokens: Collection[str]) -> dict[str, float]:
    """Seconds of CPU that families of ours have used, by one look at the process table however many there are.

    It is for seeing whether a family works, so it asks less than `look`: who carries no token counts with its parent.
    """
    own = read_stat(os.getpid())
    living = {stat.pid: stat for stat in all_processes(own.started if own is not None else 0.0) if not stat.dead}
    wanted = {token.encode(): token for token in tokens}
    families = {pid: wanted.get(read_token(pid) or b"") for pid in living if pid != os.getpid()}
    found = dict.fromkeys(tokens, 0.0)
    for stat in living.values():
        pid, seen = stat.pid, set[int]()
        while families.get(pid) is None and pid in families and pid not in seen:
            seen.add(pid)
            pid = living[pid].parent
        family = families.get(pid)
        if family is not None:
            found[family] += stat.cpu_seconds
    return found


class _Proof(Struct, frozen=True):
    token: bytes
    leader: Identity | None
    log: FileKey | None
    also: Collection[Identity]


def _belongs(stat: Stat, token: bytes | None, sessions: set[int], proof: _Proof) -> bool:
    if _carries(token, proof) or _names(proof, stat):
        return True
    if token and stat.parent == os.getpid():
        return False
    if stat.session in sessions or stat.group in sessions:
        return True
    if proof.log is not None and writes_to(stat.pid, proof.log):
        return True
    # Helpers of ours are in our own session, which no program can enter.
    return stat.session != os.getsid(0) and carries(read_mark(stat.pid), proof.token.decode(errors="surrogateescape"))


def _carries(token: bytes | None, proof: _Proof) -> bool:
    """Whether a token is the family's; `TOKEN~x` is of a part of it, which can also be ended without the rest."""
    return token is not None and (token == proof.token or token.startswith(proof.token + b"~"))


def _is_orphan(stat: Stat, sessions: set[int], proof: _Proof) -> bool:
    """Whether a zombie may be buried here: burying a child of our own making would rob its starter of its status.

    What is in a session that neither we nor it opened was not started by us. Otherwise the leader
    tells: it is the only one that we started with this token.
    """
    if stat.parent != os.getpid() or (proof.leader is not None and stat.pid == proof.leader.pid):
        return False
    certain = stat.session not in (stat.pid, os.getsid(0))
    belongs = stat.session in sessions or stat.group in sessions or _names(proof, stat)
    return belongs and (certain or proof.leader is not None)


def _names(proof: _Proof, stat: Stat) -> bool:
    identity = identity_of(stat)
    leads = proof.leader is not None and is_same(identity, proof.leader)
    return leads or any(is_same(identity, known) for known in proof.also)


def _sessions(proof: _Proof, tokens: dict[int, bytes | None], young: dict[int, Stat]) -> set[int]:
    """Sessions and groups that are the family's own.

    The leader's number counts only while the leader holds it (a zombie does): afterwards it may
    have been given to a stranger. A holder of the token vouches for the session it is in, unless
    that session was opened by a process older than the family.
    """
    found: set[int] = set()
    if proof.leader is not None:
        holder = young.get(proof.leader.pid)
        if holder is not None and is_same(identity_of(holder), proof.leader):
            found.add(proof.leader.pid)
    ours = os.getsid(0)
    for pid, token in tokens.items():
        session = young[pid].session
        if _carries(token, proof) and session not in (0, 1, ours) and session not in found:
            opened_by_family = session in young or read_stat(session) is None
            if opened_by_family:
                found.add(session)
    return found


def _with_descendants(family: dict[int, Stat], living: list[Stat]) -> tuple[Stat, ...]:
    children: dict[int, list[Stat]] = {}
    for stat in living:
        children.setdefault(stat.parent, []).append(stat)
    unvisited = list(family)
    while unvisited:
        for child in children.get(unvisited.pop(), ()):
            if child.pid not in family:
                family[child.pid] = child
                unvisited.append(child.pid)
    return tuple(family.values())


class Wait(Struct, frozen=True):
    """What the ladder asks of its driver: come back when all of these have ended, or at `until`."""

    who: tuple[Identity, ...]
    until: float
    patient: bool
    """In the grace: a request to hurry ends the wait."""


def ladder(
    token: str, leader: Identity | None, log: Path | None, grace: float, settle: float
) -> Generator[Wait, bool, int]:
    """Yields waits, is sent whether to hurry, returns how many processes it has ended."""
    began = time.monotonic()
    kill_at = began + grace
    seen: dict[int, Identity] = {}
    told: set[Identity] = set()
    immune: set[Identity] = set()
    orphans = Orphans()
    quiet, hurried = 0, False
    while quiet < QUIET_LOOKS:
        if not seen and left_alone(leader):
            quiet += 1
            continue
        if not seen and time.monotonic() < began + _LONGEST_DOUBT and (walls := ending_walls(leader)):
            hurried = (yield Wait(walls, began + _LONGEST_DOUBT, patient=False)) or hurried
            continue
        looked = look(token, leader, log, tuple(seen.values()))
        for orphan in looked.orphans:
            bury(orphan)
        found = [stat for stat in looked.living if identity_of(stat) not in immune]
        who = tuple(identity_of(stat) for stat in found)
        seen.update((identity.pid, identity) for identity in who)
        now = time.monotonic()
        if not found or now >= kill_at + LAST_RESORT:
            sure = not (looked.unsure or orphans.restless()) or now >= began + _LONGEST_DOUBT
            quiet = QUIET_LOOKS if found else quiet + sure
            hurried = (yield Wait((), now + (0.0 if sure else _DOUBT_WAIT), patient=False)) or hurried
            continue
        quiet = 0
        if (hurried or now >= kill_at) and now < began + grace + _LONGEST_HELD and any(map(is_held, who)):
            # SIGKILL ends who is stopped at once, and its end may let others go on (see `seccomp`).
            kill_at, until, patient = now + _HELD_WAIT, now + _HELD_WAIT, False
        elif hurried or now >= kill_at:
            kill_at = min(kill_at, now)
            immune |= _signal(found, signal.SIGKILL, leader)
            until, patient = now + KILL_WAIT, False
        elif now < began + settle:
            until, patient = began + settle, True
        else:
            # A second SIGTERM means "at once" to many programs, so the group gets one, and newcomers one each.
            newcomers = [stat for stat in found if identity_of(stat) not in told]
            asked = [stat for stat in newcomers if stat.name not in WALLS]
            if asked and len(asked) < len(newcomers):
                immune |= _signal(asked, signal.SIGTERM, None)
                for wall in newcomers:
                    if wall.stopped:  # by an engine that died meanwhile: it would not see what is behind it end
                        _go_on(identity_of(wall))
            else:
                immune |= _signal(newcomers, signal.SIGTERM, leader if not told else None)
            told.update(who)
            until, patient = kill_at, True
        hurried = (yield Wait(who, until, patient)) or hurried
    return len(seen)


async def end_family(
    token: str,
    leader: Identity | None,
    log: Path | None,
    grace: float,
    hurry: asyncio.Event | None = None,
    settle: float = 0.0,
) -> int:
    """End every process of the family and say how many there were.

    It takes at most the grace plus `LAST_RESORT`; for the first `settle` seconds of the grace they
    may leave by themselves. A cancellation does not stop it: it skips what is left of the grace, as
    setting `hurry` does, and is raised when none is left.
    """
    climb = ladder(token, leader, log, grace, settle)
    hurrying = asyncio.ensure_future(hurry.wait()) if hurry is not None else None
    cancelled: asyncio.CancelledError | None = None
    try:
        request = next(climb)
        while True:
            try:
                await _exits(request, hurrying)
            except asyncio.CancelledError as error:
                cancelled = error
            request = climb.send(cancelled is not None or (hurry is not None and hurry.is_set()))
    except StopIteration as done:
        if cancelled is not None:
            raise cancelled from None
        return int(done.value)
    finally:
        if hurrying is not None:
            hurrying.cancel()


async def _exits(request: Wait, hurrying: asyncio.Future[Any] | None) -> None:
    # One after the other is enough, since all have to end; and it needs one descriptor, not hundreds.
    for identity in request.who:
        with exit_notice(identity) as gone:
            wanted: set[asyncio.Future[Any]] = {gone, hurrying} if hurrying is not None and request.patient else {gone}
            left = max(0.0, request.until - time.monotonic())
            done, _ = await asyncio.wait(wanted, timeout=left, return_when=asyncio.FIRST_COMPLETED)
        if gone not in done:
            return
    if not request.who:
        await asyncio.sleep(max(0.0, request.until - time.monotonic()))


def end_family_now(token: str, leader: Identity | None, log: Path | None, grace: float = 2.0) -> int:
    """`end_family` for recovery, where there is no event loop and the leader is not our child."""
    climb = ladder(token, leader, log, grace, settle=0.0)
    try:
        request = next(climb)
        while True:
            for identity in request.who:
                if not wait_exit(identity, request.until - time.monotonic()):
                    break
            if not request.who:
                time.sleep(max(0.0, request.until - time.monotonic()))
            request = climb.send(False)
    except StopIteration as done:
        return int(done.value)


def _signal(found: list[Stat], number: signal.Signals, leader: Identity | None) -> set[Identity]:
    """Signal each once, the group of the leader (if given) as a whole; answers with those we may not signal."""
    immune, grouped = set(), set[int]()
    if leader is not None and _is_own_child(leader):
        # All at once: no member can fork between two signals.
        grouped = {stat.pid for stat in found if stat.group == leader.pid}
        if grouped:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(leader.pid, number)
    for stat in found:
        identity = identity_of(stat)
        if stat.pid not in grouped and not send(identity, number):
            immune.add(identity)
        if stat.stopped and number is not signal.SIGKILL:
            _go_on(identity)
    return immune


def _go_on(identity: Identity) -> None:
    """Let a stopped process hear its signals; one that is held still hears them when it is let go."""
    if not is_held(identity):
        send(identity, signal.SIGCONT)


def _is_own_child(leader: Identity) -> bool:
    """Our child keeps its pid, and so its group's number, until we have waited for it: no other process can have it."""
    stat = read_stat(leader.pid)
    return stat is not None and stat.parent == os.getpid() and is_same(identity_of(stat), leader)
