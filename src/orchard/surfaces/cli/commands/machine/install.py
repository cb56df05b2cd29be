"""What makes other programs use Orchard: `orchard mcp install`, `mcp uninstall` and `skill install`."""

import asyncio
import os
import shlex
import shutil
import sys
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

import click
from msgspec import Struct

from orchard.errors import NeedsPerson, OrchardError, UsageError
from orchard.git.repository import find_repository
from orchard.model.events.plans import Json
from orchard.surfaces.cli.commands.machine.mcp import CHILDREN
from orchard.surfaces.cli.external.files import DIFF_LINES, UNCHANGED, Change, Found, kept_lines, look, offer
from orchard.surfaces.cli.external.text import BadText, edited, entry_of, holds_nothing_else
from orchard.surfaces.cli.group import family, verb
from orchard.surfaces.cli.options import yes_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.terminal import Terminal, put
from orchard.surfaces.cli.verbs import Verb
from orchard.surfaces.mcp.hosts import HOSTS, Place, Scope, entry, is_ours, place, starts_elsewhere, user_folder
from orchard.surfaces.mcp.selection import Selection


class Asked(Struct, frozen=True):
    host: str
    scope: Scope
    name: str
    place: Place

    @property
    def keys(self) -> tuple[str, str]:
        return (self.place.key, self.name)

    @property
    def file(self) -> str:
        return f"'{safe(self.place.file)}'"

    def again(self, act: str, *more: str) -> str:
        words = ["orchard", "mcp", act, "--host", self.host, "--scope", self.scope]
        return shlex.join([*words, *(() if self.name == "orchard" else ("--name", self.name)), *more])

    def document(self, wanted: Json | None, done: Json = UNCHANGED) -> Json:
        names = {"host": self.host, "scope": self.scope, "name": self.name, "file": str(self.place.file)}
        return {**names, "keys": list(self.keys), "entry": wanted, **done}

    def edited(self, found: Found, wanted: Json | None) -> tuple[Any, str | None]:
        """The entry that is there now, and the file with the one that is wanted; None where nothing is left of it."""
        held, form = found.text or "", self.place.form
        try:
            there = entry_of(held, form, self.keys)
            after = held if there == wanted else edited(held, form, self.keys, wanted)
        except BadText as error:
            hint = f"See what belongs into it, and edit it yourself: {self.again('install', '--print')}"
            raise UsageError(f"{self.file} was left as it is: {safe(str(error))}.", hint) from None
        return there, None if wanted is None and holds_nothing_else(after, form, self.keys) else after


def _server_name(context: click.Context, parameter: click.Parameter, value: str) -> str:
    if not 1 <= len(value) <= 32 or not value.isascii() or not value.replace("-", "").replace("_", "").isalnum():
        raise click.BadParameter("a server's name has letters, digits, '-' and '_', 32 at most.", context, parameter)
    return value


def _host_options(function: Any) -> Any:
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
        click.option("--host", type=click.Choice(list(HOSTS)), required=True, help="The program whose file is meant."),
    ):
        function = option(function)
    return function


@verb(
    "install",
    row=CHILDREN["install"],
    examples="""
orchard mcp install --host claude                   # .mcp.json of this repository
orchard mcp install --host codex --scope user       # for all your repositories
orchard mcp install --host claude-desktop --scope user   # it serves this repository
orchard mcp install --host vscode --toolsets core,jobs --read-only
orchard mcp install --host cursor --print           # only show what would be written, and where
""",
)
@_host_options
@click.option("--toolsets", metavar="A,B", help="The toolsets to offer, or 'all' (default: core).")
@click.option("--read-only", is_flag=True, help="Offer only tools that change nothing.")
@click.option(
    "--portable/--absolute",
    default=None,
    help="Write 'orchard', to be found on the PATH (the default in a repository, if it is there), or this one's path.",
)
@click.option("--replace", is_flag=True, help="Replace another entry of that name.")
@click.option("--print", "only_print", is_flag=True, help="Print what would be written and where; change nothing.")
@yes_option
def install_server(
    terminal: Terminal,
    host: str,
    scope: Scope,
    name: str,
    toolsets: str | None,
    read_only: bool,
    portable: bool | None,
    replace: bool,
    only_print: bool,
    yes: bool,
) -> int:
    """It shows how the host's file changes, then asks. A copy of the old file stays beside it. Without a terminal, pass
    --yes; otherwise it exits with 4. A different entry of the same name is replaced only with --replace; otherwise it
    exits with 4.
    """
    asked = _asked(terminal, host, scope, name)
    words = _words(toolsets, read_only)
    by_path = not (portable if portable is not None else scope == "project" and shutil.which("orchard") is not None)
    command = [*_program(by_path), "mcp", *words, *_meant(terminal, host)]
    wanted = entry(host, scope, command)
    if only_print:
        rows = edited("", asked.place.form, asked.keys, wanted).splitlines()
        terminal.note([("This belongs into ", ""), (safe(asked.place.file), "name"), (":", "")])
        terminal.answer(asked.document(wanted), *[text.raw(_safe_row(row)) for row in rows])
        return 0
    found = look(asked.place.file, asked.place.inside, private=asked.place.private)
    there, after = asked.edited(found, wanted)
    if there == wanted:
        terminal.answer(asked.document(wanted), text.done(f"{asked.file} has it already."))
        return 0
    done = offer(
        terminal,
        Change(asked.place.file, found, after),
        f"Replace the entry '{name}' in {asked.file}?" if there is not None else f"Change {asked.file} like this?",
        yes=yes,
        again=asked.again("install", *words, *_said_so(portable)),
        other=f"{asked.file} has another entry '{name}' already" if there is not None and not replace else "",
    )
    if done is None:
        return 4
    _warm(toolsets, read_only)
    terminal.answer(asked.document(wanted, done), *_said(asked, command, done, portable=not by_path))
    return 0


