"""Verbs about plan files: beginning, checking and drawing one."""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args

import click

from orchard.config.keys import KEYS
from orchard.config.layers import Config, flatten
from orchard.core.views.graph import Statuses, dot, edges, mermaid, svg
from orchard.errors import InvalidInput, OrchardError, Problem, UsageError
from orchard.model import limits
from orchard.model.plan import Plan
from orchard.model.statuses import JobStatus
from orchard.planfile.places import Finding
from orchard.planfile.works import Paths
from orchard.surfaces.cli.editor_schemas import SCHEMAS, What, first_line
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_of, find_file, params_option, plan_files_argument
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.terminal import Terminal, is_terminal, read_input
from orchard.surfaces.next_steps import in_commands


@verb("init", examples="orchard init\norchard init --config")
@click.option("--config", is_flag=True, help="Write an orchard.toml instead, with all settings commented out.")
@click.argument("name", metavar="[FILE]", required=False)
def init(terminal: Terminal, config: bool, name: str | None) -> int:
    """It does not overwrite existing files."""
    return run_init(terminal, terminal.repo, config=config, name=name)


@verb("validate", examples="orchard validate plan.yaml\norchard validate plans/*.yaml")
@plan_files_argument
@params_option
def validate(terminal: Terminal, files: tuple[str, ...], params: dict[str, str]) -> None:
    """In a repository, it also checks that the agents, models, base, target, files with tasks, and the plan to wait for
    exist. The default is plan.yaml. Given several files, it reports the problems of all of them.
    """
    wrong: list[Problem] = []
    for file in files:
        try:
            _validate(terminal, file, params, alone=len(files) == 1)
        except InvalidInput as error:
            if len(files) == 1:
                raise
            wrong += error.problems
    if wrong:
        raise InvalidInput("plans", wrong)


def _validate(terminal: Terminal, file: str, params: Mapping[str, str], *, alone: bool) -> None:
    plan, notes = reviewed(terminal, file, params)
    jobs = len(plan.jobs) - 1
    groups = len({job.group for job in plan.jobs.values() if job.group})
    document = {"valid": True, "name": plan.name, "jobs": jobs, "groups": groups, "leaves": list(plan.leaves)}
    inside = f" in {text.many(groups, 'group')}" if groups else ""
    valid: Line = [("valid: ", "good"), (safe(plan.name), "name"), (f", {text.many(jobs, 'job')}{inside}", "")]
    if terminal.json and not alone:
        terminal.row({"file": file, **document, "notes": notes})
    else:
        terminal.answer({**document, "notes": notes}, valid)
    terminal.note(*[text.warning(note) for note in notes])


def reviewed(terminal: Terminal, file: str, params: Mapping[str, str]) -> tuple[Plan, list[str]]:
    """The plan in a file, if it could start in the repository that is meant, and what a person should know of it.

    Outside of a repository: if it is a plan.
    """
    from orchard.agents.definitions.ignored import ignored_notes
    from orchard.agents.registry import Agents
    from orchard.config.places import missing_places
    from orchard.engine.machine.reach import reach_warnings
    from orchard.operations.foresight import foreseen, idle_notes, permission_notes
    from orchard.operations.preparation import unproposable
    from orchard.operations.queries.definitions import agents_of, definition_notes, described_for
    from orchard.planfile.parse import review  # brings a YAML reader

    data, name = _read(terminal, file)
    try:
        app = app_of(terminal)
    except OrchardError:
        return review(data, name, lambda plan, paths: [], params), []
    config = app.settings.config
    notes: list[str] = []

    def look(plan: Plan, paths: Paths) -> list[Finding]:
        agents = Agents(config, os.environ)
        notes.extend(missing_places(config.sandbox))
        notes.extend(reach_warnings(app.repo, plan, paths))
        described = described_for(app.repo, agents, plan)
        notes.extend(definition_notes(agents, described, plan))
        notes.extend(permission_notes(config, agents, described, plan))
        notes.extend(idle_notes(plan))
        notes.extend(unproposable(app.repo, config, os.environ, plan, in_commands))
        if names := agents_of(agents, described, plan):
            notes.extend(ignored_notes(app.repo, config, names))
        return foreseen(app.repo, config, agents, app.reader.plans(), plan, paths, in_commands)

    return review(data, name, look, params), notes


def plan_in(terminal: Terminal, file: str) -> Plan:
    """The plan in a file, wherever the file is: unlike running it, looking at it needs no repository."""
    from orchard.planfile.parse import parse  # brings a YAML reader

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
    """PLAN is a file if one of that name exists, otherwise the id or name of a plan; the default is the newest plan."""
    if plan is not None and (plan == "-" or os.path.isfile(find_file(terminal, plan))):  # noqa: PTH113
        return show_graph(terminal, plan_in(terminal, plan), None, form, output)
    app = app_of(terminal)
    run = app.run_of(app.find_plan(plan))
    statuses = {job: JobStatus(record.status) for job, record in run.records.items()}
    return show_graph(terminal, run.plan, statuses, form, output)


@verb("schema", examples="orchard schema > plan.schema.json\norchard schema settings > orchard.schema.json")
@click.argument("what", type=click.Choice(get_args(What)), default="plan")
def schema(terminal: Terminal, what: What) -> None:
    """Files that 'orchard init' writes name their schema in the first line, where editors look for it."""
    terminal.data(SCHEMAS[what]())


PLAN_NAME = "plan.yaml"
CONFIG_NAME = "orchard.toml"

