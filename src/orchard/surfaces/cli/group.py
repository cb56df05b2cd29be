"""The command group: verbs are imported when they are used, and options that every verb has.

`-C`, `--json`, `--quiet`, `--verbose`, `--no-color` and `--no-pager` may stand before or after the verb. They are not
parameters of the commands: a callback writes them into the `Terminal` that all commands share.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import cleandoc
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import click

from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.cli.verbs import OF_OTHERS, TOPICS, VERBS, Verb

Given = ParamSpec("Given")

EVERYWHERE = "Everywhere"


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Write a shared option into the terminal; an option that was not given changes nothing."""
    terminal = context.ensure_object(Terminal)
    if value and parameter.name == "repo":
        # `-C .` names this folder, which no option at all does not: see `find_repository`.
        terminal.repo = terminal.repo / value if terminal.repo / value != Path() else Path.cwd()
    elif value and parameter.name is not None:
        setattr(terminal, parameter.name, True)
    return value


def shared_options() -> list[click.Parameter]:
    folder = click.Path(exists=True, file_okay=False, path_type=Path)

    def flag(*names: str, help: str) -> click.Option:
        return click.Option(names, is_flag=True, expose_value=False, is_eager=True, callback=_remember, help=help)

    return [
        click.Option(
            ("-C", "--repo"),
            type=folder,
            metavar="DIR",
            expose_value=False,
            is_eager=True,
            callback=_remember,
            help="Use the repository of DIR instead of the current folder's.",
        ),
        flag("--json", help="Print JSON for programs: one document, or one object a line."),
        flag("-q", "--quiet", help="Print only the result; errors still go to stderr."),
        click.Option(
            ("-v", "--verbose"),
            count=True,
            expose_value=False,
            is_eager=True,
            help="Log what Orchard does to stderr; -vv logs everything.",
        ),
        flag("--no-color", help="Do not use colours (or set NO_COLOR)."),
        flag("--no-pager", help="Do not use a pager for long output (or set ORCHARD_PAGER=cat)."),
    ]


class VerbCommand(click.Command):
    """A command whose help shows its own options first and the shared ones after them."""

    def __init__(self, *args: Any, examples: str = "", **options: Any) -> None:
        super().__init__(*args, **options)
        self.params += shared_options()
        self.examples = examples.strip("\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx) if isinstance(parameter, click.Option) else None
            if record is not None:
                (own if parameter.expose_value else shared).append(record)
        for title, rows in (("Options", own), (EVERYWHERE, shared)):
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)
        if self.examples:
            with formatter.section("Examples"):
                formatter.write("".join(f"  {row}\n" for row in self.examples.splitlines()))


PATHS = "orchard.paths"


class WithPaths(VerbCommand):
    """A command whose words after `--` are paths: they are in the context's `meta`, and no argument of it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        ctx.meta[PATHS] = args[at + 1 :]
        return super().parse_args(ctx, args[:at])


class LazyGroup(click.Group):
    """Commands that are imported when they are used: looking at the list imports none of them."""

    def __init__(self, *args: Any, rows: Mapping[str, Verb], **options: Any) -> None:
        super().__init__(*args, **options)
        self.rows = rows

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = self.rows.get(cmd_name)
        if row is None:
            return None
        module, _, name = row.place.partition(":")
        found = getattr(import_module(f"orchard.surfaces.cli.commands.{module}"), name)
        assert isinstance(found, click.Command), row.place
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.rows and not args[0].startswith("-"):
            from difflib import get_close_matches

            meant = OF_OTHERS.get(args[0]) if ctx.parent is None else None
            near = [meant] if meant else get_close_matches(args[0], self.rows, n=1)
            guess = f" Did you mean '{near[0]}'?" if near else ""
            none = "There is no" if ctx.parent is None else f"'{ctx.command_path}' has no"
            ctx.fail(f"{none} command '{args[0]}'.{guess}")
        return super().resolve_command(ctx, args)


class VerbGroup(LazyGroup):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(len(name) for name in self.rows)
        for topic, title in TOPICS.items():
            rows = [(name.ljust(width), verb.help) for name, verb in self.rows.items() if verb.topic == topic]
            with formatter.section(title):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        return [
            CompletionItem(name, help=verb.help) for name, verb in self.rows.items() if name.startswith(incomplete)
        ] or click.Command.shell_complete(self, ctx, incomplete)


class VerbFamily(VerbCommand, LazyGroup):
    """A verb with verbs of its own; whether it can be used without one is said by `invoke_without_command`."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        VerbCommand.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, child.help) for name, child in self.rows.items()])


def _print_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value and not context.resilient_parsing:
        from orchard import __version__

        click.echo(f"orchard {__version__}")
        context.exit()


def _print_help(context: click.Context) -> None:
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


cli = VerbGroup(
    "orchard",
    rows=VERBS,
    params=[
        *shared_options(),
        click.Option(
            ("--version",),
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_print_version,
            help="Show the version and exit.",
        ),
    ],
    callback=click.pass_context(_print_help),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="""Run a plan of jobs in parallel, each in its own git worktree, and land the merged result.

    Name a plan or a job by its id, its name, or the beginning of its id; if you name no plan, the newest is used.
    Commands that end, land or remove something take whole names only; without a name, they take the only plan that
    fits.
    """,
    epilog="Start with 'orchard demo', or with 'orchard init' and 'orchard run plan.yaml'.",
)


Function = Callable[Concatenate[Terminal, Given], int | None]
"""What a command does: it gets the terminal first, and returns its exit code (None: 0)."""


def verb(
    name: str, *, examples: str = "", row: Verb | None = None, cls: type[VerbCommand] = VerbCommand, **options: Any
) -> Callable[[Function[Given]], VerbCommand]:
    """A command of its own: its sentence is that of its row, which is in `VERBS`, and its docstring says the rest."""

    def wrap(function: Function[Given]) -> VerbCommand:
        help = f"{(row or VERBS[name]).help}\n\n{cleandoc(function.__doc__ or '')}".strip()
        made = click.command(name, cls=cls, examples=examples, help=help, **options)(
            click.make_pass_decorator(Terminal)(function)
        )
        assert isinstance(made, VerbCommand)
        return made

    return wrap


def family(
    name: str, children: Mapping[str, Verb], *, examples: str = "", alone: bool = False
) -> Callable[[Function[Given]], VerbCommand]:
    """A verb with children: the function is what it does without one, which it can do where it is `alone` a command.

    With a child the function is called first, and must do nothing then: `click.get_current_context()` names the child
    as `invoked_subcommand`.
    """
    return verb(
        name,
        examples=examples,
        cls=VerbFamily,
        rows=children,
        invoke_without_command=alone,
        no_args_is_help=False,  # click would tell the whole help as an error
    )
