"""The verb that makes a new plan of an old one."""

from typing import Any

import click
from msgspec.structs import replace

from orchard.app import App
from orchard.errors import NotFound, UsageError
from orchard.model.plan import Plan, PlanId
from orchard.operations.commands.plans import clone_plan
from orchard.surfaces.cli.commands.plans.run import changed, submit
from orchard.surfaces.cli.followed import act_and_follow
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_for_work, app_of, detach_option, landing_options, options_of, plan_argument
from orchard.surfaces.cli.render.lines import Line
from orchard.surfaces.cli.terminal import Terminal


@verb(
    "clone",
    examples="""
orchard clone login-3f2a > again.yaml           # the plan as a file, to look at and to change
orchard clone login-3f2a --run                  # the same jobs again, from where the base is now
orchard clone --run --target feature/login-2    # the newest plan, landed elsewhere
orchard clone login-3f2a --json                 # the fields of the plan file as JSON
""",
)
@plan_argument
@click.option("--run", "runs", is_flag=True, help="Run the new plan at once instead of printing it.")
@click.option("--name", metavar="NAME", help="The name of the new plan.")
@landing_options
@options_of(clone_plan, {"fields": "", "scaffolding": ""})
@detach_option
def clone(
    terminal: Terminal,
    plan: str | None,
    runs: bool,
    name: str | None,
    detach: bool,
    idempotency_key: str | None,
    **given: Any,
) -> int:
    """The copy has the jobs as they are now: with what 'orchard reshape' and 'orchard retry --work' changed, and with
    parameters filled in. The default is the newest plan.
    """
    app = app_for_work(terminal) if runs else app_of(terminal)
    found = app.find_plan(plan)
    copy = changed(_copy(app, found), start_paused=False, name=_checked(name), **given)
    if runs:
        asked = submit(terminal, app, copy, "-", idempotency_key)
        return act_and_follow(terminal, app, asked, detach=detach)
    if detach or idempotency_key is not None:
        raise UsageError(f"'{'--detach' if detach else '--idempotency-key'}' is for a plan that runs.", "Add --run.")
    _print(terminal, copy, found)
    return 0


def _copy(app: App, plan: PlanId) -> Plan:
    copy = app.copy_of(plan)
    if len(copy.jobs) == 1:
        raise NotFound(f"Plan '{plan}' has no job yet, so there is nothing to clone.")
    return copy


def _checked(name: str | None) -> str | None:
    if name is not None and (not name.strip() or not name.isprintable() or len(name) > 200):
        raise UsageError("--name: a plan is called by one line of 1 to 200 characters.")
    return name


def _print(terminal: Terminal, plan: Plan, of: PlanId) -> None:
    from orchard.planfile.output import plan_fields, plan_file  # a copy that is run needs neither
    from orchard.planfile.parse import parse

    written = plan_file(plan)
    if parse(written.encode()) != replace(plan, params={}):
        raise UsageError(
            f"Plan '{of}' cannot be written as a plan file: a job needs another one outside of its group that is "
            "called like one inside.",
            f"It can be run again as it is: orchard clone {of} --run",
        )
    lines: list[Line] = [[(f"# What plan {of} was made of.", "dim")]]
    lines += [[(line, "")] for line in written.splitlines()]
    terminal.answer(plan_fields(plan), *lines)
