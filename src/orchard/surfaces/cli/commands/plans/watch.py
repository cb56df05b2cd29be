"""`orchard watch` and `orchard wait`: staying with a plan that somebody else's engine runs."""

import asyncio
import math
import os
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import click

from orchard.app import App
from orchard.core.run import Run
from orchard.core.views.plans import plan_summary
from orchard.engine.server.server import EngineGone
from orchard.errors import EXIT_WAITING, TimedOut, UsageError
from orchard.surfaces.cli.followed import exit_code
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_of, plan_argument
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.progress import LiveTree, Printed, Progress
from orchard.surfaces.cli.render.tree import status_lines
from orchard.surfaces.cli.reports import Reports, report_options
from orchard.surfaces.cli.terminal import Terminal, is_terminal
from orchard.surfaces.next_steps import in_commands
from orchard.surfaces.notices.setup import rings

LEAVE = b"q\x03\x1b"
"""q, ctrl-c, escape."""


@verb(
    "wait",
    examples="""
orchard wait && git push
orchard wait login-3f2a --timeout 600
orchard wait --summary summary.md --junit jobs.xml
""",
)
@plan_argument
@click.option(
    "--timeout",
    "--timeout-s",
    "timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Give up after this long, with exit code 124.",
)
@report_options
def wait(terminal: Terminal, plan: str | None, timeout: float | None, summary: Path | None, junit: Path | None) -> int:
    """The exit code is the same as for 'orchard run': 0 succeeded, 1 failed, 4 waiting, 130 canceled; 124 when time is
    up.
    """
    if timeout is not None and not math.isfinite(timeout):
        raise UsageError("'--timeout' must be a finite number of seconds.", "Leave it out to wait for ever.")
    reports = Reports(summary, junit)
    reports.check()
    app = app_of(terminal)
    run = app.run_of(app.find_plan(plan))
    try:
        asyncio.run(_wait(terminal, app, run, timeout))
    finally:
        reports.write(terminal, app, app.run_of(run.id))
    document = app.status(run.id)
    terminal.answer(document, *(() if terminal.quiet else terminal.fitted(status_lines(document, document.jobs))))
    if rings(app.settings.config.notify, document.plan.status):
        terminal.ring()
    left, gone = app.seen(run.id)
    if gone and left.settled and left.moving is not None:
        return EXIT_WAITING  # its landing or undo was interrupted, and goes on when somebody resumes it
    return exit_code(document.plan.status)


async def _wait(terminal: Terminal, app: App, run: Run, seconds: float | None) -> None:
    if run.settled or not app.engine_alive():
        return
    try:
        async with asyncio.timeout(seconds):
            await follow_events(app, run, Printed(terminal, run, lambda recorded: ""))
    except EngineGone:
        return  # then the plan waits, and its status says for what
    except TimeoutError:
        plan = plan_summary(run, in_commands)
        still = f"Plan {plan.id} is still {plan.status}: {text.counts(plan.counts, plan.validation)}."
        raise TimedOut(still, f"orchard watch {run.id}") from None


async def follow_events(app: App, run: Run, progress: Progress) -> None:
    """Hand on what happens to a plan until it is settled or waits for a person."""
    async with app.listen() as session:
        async for batch in session.follow(run.id, run):
            progress.take(batch)


FULL_SCREEN = "uv tool install 'orchard-agents[watch]'; or: pip install 'orchard-agents[watch]'"
"""How the extra is installed that the full screen needs."""


@verb(
    "watch",
    examples="orchard watch\norchard watch login-3f2a\norchard watch --all    # every repository that has plans",
)
@plan_argument
@click.option("--all", "everywhere", is_flag=True, help="Show the plans of all your repositories.")
def watch(terminal: Terminal, plan: str | None, everywhere: bool) -> int:
    """It shows the plans, the jobs of one plan with their phases, and the log, the diff and the details of a job. Keys
    cancel, retry, pause, approve and land; '?' lists them, and 'q' quits while the plans go on. This needs the extra
    'watch'; without it, you see the jobs of one plan, and 'q' quits.
    """
    if not terminal.live or not is_terminal(sys.stdin):
        raise UsageError("A plan can be watched on a terminal only.", "orchard wait; or: orchard status")
    whole = find_spec("textual") is not None and is_terminal(sys.stderr)  # which it draws on
    if everywhere and not whole:
        raise UsageError("'--all' needs the extra 'watch', which is not installed.", FULL_SCREEN)
    app = app_of(terminal)
    if whole:
        from orchard.surfaces.cli.watch.watcher import watch_plans  # the only user of textual

        found = None if everywhere and plan is None and not app.reader.plans() else app.find_plan(plan)
        watch_plans(terminal, app, found, everywhere=everywhere)
        return 0
    run, gone = app.seen(app.find_plan(plan))
    asyncio.run(_watch(terminal, app, run, alive=not gone))
    return 0


async def _watch(terminal: Terminal, app: App, run: Run, *, alive: bool) -> None:
    with (
        LiveTree(terminal, run, app, screen=True, interrupted=not alive) as live,
        _pressed_keys() as keys,
    ):
        live.footer = [(text.LEAVE_WATCH if alive and not run.settled else text.LEAVE_ENDED, "dim")]
        async with asyncio.TaskGroup() as tasks:
            drawing = tasks.create_task(live.keep_drawing())
            following = tasks.create_task(_show_events(app, run, live))
            while (await keys.get())[:1] not in LEAVE:
                pass
            drawing.cancel()
            following.cancel()


async def _show_events(app: App, run: Run, live: LiveTree) -> None:
    if live.interrupted or run.settled:
        return
    try:
        await follow_events(app, run, live)
    except EngineGone:
        live.interrupted = True
    live.footer = [(text.LEAVE_ENDED, "dim")]
    live.take([])


@contextmanager
def _pressed_keys() -> Iterator["asyncio.Queue[bytes]"]:
    """Keys as they are pressed, without waiting for return; the terminal is put back afterwards."""
    loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()
    keys: asyncio.Queue[bytes] = asyncio.Queue()
    before = termios.tcgetattr(keyboard)
    tty.setcbreak(keyboard)
    loop.add_reader(keyboard, lambda: keys.put_nowait(_read_key(keyboard)))
    try:
        yield keys
    finally:
        loop.remove_reader(keyboard)
        termios.tcsetattr(keyboard, termios.TCSADRAIN, before)


def _read_key(keyboard: int) -> bytes:
    """What was pressed; a terminal that is gone counts as leaving."""
    try:
        return os.read(keyboard, 64) or b"q"
    except OSError:
        return b"q"
