"""The verb by which a person resolves the conflict of a job."""

import click

from orchard.app import App
from orchard.core.views.conflicts import in_conflict
from orchard.errors import Next, NotFound, UsageError
from orchard.model.events.plans import Json
from orchard.model.plan import JobId, PlanId
from orchard.operations.commands.conflicts import resolve_conflict
from orchard.surfaces.cli.action import Asked
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_for_work, app_of, detach_option, optional_job_argument, plan_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.next_steps import in_commands

SHOWN = 30
HOW = "Edit the files and remove the markers; edit, replace or remove those without, or keep them with 'git add'."


@verb(
    "resolve",
    examples="""
orchard resolve api              # both sides in a worktree; its path is printed
cd FOLDER && git mergetool       # or any editor
orchard resolve api --continue   # go on with what you made of it
orchard resolve api --abort      # or give it up; what you edited is saved
""",
)
@optional_job_argument
@plan_option
@click.option("--continue", "go_on", is_flag=True, help="Go on with what you made of it.")
@click.option("--abort", is_flag=True, help="Give it up; what you edited is saved.")
@detach_option
def resolve(terminal: Terminal, job: str | None, plan: str | None, go_on: bool, abort: bool, detach: bool) -> int:
    """JOB has failed because two jobs, or a job and the target branch, changed the same lines. This puts both sides
    into a worktree, with conflict markers as git writes them, and does not touch your own checkout. Edit the files
    there; git's own commands, such as 'git status' and 'git mergetool', work there too. --continue takes the files,
    remembers for the plan how you resolved the conflict, and retries the job; it refuses while markers are left.
    --abort saves what you edited and removes the worktree. Without JOB, it takes the only job with a conflict. The exit
    code of --continue is the same as for 'orchard run': 4 if the plan waits for you.
    """
    if go_on and abort:
        raise UsageError("--continue and --abort exclude each other.")
    app = app_for_work(terminal) if go_on else app_of(terminal)
    found, job_id = _meant(app, job, plan)
    step = "continue" if go_on else "abort" if abort else "open"
    asked = Asked(terminal, app, resolve_conflict, found, {"job": job_id, "step": step}, detach=detach)
    if go_on:
        return _continue(asked)
    answer = asked.request()
    return asked.tell(answer, *(_given_up(asked, answer) if abort else _opened(asked, answer)))


def _meant(app: App, job: str | None, plan: str | None) -> tuple[PlanId, JobId]:
    if job is not None:
        return app.find_job(job, plan, resolve_conflict.name)
    found = app.find_plan(plan, resolve_conflict.name)
    jobs = in_conflict(app.run_of(found))
    if len(jobs) == 1:
        return found, jobs[0]
    if not jobs:
        raise NotFound(f"No job of plan '{found}' has a conflict to resolve.", hint=Next("get_plan", found))
    raise UsageError(
        f"{len(jobs)} jobs of plan '{found}' have conflicts.",
        hint=("Name one: ", *(part for one in jobs[:5] for part in (Next("resolve_conflict", found, one), "  "))),
    )


def _continue(asked: Asked) -> int:
    from orchard.surfaces.cli.consent import refuse_in_job  # brings what only `trust` needs beside it

    meant = f"orchard resolve {asked.plan}:{asked.job} --continue"
    refuse_in_job(asked.app, "resolve a conflict in a person's name", meant)
    canceled = asked.run.canceled is not None

    def told(answer: Json) -> list[str]:
        paths = [path for one in asked.run.resolutions[-1:] for path in one.paths]
        again = f" Plan {asked.plan} was canceled; it goes on now." if canceled else ""
        return [f"Resolved: {', '.join(paths[:10])}{' ...' if len(paths) > 10 else ''}.{again}"]

    return asked.go_on(told)


def _opened(asked: Asked, answer: Json) -> list[Line]:
    files = answer["files"]
    lines: list[Line] = [
        text.done(
            f"Job '{asked.job}': {answer['ours']} and {answer['theirs']} conflict in {text.many(len(files), 'file')}."
        ),
        [("Resolve it in: ", ""), (safe(answer["folder"], 4000), "strong")],
    ]
    for one in files[:SHOWN]:
        at = f"; markers from line {one['line']} on" if one["line"] else ""
        state: Line = [("  done  ", "good")] if one["done"] else [("  open  ", "wait")]
        lines.append([*state, (safe(one["path"], 4000), "strong"), (f"  {safe(one['what'], 500)}{at}", "dim")])
    if len(files) > SHOWN:
        lines.append([(f"  ... and {len(files) - SHOWN} more; 'git status' there lists them all", "dim")])
    lines.append(text.done(HOW))
    step = Next(resolve_conflict.name, asked.plan, asked.job, {"step": "continue"})
    return [*lines, text.next_command(in_commands(step))]


def _given_up(asked: Asked, answer: Json) -> list[Line]:
    edited = answer["edited"]
    others = [f"orchard recover {ref} DIR" for ref in answer["saved"] if ref != edited]
    kept = f" What you edited is saved: orchard recover {edited} DIR" if edited is not None else ""
    lines: list[Line] = [text.done(f"The conflict of job '{asked.job}' is as it was.{kept}")]
    if others:
        lines.append(
            [(f"What git had noted there (its index, other commits) is saved too: {'; '.join(others)}", "dim")]
        )
    if answer["folder"] is not None:
        return [text.warning(f"{answer['folder']} could not be saved, so it stays.")]
    again = in_commands(Next(resolve_conflict.name, asked.plan, asked.job))
    return [*lines, text.next_command(again)]
