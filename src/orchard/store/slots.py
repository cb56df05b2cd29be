"""How many jobs a user runs at once, over all processes and repositories.

A lease is a row in a file that all share. Its holder is a process known by its identity, so a lease
of one that was killed is free again as soon as a process needs it, and never while the holder lives.
An engine keeps a lease for its next job instead of handing it back, until it has none.

Who finds no lease leaves an address (a socket of its own) in the same transaction; the process that frees one
writes a byte to each address. So no process looks over and over, and no wake-up falls between looking
and waiting. A slow timer covers holders that died, which wake no process.

The engine asks on its event loop, so it never waits there for the lock of another process: a file that is locked gives
nothing now, leases that should go back are kept, and both are tried again in a moment.

Capacity is a courtesy to the machine, not a promise: where the file cannot be used, each process
counts for itself and `warning` says so. A file that is damaged is set aside, and a new one made.
"""

import asyncio
import fcntl
import os
import secrets
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchard.process.families.identity import Identity, identify, is_alive
from orchard.store.db import BUSY_SECONDS, Damaged, Schema, StoreError, explain, open_database

CHECK_SECONDS = 5.0
ADDRESS_BYTES = 100
PATIENCE = 0.02
"""Seconds for which a try waits for another process's lock."""
AGAIN_SECONDS = 0.1
"""After a try that met a lock, nothing is tried for this long: so a lock takes little of an event loop's time."""
MOST_VAIN = 50
"""After so many tries that met a lock one after the other, a process counts alone."""

SLOTS = Schema(
    what="list of slots",
    mark=0x4F525331,
    steps=(
        """
        CREATE TABLE leases (
            id INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, started REAL NOT NULL, boot TEXT NOT NULL,
            renewed REAL NOT NULL
        );
        CREATE TABLE waiters (
            address BLOB PRIMARY KEY, pid INTEGER NOT NULL, started REAL NOT NULL, boot TEXT NOT NULL
        );
        """,
    ),
)

_HOLDER = "pid = ? AND started = ? AND boot = ?"


