"""`orchard retry` and `orchard reshape`: requests that carry works or changes of the graph."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import click

from orchard.app import App
from orchard.engine.server.session import Session
from orchard.errors import NotFound, UsageError
from orchard.model import limits
from orchard.model.events.plans import Json
from orchard.model.phases import PHASES
from orchard.model.plan import JobId, PlanId, Resolver
from orchard.surfaces.cli.commands.plan_actions import ask_engine
from orchard.surfaces.cli.followed import act_and_follow
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import (
    app_for_work,
    app_of,
    detach_option,
    find_file,
    jobs_argument,
    not_empty,
    plan_option,
)
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import safe
from orchard.surfaces.cli.terminal import Terminal, read_input

WORK_OPTIONS = {"work": "--work", "prechecks": "--precheck", "postchecks": "--postcheck"}
WORK_HELP = "as in a plan file, or @FILE"


@verb(
    "retry",
    examples="""
orchard retry                          # all failed jobs of the newest plan, or of the only one that has some
orchard retry login-3f2a               # all failed jobs of that plan
orchard retry backend/api --from work
orchard retry api --work 'make fix'    # with another command
orchard retry api --work @fix.yaml     # with the work in a file
orchard retry api --fresh              # in a new worktree; what lies in the old one is saved
orchard retry api --fresh-session      # its agent is told everything anew
""",
)
@jobs_argument
@plan_option
@click.option("--from", "phase", type=click.Choice([str(phase) for phase in PHASES]), help="Begin at this phase.")
@click.option("--fresh", is_flag=True, help="Use a new worktree.")
@click.option("--fresh-session", is_flag=True, help="Agents begin a new session instead of going on in the last one.")
@click.option("--work", metavar="WORK", help=f"Do this instead: {WORK_HELP}.")
@click.option("--precheck", "prechecks", metavar="WORK", multiple=True, help=f"Check this before: {WORK_HELP}.")
@click.option("--postcheck", "postchecks", metavar="WORK", multiple=True, help=f"Check this after: {WORK_HELP}.")
@detach_option
def retry(terminal: Terminal, jobs: tuple[str, ...], plan: str | None, detach: bool, **options: Any) -> int:
    """Try failed or canceled jobs again.

    A new attempt begins where the last one failed. Jobs that were blocked by it go on by themselves. Retrying
    also resumes a paused plan, and the command says so.
    """
    app = app_for_work(terminal)
    found, wanted = meant(app, jobs, plan, "retry_plan")
    options |= {name: read_works(terminal, name, options[name]) for name in WORK_OPTIONS}
    paused = app.run_of(found).paused

    async def act(session: Session) -> PlanId:
        await session.request("retry_plan", plan=found, jobs=wanted, **options)
        if paused is not None and app.run_of(found).paused is None:
            terminal.note(text.done(f"Plan {found} was paused; it goes on now."))
        return found

    return act_and_follow(terminal, app, act, found, detach=detach)


def meant(app: App, names: Sequence[str], plan: str | None, asked: str = "") -> tuple[PlanId, list[JobId] | None]:
    """The plan and the jobs that the words mean; no jobs: all that failed.

    One word may name a job of the newest plan or a whole plan; a job is looked for first, except that
    nothing but a plan can have a plan's exact id.
    """
    if not names:
        return app.find_plan(plan, asked), None
    if len(names) == 1 and plan is None:
        whole = _whole_plan(app, names[0])
        if whole is not None:
            return whole, None
    found = [app.find_job(name, plan) for name in names]
    plans = {one for one, _ in found}
    if len(plans) > 1:
        raise UsageError("These jobs are of different plans.", "Name jobs of one plan at a time.")
    return found[0][0], list(dict.fromkeys(job for _, job in found))


def _whole_plan(app: App, name: str) -> PlanId | None:
    try:
        plan = app.find_plan(name)
    except NotFound:
        return None
    if plan == name:
        return plan
    try:
        app.find_job(name, None)
    except NotFound:
        return plan
    return None


def read_works(terminal: Terminal, name: str, value: str | Sequence[str] | None) -> Json | list[Json] | None:
    """The works that options give, checked like those of a plan file; None: keep what the job has."""
    if value is None or value == ():
        return None
    from orchard.model.plan_codec import work_json
    from orchard.planfile.parse import parse_work  # brings pydantic

    option = WORK_OPTIONS[name]
    if isinstance(value, str):
        return work_json(parse_work(_work_value(terminal, value), option))
    return [work_json(parse_work(_work_value(terminal, one), option)) for one in value]


def _work_value(terminal: Terminal, value: str) -> object:
    """A work as it was given; `@FILE` has no blank in it, `@agent do this` has."""
    if not value.startswith("@") or len(value.split()) != 1:
        return value
    path = find_file(terminal, value[1:])
    data = read_input(str(path), limits.STRING_BYTES)
    if path.suffix in (".yaml", ".yml", ".json", ".toml"):
        return _document(data, str(path))
    return data.decode(errors="replace")


def _document(data: bytes, name: str) -> object:
    from orchard.planfile.document import read_document  # brings the YAML parser

    return read_document(data, name, None).value


@verb(
    "reshape",
    examples="""
