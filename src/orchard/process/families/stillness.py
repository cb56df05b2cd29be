"""Holding a family still: while a `Hold` is on, no process of it runs, so that none can change a folder under us.

Git follows the names of a folder one after the other. A program that runs in that folder can put a link where git has
looked a moment ago, or other settings where git reads them next, and behind a wall that is the way out: our git stands
outside. So before we work in a folder in which programs are at work, all of them are stopped (SIGSTOP), and it is
proved that they are: two looks in a row find no process that runs, none that has just died, and none that was gone
before we could look at it. A thread that has not come to rest yet counts as running. Where we cannot prove that in
time, we do nothing. At the end we look whether one of them has had a processor since: then what we saw is void.

Who belongs to it: below the engine all that hangs below the leaders of the family, and every orphan that came to us,
whosever it was (see `orphans`); elsewhere what `family.look` finds. Walls are stopped with what is behind them: then
nobody buries the dead in there, and none of those who fork and leave passes unseen.

While a hold is on, no program of the family is started (`moving`), and the ladder that ends a family lets nobody run
(`brakes`). Those who stood still before stay so afterwards. Who has a terminal is pinned besides (`pins`).
"""

import asyncio
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Collection, Iterator
from operator import itemgetter
from pathlib import Path

from msgspec import Struct

from orchard.errors import OrchardError
from orchard.process.families import brakes, pins
from orchard.process.families.exits import send
from orchard.process.families.family import look
from orchard.process.families.identity import Identity, identity_of
from orchard.process.families.marks import unmarked
from orchard.process.families.orphans import QUIET_LOOKS, has_strangers, is_subreaper, leaders, strangers
from orchard.process.families.table import Stat, all_pids, ancestors, read_stat, thread_states, thread_turns

LONGEST = 5.0
"""Seconds until we give up on those who do not stand still."""
_FIRST_WAIT, _LONGEST_WAIT = 0.0005, 0.02
_STUCK = 0.03
"""Seconds that one may wait for its child (`vfork` does, and cannot be stopped) before the child may go on a little."""
_WAITS = "D"
_UNPINNED = "?"
"""In place of the states of one that stands still, but could be let go on."""
_STILL = frozenset("TtZXx")


class NotStill(OrchardError):
    """The programs of a job could not be held still, so nothing was done in its folder."""


class Foreign(Struct, frozen=True):
    """A family that is not below this process, as the journal knows it."""

    leader: Identity | None = None
    log: Path | None = None


class _Seen(Struct, frozen=True):
    living: tuple[Stat, ...]
    restless: bool
    """Whether the look may have missed a process."""


_holds: list["Hold"] = []
_past: deque[tuple[str, float, float]] = deque(maxlen=1000)
"""The last holds that were: of what, and from when to when all of it stood still."""


def is_led(token: str) -> bool:
    """Whether a program of the family of a token was started here and is at work."""
    return any(_covers(token, one) for one in leaders().values())


def _covers(around: str, token: str) -> bool:
    return token == around or token.startswith((f"{around}~", f"{around}:"))


def stood_still(token: str, since: float) -> float:
    """Seconds since a moment in which all programs of a token were held still: they had no time then."""
    now = time.monotonic()
    spans = [(one.token, one.proved, now) for one in _holds if one.proved is not None]
    total, until = 0.0, since
    for around, began, ended in sorted([*_past, *spans], key=itemgetter(1)):
        if _covers(around, token):
            total += max(0.0, ended - max(began, until))
            until = max(until, ended)
    return total