@verb(
    "uninstall",
    row=CHILDREN["uninstall"],
    examples="orchard mcp uninstall --host claude\norchard mcp uninstall --host codex --scope user --yes",
)
@_host_options
@click.option("--force", is_flag=True, help="Remove an entry of that name even if it does not start Orchard.")
@yes_option
def uninstall_server(terminal: Terminal, host: str, scope: Scope, name: str, force: bool, yes: bool) -> int:
    """It also removes a file in which nothing else is left."""
    asked = _asked(terminal, host, scope, name)
    found = look(asked.place.file, asked.place.inside, private=asked.place.private)
    there, after = asked.edited(found, None)
    if there is None:
        terminal.answer(asked.document(None), text.done(f"{asked.file} has no entry '{name}'."))
        return 0
    if not is_ours(there) and not force:
        hint = asked.again("uninstall", "--force", "--yes")
        raise NeedsPerson(f"The entry '{name}' in {asked.file} does not start Orchard; it was left as it is.", hint)
    change, question = Change(asked.place.file, found, after), f"Take '{name}' out of {asked.file}?"
    done = offer(terminal, change, question, yes=yes, again=asked.again("uninstall"))
    if done is None:
        return 4
    said = f"'{name}' is taken out of {asked.file}."
    if after is None:
        said = f"{asked.file} is removed: nothing else was in it."
        if scope == "project" and found.path.parent != asked.place.inside.resolve():
            with suppress(OSError):
                found.path.parent.rmdir()  # only if nothing else is in it
    terminal.answer(asked.document(None, done), text.done(said), *kept_lines(done))
    return 0


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


def _meant(terminal: Terminal, host: str) -> list[str]:
    """Which repository is served, for a host that would start the server just anywhere."""
    if not starts_elsewhere(host):
        return []
    repo = find_repository(terminal.repo)
    return ["--repo", str(repo.top or repo.common_dir)]


def _said_so(portable: bool | None) -> list[str]:
    return [] if portable is None else ["--portable" if portable else "--absolute"]


def _program(by_path: bool) -> list[str]:
    """How a host starts us: as the PATH finds us, or by the installed script, else by this Python."""
    if not by_path:
        return ["orchard"]
    script = Path(sys.executable).parent / "orchard"
    found = [str(script)] if os.access(script, os.X_OK) else [sys.executable, "-m", "orchard"]
    if not Path(found[0]).is_absolute() or not found[0].isprintable():
        raise UsageError(f"The path of this program cannot be written into a file: {found[0]!r}", "Use --portable.")
    return found


def _safe_row(row: str) -> str:
    """A line of ours with the blanks that it begins with."""
    return row[: len(row) - len(row.lstrip())] + safe(row, 4000)


def _said(asked: Asked, command: list[str], done: Json, *, portable: bool) -> list[Line]:
    why = "" if command[1] == "mcp" else ", because no 'orchard' was installed beside this Python"
    lines: list[Line] = [
        [
            ("Wrote " if done["created"] else "Changed ", ""),
            (safe(asked.place.file), "name"),
            (f" for {HOSTS[asked.host]}.", ""),
        ],
        [
            ("It starts ", ""),
            (safe(shlex.join(command)), "strong"),
            (", wherever the PATH finds it" if portable else why, "dim"),
        ],
        *kept_lines(done),
    ]
    if asked.scope == "project" and not portable:
        lines.append([("The file names a path of this machine. If others share it, use --portable.", "dim")])
    return [*lines, [("next: ", "wait"), (asked.place.then, "")]]


