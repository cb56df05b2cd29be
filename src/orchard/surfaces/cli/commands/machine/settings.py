"""Verbs about Orchard itself: its settings, its health, completion of its words."""

import click

from orchard.config.trust import AGREE_FIRST, not_agreed
from orchard.errors import UsageError
from orchard.model.events.plans import Json
from orchard.store.masked_settings import shown_settings
from orchard.surfaces.cli.group import cli, verb
from orchard.surfaces.cli.options import app_of
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe, table
from orchard.surfaces.cli.terminal import Terminal, json_text
from orchard.surfaces.next_steps import in_commands


@verb("trust", examples="orchard trust --show\norchard trust")
@click.option("--show", is_flag=True, help="Only show what would be agreed to, and its digest.")
@click.option("-y", "--yes", metavar="DIGEST", help="Do not ask: agree to what `--show` printed with this digest.")
def trust(terminal: Terminal, show: bool, yes: str | None) -> int:
    """Orchard uses settings of a repository that run programs or loosen safety, and files such as .claude or .mcp.json,
    only after you agree to them, and asks again when they change. Without a terminal, pass --yes with the digest of
    what you have read. A job cannot agree to anything.
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
        terminal.note(text.warning(f"{not_agreed(settings.untrusted)} {in_commands(AGREE_FIRST)}"))


@verb("capacity", examples="orchard capacity\norchard capacity --json")
def capacity(terminal: Terminal) -> None:
    """All repositories of a user share the limit `capacity.global`; `max_parallel` is the limit of one plan."""
    from orchard.operations.queries.system import get_capacity

    found = get_capacity.read(app_of(terminal), get_capacity.args())
    most = f"{found.used} of {found.total}" if found.total else f"{found.used}, without a limit"
    lines: list[Line] = [[("jobs at once: ", "dim"), (most, "strong"), (f"  {found.max_parallel} per plan", "dim")]]
    for holder in found.holders:
        plans = f"  {', '.join(holder.plans)}" if holder.plans else ""
        where = safe(holder.repository or "a repository that is not known here", 200)
        lines.append(
            [(f"  {text.many(holder.slots, 'slot')}  ", ""), (where, "name"), (f"{plans}  pid {holder.pid}", "dim")]
        )
    terminal.answer(found, *lines)
    if found.problem:
        terminal.note(text.warning(found.problem))


@verb("doctor")
def doctor(terminal: Terminal) -> int:

    from orchard.surfaces.cli.render.doctor import run_doctor  # brings half of git

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
