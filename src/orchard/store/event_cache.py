"""The newest events of a journal, kept by the process that writes it.

Whoever follows a plan in that process is asked about each event a moment after it was written: reading it back from the
file, and making an object of it again, cost more than writing it. Only what is durable is in here, so that nobody can
tell the difference.
"""

import threading
from collections import deque
from collections.abc import Iterable

from orchard.model.events.plans import Recorded
from orchard.model.names import PlanId

KEPT = 2000


class Recent:
    """The last events, without a gap between them; safe to use from several threads."""

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