STARTER = """\
# A plan: jobs, and which jobs each of them needs. Every job works in a folder of its own (a git
# worktree), so jobs run side by side without seeing each other's half-done files.
#
#   orchard validate     check it
#   orchard run -n       see what would run
#   orchard run          run it and land the result
#
# Every field is explained by: orchard help plan-file
name: My plan

# Where the result goes. Left out: the branch you are on, or a new branch `orchard/my-plan` if you
# are on the default branch.
# target: my-branch

# Runs on everything together before it lands; nothing lands unless it passes.
# verify: make test

jobs:
  - id: hello
    work: echo "hello" > hello.txt

  # These two need the first one, and run at the same time.
  - id: shout
    needs: [hello]
    work: tr a-z A-Z < hello.txt > shout.txt
    postchecks: grep HELLO shout.txt # must pass on what was committed

  - id: count
    needs: [hello]
    work: wc -c < hello.txt > count.txt

  # This one starts from a merge of both. It only looks: leaving a change would be a failure.
  - id: look
    needs: [shout, count]
    work: cat shout.txt count.txt
    changes: forbidden
"""

ROWS = """\
## Agents and MCP servers are rows with a name (trust); 'orchard help configuration' has all that they may hold:
##
## [agents.claude]
## model = "opus"
##
## [agents.mine]                 # an agent of your own: '@mine do this' in a plan
## command = "mytool --model {model} --file {prompt_file}"
##
## [mcp_servers.docs]            # a work names it: mcp_servers: [docs]
## url = "https://docs.example/mcp"
## headers = { Authorization = "Bearer ${DOCS_TOKEN}" }
"""


def run_init(terminal: Terminal, folder: Path, *, config: bool = False, name: str | None = None) -> int:
    path = folder / (name or (CONFIG_NAME if config else PLAN_NAME))
    _create(path, first_line("settings", path) + starter_config() if config else first_line("plan", path) + STARTER)
    shown = safe(os.path.relpath(path))
    run = "orchard run" if path.name == PLAN_NAME else f"orchard run {shown}"
    command = "orchard config show --origin" if config else run
    lines: list[Line] = [[("Wrote ", ""), (shown, "name")], [("next: ", "wait"), (command, "strong")]]
    terminal.answer({"file": str(path.absolute()), "next": command}, *lines)
    return 0


def starter_config() -> str:
    """Every setting with what it means, commented out at its default."""
    defaults = flatten(Config())
    lines = [
        "# Settings of Orchard for this repository. Every line shows a default; remove the '#' to change it.",
        "# What is marked with 'trust' runs programs or loosens safety: it counts after 'orchard trust'. What is",
        "# marked with 'stricter' does so only where it is looser than what you have set for yourself.",
    ]
    section = ""
    for key in KEYS.values():
        table, _, own = key.name.rpartition(".")
        if table != section:
            lines += ["", f"[{table}]"]
            section = table
        elif not table:
            lines.append("")
        lines += [
            f"# {key.meaning}{' (trust)' if key.needs_trust else ' (stricter)' if key.loosens else ''}",
            f"# {own} = {_toml(defaults[key.name], key.nothing)}",
        ]
    return "\n".join([*lines, "", ROWS])


def _toml(value: object, nothing: int | str) -> str:
    """A default as TOML writes it, which has no word for nothing."""
    if value is None:
        return _toml(nothing, 0)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(one, nothing) for one in value)}]"
    return f'"{value}"' if isinstance(value, str) else f"{value:g}" if isinstance(value, float) else str(value)


def _create(path: Path, content: str) -> None:
    try:
        # O_EXCL also refuses a link that points nowhere, which would be written through otherwise.
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    except FileExistsError:
        raise UsageError(f"'{safe(path)}' exists already; it was left as it is.", "Name another file.") from None
    except OSError as error:
        raise UsageError(f"Cannot write '{safe(path)}': {error.strerror}.") from error
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(content)


FORMATS: Mapping[str, Callable[[Plan, Statuses | None], str]] = {"mermaid": mermaid, "dot": dot, "svg": svg}


def show_graph(terminal: Terminal, plan: Plan, statuses: Statuses | None, form: str, output: Path | None = None) -> int:
    picture = draw(plan, statuses, form)
    if output is not None:
        _write(output, picture)
        terminal.note([(f"Wrote {safe(output)}", "")])
    if terminal.json:
        jobs = [{"id": job.id, "name": job.name, "group": job.group} for job in plan.jobs.values()]
        arrows = [[need, job] for need, job in edges(plan)]
        terminal.data({"format": form, "graph": picture, "jobs": jobs, "edges": arrows})
    elif output is None:
        lines: list[Line] = [[(line, "")] for line in picture.splitlines()]
        terminal.show(*lines)
        _advise(terminal, form)
    return 0


def draw(plan: Plan, statuses: Statuses | None, form: str) -> str:
    if form not in FORMATS:
        raise UsageError(f"There is no format '{safe(form)}'.", f"Choose one of {', '.join(FORMATS)}.")
    return FORMATS[form](plan, statuses)


def _advise(terminal: Terminal, form: str) -> None:
    if form == "svg" and is_terminal(sys.stdout):
        terminal.note([("hint: ", "wait"), ("add '--output plan.svg' and open that file in a browser", "")])


def _write(output: Path, picture: str) -> None:
    try:
        output.write_text(picture, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"Cannot write '{safe(output)}': {error.strerror}.") from error
