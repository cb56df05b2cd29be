"""Making work go on, and staying with it: what `run`, `resume`, `retry`, `approve` and `land` share.

Whoever owns the engine stays until its plans are settled, and ctrl-c cancels them, but not a terminal that is
closed; ctrl-d gives the terminal back, and the process goes on in the background. Whoever only follows may leave at any
time, and ctrl-c does just that.
"""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager, nullcontext, suppress
from itertools import chain, repeat

from msgspec import Struct

from orchard.app import App
from orchard.core.run import Run
from orchard.core.views.plans import plan_view
from orchard.engine.server.server import EngineGone
from orchard.engine.server.session import Session
from orchard.engine.turns.idle import WORKER
from orchard.errors import EXIT_CANCELED, EXIT_FAILED, EXIT_WAITING, OrchardError
from orchard.model.events.plans import Json
from orchard.model.plan import PlanId
from orchard.process import stand_in
from orchard.surfaces.cli.lone_leftovers import end_leftovers, may_have_left
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.render.progress import Progress, has_keyboard, open_progress
from orchard.surfaces.cli.render.summary import summary_lines
from orchard.surfaces.cli.reports import NO_REPORTS, Reports
from orchard.surfaces.cli.terminal import Terminal, Unwritable, drop
from orchard.surfaces.mcp_channel import teach
from orchard.surfaces.next_steps import in_commands
from orchard.surfaces.notices.setup import add_notifier, rings

Act = Callable[[Session], Awaitable[PlanId]]
"""What is asked of the engine; the answer is the plan to follow."""

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LEAVES = 0
"""In the queue of signals: the key by which a person leaves, which no signal is."""
ONCE = 0.1
"""Seconds in which the same signal is one: it may come from a terminal or a program, and from who stands in for us."""
CTRL_D = b"\x04"
TRIES = 3

PATIENCE = 1.0
"""Seconds after which a person is told why the program does not end."""


class Followed(Struct):
    run: Run
    detached: bool = False


def act_and_follow(
    terminal: Terminal,
    app: App,
    act: Act,
    plan: PlanId | None = None,
    *,
    detach: bool = False,
    answer: Json | None = None,
    reports: Reports = NO_REPORTS,
) -> int:
    """Ask for something that makes work go on, then show that work until it ends or is in the background.

    `answer`: what the engine said, once `act` is done; in the background it is all there is to tell.
    """
    return asyncio.run(_act_and_follow(terminal, app, act, plan, detach, answer, reports))


async def _act_and_follow(
    terminal: Terminal,
    app: App,
    act: Act,
    plan: PlanId | None,
    detach: bool,
    answer: Json | None,
    reports: Reports,
) -> int:
    # What happened before is not news: the events of a plan that exists are taken in silently.
    before = app.run_of(plan) if plan is not None and not detach else None
    async with AsyncExitStack() as stack:
        session = await open_session(app, stack, detach=detach)
        asked = await act(session)
        if detach:
            watch: Line = [
                ("It runs in the background. Follow it with ", ""),
                (f"orchard watch {safe(asked)}", "strong"),
            ]
            terminal.answer(
                {**(answer or {}), "plan": asked, "detached": True}, text.raw(asked) if terminal.quiet else watch
            )
            return 0
        followed = Followed(before or Run(asked))
        try:
            await stay(terminal, app, session, followed)
        except OrchardError:
            reports.write(terminal, app, followed.run)
            raise
    terminal.note(*[text.warning(said) for said in (*session.last_words, *_left_alone(app, session, followed.run))])
    reports.write(terminal, app, followed.run)
    return finish(terminal, app, followed)


def _left_alone(app: App, session: Session, run: Run) -> list[str]:
    """That an idle worker waits without an engine, where the settings ask an engine to do something about that."""
    action = app.settings.config.health.on_idle
    idle = any(hold.kind == WORKER and not run.records[hold.job].is_paused for hold in run.waiting_for)
    if not session.owns_engine or not idle or action in ("tell", "interrupt"):
        return []
    return [f"'health.on_idle = \"{action}\"' needs an engine that stays: orchard serve --background"]


async def open_session(app: App, stack: AsyncExitStack, *, work: bool = True, detach: bool = False) -> Session:
    """A session with the engine; one that ends in the very moment we come is asked nothing, so we come again.

    `detach`: with an engine in the background, whatever happens to the one there is; never with one in this process.
    """
    teach(app)
    add_notifier(app)
    session = None
    for _ in range(TRIES):
        with suppress(EngineGone):
            session = await _enter(app, stack, work=work, detach=detach)
            break
    session = session or await _enter(app, stack, work=work, detach=detach)
    if may_have_left(app):
        await end_leftovers(app, session)
    return session


async def _enter(app: App, stack: AsyncExitStack, *, work: bool, detach: bool) -> Session:
    if detach:
        app.detach()
    return await stack.enter_async_context(app.listen() if detach else app.session(work=work))


async def stay(terminal: Terminal, app: App, session: Session, followed: Followed) -> None:
    """Show a plan until it is settled, waits for a person, or the user leaves; an owner goes on unseen then."""
    with _signals() as pressed:
        await _show(terminal, app, session, followed, pressed)
        if followed.detached and session.owns_engine:
            leave(terminal, followed.run)
            await _show(terminal, app, session, followed, pressed)


def leave(terminal: Terminal, run: Run) -> None:
    """Give the terminal back to the shell; the work of this process goes on in the background."""
    watch = text.next_command(f"orchard watch {safe(run.id)}")
    terminal.say(text.done(text.LEFT.format(pid=os.getpid())), watch)
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        drop(stream)
    stand_in.leave()


