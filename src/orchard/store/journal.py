"""The journal: every fact, in one order, on disk before anyone acts on it.

One connection in one thread writes. `append` gives an event its number at once and hands it over;
the thread commits all it finds as one transaction, and while the disk is busy with that the next
batch gathers. So a lone event waits for one fsync, and a thousand at a time wait for a few. What
nobody waits for is written within a hundredth of a second, together with what comes after it.

    append    the event's number; the event is not yet safe
    durable   returns when it is

A commit that fails ends the journal: after an error the operating system may have dropped what it
could not write, so asking again on the same connection would get a yes that means nothing. Opening
the file anew tells what is there; a batch is there as a whole or not at all.

Reading is in `reader.py`, with connections of its own.
"""

import asyncio
import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import NoReturn

from msgspec import Struct, field, to_builtins

from orchard.errors import Next, OrchardError
from orchard.model.events.plans import Event, Recorded, encode
from orchard.model.plan import PlanId
from orchard.process.failpoint import failpoint
from orchard.store.db import explain, explained, open_database
from orchard.store.plan_list import JOURNAL, PlanRow, Row
from orchard.store.reader import Recent

QUEUED_EVENTS = 100_000
QUEUED_BYTES = 256 * 1024 * 1024
CLOSE_BUSY_MILLISECONDS = 250
GATHER_SECONDS = 0.01
"""How long events that nobody waits for may wait for others: an fsync for each would cost more than it gives."""
GATHERED = 256

# Created and first_seq are those of the first time a plan was seen.
_UPSERT = """
    INSERT INTO plans (id, name, created, first_seq, status, settled, summary) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        name = excluded.name, status = excluded.status, settled = excluded.settled, summary = excluded.summary
"""


class JournalFailed(OrchardError):
    """The journal cannot record any more; what was acknowledged before is safe."""


class _Forget(Struct):
    plan: PlanId
    until: int
    done: threading.Event = field(default_factory=threading.Event)
    removed: int = 0


class _Batch(Struct):
    last: int = 0
    events: list[Row] = field(default_factory=list)
    recorded: list[Recorded] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    forgets: list[_Forget] = field(default_factory=list)
    size: int = 0
    urgent: bool = False

    def __bool__(self) -> bool:
        return bool(self.events or self.forgets)

    def mark(self) -> tuple[int, int, int, int, bool]:
        return len(self.events), len(self.rows), self.last, self.size, self.urgent

    def cut(self, mark: tuple[int, int, int, int, bool]) -> None:
        events, rows, self.last, self.size, self.urgent = mark
        del self.events[events:], self.recorded[events:], self.rows[rows:]


class _Waiter(Struct, frozen=True):
    seq: int
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[None]"

    def tell(self, failure: JournalFailed | None) -> None:
        own = None if failure is None else JournalFailed(failure.message, failure.hint)
        with suppress(RuntimeError):  # its loop was closed: no task waits any more
            self.loop.call_soon_threadsafe(_settle, self.future, own)


def _settle(future: "asyncio.Future[None]", failure: JournalFailed | None) -> None:
    if future.done():
        return
    if failure is None:
        future.set_result(None)
    else:
        future.set_exception(failure)


