"""Write docs/cli.md from the commands themselves; with `--check`, only say whether it is up to date."""

import sys
from pathlib import Path

import click

from orchard.surfaces.cli.group import VerbCommand, VerbFamily, cli, shared_options
from orchard.surfaces.cli.verbs import TOPICS, VERBS

PAGE = Path(__file__).resolve().parent.parent / "docs" / "cli.md"

HEAD = """\
# The command line

<!-- Made by tools/cli_reference.py from the commands; edit those instead. -->

Name a plan or a job by its id, the beginning of its id, or its name; a job also as `PLAN:JOB`. If you name no
plan, the newest is used. Commands print the answer to stdout and everything else to stderr; with `--json`
stdout is data: one document, or a line per event. Exit codes: [exit-codes.md](exit-codes.md). Plan
files: [plan-file.md](plan-file.md).

## Options of every command

They may stand before or after the verb.
"""


def page() -> str:
    """The whole page."""
    context = click.Context(cli, info_name="orchard")
    parts = [HEAD, options_table(shared_options(), context)]
    for topic, title in TOPICS.items():
        parts.append(f"\n## {title}\n")
        for name, verb in VERBS.items():
            if verb.topic == topic:
                command = cli.get_command(context, name)
                assert isinstance(command, VerbCommand)
                parts.append(section(name, command, context))
                parts += children(name, command, context)
    return "\n".join(parts)


def children(name: str, command: VerbCommand, parent: click.Context) -> list[str]:
    """The commands below a verb, if it has any."""
    if not isinstance(command, VerbFamily):
        return []
    context = click.Context(command, info_name=name, parent=parent)
    found = [(child, command.get_command(context, child)) for child in command.list_commands(context)]
    return [section(f"{name} {child}", one, context) for child, one in found if isinstance(one, VerbCommand)]


def section(name: str, command: VerbCommand, parent: click.Context) -> str:
    """One command: how it is called, what it does, its options, examples."""
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(["orchard", name, *command.collect_usage_pieces(context)])
    parts = [f"### orchard {name}\n", f"`{usage}`\n", paragraphs(command.help or "")]
    own = [parameter for parameter in command.params if parameter.expose_value]
    if any(isinstance(parameter, click.Option) for parameter in own):
        parts.append(options_table(own, context))
    if command.examples:
        parts.append(f"```sh\n{command.examples}\n```\n")
    return "\n".join(parts)


def paragraphs(help_text: str) -> str:
    found = [" ".join(part.split()) for part in help_text.split("\n\n")]
    return "\n\n".join(part for part in found if part) + "\n"


def options_table(parameters: list[click.Parameter], context: click.Context) -> str:
    rows = [option.get_help_record(context) for option in parameters if isinstance(option, click.Option)]
    lines = [f"| `{row[0].replace('|', chr(92) + '|')}` | {row[1]} |" for row in rows if row is not None]
    return "\n".join(["| option | meaning |", "| --- | --- |", *lines]) + "\n"


def main() -> int:
    """Write the page, or compare it."""
    made = page()
    if "--check" in sys.argv[1:]:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == made
        sys.stdout.write("" if fresh else "docs/cli.md is stale: run python tools/cli_reference.py\n")
        return 0 if fresh else 1
    PAGE.write_text(made, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
