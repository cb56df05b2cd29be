"""From the options to an `App`, and from names to plans and jobs; completion asks here as well."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import click

from orchard.app import App, open_app
from orchard.config.trust import AGREE_FIRST, not_agreed
from orchard.errors import NeedsPerson, OrchardError
from orchard.model.phases import PHASES, phase_of_words, shown_phase
from orchard.operations.operation import Argument, Operation, arguments_of
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import safe
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.next_steps import in_commands


def app_of(terminal: Terminal) -> App:
    """The repository that is meant, opened; nothing is changed by it."""
    app = open_app(terminal.repo, in_commands)
    terminal.note(*[text.warning(warning) for warning in app.settings.warnings])
    return app


def app_for_work(terminal: Terminal) -> App:
    """The same for verbs that start programs: what the repository's settings would run needs consent first."""
    app = app_of(terminal)
    if not app.settings.untrusted:
        return app
    first = NeedsPerson(not_agreed(app.settings.untrusted), AGREE_FIRST)
    if not terminal.can_ask:
        raise first
    from orchard.surfaces.cli.consent import refuse_in_job, what_is_asked

    refuse_in_job(app)
    asked = what_is_asked(app, project=False)
    terminal.note(*asked.lines)
    if not terminal.agreed(text.ASK_TRUST):
        raise first
    asked.agree()
    return open_app(terminal.repo, in_commands)


def find_file(terminal: Terminal, name: str) -> Path:
    """A file named on the command line: seen from here, or else from the folder given with -C."""
    here, there = Path(name), terminal.repo / name
    # Unlike Path.exists, this takes a name that is too long for one that is not there.
    return there if not os.path.exists(here) and os.path.exists(there) else here  # noqa: PTH110