class Slots:
    """The user's slots as one process sees them; for use by one thread."""

    def __init__(self, path: Path, total: int, runtime: Path | None, me: Identity) -> None:
        self.path = path
        self.total = total
        """0: no limit, and the file is not used."""
        self.warning: str | None = None
        """Why this process counts for itself, if it does."""
        self._runtime = runtime
        self._me = me
        self._connection: sqlite3.Connection | None = None
        self._mine: set[int] = set()
        self._idle: list[int] = []
        self._next_local = -1
        self._doorbell: socket.socket | None = None
        self._address: bytes | None = None
        self._woken = asyncio.Event()
        self._vain = 0
        """How many tries have met a lock since the last one that did not."""
        self._try_after = 0.0

    @classmethod
    def open(cls, path: Path, total: int, runtime: Path | None = None, *, patience: float = PATIENCE) -> "Slots":
        """The slots in this file; `runtime` is a folder, the user's alone, for the sockets of those who wait.

        `patience`: how many seconds a try may wait for another process's lock.
        """
        me = identify(os.getpid())
        assert me is not None, "this process has no identity"
        slots = cls(path, total, runtime, me)
        if total > 0:
            try:
                slots._connection = slots._opened()
                slots._wait_for_locks(patience)
            except StoreError as error:
                slots._count_alone(error.message)
        return slots

    def _opened(self) -> sqlite3.Connection:
        try:
            return open_database(self.path, SLOTS, shared=True)
        except Damaged as error:
            with _alone(self.path.with_suffix(".lock")):
                try:
                    return open_database(self.path, SLOTS, shared=True)  # another process was faster
                except Damaged:
                    kept = _set_aside(self.path)
                    made = open_database(self.path, SLOTS, shared=True)
            why = error.message.partition("; it was left")[0]
            self.warning = f"{why}. Orchard keeps it as {kept} and counts the jobs of this user anew."
            return made

    # ------------------------------------------------------------------------- for an engine

    def acquire(self) -> bool:
        """Have a slot for a job: one that is kept from the job before, or a new lease."""
        if not self._idle:
            self._idle = self.try_take(self._me)
        if not self._idle:
            return False
        self._idle.pop()
        return True

    def release(self) -> None:
        """A job ended; its lease is kept for the next one until `drain`."""
        lease = next(lease for lease in self._mine if lease not in self._idle)
        self._idle.append(lease)
        self._woken.set()

    def drain(self) -> bool:
        """Free the leases that no job uses; False: the file is locked, and they are kept until the next try."""
        if not self.free(*self._idle):
            return False
        self._idle = []
        return True

    async def wait_free(self, longest: float = CHECK_SECONDS) -> None:
        """Wait after a vain `acquire` until it is worth trying again."""
        loop, bell = asyncio.get_running_loop(), self._doorbell
        if self._vain:  # a lock that goes away wakes nobody
            longest = min(longest, AGAIN_SECONDS)
        if bell is not None:
            loop.add_reader(bell, self._woken.set)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(longest):
                    await self._woken.wait()
        finally:
            if bell is not None:
                loop.remove_reader(bell)
                _empty(bell)
        self._woken.clear()

    def close(self) -> None:
        self._idle, self._try_after = [], 0.0
        self._wait_for_locks(BUSY_SECONDS)  # nobody is served any more; leases that stay would be lost to others
        self.free(*self._mine)
        if self._address is not None:
            self._change(lambda db: db.execute("DELETE FROM waiters WHERE address = ?", (self._address,)))
        if self._doorbell is not None:
            self._doorbell.close()
            Path(os.fsdecode(self._address or b"")).unlink(missing_ok=True)
            self._doorbell = self._address = None
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # ------------------------------------------------------------------------------- leases

    def try_take(self, holder: Identity, n: int = 1) -> list[int]:
        """Up to `n` leases for a process, as many as are free now."""
        taken: list[int] = []
        if not self._change(lambda db: taken.extend(self._take(db, holder, n))):
            taken = []
        if self._connection is None:
            taken = list(self._take_alone(n))
        self._mine.update(taken)
        return taken

    def free(self, *leases: int) -> bool:
        """Give leases back, and wake those who wait for one; False: the file is locked, and nothing was given back."""
        shared = [(lease,) for lease in leases if lease > 0]
        waiting: list[bytes] = []

        def give_back(db: sqlite3.Connection) -> None:
            db.executemany("DELETE FROM leases WHERE id = ?", shared)
            waiting.extend(row[0] for row in db.execute("SELECT address FROM waiters"))

        if shared and not self._change(give_back) and self._connection is not None:
            return False
        self._mine.difference_update(leases)
        _ring([address for address in waiting if address != self._address])
        self._woken.set()
        return True

    def count(self) -> int:
        found = [len(self._mine)]
        self._change(lambda db: found.append(db.execute("SELECT count(*) FROM leases").fetchone()[0]))
        return found[-1]

    def _take(self, db: sqlite3.Connection, holder: Identity, n: int) -> Iterator[int]:
        def left() -> int:
            return self.total - int(db.execute("SELECT count(*) FROM leases").fetchone()[0])

        if left() < n:
            _forget_the_dead(db)
        free = min(n, left())
        if free <= 0:
            self._leave_address(db)
        for _ in range(free):
            row = (holder.pid, holder.started, holder.boot, time.time())
            added = db.execute("INSERT INTO leases (pid, started, boot, renewed) VALUES (?, ?, ?, ?)", row)
            assert added.lastrowid is not None
            yield added.lastrowid

    def _take_alone(self, n: int) -> Iterator[int]:
        for _ in range(n if self.total == 0 else min(n, self.total - len(self._mine))):
            yield self._next_local
            self._next_local -= 1

    def _leave_address(self, db: sqlite3.Connection) -> None:
        """Be woken by the next one who frees a lease; without an address the timer has to do."""
        if self._runtime is None:
            return
        if self._doorbell is None:
            place = self._runtime / f"slot-{self._me.pid}-{secrets.token_hex(4)}.sock"
            if len(os.fsencode(place)) > ADDRESS_BYTES:
                return
            bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            bell.setblocking(False)
            try:
                bell.bind(os.fsencode(place))
            except OSError:
                bell.close()
                return
            place.chmod(0o600)
            self._doorbell, self._address = bell, os.fsencode(place)
        db.execute(
            "INSERT OR IGNORE INTO waiters VALUES (?, ?, ?, ?)",
            (self._address, self._me.pid, self._me.started, self._me.boot),
        )

    def _wait_for_locks(self, seconds: float) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")

    def _change(self, change: Callable[[sqlite3.Connection], object]) -> bool:
        """Change the shared file as a whole, unless it is locked; where it cannot be, count alone from now on."""
        if self._connection is None or time.monotonic() < self._try_after:
            return False
        try:
            with _transaction(self._connection):
                change(self._connection)
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "").startswith("SQLITE_BUSY") and self._vain < MOST_VAIN:
                self._vain, self._try_after = self._vain + 1, time.monotonic() + AGAIN_SECONDS
            else:
                self._count_alone(explain(error, self.path, SLOTS.what).message)
            return False
        self._vain = 0
        return True

    def _count_alone(self, reason: str) -> None:
        if self._connection is not None:
            with suppress(sqlite3.Error):
                self._connection.close()
            self._connection = None
        self._vain = 0
        self.warning = self.warning or f"Each process counts its own jobs against the limit of {self.total}: {reason}"


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock of this file for the time of the block."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _set_aside(path: Path) -> Path:
    """Move a damaged file, and what belongs to it, where nothing reads it; the new name is the answer."""
    folder = path.parent / "damaged"
    folder.mkdir(mode=0o700, exist_ok=True)
    kept = folder / f"{path.name}-{time.time_ns()}"
    os.rename(path, kept)  # noqa: PTH104 - it may be a link, and is moved as one
    for ending in ("-journal", "-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.rename(f"{path}{ending}", f"{kept}{ending}")  # noqa: PTH104
    return kept


@contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _forget_the_dead(db: sqlite3.Connection) -> None:
    for table in ("leases", "waiters"):
        for row in db.execute(f"SELECT DISTINCT pid, started, boot FROM {table}").fetchall():
            if not is_alive(Identity(*row)):
                db.execute(f"DELETE FROM {table} WHERE {_HOLDER}", row)


def _ring(addresses: list[bytes]) -> None:
    """A full mailbox has been rung already, and a missing one has nobody behind it."""
    if not addresses:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as voice:
        voice.setblocking(False)
        for address in addresses:
            with suppress(OSError):
                voice.sendto(b"\0", address)


def _empty(bell: socket.socket) -> None:
    with suppress(BlockingIOError):
        while bell.recv(16):
            pass
