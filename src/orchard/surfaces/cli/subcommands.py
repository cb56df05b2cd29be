"""Verbs that have verbs of their own: `orchard mcp install`, `orchard skill install`.

As in the table of all verbs, a child is named by where it lies and imported when it is used, so that a verb which
must start fast can have children that need not.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Concatenate, NamedTuple

import click

from orchard.surfaces.cli.group import Given, VerbCommand
from orchard.surfaces.cli.terminal import Terminal


class Child(NamedTuple):
    """A command below a verb."""

    place: str
    """`module:name` below `orchard.surfaces.cli.commands`."""
    help: str


class VerbFamily(VerbCommand, click.Group):
    """A verb with children; whether it can be used without one is said by `invoke_without_command`."""

    def __init__(self, *args: Any, children: Mapping[str, Child], **options: Any) -> None:
        super().__init__(*args, **options)
        self.children = children

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.children)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        child = self.children.get(cmd_name)
        if child is None:
            return None
        module, _, name = child.place.partition(":")
        found = getattr(import_module(f"orchard.surfaces.cli.commands.{module}"), name)
        assert isinstance(found, VerbCommand), child.place
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.children and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], self.children, n=1)
            guess = f" Did you mean '{near[0]}'?" if near else ""
            ctx.fail(f"'{ctx.command_path}' has no command '{args[0]}'.{guess}")
        return super().resolve_command(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        VerbCommand.format_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, child.help) for name, child in self.children.items()])


def family(
    name: str, children: Mapping[str, Child], *, examples: str = "", alone: bool = False
) -> Callable[[Callable[Concatenate[Terminal, Given], int | None]], VerbFamily]:
    """A verb with children: the function is what it does without one, which it can do where it is `alone` a command.

    With a child the function is called first, and must do nothing then: `click.get_current_context()` names the child
    as `invoked_subcommand`.
    """

    def wrap(function: Callable[Concatenate[Terminal, Given], int | None]) -> VerbFamily:
        made = click.command(
            name,
            cls=VerbFamily,
            children=children,
            examples=examples,
            invoke_without_command=alone,
            no_args_is_help=False,  # click would tell the whole help as an error
        )(click.make_pass_decorator(Terminal)(function))
        assert isinstance(made, VerbFamily)
        return made

    return wrap