def branch_text(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """A name that git can be given: git itself says the rest about it."""
    if value is not None and (not value.strip() or value.startswith("-") or not value.isprintable()):
        raise click.BadParameter(f"'{safe(value)}' is not a branch or commit.", context, parameter)
    return value


def not_empty(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuse a name without letters: it would be the beginning of every name, and comes from an unset variable."""
    for name in (value,) if isinstance(value, str) else value or ():
        if "" in name.split(":", 1):
            raise click.BadParameter("a name must not be empty.", context, parameter)
    return value


# -------------------------------------------------------------------------------------- completion


def _completing_app(context: click.Context) -> App:
    terminal = context.find_object(Terminal) or Terminal()
    return open_app(terminal.repo, in_commands)


def _plans(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    try:
        plans = _completing_app(context).plans()
    except OrchardError:
        return []
    return [
        CompletionItem(plan.id, help=safe(plan.name, 60)) for plan in reversed(plans) if plan.id.startswith(incomplete)
    ]


def _jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    try:
        jobs = _completing_app(context).status(context.params.get("plan")).jobs
    except OrchardError:
        return []
    found = [(job.id, job.name, job.status) for job in jobs if job.id.startswith(incomplete)]
    return [CompletionItem(job, help=f"{status}  {safe(name, 60)}") for job, name, status in found]


def complete_agents(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Agents that have a name: those that are known, and the user's own."""
    from click.shell_completion import CompletionItem

    from orchard.agents.registry import Agents
    from orchard.config.load import load_settings

    try:
        agents = Agents(_completing_app(context).settings.config, os.environ)
    except OrchardError:  # outside of a repository there are those of the user
        try:
            agents = Agents(load_settings(None, {}, os.environ).config, os.environ)
        except OrchardError:
            return []
    found = [name for name in agents.names if name.startswith(incomplete)]
    return [CompletionItem(name, help=agents.missing(name)) for name in found]


def complete_agents_and_definitions(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    """Agents, and the definitions by which they can work: those of the repository, of the user and of the settings."""
    from click.shell_completion import CompletionItem

    from orchard.agents.registry import Agents
    from orchard.config.load import load_settings
    from orchard.operations.queries.definitions import described_here

    items = complete_agents(context, parameter, incomplete)
    try:
        app = _completing_app(context)
        described = described_here(app.repo, Agents(app.settings.config, os.environ))
    except OrchardError:
        try:
            described = Agents(load_settings(None, {}, os.environ).config, os.environ).catalog(())
        except OrchardError:
            return items
    usable = [one for one in described.all if not one.problem and one.name.startswith(incomplete)]
    return [*items, *(CompletionItem(one.name, help=one.description or None) for one in usable)]


def complete_plans_and_jobs(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
    return [*_plans(context, parameter, incomplete), *_jobs(context, parameter, incomplete)]


def plan_argument(function: Any) -> Any:
    """`[PLAN]`: id, name or, unless the verb destroys something, the beginning of an id."""
    return click.argument("plan", metavar="[PLAN]", required=False, shell_complete=_plans, callback=not_empty)(function)


def job_argument(function: Any) -> Any:
    """`JOB`: id, beginning of an id, name, or `PLAN:JOB`."""
    return click.argument("job", metavar="JOB", shell_complete=_jobs, callback=not_empty)(function)


def optional_job_argument(function: Any) -> Any:
    """`[JOB]`: as above, or nothing for the whole plan."""
    return click.argument("job", metavar="[JOB]", required=False, shell_complete=_jobs, callback=not_empty)(function)


def jobs_argument(function: Any) -> Any:
    return click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=_jobs, callback=not_empty)(function)


def plan_option(function: Any, said: str = "The plan of the job (default: the newest).") -> Any:
    return click.option("--plan", metavar="PLAN", shell_complete=_plans, callback=not_empty, help=said)(function)


def any_plan_option(function: Any) -> Any:
    """`--plan` of a verb that is about all plans under way."""
    return plan_option(function, "Only this plan (default: every plan that is not over).")


def options_of(operation: Operation, words: Mapping[str, str] | None = None) -> Callable[[Any], Any]:
    """The arguments of an operation as parameters of a command, but for the names of plans and jobs.

    `words` say in another way what an option means; "" leaves it out. An option that is not given is None.
    """

    def add(function: Any) -> Any:
        for one in reversed(arguments_of(operation.args)):
            said = (words or {}).get(one.name, one.description)
            if one.name not in ("plan", "job", "jobs") and said:
                function = _parameter(one, said)(function)
        return function

    return add


def option_name(argument: Argument) -> str:
    name = argument.name.removesuffix("s") if argument.form == "works" else argument.name
    return f"--{name.replace('_', '-')}"


def _parameter(argument: Argument, said: str) -> Any:
    if argument.required:
        return click.argument(argument.name, metavar=argument.name.upper())
    sort: dict[str, Any] = {"metavar": "TEXT", "default": argument.default}
    if argument.form in ("work", "works"):
        said = f"{said.removesuffix('.')}: as in a plan file, or @FILE."
        sort = {"metavar": "WORK", "multiple": argument.form == "works"}
    elif argument.form == "budget":
        sort = {"metavar": "KIND=N,..."}
    elif argument.form == "phase":
        sort = {"type": PhaseChoice()}
    elif get_origin(argument.kind) is Literal:
        sort = {"type": click.Choice(get_args(argument.kind)), "default": argument.default}
    elif argument.kind is bool:
        sort = {"is_flag": True, "default": argument.default}
    elif argument.kind is int:
        sort = {"type": click.IntRange(argument.limits.get("ge"), argument.limits.get("le")), "metavar": "N"}
    name = option_name(argument)
    if argument.kind is bool and argument.default is None:
        name = f"{name}/--no-{name[2:]}"
    return click.option(*_short_names(argument), name, argument.name, help=said, **sort)


class PhaseChoice(click.Choice[str]):
    """A phase by what is shown of it, or by its id; the id is what is asked with."""

    def __init__(self) -> None:
        super().__init__([shown_phase(phase) for phase in PHASES])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        phase = phase_of_words(value)
        return phase.value if phase is not None else super().convert(value, param, ctx)


def _short_names(argument: Argument) -> list[str]:
    """What is typed instead of an option's whole name."""
    return ["--from"] if argument.name == "from_phase" else []


PLAN_FILES = ("plan.yaml", "plan.yml", "plan.json", "plan.toml")


def _usual_plan(context: click.Context, parameter: click.Parameter, value: str | None) -> str:
    """The plan file that is meant where none is named: the one that `orchard init` writes."""
    if value is not None:
        return value
    terminal = context.ensure_object(Terminal)
    found = [name for name in PLAN_FILES if os.path.isfile(find_file(terminal, name))]  # noqa: PTH113
    return found[0] if found else PLAN_FILES[0]


def plan_file_argument(function: Any) -> Any:
    """`[PLAN]`: a file, `-` for stdin, or nothing for `plan.yaml`."""
    return click.argument(
        "file", metavar="[PLAN]", required=False, type=click.Path(allow_dash=True), callback=_usual_plan
    )(function)


def plan_files_argument(function: Any) -> Any:
    """`[PLAN]...`: files, or nothing for `plan.yaml`."""

    def meant(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
        return values or (_usual_plan(context, parameter, None),)

    return click.argument(
        "files", metavar="[PLAN]...", nargs=-1, required=False, type=click.Path(allow_dash=True), callback=meant
    )(function)


def _assignments(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE`, each name once."""
    found: dict[str, str] = {}
    for one in values:
        name, equals, value = one.partition("=")
        if not equals or not name.strip() or name in found:
            why = "is given twice" if name in found else "is not of the form NAME=VALUE"
            raise click.BadParameter(f"'{safe(one)}' {why}.", context, parameter)
        found[name] = value
    return found


def _variables(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    """`NAME=VALUE`, or `NAME` for the value that this shell has."""
    for one in values:
        if "=" not in one and one not in os.environ:
            raise click.BadParameter(f"'{safe(one)}' is not set here.", context, parameter)
    given = tuple(one if "=" in one else f"{one}={os.environ[one]}" for one in values)
    return _assignments(context, parameter, given)


def params_option(function: Any) -> Any:
    return click.option(
        "-p",
        "--param",
        "params",
        metavar="NAME=VALUE",
        multiple=True,
        callback=_assignments,
        help="Set a parameter of the plan; may be repeated.",
    )(function)


def env_option(function: Any) -> Any:
    return click.option(
        "-e",
        "--env",
        "env",
        metavar="NAME[=VALUE]",
        multiple=True,
        callback=_variables,
        help="Set a variable for every job, overriding the plan's; without =VALUE, to this shell's value.",
    )(function)


def yes_option(function: Any) -> Any:
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(function)


def detach_option(function: Any) -> Any:
    return click.option("--detach", "-d", is_flag=True, help="Run in the background and return at once.")(function)


def landing_options(function: Any) -> Any:
    """`--base`, `--target` and `--land`."""
    options = (
        click.option("--base", metavar="BRANCH", callback=branch_text, help="Start from this branch or commit."),
        click.option("--target", metavar="BRANCH", callback=branch_text, help="Land on this branch."),
        click.option(
            "--land",
            type=click.Choice(["auto", "ask", "never", "pr"]),
            help="When to land: automatically, after approval, or never; or open a pull request.",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function
