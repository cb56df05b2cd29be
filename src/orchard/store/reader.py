"""Reading the journal, in any process, also while it is written.

A reader has a connection of its own that cannot write, and asks in short transactions, so that
however slow it is, it never keeps the writer from cutting the write-ahead log.
"""

import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from orchard.errors import Next
from orchard.model.events.plans import Recorded, decode
from orchard.model.names import PlanId
from orchard.store.db import StoreError
from orchard.store.plan_list import PlanList, Row

READ_BLOCK = 500
KEPT = 2000


class Recent:
    """The newest events, without a gap between them, kept by the process that writes; safe to use from several threads.

    Reading an event back a moment after it was written, and making an object of it again, cost more than writing it.
    Only what is durable is in here, so that no reader can tell the difference.
    """

    def __init__(self) -> None:
        self._events: deque[Recorded] = deque(maxlen=KEPT)
        self._lock = threading.Lock()

    def add(self, events: Iterable[Recorded]) -> None:
        with self._lock:
            self._events.extend(events)

    def forget(self) -> None:
        """Something was removed from the journal: begin anew, rather than to remember what is gone."""
        with self._lock:
            self._events.clear()

    @property
    def newest(self) -> int | None:
        """The number of the newest event in here. The file may be ahead by a batch, for a moment."""
        with self._lock:
            return self._events[-1].seq if self._events else None

    def since(self, seq: int, plan: PlanId | None = None) -> list[Recorded] | None:
        """What came after event `seq`; None where only the file knows."""
        found: list[Recorded] = []
        with self._lock:
            if not self._events or self._events[0].seq > seq + 1:
                return None
            for recorded in reversed(self._events):
                if recorded.seq <= seq:
                    break
                if plan is None or recorded.plan == plan:
                    found.append(recorded)
        return found[::-1]


def read(path: Path) -> "JournalReader":
    """Read a journal, also while another process writes it; where there is none yet, it is an empty one."""
    return JournalReader(path)


class JournalReader(PlanList):
    recent: Recent | None = None
    """What this process has just written, where it is the one that writes."""

    @classmethod
    def empty(cls) -> "JournalReader":
        return cls(None)

    def events(self, plan: PlanId | None = None, since: int = 0, limit: int | None = None) -> Iterator[Recorded]:
        """What happened after event `since`, in order, up to what is durable when the end is reached."""
        known = self.recent.since(since, plan) if self.recent is not None else None
        if known is not None:
            yield from known[:limit]
            return
        left = limit
        while left is None or left > 0:
            count = READ_BLOCK if left is None else min(READ_BLOCK, left)
            rows = self._block(plan, since, count)
            for row in rows:
                yield self._recorded(row)
            if len(rows) < count:
                return
            since = rows[-1][0]
            left = None if left is None else left - count

    def last_seq(self) -> int:
        """The number of the newest durable event; it does not fall when a plan is forgotten.

        It is never ahead of what `events` gives: who waits for the next one after it would miss what lies between.
        """
        newest = self.recent.newest if self.recent is not None else None
        if newest is not None:
            return newest
        rows = self._ask("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
        return int(rows[0][0]) if rows else 0

    def last_of(self, name: str, plans: Collection[PlanId]) -> PlanId | None:
        """Which of these plans an event of this name was the last to be about; None: of none of them."""
        before = 1 << 62
        question = "SELECT seq, plan FROM events WHERE name = ? AND seq < ? ORDER BY seq DESC LIMIT 1"
        while rows := self._ask(question, name, before):
            before, plan = rows[0]
            if plan in plans:
                return PlanId(plan)
        return None

    def __enter__(self) -> "JournalReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _block(self, plan: PlanId | None, since: int, count: int) -> list[Row]:
        columns = "SELECT seq, at, plan, name, body FROM events"
        if plan is None:
            return self._ask(f"{columns} WHERE seq > ? ORDER BY seq LIMIT ?", since, count)
        return self._ask(f"{columns} WHERE plan = ? AND seq > ? ORDER BY seq LIMIT ?", plan, since, count)

    def _recorded(self, row: Row) -> Recorded:
        seq, at, plan, name, body = row
        try:
            return Recorded(seq, at, PlanId(plan), decode(name, body))
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"Event {seq} of the journal {self.path} cannot be read by this Orchard: {name!r} is newer or damaged.",
                hint=("Update orchard, or run '", Next("get_doctor"), "'."),
            ) from error
