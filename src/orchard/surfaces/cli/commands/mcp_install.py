"""`orchard mcp install` and `orchard mcp uninstall`: the entry that makes a host start our MCP server."""

import asyncio
import json
import os
import shlex
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import click
from msgspec import Struct

from orchard.errors import NeedsPerson, OrchardError, UsageError
from orchard.git.repository import find_repository
from orchard.model.events.plans import Json
from orchard.surfaces.cli.external_files import Change, Found, agreed, carry_out, diff_lines, look
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import yes_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.mcp.hosts import HOSTS, Place, Scope, entry, is_ours, place
from orchard.surfaces.mcp.json_text import BadText, comments_of, read_json, with_member, without_member
from orchard.surfaces.mcp.selection import Selection
from orchard.surfaces.mcp.toml_text import read_toml, table_rows, with_table, without_table


class Asked(Struct, frozen=True):
    """What the command line asks for, and where that is."""

    host: str
    scope: Scope
    name: str
    place: Place

    @property
    def keys(self) -> tuple[str, ...]:
        return (*self.place.keys, self.name)

    def again(self, act: str, *more: str) -> str:
        """The command that does the same, with more words."""
        words = ["orchard", "mcp", act, "--host", self.host, "--scope", self.scope]
        return shlex.join([*words, *(() if self.name == "orchard" else ("--name", self.name)), *more])


def _server_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not 1 <= len(value) <= 32 or not value.isascii() or not value.replace("-", "").replace("_", "").isalnum():
        raise click.BadParameter("a server's name has letters, digits, '-' and '_', 32 at most.", context, parameter)
    return value


def _host_options(function: Any) -> Any:
    """What both commands have to know."""
    for option in (
        click.option(
            "--name", default="orchard", show_default=True, callback=_server_name, help="The server's name in the host."
        ),
        click.option(
            "--scope",
            type=click.Choice(get_args(Scope)),
            default="project",
            show_default=True,
            help="For this repository, or for you everywhere.",
        ),
        click.option("--host", type=click.Choice(list(HOSTS)), required=True, help="The program that is to start it."),
    ):
        function = option(function)
    return function


@verb(
    "install",
    examples="""
orchard mcp install --host claude                   # .mcp.json of this repository
orchard mcp install --host codex --scope user       # for all your repositories
orchard mcp install --host vscode --toolsets core,jobs --read-only
orchard mcp install --host cursor --print           # only show what would be written, and where
""",
)
@_host_options
@click.option("--toolsets", metavar="A,B", help="The toolsets to offer, or 'all'; else 'core'.")
@click.option("--read-only", is_flag=True, help="Offer only tools that change nothing.")
@click.option("--portable", is_flag=True, help="Name 'orchard' as the PATH finds it: for a file that others share.")
@click.option("--replace", is_flag=True, help="Replace another entry of that name.")
@click.option("--print", "only_print", is_flag=True, help="Print what would be written and where; change nothing.")
@yes_option
def install(
    terminal: Terminal,
    host: str,
    scope: Scope,
    name: str,
    toolsets: str | None,
    read_only: bool,
    portable: bool,
    replace: bool,
    only_print: bool,
    yes: bool,
) -> int:
    """Make a host start Orchard's MCP server.

    Shows how the host's file changes and asks. What was in the file is kept beside it. Where nobody can be asked,
    --yes is needed: the exit code is 4 without it, and when an entry of that name is another one, until --replace.
    """
    asked = _asked(terminal, host, scope, name)
    words = _words(toolsets, read_only)
    command = [*_program(portable), "mcp", *words]
    wanted = entry(host, scope, command)
    if only_print:
        return _print(terminal, asked, wanted)
    found = look(asked.place.file, asked.place.inside, private=asked.place.private)
    there = _there(asked, found)
    options = [*words, *(["--portable"] if portable else [])]
    if there == wanted:
        terminal.answer(_document(asked, wanted, changed=False), text.done(f"{_shown(asked)} has it already."))
        return 0
    change = Change(asked.place.file, found, _with(asked, found, wanted))
    terminal.note(*diff_lines(change))
    other = there is not None
    if other and not replace and (yes or not terminal.can_ask):
        hint = asked.again("install", *options, "--replace", "--yes")
        raise NeedsPerson(f"{_shown(asked)} has another entry '{name}' already; it was left as it is.", hint)
    question = f"Replace the entry '{name}' in {_shown(asked)}?" if other else f"Change {_shown(asked)} like this?"
    if not agreed(terminal, change, question, yes=yes, command=asked.again("install", *options, "--yes")):
        return 4
    kept = carry_out(change)
    _warm(toolsets, read_only)
    document = _document(asked, wanted, changed=True, created=found.text is None, kept=kept)
    terminal.answer(document, *_said(asked, command, found, kept, portable=portable))
    return 0


