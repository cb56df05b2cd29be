"""Verbs that only look: they change nothing, and work with and without an engine."""

import asyncio
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import click
from msgspec import to_builtins

from orchard.app import App
from orchard.core.views.documents import Waiting
from orchard.core.views.events import EventPage, event_view
from orchard.core.views.saved_work import SavedWorkView
from orchard.engine.server.server import EngineGone
from orchard.errors import EXIT_DONE, EXIT_WAITING, UsageError
from orchard.model.events.plans import Json
from orchard.model.plan import PlanId
from orchard.operations.queries.subtasks import LONGEST_PAGE, GetSubtask, get_subtask
from orchard.operations.query import MOST_EVENTS, ListEvents, list_events, read_events
from orchard.surfaces.cli.group import PATHS, WithPaths, verb
from orchard.surfaces.cli.options import app_of, job_argument, options_of, plan_argument, plan_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, Piece, safe, safe_lines, table
from orchard.surfaces.cli.render.usage import WAYS, usage_lines
from orchard.surfaces.cli.terminal import Terminal, is_terminal, put
from orchard.surfaces.next_steps import in_commands


@verb(
    "status", examples="orchard status\norchard status login-3f2a --json\norchard status login-3f2a --json --since 41"
)
@plan_argument
@click.option(
    "--since",
    type=click.IntRange(min=0),
    metavar="N",
    help="Show only what changed after event N, the `seq` of an answer.",
)
def status(terminal: Terminal, plan: str | None, since: int | None) -> None:
    from orchard.surfaces.cli.render.tree import status_lines  # 'list' does without it

    app = app_of(terminal)
    seen = app.seen(app.find_plan(plan))
    news = None if since is None else app.changes(*seen, since)
    if terminal.json and news is not None:
        return terminal.answer(news)
    document = app.document(*seen)
    jobs = document.jobs if news is None else news.jobs
    return terminal.answer(document, *(() if terminal.json else terminal.fitted(status_lines(document, jobs))))


@verb("job", examples="orchard job api\norchard job backend/api --plan login-3f2a")
@job_argument
@plan_option
def job(terminal: Terminal, job: str, plan: str | None) -> None:
    from orchard.surfaces.cli.render.job_page import job_lines
    from orchard.surfaces.cli.render.tree import look_now

    document = app_of(terminal).job(job, plan)
    if terminal.json:
        terminal.data(document)
    else:
        terminal.page_lines(list(job_lines(document, look_now())))


@verb("subtask", examples="orchard subtask api/subtask-k3x9p\norchard subtask subtask-k3x9p --json")
@job_argument
@plan_option
def subtask(terminal: Terminal, job: str, plan: str | None) -> None:
    """JOB is 'JOB/subtask-xxxxx'; 'orchard job JOB' lists them. The whole result is printed."""
    from orchard.surfaces.cli.render.job_page import subtask_page
    from orchard.surfaces.cli.render.tree import look_now

    app = app_of(terminal)
    plan_id, name = app.find_worker(job, plan, "get_subtask")
    found = get_subtask.read(app, GetSubtask(plan=plan_id, job=name, limit=LONGEST_PAGE))
    whole = found.result
    while found.next_offset < found.size and found.result:
        found = get_subtask.read(app, GetSubtask(plan=plan_id, job=name, offset=found.next_offset, limit=LONGEST_PAGE))
        whole += found.result
    document = {**to_builtins(found), "result": whole, "offset": 0}
    terminal.answer(document, *(() if terminal.json else subtask_page(found, whole, look_now())))


@verb("attempts")
@job_argument
@plan_option
def attempts(terminal: Terminal, job: str, plan: str | None) -> None:
    from orchard.surfaces.cli.render.job_page import attempt_lines
    from orchard.surfaces.cli.render.tree import look_now

    found = app_of(terminal).attempts(job, plan)
    lines = [line for attempt in found for line in attempt_lines(attempt, look_now())]
    terminal.answer(found, *(lines or [text.done("The job was not tried yet.")]))


@verb(
    "diff",
    cls=WithPaths,
    examples="""
orchard diff api                      # of a job that runs or was canceled: what it has changed so far
orchard diff --stat                   # the whole plan's result
orchard diff api -- src docs/a.md     # only below these paths
orchard diff --name-only
orchard diff | git apply
""",
)
@click.argument("job", metavar="[JOB] [-- PATH...]", required=False)
@plan_option
@click.option("--stat", is_flag=True, help="Show only how much changed in which file.")
@click.option("--name-only", is_flag=True, help="Show only which files changed.")
def diff(terminal: Terminal, job: str | None, plan: str | None, stat: bool, name_only: bool) -> None:
    """Of a job that failed or was canceled before its work was committed, it shows what lies in its worktree, or what
    was saved of it. PATHs are relative to the top of the repository.
    """
    if stat and name_only:
        raise UsageError("'--stat' and '--name-only' exclude each other.", "Give one of them.")
    app = app_of(terminal)
    data = app.diff(job, plan, stat=stat, names=name_only, paths=click.get_current_context().meta[PATHS])
    if terminal.json:
        terminal.data(_diff_document(app, job, plan, data))
    elif is_terminal(sys.stdout):
        from orchard.surfaces.cli.pager import pager_in_git

        rows = [diff_line(row) for row in safe_lines(data.decode(errors="replace"), 10_000)]
        terminal.page_lines(rows, of_git=lambda: pager_in_git(app.repo))
    else:
        put(sys.stdout, data)  # exactly what git printed: it can be applied


