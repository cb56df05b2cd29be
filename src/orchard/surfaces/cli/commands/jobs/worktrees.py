"""Verbs about where a job works: its path, a shell there, and its agent's session."""

import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import click
from msgspec import Struct

from orchard.app import App
from orchard.core.job_names import job_word
from orchard.core.run import Run
from orchard.core.states import ACTIVE
from orchard.core.views.conflicts import is_open
from orchard.errors import NeedsPerson, Next, NotFound, UsageError
from orchard.git.worktree.job_links import named_worktree
from orchard.model.plan import JobId
from orchard.surfaces.cli.group import PATHS, WithPaths, verb
from orchard.surfaces.cli.options import app_of, job_argument, plan_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import safe
from orchard.surfaces.cli.terminal import Terminal

IN_USE = "Job '{job}' runs in there now: what you change, its programs see."
WAITS = "The agent of '{job}' waits for a message; its next turn goes on in this session."
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,199}")
RESOLVING = "Resolve the conflict in here, then: orchard resolve {plan}:{job} --continue"
EDITED = "What you change in there counts when you retry the job: orchard retry {plan}:{job}"


@verb("path", examples='orchard path api\ncd "$(orchard path api)"')
@job_argument
@plan_option
def path(terminal: Terminal, job: str, plan: str | None) -> None:
    """A job has a worktree from its start until its work has landed or is no longer needed; 'cleanup: false' in the
    plan keeps it.
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
    """It is your own shell ($SHELL), with your own rights; leave it with 'exit'. It has the variables ORCHARD_PLAN,
    ORCHARD_JOB, ORCHARD_WORKTREE and ORCHARD_BASE.
    """
    from orchard.process.takeover import become

    run, job_id, folder = _worktree(app_of(terminal), job, plan)
    command = click.get_current_context().meta[PATHS]
    if not command:
        running = run.records[job_id].state in ACTIVE
        idle = RESOLVING if is_open(run, job_id) else EDITED
        said = IN_USE.format(job=job_id) if running else idle.format(plan=run.id, job=job_word(job_id, run.plan.jobs))
        terminal.note(text.warning(said) if running else text.done(said))
    named = {"PLAN": run.id, "JOB": job_id, "WORKTREE": str(folder), "BASE": run.records[job_id].base or ""}
    env = {**os.environ, **{f"ORCHARD_{name}": value for name, value in named.items()}}
    if not command:
        env["PWD"] = str(named_worktree(folder, run.id, job_id))  # the shell calls its folder so
    become(command or [os.environ.get("SHELL") or "/bin/sh"], folder, env)


def _worktree(app: App, job: str, plan: str | None) -> tuple[Run, JobId, Path]:
    found, job_id = app.find_job(job, plan)
    run = app.run_of(found)
    record = run.records[job_id]
    taken = record.conflict if is_open(run, job_id) else record.worktree  # what a person edits counts there
    if taken is None or not Path(taken.path).is_dir():
        raise NotFound(
            f"Job '{job_id}' has no worktree now; it is {run.records[job_id].status}.",
            hint=("What it left: ", Next("get_job", run.id, job_id)),
        )
    return run, job_id, Path(taken.path)


# ------------------------------------------------------------------------------------------------ the agent's session


class Session(Struct, frozen=True):
    """An agent's own session, and how its program opens it."""

    agent: str
    id: str
    command: tuple[str, ...]
    homes: dict[str, str]
    """Variables that name where the session is kept."""
    env: dict[str, str]
    """Variables of the configuration's, which are not shown: a key may be among them."""


@verb(
    "attach",
    examples="""
orchard attach api            # talk with the agent of a job that failed, in its own program
orchard attach api --print    # the command that does so
""",
)
@job_argument
@plan_option
@click.option("--print", "prints", is_flag=True, help="Print the command instead of running it.")
def attach(terminal: Terminal, job: str, plan: str | None, prints: bool) -> None:
    """The agent's program (claude, codex, copilot, gemini, qwen, opencode) opens the session of the job's last turn, in
    the job's worktree, with your rights and without a wall. It does not open while the agent is at work; use 'orchard
    send' then. What you change there counts when you retry the job.
    """
    from orchard.process.takeover import become

    app = app_of(terminal)
    run, job_id, folder = _worktree(app, job, plan)
    session = _session(app, run, job_id)
    if prints or terminal.json:
        homes = [f"{name}={shlex.quote(value)}" for name, value in session.homes.items()]
        document = {
            "plan": run.id, "job": job_id, "agent": session.agent, "session": session.id, "path": str(folder),
            "command": list(session.command), "env": session.homes,
        }  # fmt: skip
        shown = " ".join([*homes, shlex.join(session.command)])
        terminal.answer(document, text.raw(f"cd {shlex.quote(str(folder))} && {shown}"))
        return
    if not terminal.can_ask:
        raise NeedsPerson(
            "A session is opened in a terminal, and there is none here.", f"orchard attach {run.id}:{job_id} --print"
        )
    waits = run.records[job_id].state in ACTIVE
    terminal.note(text.done(WAITS.format(job=job_id) if waits else EDITED.format(plan=run.id, job=job_id)))
    become(session.command, folder, {**os.environ, **session.env, **session.homes})


def _session(app: App, run: Run, job_id: JobId) -> Session:
    from orchard.agents.registry import Agents
    from orchard.engine.turns.turn import private_place

    record = run.records[job_id]
    if record.state in ACTIVE and (record.last is None or record.last.idle is None):
        raise UsageError(
            f"Job '{job_id}' is at work, and its session takes one at a time.",
            hint=("To say something to its agent: ", Next("send_message", run.id, job_id)),
        )
    turns = [key for key in record.sessions if key.endswith(" work")] or list(record.sessions)
    if not turns:
        raise NotFound(f"No agent of job '{job_id}' has a session.", hint=Next("get_job", run.id, job_id))
    agent, found = turns[-1].partition(" ")[0], record.sessions[turns[-1]]
    agents = Agents(app.settings.config, os.environ)
    known = agents.known(agent)
    if known is None or not known.attach:
        raise UsageError(
            f"Agent '{agent}' has no program that opens a session for a person.",
            hint=("What it said: ", Next("get_job_logs", run.id, job_id)),
        )
    program = agents.path_of(agent)
    if program is None:
        raise NotFound(f"Agent '{agent}' cannot be opened: {agents.missing(agent)}.", hint=agents.how_to_install(agent))
    if not _ID.fullmatch(found):  # it is the agent's word, and would be an argument
        raise UsageError(f"What agent '{agent}' called its session is no id of one: {safe(found, 80)}")
    row, words = agents.row(agent), tuple(word.replace("{session}", found) for word in known.attach)
    homes = _homes(private_place(app.repo.state, run.id, job_id, agent), known.own_folders)
    return Session(agent, found, (program, *row.args, *words), homes, dict(row.env))


def _homes(private: Path, own_folders: Mapping[str, str]) -> dict[str, str]:
    """Where the agent kept its sessions, if that was not where the person keeps theirs."""
    homes = {name: str(private / below) for name, below in own_folders.items() if (private / below).is_dir()}
    behind_wall = private / "home"
    return {"HOME": str(behind_wall), **homes} if behind_wall.is_dir() else homes