@verb(
    "uninstall", examples="orchard mcp uninstall --host claude\norchard mcp uninstall --host codex --scope user --yes"
)
@_host_options
@click.option("--force", is_flag=True, help="Take out an entry of that name even if it does not start Orchard.")
@yes_option
def uninstall(terminal: Terminal, host: str, scope: Scope, name: str, force: bool, yes: bool) -> int:
    """Take Orchard's MCP server out of a host's file again.

    A file in which nothing else is left is removed.
    """
    asked = _asked(terminal, host, scope, name)
    found = look(asked.place.file, asked.place.inside, private=asked.place.private)
    there = _there(asked, found)
    if there is None:
        terminal.answer(_document(asked, None, changed=False), text.done(f"{_shown(asked)} has no entry '{name}'."))
        return 0
    if not is_ours(there) and not force:
        hint = asked.again("uninstall", "--force", "--yes")
        raise NeedsPerson(f"The entry '{name}' in {_shown(asked)} does not start Orchard; it was left as it is.", hint)
    change = Change(asked.place.file, found, _without(asked, found))
    terminal.note(*diff_lines(change))
    question = f"Take '{name}' out of {_shown(asked)}?"
    if not agreed(terminal, change, question, yes=yes, command=asked.again("uninstall", "--yes")):
        return 4
    kept = carry_out(change)
    lines = [text.done(f"{_shown(asked)} is removed: nothing else was in it.")]
    if change.after is None and scope == "project" and found.path.parent != Path(asked.place.inside).resolve():
        with suppress(OSError):
            found.path.parent.rmdir()  # only if nothing else is in it
    if change.after is not None:
        lines = [text.done(f"'{name}' is taken out of {_shown(asked)}."), *_kept_lines(kept)]
    terminal.answer(_document(asked, None, changed=True, kept=kept), *lines)
    return 0


# ----------------------------------------------------------------------------------- what is meant


def _asked(terminal: Terminal, host: str, scope: Scope, name: str) -> Asked:
    top = find_repository(terminal.repo).top if scope == "project" else None
    return Asked(host, scope, name, place(host, scope, top))


def _words(toolsets: str | None, read_only: bool) -> list[str]:
    """The words after `orchard mcp`; a toolset that there is not is refused here rather than by the host."""
    if toolsets is not None:
        if not toolsets.strip(" ,"):
            raise UsageError("'--toolsets' names none.", "For example: --toolsets core,jobs")
        Selection.from_names([toolsets])
    chosen = [] if toolsets is None else ["--toolsets", ",".join(word.strip() for word in toolsets.split(","))]
    return [*chosen, *(["--read-only"] if read_only else [])]


def _program(portable: bool) -> list[str]:
    """How a host starts us: by the script that was installed with this Python, else by this Python itself."""
    if portable:
        return ["orchard"]
    script = Path(sys.executable).parent / "orchard"
    found = [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "orchard"]
    if not Path(found[0]).is_absolute() or not found[0].isprintable():
        raise UsageError(f"The path of this program cannot be written into a file: {found[0]!r}", "Use --portable.")
    return found


def _there(asked: Asked, found: Found) -> Any:
    """The entry that the file has under our name."""
    value = _read(asked, found)
    for key in asked.keys:
        if not isinstance(value, dict):
            raise _refused(asked, f"'{key}' cannot be looked for in it: it does not hold what the host expects")
        if key not in value:
            return None
        value = value[key]
    return value