class Hold:
    """From `stop` to `release` the family of a token, of parts of it (`TOKEN~x`) and of those below it (`TOKEN:x`).

    From the moment that it is made no program of the family is started; it is made where programs are started, on the
    event loop. `known` are children of ours that are no orphans.
    """

    def __init__(self, token: str, known: Collection[int] = (), foreign: Foreign | None = None) -> None:
        self.token, self._known, self._foreign = token, known, foreign
        self.over = threading.Event()
        self.proved: float | None = None
        """When all of it was seen to stand still."""
        self._turn = threading.Lock()
        self._mine: dict[Identity, None] = {}
        self._turns: dict[Identity, tuple[bytes, ...]] = {}
        self._family: set[int] = set()
        self._others: set[int] = set()
        self._dead: set[int] = set()
        self._strangers: frozenset[int] = frozenset()
        self.ended: list[str] = []
        """The names of orphans that were ended, for they would not stand still."""
        _holds.append(self)

    @property
    def only(self) -> bool:
        """Whether no other hold is on what this one covers."""
        return all(one is self or not (self.covers(one.token) or one.covers(self.token)) for one in _holds)

    def covers(self, token: str) -> bool:
        return _covers(self.token, token)

    @property
    def needed(self) -> bool:
        """Whether a process of it may be running; if not, looking at every process is spared."""
        if self._foreign is not None or is_led(self.token):
            return True
        return is_subreaper() and has_strangers(self._known)

    def stop(self, longest: float = LONGEST) -> None:
        """Stop all of them and prove it; NotStill, with all of them going on, where that fails. It is for a thread."""
        if not self.needed:
            return
        began = stuck_since = time.monotonic()
        quiet, wait = 0, _FIRST_WAIT
        while quiet < QUIET_LOOKS:
            # Not while a program of another family is started: it is no leader yet, and we would wait for each other.
            with unmarked(), self._turn:
                if self.over.is_set():
                    return  # who wanted it has gone away meanwhile
                seen = self._look()
                moving = {stat.pid: states for stat in seen.living if (states := self._moves(stat))}
                held = [stat for stat in seen.living if self._stop(stat, stopped=stat.pid not in moving)]
                moving = {stat.pid: moving[stat.pid] for stat in held if stat.pid in moving}
                moving |= {stat.pid: _UNPINNED for stat in held if stat.pid not in moving and not self._pin(stat)}
                turns = {} if moving else {identity_of(stat): thread_turns(stat.pid) for stat in held}
            quiet = 0 if moving or seen.restless else quiet + 1 if turns == self._turns else 1
            self._turns = turns
            now = time.monotonic()
            if now - began > longest and self._end_strangers(seen.living, moving):
                began = now
            elif now - began > longest:
                self.release()
                raise NotStill(
                    f"The programs of the job did not stand still within {longest:g} s, so the engine did nothing "
                    "in their folder.",
                    hint="Something there starts processes without end, or waits for a disk. Try again, or cancel it.",
                )
            if not any(_WAITS in states for states in moving.values()):
                stuck_since = now
            elif now - stuck_since > _STUCK:
                self._nudge(seen.living, moving)
                stuck_since = now
            if quiet == 0:
                time.sleep(wait)
                wait = min(2 * wait, _LONGEST_WAIT)
        self.proved = time.monotonic()

    def check(self) -> None:
        """NotStill where one of them has run or ended meanwhile: what we saw of the folder is void."""
        for identity, turns in self._turns.items():
            stat = read_stat(identity.pid)
            if stat is None or identity_of(stat) != identity or thread_turns(stat.pid) != turns or self._moves(stat):
                raise NotStill(
                    "Another process let programs of the job go on, or ended them, while they were held still."
                )

    def release(self) -> None:
        """Let those go on that we stopped; also after a failure, and as often as one likes."""
        with self._turn:
            pins.unpin(self)
            brakes.release(self._mine, self)
            self._mine.clear()
            if not self.over.is_set():
                if self.proved is not None:
                    _past.append((self.token, self.proved, time.monotonic()))
                _holds.remove(self)
                self.over.set()

    def _stop(self, stat: Stat, *, stopped: bool) -> bool:
        identity = identity_of(stat)
        allowed = brakes.stop(identity, stopped, self)
        if brakes.is_held(identity):
            self._mine[identity] = None
        return allowed

    def _end_strangers(self, living: tuple[Stat, ...], moving: dict[int, str]) -> bool:
        """End orphans that do not stand still, once, with what hangs below them: a job that is not ours to hold may
        have left them, and could keep us from the folders of all others."""
        table = {stat.pid: stat for stat in living}
        found = list(_below({*self._strangers} & moving.keys(), table))
        if self.ended or not found:
            return False
        for stat in found:
            send(identity_of(stat), signal.SIGKILL)
            self.ended.append(os.fsdecode(stat.name))
        return True

    def _pin(self, stat: Stat) -> bool:
        return not pins.needs_pin(stat) or pins.pin(identity_of(stat), self)

    def _moves(self, stat: Stat) -> str:
        """The states of its threads, if one of them is not at rest."""
        states = thread_states(stat.pid)
        return "" if _STILL.issuperset(states) else states

    def _nudge(self, living: tuple[Stat, ...], moving: dict[int, str]) -> None:
        for stat in living:
            if _WAITS in moving.get(stat.parent, ""):
                pins.unpin(self, identity_of(stat))
                brakes.nudge(identity_of(stat))

    def _look(self) -> _Seen:
        if self._foreign is not None or not is_subreaper():
            foreign, ours = self._foreign or Foreign(), os.getsid(0)
            looked = look(self.token, foreign.leader, foreign.log, tuple(self._mine))
            found = tuple(stat for stat in looked.living if self._foreign is not None or stat.session != ours)
            return _Seen(found, looked.unsure or self._is_new({stat.pid for stat in looked.orphans}))
        numbers, table, vanished = list(all_pids()), dict[int, Stat](), False
        # The youngest first: they are the ones who may be gone in a moment. Who was no family once never becomes it.
        for pid in reversed(numbers):
            if pid in self._others:
                continue
            stat = read_stat(pid)
            if stat is not None:
                table[pid] = stat
            elif pid not in self._family:
                vanished = True
        orphans = strangers(self._known)
        table |= {stat.pid: stat for stat in orphans}
        led = {pid for pid, token in leaders().items() if self.covers(token)}
        below = list(_below(led | {stat.pid for stat in orphans}, table))
        living = tuple(stat for stat in below if not stat.dead)
        self._strangers = frozenset(stat.pid for stat in _below({stat.pid for stat in orphans}, table))
        self._family = {stat.pid for stat in below}
        # A process whose parent was gone in that moment hangs below none of ours, and may be family all the same.
        self._others = set() if vanished else set(numbers) - self._family
        return _Seen(living, self._is_new({stat.pid for stat in below if stat.dead}) or vanished)

    def _is_new(self, dead: set[int]) -> bool:
        new, self._dead = dead - self._dead, dead
        return bool(new)


def _below(roots: set[int], table: dict[int, Stat]) -> Iterator[Stat]:
    """The roots and all that hangs below them; never us, and none of those above us."""
    children: dict[int, list[int]] = {}
    for stat in table.values():
        children.setdefault(stat.parent, []).append(stat.pid)
    visited, unvisited = {0, 1, os.getpid(), *ancestors()}, list(roots)
    while unvisited:
        pid = unvisited.pop()
        if pid not in visited:
            visited.add(pid)
            unvisited += children.get(pid, ())
            if pid in table:
                yield table[pid]


async def moving(token: str) -> None:
    """Wait until no hold covers a token: then a program may be started with it, before anything else is awaited."""
    while hold := next((one for one in _holds if one.covers(token)), None):
        await asyncio.to_thread(hold.over.wait)
