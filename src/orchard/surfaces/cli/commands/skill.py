"""`orchard skill`: a page that teaches an agent to use this command line, put where agents look for such pages."""

import os
import shlex
import sys
from importlib.resources import files
from pathlib import Path

import click

from orchard.errors import UsageError
from orchard.git.repository import find_repository
from orchard.surfaces.cli.external_files import DIFF_LINES, UNCHANGED, Change, kept_lines, look, offer
from orchard.surfaces.cli.group import family, verb
from orchard.surfaces.cli.options import yes_option
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import safe
from orchard.surfaces.cli.terminal import Terminal, put
from orchard.surfaces.cli.verbs import Verb
from orchard.surfaces.mcp.hosts import user_folder

NAME = "orchard"
"""The skill's name, and so that of its folder."""
PAGE = "SKILL.md"
NEW_LINES = 12
"""How much of a page that is new is shown; '--print' shows all of it."""

PROJECT = {"agents": ".agents/skills", "claude": ".claude/skills", "copilot": ".github/skills"}
"""Where each looks for the skills of a project. The first is for every agent that keeps to the common form."""
VARIABLES = {"claude": "CLAUDE_CONFIG_DIR", "copilot": "COPILOT_HOME"}


CHILDREN = {"install": Verb("", "skill:install", "Put the skill where agents find it.")}


@family(
    "skill",
    CHILDREN,
    examples="orchard skill install --host claude\norchard skill install --print",
)
def skill(terminal: Terminal) -> None:
    pass


@verb(
    "install",
    row=CHILDREN["install"],
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
    """Shows the page as a change and asks; where nobody can be asked, --yes is needed, and the exit code is 4
    without it.
    """
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
