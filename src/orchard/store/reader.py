"""Reading the journal, in any process, also while it is written.

A reader has a connection of its own that cannot write, and asks in short transactions, so that
however slow it is, it never keeps the writer from cutting the write-ahead log.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchard.core.events import Recorded, decode
from orchard.core.plan import PlanId
from orchard.store.db import Schema, StoreError, explained, open_read_only

JOURNAL_FILE = "journal.db"
"""The name of a repository's journal in its state folder."""

READ_BLOCK = 500

JOURNAL = Schema(
    what="journal",
    mark=0x4F524A31,
    steps=(
        """
        CREATE TABLE events (
            seq INTEGER PRIMARY KEY AUTOINCREMENT, plan TEXT NOT NULL, at REAL NOT NULL,
            name TEXT NOT NULL, body TEXT NOT NULL
        );
        CREATE INDEX events_of_plan ON events (plan, seq);
        CREATE TABLE plans (
            id TEXT PRIMARY KEY, name TEXT NOT NULL, created REAL NOT NULL, first_seq INTEGER NOT NULL,
            status TEXT NOT NULL, settled INTEGER NOT NULL, summary TEXT NOT NULL
        );
        CREATE INDEX plans_in_order ON plans (first_seq);
        """,
    ),
)

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class PlanRow:
    """What lists show of a plan without replaying it; written together with the event that changed it."""

    id: PlanId
    name: str
    created: float
    first_seq: int
    """0 in a row that is handed to `append`: the number of that event, if the plan is new."""
    status: str
    settled: bool
    summary: dict[str, Any]


def read(path: Path) -> "JournalReader":
    """Read a journal, whoever writes it; where there is none yet, it is an empty one."""
    return JournalReader(path)


class JournalReader:
    """A journal for looking at. It creates nothing, and finds a journal that is made later."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._opened: sqlite3.Connection | None = None
        self._lock = threading.Lock()

    @classmethod
    def empty(cls) -> "JournalReader":
        """A journal in which nothing ever happened."""
        return cls(None)

    def plans(self) -> list[PlanRow]:
        """Every plan, the newest last."""
        return [_plan_row(row) for row in self._ask(f"{_PLANS} ORDER BY first_seq")]

    def plan(self, plan: PlanId) -> PlanRow | None:
        """One plan, by its whole id."""
        return next((_plan_row(row) for row in self._ask(f"{_PLANS} WHERE id = ?", plan)), None)

    def events(self, plan: PlanId | None = None, since: int = 0, limit: int | None = None) -> Iterator[Recorded]:
        """What happened after event `since`, in order, up to what is durable when the end is reached."""
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
        """The number of the newest durable event; it does not fall when a plan is forgotten."""
        rows = self._ask("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
        return int(rows[0][0]) if rows else 0

    def close(self) -> None:
        """Let the file go; a later question opens it again."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def __enter__(self) -> "JournalReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _block(self, plan: PlanId | None, since: int, count: int) -> list[Row]:
        columns = "SELECT seq, at, plan, name, body FROM events"
        if plan is None:
            return self._ask(f"{columns} WHERE seq > ? ORDER BY seq LIMIT ?", since, count)
        return self._ask(f"{columns} WHERE plan = ? AND seq > ? ORDER BY seq LIMIT ?", plan, since, count)

    def _ask(self, question: str, *values: object) -> list[Row]:
        if self.path is None:
            return []
        with self._lock, explained(self.path, JOURNAL.what):
            if self._opened is None:
                if not os.path.lexists(self.path):
                    return []
                self._opened = open_read_only(self.path, JOURNAL)
            return self._opened.execute(question, values).fetchall()

    def _recorded(self, row: Row) -> Recorded:
        seq, at, plan, name, body = row
        try:
            return Recorded(seq, at, PlanId(plan), decode(name, body))
        except (KeyError, TypeError, ValueError) as error:
            raise StoreError(
                f"Event {seq} of the journal {self.path} cannot be read by this Orchard: {name!r} is newer or damaged.",
                hint="Update orchard, or run 'orchard doctor'.",
            ) from error


_PLANS = "SELECT id, name, created, first_seq, status, settled, summary FROM plans"


def _plan_row(row: Row) -> PlanRow:
    plan, name, created, first, status, settled, summary = row
    return PlanRow(PlanId(plan), name, created, first, status, bool(settled), json.loads(summary))
