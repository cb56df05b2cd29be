"""A page of the dashboard that is open: what it costs the daemon to keep it the same as a plan in which much happens.

A plan of many jobs waits, and some of its jobs are canceled ten times a second. The same happens with a page and
without one; the page is played, question by question, as `web/src/store.ts` asks them.
"""

import json
import threading
import time
from typing import Any

from bench.daemon import Served, serving
from bench.repositories import QUICK, SMALL, copy_repository, make_repository
from bench.rest import processor_seconds
from orchard.bench.place import Bench
from orchard.bench.rounds import Bar, Figures, Measure
from orchard.process.stopwatch import Broken

EVENTS = 50
"""In a second."""
BEATS = 10
GATHER = 0.12
LOOK = 1.0
"""As in `web/src/store.ts`: seconds between two questions about a plan, and about what waits."""


def page(bench: Bench) -> Measure:
    """The daemon's processor for an open page with a live plan."""
    template = make_repository(bench, QUICK if bench.quick else SMALL)
    jobs = bench.size(1000, 20)
    each = EVENTS // BEATS
    groups = [f"g{number}" for number in range(jobs // each)]

    def happening(*, watched: bool) -> float:
        """Percent of a core while the jobs of all groups are canceled, one group after the other."""
        with serving(copy_repository(bench, template)) as served:
            plan = served.submit_groups(groups, each)
            served.get(f"/api/v1/plans/{plan}")
            viewer = Page(served, plan) if watched else None
            before, begin = processor_seconds(served.pid), time.perf_counter()
            for number, group in enumerate(groups):
                served.post(f"/api/v1/plans/{plan}/groups/{group}/cancel", {})
                time.sleep(max(0.0, begin + (number + 1) / BEATS - time.perf_counter()))
            used, passed = processor_seconds(served.pid) - before, time.perf_counter() - begin
            if viewer is not None:
                viewer.leave(len(groups) * each)
            return 100 * used / passed

    def measured() -> Figures:
        without, beside = happening(watched=False), happening(watched=True)
        return {"without": without, "page": max(0.0, beside - without)}

    what = f"a page with a live plan of {jobs:,} jobs, {EVENTS} events a second: processor"
    return Measure((measured,), (Bar(what, "page", most=5, unit="%", beside="without"),))


class Page:
    """What a browser asks for a plan that is open: a stream of events, and what changed after some of them."""

    def __init__(self, served: Served, plan: str) -> None:
        self._served, self._plan = served, plan
        self._known: int = served.get(f"/api/v1/plans/{plan}")["seq"]
        self._changed: set[str] = set()
        self._news, self._left = threading.Event(), threading.Event()
        self._stream = served.stream(self._known)
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._listen, self._ask, self._look)]
        for thread in self._threads:
            thread.start()

    def leave(self, jobs: int) -> None:
        """Close it; it must have been told of so many jobs."""
        deadline = time.monotonic() + 10
        while len(self._changed) < jobs and time.monotonic() < deadline:
            time.sleep(GATHER)
        self._left.set()
        self._news.set()
        if len(self._changed) < jobs:
            raise Broken(f"the page was told of {len(self._changed)} of {jobs} jobs")

    def _listen(self) -> None:
        while not self._left.is_set():
            line = self._stream.readline()
            if not line:
                return
            if line.startswith(b"data:"):
                json.loads(line[5:])
                self._news.set()

    def _ask(self) -> None:
        connection = self._served.connect()
        while self._news.wait() and not self._left.is_set():
            time.sleep(GATHER)
            self._news.clear()
            found: Any = self._served.get(f"/api/v1/plans/{self._plan}?since={self._known}", connection)
            self._changed |= {job["id"] for job in found["jobs"] if job["status"] == "canceled" and job["group"]}
            self._known = found["seq"]
        connection.close()

    def _look(self) -> None:
        connection = self._served.connect()
        while not self._left.wait(LOOK):
            for path in ("waiting", "capacity", "repos"):
                self._served.get(f"/api/v1/{path}", connection)
        connection.close()