async def _show(
    terminal: Terminal, app: App, session: Session, followed: Followed, pressed: "asyncio.Queue[int]"
) -> None:
    keys = terminal.live and has_keyboard() and (stand_in.is_there() or not session.owns_engine)
    foot = (text.FOOT_OWNER if session.owns_engine else text.FOOT_FOLLOWER) if keys else ""
    with open_progress(terminal, followed.run, app, foot) as progress, _keys(pressed) if keys else nullcontext():
        async with asyncio.TaskGroup() as tasks:
            drawing = tasks.create_task(progress.keep_drawing())
            staying = tasks.create_task(_take_all(session, followed.run, progress))
            listening = tasks.create_task(_listen(session, progress, pressed, tasks))
            await asyncio.wait({staying, listening}, return_when=asyncio.FIRST_COMPLETED)
            followed.detached = not staying.done()
            for task in (staying, listening, drawing):
                task.cancel()


async def _take_all(session: Session, run: Run, progress: Progress) -> None:
    await _take(session, run, progress)
    if session.owns_engine:
        await _wait_for_others(session, run, progress)


async def _take(session: Session, run: Run, progress: Progress) -> None:
    async for batch in session.follow(run.id, run):
        progress.take(batch)


async def _wait_for_others(session: Session, run: Run, progress: Progress) -> None:
    """What else our engine does is finished before it ends: subtasks of a plan that waits, and plans of others."""
    said = ""
    idle = asyncio.ensure_future(session.wait_idle())
    try:
        while not (await asyncio.wait({idle}, timeout=PATIENCE))[0]:
            await _take(session, run, progress)
            if (why := _what_still_runs(run)) != said:
                progress.say(text.done(why))
                said = why
        await idle
        await _take(session, run, progress)
    finally:
        idle.cancel()


def _what_still_runs(run: Run) -> str:
    subtasks = [one for record in run.records.values() for one in record.subtasks.values()]
    if any(not one.over and not one.at_rest for one in subtasks):
        return text.SUBTASKS_RUN
    return text.OTHER_PLANS if run.settled else text.OTHER_PLANS_WAITING


async def _listen(
    session: Session, progress: Progress, pressed: "asyncio.Queue[int]", tasks: asyncio.TaskGroup
) -> None:
    """Obey ctrl-c: an owner cancels, and the second time at once; a follower leaves, which ends this, as ctrl-d does.

    A terminal that is closed takes no plan with it: its owner goes on unseen.
    """
    answers = chain((text.CANCELING,), repeat(text.HURRYING))
    heard: tuple[int, float] = (LEAVES, -ONCE)
    while True:
        number = await pressed.get()
        before, heard = heard, (number, time.monotonic())
        if stand_in.is_there() and before[0] == number and heard[1] - before[1] < ONCE:
            continue
        if not session.owns_engine:
            progress.say(text.done(text.DETACHED))
            return
        if number == LEAVES:
            return
        if number == signal.SIGHUP:
            for stream in (sys.stdin, sys.stdout, sys.stderr):
                drop(stream)
            continue
        progress.say(text.done(next(answers)))
        # Not awaited: stopping takes a while, and the second ctrl-c must be heard in the meantime.
        tasks.create_task(_interrupt(session))


async def _interrupt(session: Session) -> None:
    with suppress(OrchardError):  # the plan may have ended in the same moment
        await session.interrupt()


@contextmanager
def _signals() -> Iterator["asyncio.Queue[int]"]:
    """Signals as items of a queue, for as long as somebody listens."""
    loop = asyncio.get_running_loop()
    pressed: asyncio.Queue[int] = asyncio.Queue()
    for number in SIGNALS:
        loop.add_signal_handler(number, pressed.put_nowait, number)
    try:
        yield pressed
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)


@contextmanager
def _keys(pressed: "asyncio.Queue[int]") -> Iterator[None]:
    """The key that leaves, as an item of the same queue; other keys mean nothing."""
    loop, keyboard = asyncio.get_running_loop(), sys.stdin.fileno()

    def read() -> None:
        try:
            typed = os.read(keyboard, 64)
        except OSError:
            typed = b""
        if not typed:  # the terminal was closed
            loop.remove_reader(keyboard)
        if CTRL_D in typed:
            pressed.put_nowait(LEAVES)

    loop.add_reader(keyboard, read)
    try:
        yield
    finally:
        loop.remove_reader(keyboard)


def finish(terminal: Terminal, app: App, followed: Followed) -> int:
    """Say how it ended and return the exit code that says the same."""
    document = plan_view(followed.run, in_commands)
    code = EXIT_CANCELED if followed.detached else exit_code(document.plan.status)
    if terminal.json:
        try:
            terminal.row({"type": "result", "plan": document.plan, "jobs": document.jobs})
        except BrokenPipeError:
            drop(sys.stdout)  # nobody reads any more, but the exit code is still heard
        except Unwritable as error:
            terminal.unwritten = str(error.__cause__)
    elif terminal.quiet:
        terminal.show(text.raw(followed.run.id))
        if not followed.detached and document.plan.status != "succeeded":
            about: Line = [("Plan ", ""), (safe(followed.run.id), "strong")]
            terminal.tell(about, *summary_lines(app, followed.run, document))
    elif not followed.detached:  # git is asked for what changed
        terminal.say(*summary_lines(app, followed.run, document))
    if not followed.detached and rings(app.settings.config.notify, document.plan.status):
        terminal.ring()
    if terminal.unwritten:
        terminal.tell([("error: ", "bad"), (f"The output cannot be written: {terminal.unwritten}.", "")])
        return code or EXIT_FAILED
    return code


def exit_code(status: str) -> int:
    return text.EXIT_CODES.get(status, EXIT_WAITING)
