"""`orchard events`: the journal, as lines or as JSON, followed or not."""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import click

from orchard.app import App
from orchard.core.views.events import EventPage, event_document
from orchard.engine.server.server import EngineGone
from orchard.model.events.plans import Json
from orchard.model.plan import PlanId
from orchard.operations.queries import MOST_EVENTS, ListEvents, list_events, read_events
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_of, options_of, plan_argument
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.terminal import Terminal

LONGEST = 60
"""Characters of a value in a line."""


@verb(
    "events",
    examples="""
orchard events                        # everything that happened
orchard events login-3f2a --since 120
orchard events -f --json              # as it happens, an object a line
""",
)
@plan_argument
@options_of(list_events)
@click.option("-f", "--follow", is_flag=True, help="Go on as long as an engine works.")
def events(terminal: Terminal, plan: str | None, follow: bool, since: int | None, limit: int | None) -> None:
    """Show the journal: everything that happened, in its order.

    Each line has the event's number, its time, its plan, its name and what it tells; with --json it is an object.
    Without --limit all of them are shown.
    """
    app = app_of(terminal)
    seen = since or 0
    for page in _pages(app, plan, seen, limit):
        _show(terminal, page.events)
        seen = page.next
    if follow:
        asyncio.run(_follow(terminal, app, app.find_plan(plan) if plan is not None else None, seen))


def _pages(app: App, plan: str | None, since: int, limit: int | None) -> Iterator[EventPage]:
    """The page that is wanted; without a limit, one page after the other."""
    while True:
        page = read_events(app, ListEvents(plan=plan, since=since, limit=limit or MOST_EVENTS))
        yield page
        if limit is not None or not page.events:
            return
        since = page.next


async def _follow(terminal: Terminal, app: App, plan: PlanId | None, seen: int) -> None:
    """Show what comes, until there is no engine that could bring anything."""
    with suppress(EngineGone):
        async with app.listen() as session:
            while True:
                newest = app.reader.last_seq()
                _show(terminal, [event_document(one) for one in app.reader.events(plan, seen)])
                seen = max(seen, newest)
                await session.link.grown(seen)
    _show(terminal, [event_document(one) for one in app.reader.events(plan, seen)])
    terminal.note(text.done("No engine works on this repository, so nothing more happens by itself."))


def _show(terminal: Terminal, found: Iterable[Json]) -> None:
    for one in found:
        if terminal.json:
            terminal.row(one)
        else:
            terminal.show(_line(one))


def _line(event: Json) -> Line:
    told = {name: value for name, value in event.items() if name not in ("seq", "at", "plan", "type")}
    words = " ".join(f"{name}={_short(value)}" for name, value in told.items() if value not in (None, "", [], (), {}))
    return [
        (f"{event['seq']:>6}  ", "dim"),
        (f"{event['at'][:19]}  ", "dim"),
        (f"{safe(event['plan'])}  ", ""),
        (f"{event['type']}  ", "strong"),
        (safe(words), ""),
    ]


def _short(value: Any) -> str:
    said = str(value)
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}..."
