"""The list of plans, as the journal keeps it beside the events: read without replaying or knowing any of them."""

import json
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import Struct, ValidationError, convert

from orchard.core.views.documents import PlanSummary, bare_summary
from orchard.model.names import PlanId
from orchard.process.families.table import FileKey, file_key
from orchard.store.db import Schema, explained, open_read_only

JOURNAL_FILE = "journal.db"

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


class PlanRow(Struct, frozen=True):
    """What lists show of a plan without replaying it; written together with the event that changed it."""

    id: PlanId
    name: str
    created: float
    first_seq: int
    """0 in a row that is handed to `append`: the number of that event, if the plan is new."""
    status: str
    settled: bool
    summary: PlanSummary


def listed(rows: Iterable[PlanRow], summarize: Callable[[PlanId], PlanSummary], *, deleted: bool) -> list[PlanSummary]:
    """Every plan in a few fields, in the order of the rows; a plan that is not settled is asked for anew."""
    found = [row.summary if row.settled else summarize(row.id) for row in rows]
    return [summary for summary in found if deleted or not summary.deleted]


class PlanList:
    """The plans of a journal, for looking at. It creates nothing, and finds a journal that is made later."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._opened: sqlite3.Connection | None = None
        self._file: FileKey | None = None
        self._lock = threading.Lock()

    def plans(self) -> list[PlanRow]:
        return [_plan_row(row) for row in self._ask(f"{_PLANS} ORDER BY first_seq")]

    def plan(self, plan: PlanId) -> PlanRow | None:
        return next((_plan_row(row) for row in self._ask(f"{_PLANS} WHERE id = ?", plan)), None)

    def has(self, plan: PlanId) -> bool:
        return bool(self._ask("SELECT 1 FROM plans WHERE id = ?", plan))

    def mentioning(self, text: str) -> list[PlanRow]:
        """The plans whose row holds this text somewhere, the newest last; what does not is not even read."""
        try:
            written = json.dumps(text, ensure_ascii=False)
            written.encode()
        except UnicodeEncodeError:
            written = json.dumps(text)
        question = f"{_PLANS} WHERE instr(summary, ?) > 0 ORDER BY first_seq"
        return [_plan_row(row) for row in self._ask(question, written)]

    def close(self) -> None:
        """Let the file go; a later question opens it again."""
        with self._lock:
            if self._opened is not None:
                self._opened.close()
                self._opened = None

    def _ask(self, question: str, *values: object) -> list[Row]:
        if self.path is None:
            return []
        with self._lock, explained(self.path, JOURNAL.what):
            file = file_key(self.path)
            if self._opened is not None and file != self._file:
                self._opened.close()  # the repository was removed, and perhaps made anew: this file has no name now
                self._opened = None
            if self._opened is None:
                if not os.path.lexists(self.path):
                    return []
                self._opened, self._file = open_read_only(self.path, JOURNAL), file
            return self._opened.execute(question, values).fetchall()


_PLANS = "SELECT id, name, created, first_seq, status, settled, summary FROM plans"


def _summary(row: Row) -> PlanSummary:
    """What the row says of its plan; of one that another version wrote in another form, as much as the columns say."""
    plan, name, created, _, status, _, summary = row
    try:
        return convert(json.loads(summary), PlanSummary)
    except ValidationError:
        return bare_summary(plan, name, status, created)


def _plan_row(row: Row) -> PlanRow:
    plan, name, created, first, status, settled, _ = row
    return PlanRow(PlanId(plan), name, created, first, status, bool(settled), _summary(row))
