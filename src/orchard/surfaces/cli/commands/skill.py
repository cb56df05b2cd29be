"""`orchard skill`: a page that teaches an agent to use this command line, put where agents look for such pages."""

import os
import shlex
import sys
from importlib.resources import files
from pathlib import Path

import click

from orchard.errors import NeedsPerson, UsageError
from orchard.git.repository import find_repository
from orchard.model.events.plans import Json
from orchard.surfaces.cli.external_files import DIFF_LINES, Change, agreed, carry_out, diff_lines, look
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import yes_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.subcommands import Child, family
from orchard.surfaces.cli.terminal import Terminal, put
from orchard.surfaces.mcp.hosts import folder_of

NAME = "orchard"
"""The skill's name, and so that of its folder."""
PAGE = "SKILL.md"
NEW_LINES = 12
"""How much of a page that is new is shown; '--print' shows all of it."""

PROJECT = {"agents": ".agents/skills", "claude": ".claude/skills", "copilot": ".github/skills"}
"""Where each looks for the skills of a project. The first is for every agent that keeps to the common form."""


@family(
    "skill",
    {"install": Child("skill:install", "Put the skill where agents find it.")},
    examples="orchard skill install --host claude\norchard skill install --print",
)
def skill(terminal: Terminal) -> None:
    """Teach an agent that prefers the command line how to use Orchard."""


@verb(
    "install",
    examples="""
orchard skill install                      # .agents/skills of this repository
orchard skill install --host claude --user # for you, in every repository
orchard skill install --dir ~/my/skills
orchard skill install --print              # only print the page
""",
)
@click.option("--host", type=click.Choice(list(PROJECT)), help="For which program; else 'agents', the common folder.")
@click.option("--dir", "folder", type=click.Path(path_type=Path), help="Another folder of skills.")
@click.option("--user", is_flag=True, help="For you everywhere, not for this repository.")
@click.option("--replace", is_flag=True, help="Replace another page that is there.")
@click.option("--print", "only_print", is_flag=True, help="Print the page; change nothing.")
@yes_option
def install(
    terminal: Terminal, host: str | None, folder: Path | None, user: bool, replace: bool, only_print: bool, yes: bool
) -> int:
    """Put the skill where agents find it.

    Shows the page as a change and asks; where nobody can be asked, --yes is needed, and the exit code is 4 without it.
    """
    if only_print:
        return _print(terminal)
    place, inside = _place(terminal, host, folder, user)
    found, page = look(place, inside, private=False), skill_page()
    document: Json = {"file": str(place), "changed": False, "created": False, "backup": None}
    if found.text == page:
        terminal.answer(document, text.done(f"'{safe(place)}' is there already."))
        return 0
    change = Change(place, found, page)
    terminal.note(*diff_lines(change, NEW_LINES if found.text is None else DIFF_LINES))
    if found.text is not None and not replace and (yes or not terminal.can_ask):
        raise NeedsPerson(
            f"'{safe(place)}' holds another page; it was left as it is.", _again(host, folder, user, "--replace")
        )
    question = f"Write '{safe(place)}'?" if found.text is None else f"Replace '{safe(place)}'?"
    if not agreed(terminal, change, question, yes=yes, command=_again(host, folder, user)):
        return 4
    kept = carry_out(change)
    document |= {"changed": True, "created": found.text is None, "backup": None if kept is None else str(kept)}
    lines: list[Line] = [[("Wrote ", ""), (safe(place), "name")]]
    if kept is not None:
        lines.append([("What was there is kept in ", ""), (safe(kept), "name")])
    terminal.answer(document, *lines)
    return 0


def skill_page() -> str:
    """The page itself."""
    return files("orchard.surfaces.cli").joinpath("skill.md").read_text("utf-8")


def _print(terminal: Terminal) -> int:
    if terminal.json:
        terminal.data({"name": NAME, "text": skill_page()})
    else:
        put(sys.stdout, skill_page())
    return 0


def _place(terminal: Terminal, host: str | None, folder: Path | None, user: bool) -> tuple[Path, Path]:
    """The page's file, and the folder that it must not lead out of."""
    if folder is not None:
        if host is not None or user:
            raise UsageError("'--dir' names the folder: it stands alone.", "Leave out --host and --user.")
        place = folder.expanduser().absolute()
        return place / NAME / PAGE, place
    wanted = host or "agents"
    if user:
        home = folder_of(os.environ, "HOME", None)
        variables = {"claude": "CLAUDE_CONFIG_DIR", "copilot": "COPILOT_HOME"}
        base = folder_of(os.environ, variables.get(wanted, ""), home / f".{wanted}")
        return base / "skills" / NAME / PAGE, home if base.is_relative_to(home) else base
    top = find_repository(terminal.repo).top
    if top is None:
        raise UsageError("A bare repository has no folder for skills.", "Use --user, or --dir.")
    return top / PROJECT[wanted] / NAME / PAGE, top


def _again(host: str | None, folder: Path | None, user: bool, *more: str) -> str:
    """The command that does it without asking."""
    words = ["orchard", "skill", "install", *(["--host", host] if host else []), *(["--user"] if user else [])]
    return shlex.join([*words, *(["--dir", str(folder)] if folder else []), *more, "--yes"])
