"""`orchard logs`: what programs printed, read in blocks, so that the size of a log does not matter.

Everything that leaves a log is redacted. Unless `--raw` is given it is also made fit for a screen:
colours stay where colours are wanted, every other control sequence is dropped.
"""

import asyncio
import os
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from orchard.app import App
from orchard.core.job_names import job_word
from orchard.core.replay import apply
from orchard.core.run import Run
from orchard.core.states import ACTIVE
from orchard.engine.server.server import EngineGone
from orchard.engine.server.session import Session
from orchard.errors import NotFound, UsageError
from orchard.model.phases import PHASES, Phase
from orchard.model.plan import JobId
from orchard.store.log_follower import Changes
from orchard.store.logs import log_size
from orchard.store.redact import Redactor
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.log_output import Part, Printer, Reading
from orchard.surfaces.cli.options import PhaseChoice, app_of, optional_job_argument, plan_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.terminal import Terminal


class Wanted(Struct, frozen=True):
    attempt: int | None = None
    phase: Phase | None = None
    every: bool = False
    subtask: str | None = None

    def goes_on(self, run: Run, job: JobId) -> bool:
        """Whether more may be printed: the attempt is not over, or the subtask is not and does not wait."""
        record = run.records[job]
        if self.subtask is not None:
            one = record.subtasks[self.subtask]
            return not (one.over or one.at_rest)
        return record.state in ACTIVE or not record.attempts

    def parts(self, app: App, run: Run, job: JobId) -> list[Part]:
        """The logs that exist so far, in the order they were written."""
        return [part for part in self._places(app, run, job) if log_size(part.path) is not None]

    def replaced(self, app: App, run: Run, job: JobId) -> list[Part]:
        """Where something else lies in the place of a log."""
        return [
            part for part in self._places(app, run, job) if log_size(part.path) is None and os.path.lexists(part.path)
        ]

    def first(self, app: App, run: Run, job: JobId) -> Path:
        """The log that will be there first."""
        places = self._places(app, run, job)
        return places[0].path if places else app.logs.path(run.id, job, 1, PHASES[0])

    def _places(self, app: App, run: Run, job: JobId) -> list[Part]:
        if self.subtask is not None:
            number = run.records[job].subtasks[self.subtask].attempt
            return [Part(number, None, app.logs.subtask_path(run.id, job, number, self.subtask))]
        numbers = [attempt.number for attempt in run.records[job].attempts]
        chosen = numbers if self.every else numbers[-1:] if self.attempt is None else [self.attempt]
        phases = PHASES if self.phase is None else (self.phase,)
        return [Part(n, phase, app.logs.path(run.id, job, n, phase)) for n in chosen for phase in phases]


@verb(
    "logs",
    examples="""
orchard logs                           # of the whole plan, each line with its job
orchard logs -f                        # until the plan ends
orchard logs api
orchard logs api -f                    # until the job ends
orchard logs api --phase postchecks --tail 50
orchard logs api --attempt 1
orchard logs api/subtask-k3x9p -f      # of a part that its agent handed to another
""",
)
@optional_job_argument
@plan_option
@click.option("-f", "--follow", is_flag=True, help="Keep printing while the job, or the plan, runs.")
@click.option("--phase", type=PhaseChoice(), help="Show only this phase.")
@click.option("--attempt", type=click.IntRange(1), metavar="N", help="Show this attempt instead of the last one.")
@click.option("--all", "every", is_flag=True, help="Show all attempts.")
@click.option("-n", "--tail", type=click.IntRange(0), metavar="N", help="Show only the last N lines.")
@click.option("--raw", is_flag=True, help="Print bytes as they are; secrets are still redacted.")
def logs(terminal: Terminal, job: str | None, plan: str | None, follow: bool, **options: Any) -> None:
    """Without JOB, it prints the output of all jobs of the plan, in the order in which their phases began."""
    if options["every"] and options["attempt"] is not None:
        raise UsageError("'--all' and '--attempt' exclude each other.", "Give one of them.")
    app = app_of(terminal)
    phase = options["phase"]
    if job is None:
        _whole_plan(terminal, app, plan, follow=follow, **options)
        return
    run, job_id, subtask = app.worker_of(job, plan)
    if subtask is not None and (phase or options["every"] or options["attempt"] is not None):
        raise UsageError("A subtask has one log.", "Leave '--phase', '--attempt' and '--all' out.")
    wanted = Wanted(options["attempt"], Phase(phase) if phase else None, options["every"], subtask)
    printer = Printer(terminal, lambda: Redactor(app.secrets(run)), raw=options["raw"])
    with nullcontext() if follow or options["raw"] else terminal.paging():
        show_logs(app, run, job_id, wanted, Reading(printer, options["tail"]), follow=follow)


