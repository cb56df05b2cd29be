"""Verbs that look at workers: which there are, and what was said to and by each."""

import asyncio
from contextlib import suppress

import click

from orchard.app import App
from orchard.core.views.talk import TalkEntry
from orchard.engine.server.server import EngineGone
from orchard.engine.server.session import Session
from orchard.model.plan import PlanId
from orchard.operations.queries.workers import MOST_ENTRIES, GetJobTalk, ListWorkers, get_job_talk, list_workers
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import any_plan_option, app_of, job_argument, options_of, plan_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.workers import entry_lines, worker_lines
from orchard.surfaces.cli.terminal import Terminal

NOBODY = "No plan is under way; name one with --plan to see who worked on it."


@verb(
    "workers",
    examples="""
orchard workers                      # of every plan that is not over
orchard workers --state idle         # agents that wait for a message from you
orchard workers --plan login-3f2a --json
orchard workers --all                # in all your repositories
""",
)
@any_plan_option
@options_of(list_workers)
def workers(terminal: Terminal, plan: str | None, state: str | None, all: bool) -> None:
    """Tasks are jobs that no agent has begun, and those that run a program. With --state, only workers are shown."""
    args = ListWorkers(plan=plan, state=state, all=all)  # type: ignore[arg-type]
    found = list_workers.read(app_of(terminal), args)
    lines = [] if terminal.json else worker_lines(found)
    terminal.answer(found, *(lines or [text.done(NOBODY if state is None else f"No worker is {state}.")]))


@verb(
    "talk",
    examples="""
orchard talk api
orchard talk api/subtask-k3x9p       # what a subtask was told, and what it said
orchard talk api -f                  # and what is said from now on
""",
)
@job_argument
@plan_option
@options_of(get_job_talk, {"limit": ""})
@click.option("-f", "--follow", is_flag=True, help="Keep printing while an engine is at work.")
def talk(terminal: Terminal, job: str, plan: str | None, since: int | None, follow: bool) -> None:
    """It prints the task, messages, updates, the agent's last words after each turn, and the result. With --json, each
    entry is an object on a line of its own.
    """
    app = app_of(terminal)
    found, name = app.find_worker(job, plan, get_job_talk.name)
    seen = _show_after(terminal, app, found, name, since or 0)
    if follow:
        asyncio.run(_follow(terminal, app, found, name, seen))
    elif not terminal.json and seen == (since or 0):
        terminal.show(text.done("Nothing was said yet."))


def _show_after(terminal: Terminal, app: App, plan: PlanId, job: str, seen: int) -> int:
    """Show everything that was said after an event, and say up to which one."""
    while True:
        page = get_job_talk.read(app, GetJobTalk(plan=plan, job=job, since=seen, limit=MOST_ENTRIES))
        for entry in page.entries:
            _show(terminal, entry)
        if not page.entries:
            return seen
        seen = page.entries[-1].seq


def _show(terminal: Terminal, entry: TalkEntry) -> None:
    if terminal.json:
        terminal.row(entry)
    else:
        terminal.show(*entry_lines(entry))


async def show_answer(terminal: Terminal, app: App, session: Session, plan: PlanId, name: str, seen: int) -> None:
    """Show what is said to and by the agent of a subtask, until it is at rest again or over."""
    _, job, subtask = app.worker_of(name, plan)
    assert subtask is not None
    while True:
        newest = app.reader.last_seq()
        one = app.run_of(plan).records[job].subtasks[subtask]
        seen = _show_after(terminal, app, plan, name, seen)
        if one.at_rest or one.over:
            return
        try:
            await session.link.grown(max(seen, newest))
        except EngineGone:
            _show_after(terminal, app, plan, name, seen)
            return


async def _follow(terminal: Terminal, app: App, plan: PlanId, job: str, seen: int) -> None:
    """Show what is said, until there is no engine whose agents could say anything."""
    with suppress(EngineGone):
        async with app.listen() as session:
            while True:
                newest = app.reader.last_seq()
                seen = _show_after(terminal, app, plan, job, seen)
                await session.link.grown(max(seen, newest))
    _show_after(terminal, app, plan, job, seen)
