"""`orchard mcp`: the MCP server on stdin and stdout, and the commands that make hosts start it."""

import sys
from pathlib import Path

import click

from orchard.errors import UsageError
from orchard.surfaces.cli.group import family
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.terminal import Terminal, is_terminal
from orchard.surfaces.cli.verbs import Verb

CHILDREN = {
    "install": Verb("", "machine.install:install_server", "Register Orchard's MCP server with a host."),
    "uninstall": Verb("", "machine.install:uninstall_server", "Take Orchard's MCP server out of a host's file again."),
}


@family(
    "mcp",
    CHILDREN,
    alone=True,
    examples="""
orchard mcp install --host claude              # so that Claude Code starts it
orchard mcp --toolsets core,jobs
orchard mcp --toolsets all --read-only
""",
)
@click.option(
    "--toolsets", multiple=True, metavar="A,B", help="Offer these toolsets: core, plans, jobs, groups, workers; or all."
)
@click.option("--tools", multiple=True, metavar="A,B", help="Offer these tools too; without --toolsets, only these.")
@click.option("--exclude-tools", multiple=True, metavar="A,B", help="Do not offer these tools.")
@click.option("--read-only", is_flag=True, help="Offer only tools that change nothing.")
@click.option("--pass", "pass_file", type=click.Path(path_type=Path), hidden=True, help="An agent's pass.")
def mcp(
    terminal: Terminal,
    toolsets: tuple[str, ...],
    tools: tuple[str, ...],
    exclude_tools: tuple[str, ...],
    read_only: bool,
    pass_file: Path | None,
) -> int:
    verb = click.get_current_context().invoked_subcommand
    if verb is not None:
        if toolsets or tools or exclude_tools or read_only or pass_file is not None:
            raise UsageError(f"What is for '{verb}' has to stand behind it.", f"orchard mcp {verb} --help")
        return 0
    from orchard.surfaces.mcp.relay.engine_connection import Wanted
    from orchard.surfaces.mcp.relay.relay import relay

    if is_terminal(sys.stdin):
        terminal.note(
            text.done("This talks with programs. To register it with a host: orchard mcp install --host claude")
        )
    return relay(Wanted(terminal.repo.absolute(), toolsets, tools, exclude_tools, read_only, pass_file))
