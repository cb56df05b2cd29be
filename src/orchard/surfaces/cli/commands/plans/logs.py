"""`orchard logs` without a job: what all jobs of a plan printed, each line with its job in front of it.

What was printed before stands in the order in which phases began; what is followed comes as it is printed.
"""

import asyncio
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from orchard.app import App
from orchard.core.job_names import job_word
from orchard.core.replay import apply
from orchard.core.run import Run
from orchard.engine.server.server import EngineGone
from orchard.engine.server.session import Session
from orchard.model.phases import Phase
from orchard.model.plan import JobId
from orchard.store.log_follower import Changes
from orchard.store.logs import log_size
from orchard.store.redact import Redactor
from orchard.surfaces.cli.log_output import Part, Printer, Reading, last_lines, on_screen
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import ANSI, Meaning, padded, safe
from orchard.surfaces.cli.terminal import Terminal, put

WIDEST = 30
"""Columns that the name of a job may take."""
COLORS: tuple[Meaning, ...] = ("busy", "good", "wait", "strong")


class Source(NamedTuple):
    job: JobId
    part: Part


class Prefixed(Printer):
    """A log whose lines say which job printed them."""

    job: JobId = JobId("")
    prefix: str = ""

    def begin(self, part: Part, unseen: bytes) -> None:
        self._part, self._redact = part, self.redactor()
        self._redact.feed(unseen)

    def _print(self, shown: str) -> None:
        part = self._part
        if self.terminal.json and part is not None:
            row = {"type": "log", "job": self.job, "attempt": part.attempt, "phase": part.phase, "text": shown}
            self.terminal.row(row)
            return
        lines = on_screen(shown, colors=self.terminal.colors(sys.stdout)).removesuffix("\n").split("\n")
        put(sys.stdout, "".join(f"{self.prefix}{line}\n" for line in lines))


class PlanLogs:
    """The logs of a plan, and how far each was printed."""

    def __init__(
        self, terminal: Terminal, app: App, run: Run, *, phase: Phase | None, every: bool, tail: int | None
    ) -> None:
        self.terminal, self.app, self.run = terminal, app, run
        self.phase, self.every, self.tail = phase, every, tail
        self.width = min(WIDEST, max(len(job_word(job, run.plan.jobs)) for job in run.plan.jobs))
        self.readings: dict[Path, Reading] = {}

    def sources(self) -> list[Source]:
        """The logs that exist so far, in the order in which their phases began."""
        found: list[tuple[float, Source]] = []
        for job, record in self.run.records.items():
            for attempt in record.attempts if self.every else record.attempts[-1:]:
                for phase in attempt.phases:
                    if self.phase in (None, phase.phase):
                        path = self.app.logs.path(self.run.id, job, attempt.number, phase.phase)
                        found.append((phase.started, Source(job, Part(attempt.number, phase.phase, path))))
        return [one for _, one in sorted(found, key=lambda pair: pair[0])]

    def take(self) -> None:
        """Print what is new."""
        for job, part in self.sources():
            if (size := log_size(part.path)) is None:
                continue
            if part.path not in self.readings:
                self.readings[part.path] = reading = Reading(self._printer(job), None)
                if self.tail is not None:
                    reading.parts[part.path] = last_lines(part.path, size, self.tail)[0]
            self.readings[part.path].take([part])

    def end(self) -> None:
        for reading in self.readings.values():
            reading.end()
        if not self.readings:
            self.terminal.note(text.done(text.NO_OUTPUT))

    def _printer(self, job: JobId) -> Prefixed:
        name = padded(safe(job_word(job, self.run.plan.jobs)), self.width)
        color = ANSI[COLORS[self.run.plan.position[job] % len(COLORS)]]
        shown = f"\x1b[{color}m{name} |\x1b[0m " if self.terminal.colors(sys.stdout) else f"{name} | "
        return Prefixed(self.terminal, lambda: Redactor(self.app.secrets(self.run)), job=job, prefix=shown)


def show_plan_logs(logs: PlanLogs, *, follow: bool) -> None:
    logs.take()
    if follow and logs.app.engine_alive() and not logs.run.settled:
        with suppress(EngineGone):  # it ended in the very moment we came: what it wrote is all there is
            asyncio.run(_follow(logs))
        logs.take()
    logs.end()


async def _follow(logs: PlanLogs) -> None:
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(logs.app.listen())
        woken = asyncio.Event()
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        ending = tasks.create_task(_take_events(session, logs.run, woken))
        watched: dict[Path, asyncio.Task[None]] = {}
        try:
            while not ending.done():
                growing = {path for path in _growing(logs) if path not in watched}
                watched |= {path: tasks.create_task(_watch(path, woken)) for path in growing}
                logs.take()
                await woken.wait()
                woken.clear()
        finally:
            for task in (ending, *watched.values()):
                task.cancel()


def _growing(logs: PlanLogs) -> list[Path]:
    """The logs of phases that have not ended."""
    run, found = logs.run, []
    for job in run.active:
        attempt = run.records[job].last
        if attempt is not None and attempt.phases and attempt.phases[-1].ended is None:
            found.append(logs.app.logs.path(run.id, job, attempt.number, attempt.phases[-1].phase))
    return found


async def _watch(path: Path, woken: asyncio.Event) -> None:
    changes = Changes(path)
    try:
        while True:
            await changes.wait()
            woken.set()
    finally:
        changes.close()


async def _take_events(session: Session, run: Run, woken: asyncio.Event) -> None:
    """Take in what happens, so that new phases are known, until the plan is over or waits for a person."""
    try:
        async for batch in session.follow(run.id, run):
            for recorded in batch:
                apply(run, recorded)
            woken.set()
    finally:
        woken.set()
