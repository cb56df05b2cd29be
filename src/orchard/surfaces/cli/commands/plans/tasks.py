"""`orchard do`: tasks for agents as they are typed, each a job of a plan that no file holds."""

import re
from pathlib import Path
from typing import Any

import click

from orchard.model import limits
from orchard.model.events.plans import Json
from orchard.model.plan import Plan
from orchard.surfaces.cli.commands.plans.run import read_words, submit
from orchard.surfaces.cli.followed import act_and_follow
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import (
    app_for_work,
    app_of,
    complete_agents,
    detach_option,
    env_option,
    landing_options,
    not_empty,
)
from orchard.surfaces.cli.reports import Reports, report_options
from orchard.surfaces.cli.terminal import Terminal

ID_LENGTH = 32
SUBJECT_LENGTH = 72


@verb(
    "do",
    examples="""
orchard do "Fix the flaky test in tests/test_login.py"
orchard do "Add type hints to src/api" "Document the settings" --verify "make test"
orchard do "@codex Speed up the parser" "@claude Write tests for the parser"
orchard do - < task.md                        # a long task from stdin
orchard do "Upgrade to the new logger" --check "pytest -q" --land ask
""",
)
@click.argument("tasks", metavar="TASK...", nargs=-1, required=True)
@click.option(
    "--agent",
    metavar="NAME",
    callback=not_empty,
    shell_complete=complete_agents,
    help="The agent for tasks that name none (default: your default agent).",
)
@click.option("--model", metavar="MODEL", callback=not_empty, help="The model, as the agent names it.")
@click.option(
    "--check", "checks", metavar="COMMAND", multiple=True, help="A command that has to pass on the result of each task."
)
@click.option("--verify", metavar="COMMAND", help="A command that has to pass on the merged result before it lands.")
@click.option("--name", metavar="TEXT", callback=not_empty, help="The name of the plan (default: the first task).")
@click.option("-n", "--dry-run", is_flag=True, help="Show what would run, and start nothing.")
@env_option
@landing_options
@click.option(
    "--max-parallel",
    metavar="N",
    type=click.IntRange(0, limits.MAX_PARALLEL),
    help="Run at most N tasks at once; 0 means no limit.",
)
@report_options
@detach_option
def do(
    terminal: Terminal,
    tasks: tuple[str, ...],
    dry_run: bool,
    summary: Path | None,
    junit: Path | None,
    detach: bool,
    **given: Any,
) -> int:
    """Each task becomes a job in its own git worktree. The jobs run in parallel, and Orchard merges, checks and lands
    their work as for a plan file. A task that begins with '@NAME' goes to the agent of that name. The exit code is the
    same as for 'orchard run'.
    """
    from orchard.planfile.parse import parse_value  # brings a YAML reader

    reports = Reports(summary, junit)
    reports.check(detach=detach)
    app = app_of(terminal) if dry_run else app_for_work(terminal)
    words = [read_words(one, "task", 'orchard do "Fix the flaky test"').strip() for one in tasks]
    plan: Plan = parse_value(plan_of_tasks(words, **given), "the tasks")
    if dry_run:
        from orchard.surfaces.cli.dry_run import show_rehearsal  # only a rehearsal needs it

        return show_rehearsal(terminal, app, plan)
    return act_and_follow(terminal, app, submit(terminal, app, plan, "-"), detach=detach, reports=reports)


def plan_of_tasks(
    tasks: list[str], *, agent: str | None, model: str | None, checks: tuple[str, ...], name: str | None, **fields: Any
) -> Json:
    """The plan as a file would hold it: it is checked as one."""
    jobs: list[Json] = []
    taken: set[str] = set()
    for task in tasks:
        who, words = _addressed(task)
        work: Json = {"type": "agent", "instructions": words, "agent": who or agent, "model": model}
        job = {"id": _id_of(words, taken), "name": _subject(words), "work": _given(work)}
        jobs.append({**job, **({"postchecks": list(checks)} if checks else {})})
    rest = f" and {len(jobs) - 1} more" if len(jobs) > 1 else ""
    called = name or f"{_subject(jobs[0]['name'], SUBJECT_LENGTH - len(rest))}{rest}"
    return {"name": called, "jobs": jobs, **_given(fields)}


def _given(fields: Json) -> Json:
    return {name: value for name, value in fields.items() if value is not None and value != {}}


def _addressed(task: str) -> tuple[str | None, str]:
    """The agent that a task names, if it names one, and the task itself."""
    found = re.match(r"@([A-Za-z0-9][A-Za-z0-9._:-]*)\s+(?=\S)", task)
    if found is None:
        return None, task
    return (None if found[1] == "agent" else found[1]), task[found.end() :]


def _id_of(words: str, taken: set[str]) -> str:
    """An id that says what the task is about: its first words, as many as fit."""
    from orchard.engine.plans.refs import slug

    stem = slug(words.split("\n", 1)[0], ID_LENGTH).strip("-.") or "task"
    found, number = stem, 1
    while found in taken:
        number += 1
        found = f"{stem}-{number}"
    taken.add(found)
    return found


def _subject(words: str, most: int = SUBJECT_LENGTH) -> str:
    """The first line, cut between words: it becomes the subject of a commit."""
    first = words.strip().split("\n", 1)[0].lstrip("# ")
    line = " ".join(re.sub(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", " ", first).split())
    if len(line) <= most:
        return line or "Task"
    return line[: most - 3].rsplit(" ", 1)[0] + "..."