def _read(asked: Asked, found: Found) -> Any:
    held = found.text or ""
    try:
        return read_toml(held) if asked.place.form == "toml" else read_json(held, asked.place.form == "jsonc")
    except BadText as error:
        raise _refused(asked, str(error)) from None


def _with(asked: Asked, found: Found, wanted: Json) -> str:
    held = found.text or ""
    try:
        if asked.place.form == "toml":
            return with_table(held, asked.keys, wanted)
        return with_member(held, asked.place.form == "jsonc", asked.keys, wanted)
    except BadText as error:
        raise _refused(asked, str(error)) from None


def _without(asked: Asked, found: Found) -> str | None:
    """The file without our entry; None where nothing else is in it."""
    held = found.text or ""
    try:
        if asked.place.form == "toml":
            rest = without_table(held, asked.keys)
            return rest if rest.strip() else None
        rest = without_member(held, asked.place.form == "jsonc", asked.keys)
    except BadText as error:
        raise _refused(asked, str(error)) from None
    empty = read_json(rest, asked.place.form == "jsonc") == {asked.place.keys[0]: {}} and not comments_of(rest)
    return None if empty else rest


def _refused(asked: Asked, why: str) -> UsageError:
    hint = f"See what belongs into it, and edit it yourself: {asked.again('install', '--print')}"
    return UsageError(f"'{safe(asked.place.file)}' was left as it is: {safe(why)}.", hint)


# -------------------------------------------------------------------------------------- what is said


def _print(terminal: Terminal, asked: Asked, wanted: Json) -> int:
    """Only what would be put where: nothing is read or written."""
    if asked.place.form == "toml":
        rows = table_rows(asked.keys, wanted)
    else:
        whole: object = wanted
        for key in reversed(asked.keys):
            whole = {key: whole}
        rows = json.dumps(whole, indent=2, ensure_ascii=False).split("\n")
    terminal.note([("This belongs into ", ""), (safe(asked.place.file), "name"), (":", "")])
    terminal.answer(_document(asked, wanted, changed=False), *[text.raw(safe_row(row)) for row in rows])
    return 0


def safe_row(row: str) -> str:
    """A line of ours with the blanks that it begins with."""
    return row[: len(row) - len(row.lstrip())] + safe(row, 4000)


def _shown(asked: Asked) -> str:
    return f"'{safe(asked.place.file)}'"


def _document(
    asked: Asked, wanted: Json | None, *, changed: bool, created: bool = False, kept: Path | None = None
) -> Json:
    return {
        "host": asked.host,
        "scope": asked.scope,
        "name": asked.name,
        "file": str(asked.place.file),
        "keys": list(asked.keys),
        "entry": wanted,
        "changed": changed,
        "created": created,
        "backup": None if kept is None else str(kept),
    }


def _said(asked: Asked, command: Sequence[str], found: Found, kept: Path | None, *, portable: bool) -> list[Line]:
    done = "Wrote" if found.text is None else "Changed"
    lines: list[Line] = [
        [(f"{done} ", ""), (safe(asked.place.file), "name"), (f" for {HOSTS[asked.host]}.", "")],
        [("It starts ", ""), (safe(shlex.join(command)), "strong"), (_why(command, portable), "dim")],
        *_kept_lines(kept),
    ]
    if asked.scope == "project" and not portable:
        lines.append([("The file names a path of this machine. If others share it, use --portable.", "dim")])
    return [*lines, [("next: ", "wait"), (asked.place.then, "")]]


def _why(command: Sequence[str], portable: bool) -> str:
    if portable:
        return ", wherever the PATH finds it"
    return "" if command[1] == "mcp" else ", because no 'orchard' was installed beside this Python"


def _kept_lines(kept: Path | None) -> list[Line]:
    return [] if kept is None else [[("What was there is kept in ", ""), (safe(kept), "name")]]


def _warm(toolsets: str | None, read_only: bool) -> None:
    """Write down what the server says first, so that even the first start of a host is answered at once."""
    from orchard.surfaces.mcp.handshake_recorder import recorded  # brings the MCP SDK

    with suppress(OSError, OrchardError):  # the daemon writes it as well
        asyncio.run(recorded(Selection.from_names(toolsets, read_only=read_only)))
