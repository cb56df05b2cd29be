"""What the daemon is doing, in numbers for Prometheus. Every label has few values: repositories, statuses, methods."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from msgspec import Struct

from orchard.app import App
from orchard.errors import OrchardError
from orchard.operations.operation import Args
from orchard.operations.queries.system import get_capacity
from orchard.surfaces.http.daemon.door import Traffic
from orchard.surfaces.http.daemon.repos import Repos

MISSING = "The numbers need a package that is not installed."
MISSING_HINT = "Install Orchard's extra: orchard-agents[metrics]"


class Numbers(Struct, frozen=True):
    repo: str
    plans: Counter[str]
    jobs: Counter[str]
    events: int
    engine: int


async def metrics_text(repos: Repos, traffic: Traffic, began: float) -> tuple[bytes, str] | None:
    """The numbers as text and its media type; None where the package that writes it is not installed."""
    try:
        import prometheus_client
    except ImportError:
        return None
    numbers = []
    for served in repos.all():
        with suppress(OrchardError):  # a journal that cannot be read now is told elsewhere
            plans, jobs, events = await served.read(_count, served.app)
            numbers.append(Numbers(served.id, plans, jobs, events, int(served.session is not None)))
    first = next(iter(repos.all()), None)
    capacity = await first.read(get_capacity.read, first.app, Args()) if first is not None else None
    slots = (capacity.total, capacity.used) if capacity is not None else (0, 0)
    registry = prometheus_client.CollectorRegistry(auto_describe=False)
    registry.register(_Collector(numbers, slots, traffic, began))
    return prometheus_client.generate_latest(registry), prometheus_client.CONTENT_TYPE_LATEST


def _count(app: App) -> tuple[Counter[str], Counter[str], int]:
    plans: Counter[str] = Counter()
    jobs: Counter[str] = Counter()
    for plan in app.plans():
        plans[plan.status] += 1
        jobs.update(plan.counts)
    return plans, jobs, app.reader.last_seq()


class _Collector:
    """Gives the numbers that were gathered for one answer."""

    def __init__(self, numbers: Sequence[Numbers], slots: tuple[int, int], traffic: Traffic, began: float) -> None:
        self._numbers, self._slots, self._traffic, self._began = numbers, slots, traffic, began

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        plans = GaugeMetricFamily("orchard_plans", "Plans by status.", labels=["repo", "status"])
        jobs = GaugeMetricFamily("orchard_jobs", "Jobs of all plans by status.", labels=["repo", "status"])
        events = CounterMetricFamily("orchard_events", "Events in the journal.", labels=["repo"])
        engine = GaugeMetricFamily("orchard_engine_up", "Whether an engine works here.", labels=["repo"])
        for one in self._numbers:
            for status, count in sorted(one.plans.items()):
                plans.add_metric([one.repo, status], count)
            for status, count in sorted(one.jobs.items()):
                jobs.add_metric([one.repo, status], count)
            events.add_metric([one.repo], one.events)
            engine.add_metric([one.repo], one.engine)
        yield from (plans, jobs, events, engine)
        requests = CounterMetricFamily("orchard_http_requests", "Answers.", labels=["method", "status"])
        for (method, status), count in sorted(self._traffic.answered.items()):
            requests.add_metric([method, status], count)
        yield requests
        total, used = self._slots
        yield GaugeMetricFamily("orchard_slots_total", "Jobs of this user that may run at once; 0: no limit.", total)
        yield GaugeMetricFamily("orchard_slots_used", "Jobs of this user that run or are about to.", used)
        yield GaugeMetricFamily("orchard_sse_clients", "Clients that are being sent events.", self._traffic.streams)
        yield GaugeMetricFamily("orchard_resident_bytes", "Memory of the daemon.", _own_rss())
        yield GaugeMetricFamily("orchard_uptime_seconds", "Time since the start.", time.monotonic() - self._began)


def _own_rss() -> int:
    import psutil  # heavy, and only needed when somebody looks

    return int(psutil.Process().memory_info().rss)
