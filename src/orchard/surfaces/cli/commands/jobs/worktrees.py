"""Verbs about where a job works: its path, and a shell there."""

import os
from pathlib import Path

import click

from orchard.app import App
from orchard.core.run import Run
from orchard.core.states import ACTIVE
from orchard.errors import Next, NotFound
from orchard.model.plan import JobId
from orchard.surfaces.cli.group import PATHS, WithPaths, verb
from orchard.surfaces.cli.options import app_of, job_argument, plan_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.terminal import Terminal

IN_USE = "Job '{job}' runs in there now: what you change, its programs see."
EDITED = "What you change in there counts when the job is tried again: orchard retry {plan}:{job}"


@verb("path", examples='orchard path api\ncd "$(orchard path api)"')
@job_argument
@plan_option
def path(terminal: Terminal, job: str, plan: str | None) -> None:
    """A job has one from its start until its work has landed or is not needed any more; 'cleanup: false' in the plan
    keeps it.
    """
    run, job_id, folder = _worktree(app_of(terminal), job, plan)
    terminal.answer({"plan": run.id, "job": job_id, "path": str(folder)}, text.raw(str(folder)))


@verb(
    "shell",
    cls=WithPaths,
    examples="""
orchard shell api                 # look around, fix something, then: orchard retry api
orchard shell api -- git status   # or one command
""",
)
@click.argument("job", metavar="JOB [-- COMMAND...]")
@plan_option
def shell(terminal: Terminal, job: str, plan: str | None) -> None:
    """The shell is yours ($SHELL), and so are its rights; leave it with 'exit'. It has the variables ORCHARD_PLAN,
    ORCHARD_JOB, ORCHARD_WORKTREE and ORCHARD_BASE.
    """
    from orchard.process.takeover import become

    run, job_id, folder = _worktree(app_of(terminal), job, plan)
    command = click.get_current_context().meta[PATHS]
    if not command:
        running = run.records[job_id].state in ACTIVE
        said = IN_USE.format(job=job_id) if running else EDITED.format(plan=run.id, job=job_id)
        terminal.note(text.warning(said) if running else text.done(said))
    named = {"PLAN": run.id, "JOB": job_id, "WORKTREE": str(folder), "BASE": run.records[job_id].base or ""}
    env = {**os.environ, **{f"ORCHARD_{name}": value for name, value in named.items()}}
    become(command or [os.environ.get("SHELL") or "/bin/sh"], folder, env)


def _worktree(app: App, job: str, plan: str | None) -> tuple[Run, JobId, Path]:
    found, job_id = app.find_job(job, plan)
    run = app.run_of(found)
    taken = run.records[job_id].worktree
    if taken is None or not Path(taken.path).is_dir():
        raise NotFound(
            f"Job '{job_id}' has no worktree now; it is {run.records[job_id].status}.",
            hint=("What it left: ", Next("get_job", run.id, job_id)),
        )
    return run, job_id, Path(taken.path)
