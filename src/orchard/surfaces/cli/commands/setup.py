"""Verbs around the work: start files, checks, settings, the demo. Most are a call to a module of their own."""

import os
from pathlib import Path

import click

from orchard.errors import OrchardError, UsageError
from orchard.model import limits
from orchard.model.events.plans import Json
from orchard.model.plan import Plan
from orchard.model.statuses import JobStatus
from orchard.planfile.places import Finding
from orchard.planfile.works import Paths
from orchard.store.masked_settings import shown_settings
from orchard.surfaces.cli.group import cli, verb
from orchard.surfaces.cli.options import app_of, find_file
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe, table
from orchard.surfaces.cli.terminal import Terminal, json_text, read_input
from orchard.surfaces.next_steps import in_commands


@verb("demo", examples="orchard demo\norchard demo --folder ~/orchard-demo")
@click.option("--folder", type=click.Path(path_type=Path), help="Make the repository here (and keep it).")
@click.option("--keep", is_flag=True, help="Keep the repository.")
def demo(terminal: Terminal, folder: Path | None, keep: bool) -> int:
    """Needs git and python3 only: no key, no network, no change to anything of yours."""
    from orchard.surfaces.cli.commands.demo import run_demo

    return run_demo(terminal, folder, keep=keep)


@verb("init", examples="orchard init\norchard init --config")
@click.option("--config", is_flag=True, help="Write an orchard.toml with the settings, commented out, instead.")
@click.argument("name", metavar="[FILE]", required=False)
def init(terminal: Terminal, config: bool, name: str | None) -> int:
    """Nothing that exists is overwritten."""
    from orchard.surfaces.cli.commands.init import run_init

    return run_init(terminal, terminal.repo, config=config, name=name)


@verb("validate", examples="orchard validate plan.yaml")
@click.argument("file", metavar="PLAN", type=click.Path(allow_dash=True))
def validate(terminal: Terminal, file: str) -> None:
    """In a repository its agents, models, base, target and the plan that it waits for are looked for as well."""
    plan, notes = reviewed(terminal, file)
    jobs = len(plan.jobs) - 1
    groups = len({job.group for job in plan.jobs.values() if job.group})
    document = {"valid": True, "name": plan.name, "jobs": jobs, "groups": groups, "leaves": list(plan.leaves)}
    terminal.answer({**document, "notes": notes}, text.valid(plan.name, jobs, groups))
    terminal.note(*[text.warning(note) for note in notes])


def reviewed(terminal: Terminal, file: str) -> tuple[Plan, list[str]]:
    """The plan in a file, if it could start in the repository that is meant, and what a person should know of it.

    Outside of a repository: if it is a plan.
    """
    from orchard.agents.registry import Agents
    from orchard.engine.reach import reach_warnings
    from orchard.operations.foresight import foreseen
    from orchard.planfile.parse import review  # brings pydantic

    data, name = _read(terminal, file)
    try:
        app = app_of(terminal)
    except OrchardError:
        return review(data, name, lambda plan, paths: []), []
    config = app.settings.config
    notes: list[str] = []

    def look(plan: Plan, paths: Paths) -> list[Finding]:
        notes.extend(reach_warnings(app.repo, plan, paths))
        return foreseen(app.repo, config, Agents(config, os.environ), app.reader.plans(), plan, paths, in_commands)

    return review(data, name, look), notes


def plan_in(terminal: Terminal, file: str) -> Plan:
    """The plan in a file, wherever the file is: unlike running it, looking at it needs no repository."""
    from orchard.planfile.parse import parse  # brings pydantic

    return parse(*_read(terminal, file))


def _read(terminal: Terminal, file: str) -> tuple[bytes, str]:
    path, name = ("-", "<stdin>") if file == "-" else (str(find_file(terminal, file)), file)
    return read_input(path, limits.PLAN_BYTES), name


@verb(
    "graph",
    examples="orchard graph plan.yaml\norchard graph plan.yaml --format svg -o plan.svg\norchard graph login-3f2a",
)
@click.argument("plan", metavar="[PLAN]", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "dot", "svg"]),
    default="mermaid",
    show_default=True,
    help="How to draw it.",
)
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file.")
def graph(terminal: Terminal, plan: str | None, form: str, output: Path | None) -> int:
    """PLAN is a file if there is such a file, else the id or name of a plan; without it the newest plan is drawn."""
    from orchard.surfaces.cli.render.graph import show_graph

    if plan is not None and (plan == "-" or os.path.isfile(find_file(terminal, plan))):  # noqa: PTH113
        return show_graph(terminal, plan_in(terminal, plan), None, form, output)
    app = app_of(terminal)
    run = app.run_of(app.find_plan(plan))
    statuses = {job: JobStatus(record.status) for job, record in run.records.items()}
    return show_graph(terminal, run.plan, statuses, form, output)


@verb("trust", examples="orchard trust --show\norchard trust")
@click.option("--show", is_flag=True, help="Only show what would be agreed to, and its digest.")
@click.option("-y", "--yes", metavar="DIGEST", help="Do not ask: agree to what `--show` printed with this digest.")
def trust(terminal: Terminal, show: bool, yes: str | None) -> int:
    """Settings in a repository that run programs or loosen safety, and files such as .claude or .mcp.json, count only
    after this. A change of them needs a new agreement. Where there is no terminal, `--yes` and the digest say which
    content you have read. A job cannot agree to anything.
    """
    from orchard.surfaces.cli.consent import run_trust

    return run_trust(terminal, app_of(terminal), show=show, yes=yes)


@verb("config", examples="orchard config show\norchard config show --origin")
@click.argument("what", type=click.Choice(["show"]), default="show")
@click.option("--origin", is_flag=True, help="Say where each value comes from.")
def config(terminal: Terminal, what: str, origin: bool) -> None:
    settings = app_of(terminal).settings
    document: Json = shown_settings(settings)
    rows: list[Line] = table(
        [
            [
                (f"{name} = {safe(json_text(one['value']), 200)}", ""),
                (f"# {one['origin']}" if origin else "", "dim"),
            ]
            for name, one in document.items()
        ],
        60,
    )
    terminal.answer(document, *rows)
    if settings.untrusted:
        terminal.note(text.warning(text.UNTRUSTED.format(keys=", ".join(settings.untrusted))))


@verb("schema", examples="orchard schema > plan.schema.json")
def schema(terminal: Terminal) -> None:
    from orchard.planfile.parse import schema as plan_schema  # brings pydantic

    terminal.data(plan_schema())


@verb("doctor")
def doctor(terminal: Terminal) -> int:
    from orchard.surfaces.cli.render.doctor import run_doctor

    return run_doctor(terminal, app_of(terminal))


@verb(
    "completion",
    examples="""
orchard completion bash > ~/.local/share/bash-completion/completions/orchard
orchard completion zsh > ~/.zfunc/_orchard
orchard completion fish > ~/.config/fish/completions/orchard.fish
""",
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(terminal: Terminal, shell: str) -> None:
    from click.shell_completion import get_completion_class

    found = get_completion_class(shell)
    if found is None:
        raise UsageError(f"There is no completion for '{shell}'.", text.see_help("orchard completion"))
    click.echo(found(cli, {}, "orchard", "_ORCHARD_COMPLETE").source())