def _diff_document(app: App, job: str | None, plan: str | None, data: bytes) -> Json:
    found, job_id = app.find_worker(job, plan, "get_job_diff") if job is not None else (app.find_plan(plan), None)
    return {"plan": found, "job": job_id, "diff": data.decode(errors="replace")}


def diff_line(row: str) -> Line:
    if row.startswith(("+++", "---", "diff ", "index ")):
        return [(row, "strong")]
    if row.startswith("@@"):
        return [(row, "busy")]
    if row[:1] in "+-" and row:
        return [(row, "good" if row[0] == "+" else "bad")]
    return [(row, "")]


NOTHING = "Nothing waits for you."


@verb("waiting", examples="orchard waiting\norchard waiting --quiet || echo 'Orchard needs you'")
def waiting(terminal: Terminal) -> int:
    """The exit code is 4 if anything in this repository waits for you, and 0 if nothing does."""
    found = app_of(terminal).waiting()
    lines = [line for row in found for line in waiting_lines(row)]
    terminal.answer(found, *(lines or ([] if terminal.quiet else [text.done(NOTHING)])))
    return EXIT_WAITING if found else EXIT_DONE


def waiting_lines(row: Waiting) -> list[Line]:
    where = f"{row.plan} ({safe(row.name, 60)})"
    job = "" if row.job is None or row.job.startswith("__") else f", job {safe(row.job)}"
    since = f"  since {text.day(row.since)}" if row.since else ""
    # Whoever allows a call has to have seen all that it would do.
    rows = safe_lines(row.input, len(row.input) * 4) if row.input else []
    shown: list[Line] = [[("    ", ""), (line, "dim")] for line in rows]
    others = " or ".join(in_commands(step) for step in row.next[1:])
    return [
        [(safe(where), "strong"), (job, ""), (since, "dim")],
        [("  ", ""), (safe(row.reason, 2000), "wait")],
        *shown,
        [("  next: ", "dim"), (safe(row.command), "strong"), (f"  or: {safe(others)}" if others else "", "dim")],
    ]


@verb("usage", examples="orchard usage\norchard usage login-3f2a --by model\norchard usage --json")
@plan_argument
@click.option("--by", type=click.Choice(WAYS), help="How to group the figures (default: by job, attempt and model).")
def usage(terminal: Terminal, plan: str | None, by: str | None) -> None:
    document = app_of(terminal).usage(plan)
    terminal.answer(document, *(() if terminal.json else usage_lines(document, by)))


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
@click.option("-f", "--follow", is_flag=True, help="Keep printing while an engine is at work.")
def events(terminal: Terminal, plan: str | None, follow: bool, since: int | None, limit: int | None) -> None:
    """Each line shows an event's number, time, plan, name and details; with --json, each is an object. Without --limit,
    all events are shown.
    """
    if follow and limit is not None:
        raise UsageError("--follow and --limit exclude each other.", hint="Give one of them.")
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
                seen = _show_after(terminal, app, plan, seen)
                await session.link.grown(max(seen, newest))
    _show_after(terminal, app, plan, seen)
    terminal.note(text.done("No engine works on this repository, so nothing more happens by itself."))


def _show_after(terminal: Terminal, app: App, plan: PlanId | None, seen: int) -> int:
    """Show what came after an event, and say up to which one: what comes while this looks is shown only once."""
    found = list(app.reader.events(plan, seen))
    _show(terminal, [event_view(one) for one in found])
    return found[-1].seq if found else seen


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
    said = json.dumps(to_builtins(value), ensure_ascii=False) if not isinstance(value, str) or " " in value else value
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}..."


@verb("recover", examples="orchard recover\norchard recover refs/orchard/wip/login-3f2a/api/1 ../rescued")
@click.argument("ref", required=False)
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option("--list", "listing", is_flag=True, help="List what was saved (as without arguments).")
@plan_option
def recover(terminal: Terminal, ref: str | None, folder: Path | None, listing: bool, plan: str | None) -> None:
    """Orchard saves what is in a worktree before it removes or resets the worktree. REF is the first word of a line in
    the list.
    """
    if listing and ref is not None:
        raise UsageError("'--list' takes no REF.", f"orchard recover {safe(ref)} FOLDER")
    app = app_of(terminal)
    if ref is None or listing:
        rows = app.saved_work(plan)
        terminal.answer(rows, *(saved_lines(rows) or [text.done(text.NOTHING_SAVED)]))
    elif folder is None:
        raise UsageError("A folder is needed to restore into.", f"orchard recover {safe(ref)} FOLDER")
    else:
        done = app.restore(ref, folder)
        terminal.answer(done, text.done(f"Restored {safe(ref)} into {safe(folder)}"))


def saved_lines(rows: list[SavedWorkView]) -> list[Line]:
    return table([_saved_row(row) for row in rows], 90)


def _saved_row(row: SavedWorkView) -> list[Piece]:
    return [
        (safe(row.ref), "strong"),
        (f"{datetime.fromtimestamp(row.at):%Y-%m-%d %H:%M}", "dim"),
        (safe(row.subject), ""),
    ]