def _whole_plan(
    terminal: Terminal,
    app: App,
    plan: str | None,
    *,
    follow: bool,
    phase: str | None,
    attempt: int | None,
    every: bool,
    tail: int | None,
    raw: bool,
) -> None:
    from orchard.surfaces.cli.commands.plans.logs import PlanLogs, show_plan_logs

    if attempt is not None or raw:
        raise UsageError("'--attempt' and '--raw' are for one job.", "Name it: orchard logs JOB")
    run = app.run_of(app.find_plan(plan))
    wanted = Phase(phase) if phase else None
    with nullcontext() if follow else terminal.paging():
        show_plan_logs(PlanLogs(terminal, app, run, phase=wanted, every=every, tail=tail), follow=follow)


def show_logs(app: App, run: Run, job: JobId, wanted: Wanted, reading: Reading, *, follow: bool) -> None:
    known = {attempt.number for attempt in run.records[job].attempts}
    if wanted.attempt is not None and wanted.attempt not in known:
        raise NotFound(f"Job '{job}' has no attempt {wanted.attempt}.", f"orchard attempts {job} --plan {run.id}")
    reading.take(wanted.parts(app, run, job))
    if follow and app.engine_alive() and not run.settled:
        asyncio.run(_follow(app, run, job, wanted, reading))
    reading.end()
    replaced = wanted.replaced(app, run, job)
    for part in replaced:
        reading.printer.terminal.note(text.done(text.LOG_REPLACED.format(path=part.path)))
    if not reading.parts and not replaced:
        record = run.records[job]
        begun = (
            text.NO_OUTPUT
            if record.attempts or wanted.subtask
            else text.NOT_BEGUN.format(job=job_word(job, run.plan.jobs), status=record.status)
        )
        reading.printer.terminal.note(text.done(begun))


async def _follow(app: App, run: Run, job: JobId, wanted: Wanted, reading: Reading) -> None:
    async with AsyncExitStack() as stack:
        try:
            session = await stack.enter_async_context(app.listen())
        except EngineGone:  # it ended in the very moment we came: what it wrote is all there is
            reading.take(wanted.parts(app, app.run_of(run.id), job))
            return
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        news = News()
        watching = tasks.create_task(_until_it_ends(session, run, job, wanted, news))
        try:
            while not news.ended:
                parts = wanted.parts(app, run, job)
                reading.take(parts)
                await news.of(parts[-1].path if parts else wanted.first(app, run, job))
        finally:
            news.close()
            watching.cancel()
    reading.take(wanted.parts(app, run, job))


class News:
    """Wakes us when the log that is being printed grows, or something happens to its job."""

    def __init__(self) -> None:
        self.ended = False
        self._changes: Changes | None = None

    async def of(self, path: Path) -> None:
        """Wait for news; a file that is watched for the first time may have grown already."""
        if self._changes is None or self._changes.path != path:
            self.close()
            self._changes = Changes(path)
        else:
            await self._changes.wait()

    def wake(self) -> None:
        if self._changes is not None:
            self._changes.wake()

    def close(self) -> None:
        if self._changes is not None:
            self._changes.close()
            self._changes = None


async def _until_it_ends(session: Session, run: Run, job: JobId, wanted: Wanted, news: News) -> None:
    """Take in what happens, so that new phases are known, until the job or the subtask can print no more."""
    while wanted.goes_on(run, job):
        async for batch in session.follow(run.id, run):
            for recorded in batch:
                apply(run, recorded)
            if not wanted.goes_on(run, job):
                break
            news.wake()
        if wanted.subtask is None or not wanted.goes_on(run, job):
            break
        await session.link.grown(run.seq)  # its job waits for a person, and the subtask goes on
    news.ended = True
    news.wake()
