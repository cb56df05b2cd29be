"""Verbs that only look: they change nothing, and work with and without an engine."""

import sys

import click

from orchard.app import App
from orchard.model.events.plans import Json
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_of, job_argument, plan_argument, plan_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe_lines
from orchard.surfaces.cli.terminal import Terminal, is_terminal, put


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
    """Show a plan and all its jobs."""
    from orchard.surfaces.cli.render.plan_page import status_lines  # 'list' does without it

    app = app_of(terminal)
    seen = app.seen(app.find_plan(plan))
    news = None if since is None else app.changes(*seen, since)
    if terminal.json and news is not None:
        return terminal.answer(news)
    document = app.document(*seen)
    jobs = document.jobs if news is None else news.jobs
    return terminal.answer(document, *(() if terminal.json else status_lines(document, jobs)))


@verb("job", examples="orchard job api\norchard job backend/api --plan login-3f2a")
@job_argument
@plan_option
def job(terminal: Terminal, job: str, plan: str | None) -> None:
    """Show everything about one job."""
    from orchard.surfaces.cli.render.job_page import job_lines
    from orchard.surfaces.cli.render.plan_page import look_now

    document = app_of(terminal).job(job, plan)
    terminal.answer(document, *(() if terminal.json else job_lines(document, look_now())))


@verb("attempts")
@job_argument
@plan_option
def attempts(terminal: Terminal, job: str, plan: str | None) -> None:
    """Show every try at a job, phase by phase."""
    from orchard.surfaces.cli.render.job_page import attempt_lines
    from orchard.surfaces.cli.render.plan_page import look_now

    found = app_of(terminal).attempts(job, plan)
    lines = [line for attempt in found for line in attempt_lines(attempt, look_now())]
    terminal.answer(found, *(lines or [text.done("The job was not tried yet.")]))


@verb(
    "diff",
    examples="orchard diff api\norchard diff --stat            # the whole plan's result\norchard diff | git apply",
)
@click.argument("job", metavar="[JOB]", required=False)
@plan_option
@click.option("--stat", is_flag=True, help="Show only how much changed in which file.")
def diff(terminal: Terminal, job: str | None, plan: str | None, stat: bool) -> None:
    """Show what a job, or a whole plan, changed."""
    app = app_of(terminal)
    data = app.diff(job, plan, stat=stat)
    if terminal.json:
        terminal.data(_diff_document(app, job, plan, data))
    elif is_terminal(sys.stdout):
        terminal.show(*[diff_line(row) for row in safe_lines(data.decode(errors="replace"), 10_000)])
    else:
        put(sys.stdout, data)  # exactly what git printed: it can be applied


def _diff_document(app: App, job: str | None, plan: str | None, data: bytes) -> Json:
    found, job_id = app.find_job(job, plan) if job is not None else (app.find_plan(plan), None)
    return {"plan": found, "job": job_id, "diff": data.decode(errors="replace")}


def diff_line(row: str) -> Line:
    """A line of a diff in the colours people know."""
    if row.startswith(("+++", "---", "diff ", "index ")):
        return [(row, "strong")]
    if row.startswith("@@"):
        return [(row, "busy")]
    if row[:1] in "+-" and row:
        return [(row, "good" if row[0] == "+" else "bad")]
    return [(row, "")]