orchard reshape login-3f2a changes.yaml
orchard reshape login-3f2a --remove docs --set-needs api=models,schema
orchard reshape login-3f2a --resolver theirs   # then: orchard retry
echo '[{"op": "add", "job": {"id": "extra", "work": "make extra"}}]' | orchard reshape login-3f2a -
""",
)
@click.argument("plan", metavar="PLAN", callback=not_empty)
@click.argument("file", metavar="[FILE]", required=False)
@click.option("--remove", metavar="JOB", multiple=True, help="Remove a job; what needed it then needs what it needed.")
@click.option("--set-needs", metavar="JOB=A,B", multiple=True, help="Make a job need exactly these others.")
@click.option(
    "--resolver", type=click.Choice(get_args(Resolver)), help="Settle conflicts so from now on; for any plan under way."
)
def reshape(
    terminal: Terminal,
    plan: str,
    file: str | None,
    remove: tuple[str, ...],
    set_needs: tuple[str, ...],
    resolver: str | None,
) -> None:
    """Change the graph of a plan: jobs that have not started.

    FILE holds a list of changes as YAML or JSON: 'add', 'remove', 'set_needs', 'add_before', 'add_after'. All of
    them are made, or none.
    """
    app = app_of(terminal)
    found = app.find_plan(plan)
    changes = [*_changes_in(terminal, file), *simple_changes(remove, set_needs)]
    if resolver is not None:
        changes.append({"op": "update_plan", "set": {"resolver": resolver}})
    if not changes:
        raise UsageError("No change is given.", "orchard reshape --help")
    answer = ask_engine(app, "reshape_plan", plan=found, changes=changes)
    made = text.many(len(changes), "change")
    terminal.answer({"plan": found, **answer}, text.done(f"Plan {found} is reshaped: {made}."))


def _changes_in(terminal: Terminal, file: str | None) -> list[Any]:
    if file is None:
        return []
    path = "-" if file == "-" else str(find_file(terminal, file))
    value = _document(read_input(path, limits.PLAN_BYTES), "changes" if file == "-" else Path(file).name)
    if isinstance(value, dict) and set(value) == {"changes"}:
        value = value["changes"]
    if not isinstance(value, list):
        raise UsageError(f"'{safe(file)}' holds no list of changes.", "orchard reshape --help")
    return value


def simple_changes(remove: Sequence[str], set_needs: Sequence[str]) -> list[Json]:
    """The changes that options can say."""
    changes: list[Json] = [{"op": "remove", "id": job} for job in remove]
    for given in set_needs:
        job, equals, needs = given.partition("=")
        if not equals or not job:
            raise UsageError(f"'{safe(given)}' is not of the form JOB=A,B", "For no needs at all: --set-needs JOB=")
        changes.append({"op": "set_needs", "id": job, "needs": [need for need in needs.split(",") if need]})
    return changes
