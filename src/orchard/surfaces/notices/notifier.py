"""Following the journal of an engine that this process keeps, for people who are elsewhere.

It reads what is durable, as any surface does, and the engine does not know of it. Notices are told at most once: those
of what happened before this engine are not told again, and those that a crash kept back are lost.
"""

import asyncio
from collections.abc import Mapping, Sequence

from orchard.app import App
from orchard.core.replay import apply
from orchard.core.run import Run
from orchard.engine.server.session import GATHER, Session
from orchard.errors import OrchardError
from orchard.model.events.plans import PlanPurged, Recorded
from orchard.model.plan import PlanId
from orchard.store.redact import Redactor
from orchard.surfaces.next_steps import in_commands
from orchard.surfaces.notices.delivery import Deliveries, Way, missing_secret, ways_of
from orchard.surfaces.notices.notice import Known, known_of, notices_of

CLOSE_SECONDS = 5.0
"""For how long the last notices may keep a process that has nothing else to do."""


class Notifier:
    def __init__(self, app: App, env: Mapping[str, str], ways: Mapping[str, Way] | None = None) -> None:
        self._app, self._seen = app, 0
        settings = app.settings.config.notify
        self._on = frozenset(settings.on)
        found = dict(ways if ways is not None else ways_of(settings, env))
        lacking = missing_secret(settings, env)
        self._words = [lacking] if lacking else []
        if lacking:
            found = {name: way for name, way in found.items() if "webhook" not in name}
        self._deliveries = Deliveries(found)
        self._runs: dict[PlanId, tuple[Run, Known]] = {}
        self._followed = False

    async def follow(self, session: Session, since: int) -> None:
        """Tell of what comes after event `since`, until this is canceled."""
        self._seen, self._followed = since, True
        try:
            while True:
                await session.link.grown(self._seen)
                await asyncio.sleep(GATHER)
                await self._take()
        except (OrchardError, OSError):
            return  # the journal failed, which ends the engine, or cannot be read; `close` says so

    async def close(self) -> Sequence[str]:
        """Tell of what came last, and say what became of the notices."""
        if self._followed:
            try:
                await self._take()
            except (OrchardError, OSError) as error:
                self._words.append(f"The journal cannot be read, and the last notices are not sent: {error}")
        return [*self._words, *await asyncio.to_thread(self._deliveries.close, CLOSE_SECONDS)]

    async def _take(self) -> None:
        recent = self._app.reader.recent
        news = recent.since(self._seen) if recent is not None else None
        if news is None:
            news = await asyncio.to_thread(lambda: list(self._app.reader.events(None, self._seen)))
        by_plan: dict[PlanId, list[Recorded]] = {}
        for recorded in news:
            by_plan.setdefault(recorded.plan, []).append(recorded)
        for plan, found in by_plan.items():
            if plan not in self._runs:
                self._runs[plan] = await asyncio.to_thread(self._before, plan, self._seen)
            self._tell(plan, found)
        if news:
            self._seen = news[-1].seq

    def _before(self, plan: PlanId, seen: int) -> tuple[Run, Known]:
        """The run as it was when we began to listen."""
        run = Run(plan)
        for recorded in self._app.reader.events(plan):
            if recorded.seq > seen:
                break
            apply(run, recorded)
        return run, known_of(run, in_commands)

    def _tell(self, plan: PlanId, found: Sequence[Recorded]) -> None:
        run, before = self._runs[plan]
        for recorded in found:
            apply(run, recorded)
        if any(isinstance(recorded.event, PlanPurged) for recorded in found):
            del self._runs[plan]
            return
        after = known_of(run, in_commands)
        self._runs[plan] = run, after
        if after == before:
            return
        place = str(self._app.repo.main_top or self._app.repo.top or self._app.repo.common_dir)
        hide = Redactor(self._app.secrets(run)).text
        for notice in notices_of(before, after, run, in_commands, found[-1].at, place, hide):
            if notice.event in self._on:
                self._deliveries.send(notice)