def _warm(toolsets: str | None, read_only: bool) -> None:
    """Write down what the server says first, so that even the first start of a host is answered at once."""
    from orchard.surfaces.mcp.server.sessions import recorded  # brings the MCP SDK

    with suppress(OSError, OrchardError):  # the daemon writes it as well
        asyncio.run(recorded(Selection.from_names(toolsets, read_only=read_only)))


NAME = "orchard"
"""The skill's name, and so that of its folder."""
PAGE = "SKILL.md"
NEW_LINES = 12
"""How much of a page that is new is shown; '--print' shows all of it."""

PROJECT = {"agents": ".agents/skills", "claude": ".claude/skills", "copilot": ".github/skills"}
"""Where each looks for the skills of a project. The first is for every agent that keeps to the common form."""
VARIABLES = {"claude": "CLAUDE_CONFIG_DIR", "copilot": "COPILOT_HOME"}


SKILL_CHILDREN = {"install": Verb("", "machine.install:install_skill", "Put the skill where agents find it.")}


@family(
    "skill",
    SKILL_CHILDREN,
    examples="orchard skill install --host claude\norchard skill install --print",
)
def skill(terminal: Terminal) -> None:
    pass


@verb(
    "install",
    row=SKILL_CHILDREN["install"],
    examples="""
orchard skill install                      # .agents/skills of this repository
orchard skill install --host claude --user # for you, in every repository
orchard skill install --dir ~/my/skills
orchard skill install --print              # only print the page
""",
)
@click.option(
    "--host", type=click.Choice(list(PROJECT)), help="For which program (default: 'agents', the common folder)."
)
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Write to this folder of skills.")
@click.option("--user", is_flag=True, help="For you everywhere, not for this repository.")
@click.option("--replace", is_flag=True, help="Replace another page that is there.")
@click.option("--print", "only_print", is_flag=True, help="Print the page; change nothing.")
@yes_option
def install_skill(
    terminal: Terminal, host: str | None, folder: Path | None, user: bool, replace: bool, only_print: bool, yes: bool
) -> int:
    """It shows the page as a change, then asks. Without a terminal, pass --yes; otherwise it exits with 4."""
    page = skill_page()
    if only_print:
        if terminal.json:
            terminal.data({"name": NAME, "text": page})
        else:
            put(sys.stdout, page)
        return 0
    skills, inside = _skills(terminal, host, folder, user)
    file = skills / NAME / PAGE
    found, shown = look(file, inside, private=False), f"'{safe(file)}'"
    if found.text == page:
        terminal.answer({"file": str(file), **UNCHANGED}, text.done(f"{shown} is there already."))
        return 0
    words = [*(["--host", host] if host else []), *(["--user"] if user else [])]
    done = offer(
        terminal,
        Change(file, found, page),
        f"Write {shown}?" if found.text is None else f"Replace {shown}?",
        yes=yes,
        again=shlex.join(["orchard", "skill", "install", *words, *(["--dir", str(folder)] if folder else [])]),
        other="" if found.text is None or replace else f"{shown} holds another page",
        most=NEW_LINES if found.text is None else DIFF_LINES,
    )
    if done is None:
        return 4
    terminal.answer({"file": str(file), **done}, [("Wrote ", ""), (safe(file), "name")], *kept_lines(done))
    return 0


def skill_page() -> str:
    return files("orchard.surfaces.cli").joinpath("skill.md").read_text("utf-8")


def _skills(terminal: Terminal, host: str | None, folder: Path | None, user: bool) -> tuple[Path, Path]:
    """The folder of skills, and the one that it must not lead out of."""
    if folder is not None:
        if host is not None or user:
            raise UsageError("'--dir' names the folder: it stands alone.", "Leave out --host and --user.")
        place = folder.expanduser().absolute()
        return place, place
    wanted = host or "agents"
    if user:
        base, inside = user_folder(VARIABLES.get(wanted, ""), f".{wanted}", os.environ)
        return base / "skills", inside
    top = find_repository(terminal.repo).top
    if top is None:
        raise UsageError("A bare repository has no folder for skills.", "Use --user, or --dir.")
    return top / PROJECT[wanted], top