class Journal:
    """The one writer of a journal file. The engine's lock on the repository keeps it the only one."""

    def __init__(self, path: Path, connection: sqlite3.Connection, last: int) -> None:
        self.path = path
        self._connection = connection
        self._last = self._durable = last
        self._queue = _Batch()
        self._waiters: list[_Waiter] = []
        self._listeners: list[Callable[[int], None]] = []
        self._failure: JournalFailed | None = None
        self._closing = False
        self._flushing = 0
        self._changed = threading.Condition()
        self.recent = Recent()
        """The newest durable events, for readers in this process."""
        self._thread = threading.Thread(target=self._write, name="orchard-journal", daemon=True)
        self._thread.start()

    @classmethod
    def open(cls, path: Path) -> "Journal":
        connection = open_database(path, JOURNAL)
        try:
            with explained(path, JOURNAL.what):
                found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'events'").fetchone()
        except BaseException:
            connection.close()
            raise
        return cls(path, connection, found[0] if found else 0)

    @property
    def last_seq(self) -> int:
        """The number of the newest event, durable or not."""
        return self._last

    @property
    def durable_seq(self) -> int:
        """The number of the newest event that is safe."""
        return self._durable

    @property
    def failure(self) -> JournalFailed | None:
        return self._failure

    def append(
        self,
        plan: PlanId,
        event: Event,
        at: float,
        summary: PlanRow | None = None,
        take_in: Callable[[Recorded], PlanRow | None] | None = None,
    ) -> int:
        """Give the event its number and queue it to be written, with the plan's row as it is after it.

        Never waits. Raises JournalFailed where the journal has failed, and where the disk is so far behind
        that the queue is full; in both cases the event did not happen. `take_in` is called once it is certain that
        the event has a place, and returns the row; what it raises leaves the journal as it was.
        """
        name, body = encode(event)
        body = _storable(body)
        with self._changed:
            self.check_room(1, len(body))
            queue = self._queue
            recorded = Recorded(self._last + 1, at, plan, event)
            if take_in is not None:
                summary = take_in(recorded)
            row = _row(summary) if summary is not None else None
            self._last += 1
            queue.last = self._last
            queue.size += len(body) + (len(row[-1]) if row is not None else 0)
            queue.events.append((self._last, plan, at, name, body))
            queue.recorded.append(recorded)
            if row is not None:
                queue.rows.append((*row[:3], row[3] or self._last, *row[4:]))
                queue.urgent |= summary is not None and summary.settled  # people wait for that
            if len(queue.events) == 1 or self._is_urgent():
                self._changed.notify_all()  # not for each: the thread would wake only to wait again
            return self._last

    def check_room(self, events: int, size: int) -> None:
        """Raise JournalFailed where so many events of so many bytes could not be appended now."""
        with self._changed:
            queue = self._queue
            if self._failure is not None or self._closing:
                self._refuse()
            if len(queue.events) + events > QUEUED_EVENTS or queue.size + size > max(QUEUED_BYTES, size):
                raise JournalFailed(
                    f"The journal {self.path} is {len(queue.events)} events behind: its disk is too slow.",
                    hint=("Check the disk, then run '", Next("resume_plan"), "'."),
                )

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is appended within is committed as a whole or not at all; nothing may be awaited in there.

        Where the block raises, nothing of it is.
        """
        with self._changed:  # the writing thread takes what is queued only when it has this
            queue, last, before = self._queue, self._last, self._queue.mark()
            try:
                yield
            except BaseException:
                queue.cut(before)
                self._last = last
                raise

    async def durable(self, seq: int | None = None) -> None:
        """Wait until this event, or the newest one, has reached the disk; JournalFailed if it will not."""
        loop = asyncio.get_running_loop()
        with self._changed:
            wanted = self._last if seq is None else seq
            assert wanted <= self._last, f"event {wanted} was never appended"
            if wanted <= self._durable:
                return
            if self._failure is not None:
                self._refuse()
            waiter = _Waiter(wanted, loop, loop.create_future())
            self._waiters.append(waiter)
            self._changed.notify_all()
        await waiter.future

    def flush(self) -> None:
        """Wait, without a loop, until everything appended so far has reached the disk."""
        with self._changed:
            wanted = self._last
            self._flushing += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._durable >= wanted or self._failure is not None)
            self._flushing -= 1
            if self._durable < wanted:
                self._refuse()

    def on_commit(
        self, callback: Callable[[int], None], loop: asyncio.AbstractEventLoop | None = None
    ) -> Callable[[], None]:
        """Call back with the newest durable number after each commit, and once at failure; the answer unsubscribes.

        With a loop the call is made there. Without, it is made in the writing thread: it must be short
        and must not raise.
        """

        def in_loop(seq: int) -> None:
            assert loop is not None
            with suppress(RuntimeError):  # the loop was closed
                loop.call_soon_threadsafe(callback, seq)

        listener = callback if loop is None else in_loop

        def unsubscribe() -> None:
            with self._changed, suppress(ValueError):
                self._listeners.remove(listener)

        with self._changed:
            self._listeners.append(listener)
        return unsubscribe

    def forget(self, plan: PlanId) -> int:
        """Remove a plan's row and its events so far, for good; waits, and returns how many events it removed.

        Numbers are never given out again.
        """
        with self._changed:
            if self._failure is not None or self._closing:
                self._refuse()
            order = _Forget(plan, self._last)
            self._queue.forgets.append(order)
            self._changed.notify_all()
        order.done.wait()
        if self._failure is not None:
            self._refuse()
        return order.removed

    def close(self) -> None:
        """Write what is queued, fold the write-ahead log into the file, and let it go.

        Raises JournalFailed only where the failure is news: of a journal that had failed before, everyone was told.
        """
        known = self._failure
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()
        if self._failure is not None and known is None:
            self._refuse()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _refuse(self) -> NoReturn:
        if self._failure is None:
            raise JournalFailed(f"The journal {self.path} is closed.")
        raise JournalFailed(self._failure.message, self._failure.hint) from self._failure

    # ------------------------------------------------------------------------ the writing thread

    def _write(self) -> None:
        batch = _Batch()
        try:
            while batch := self._next_batch():
                self._commit(batch)
                self._acknowledge(batch)
            with suppress(sqlite3.Error):  # the log then stays beside the file, and is as safe as the file
                self._connection.execute(f"PRAGMA busy_timeout = {CLOSE_BUSY_MILLISECONDS}")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except (sqlite3.Error, OSError) as error:
            self._fail(error, batch)
        except BaseException as error:
            self._fail(error, batch)  # no task may wait for ever for what a bug ended
            raise
        finally:
            with suppress(sqlite3.Error):
                self._connection.close()

    def _next_batch(self) -> _Batch:
        """All that is queued; empty only when the journal is to be closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            self._changed.wait_for(self._is_urgent, timeout=GATHER_SECONDS)
            batch, self._queue = self._queue, _Batch(last=self._last)
            return batch

    def _is_urgent(self) -> bool:
        """Whether a task waits for what is queued, or there is enough of it; else the next events may join."""
        queue = self._queue
        asked = self._closing or self._waiters or self._flushing or queue.forgets or queue.urgent
        return bool(asked) or len(queue.events) >= GATHERED

    def _commit(self, batch: _Batch) -> None:
        write = self._connection.execute
        write("BEGIN IMMEDIATE")
        rest = iter(batch.events)
        for number in _chunks(len(batch.events)):
            values = [value for row in islice(rest, number) for value in row]
            write(_insert(number), values)
        failpoint("journal.half-written")
        if batch.rows:
            self._connection.executemany(_UPSERT, batch.rows)
        for order in batch.forgets:
            removed = write("DELETE FROM events WHERE plan = ? AND seq <= ?", (order.plan, order.until))
            order.removed = removed.rowcount
            write("DELETE FROM plans WHERE id = ? AND first_seq <= ?", (order.plan, order.until))
        failpoint("journal.before-commit")
        write("COMMIT")
        failpoint("journal.after-commit")

    def _acknowledge(self, batch: _Batch) -> None:
        self.recent.add(batch.recorded)
        if batch.forgets:
            self.recent.forget()
        with self._changed:
            self._durable = max(self._durable, batch.last)
            ready = [waiter for waiter in self._waiters if waiter.seq <= self._durable]
            if ready:
                self._waiters = [waiter for waiter in self._waiters if waiter.seq > self._durable]
            listeners = tuple(self._listeners)
            self._changed.notify_all()
        for waiter in ready:
            waiter.tell(None)
        for order in batch.forgets:
            order.done.set()
        for listener in listeners:
            listener(self._durable)

    def _fail(self, error: BaseException, batch: _Batch) -> None:
        reason, first = str(error), "Free space or check the disk"
        if isinstance(error, sqlite3.Error):
            reason = explain(error, self.path, JOURNAL.what).message
            if getattr(error, "sqlite_errorname", "").startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
                first = f"End the program that has it open (fuser '{self.path}' names it)"
        failure = JournalFailed(
            f"The journal can record nothing any more after event {self._durable}: {reason}",
            hint=(f"{first}, then run '", Next("resume_plan"), "'."),
        )
        failure.__cause__ = error
        with self._changed:
            self._failure = failure
            waiters, self._waiters = self._waiters, []
            queue, self._queue = self._queue, _Batch()
            listeners = tuple(self._listeners)
            self._changed.notify_all()
        for waiter in waiters:
            waiter.tell(failure)
        for order in (*batch.forgets, *queue.forgets):
            order.done.set()
        for listener in listeners:  # who waits for the next commit would wait for ever: there is none
            listener(self._durable)


def _insert(number: int) -> str:
    """One statement for many rows: each statement costs a hand-over of Python's lock, which a busy loop delays."""
    return "INSERT INTO events (seq, plan, at, name, body) VALUES " + ",".join(["(?,?,?,?,?)"] * number)


def _chunks(count: int) -> Iterator[int]:
    """Few different sizes, so that their statements stay prepared."""
    for size in (64, 8, 1):
        for _ in range(count // size):
            yield size
        count %= size


def _storable(text: str) -> str:
    """JSON text that SQLite can hold: half of a surrogate pair, from a name that was not UTF-8, is escaped."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(json.loads(text), separators=(",", ":"))
    return text


def _row(row: PlanRow) -> Row:
    name = row.name.encode(errors="replace").decode()
    summary = _storable(json.dumps(to_builtins(row.summary), ensure_ascii=False, separators=(",", ":")))
    return (row.id, name, row.created, row.first_seq, row.status, int(row.settled), summary)
