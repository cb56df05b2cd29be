"""`orchard agents` and `orchard models`: what can be used here, and what is missing where it cannot."""

import os
from collections.abc import Sequence

import click

from orchard.agents.cache import user_cache
from orchard.agents.describe import AgentInfo, describe
from orchard.agents.known import ABILITIES
from orchard.agents.model_lists import Found
from orchard.agents.models import Models, model_document
from orchard.agents.registry import SEE_AGENTS, Agents
from orchard.config.load import Settings, load_settings
from orchard.errors import NotFound, OrchardError
from orchard.git.repository import find_repository
from orchard.model.agent_rows import ACP
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import complete_agents
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, Meaning, Piece, safe, table
from orchard.surfaces.cli.terminal import Terminal
from orchard.surfaces.next_steps import in_commands
from orchard.text import did_you_mean, quoted

WIDEST = 13
"""Of a column, so that a table fits into 80."""
NOT_INSTALLED = "not installed"
MORE = "'orchard agents NAME' tells more: where it is, how to install it, how to log in."
NOTHING_USABLE = "No agent can be used here yet. Install one and log in; any of these will do:"


@verb("agents", examples="orchard agents\norchard agents claude")
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_agents)
def agents(terminal: Terminal, name: str | None) -> None:
    """NAME shows one of them, with how to install it and how to log in. What is marked with * does the work that names
    no agent.
    """
    found = agents_here(terminal)
    if name is not None:
        (info,) = describe(found, [_known(found, name)], user_cache())
        terminal.answer(info.as_json(), *_page(info))
        return
    infos = describe(found, cache=user_cache())
    default = next((info.name for info in infos if info.default), found.config.agent)
    terminal.answer({"default": default, "agents": [info.as_json() for info in infos]}, *_list(infos))


@verb("models", examples="orchard models\norchard models --agent codex\norchard models --refresh")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agents,
    help="Only the models of this agent; else of all that are installed.",
)
@click.option("--refresh", is_flag=True, help="Ask again, and do not use what was found in the last hour.")
def models(terminal: Terminal, agent: str | None, refresh: bool) -> None:
    """The tier (fast, standard, premium) is judged by the model's name; a plan can ask for it instead of a model."""
    found = agents_here(terminal)
    names = [_known(found, agent)] if agent else [name for name in found.names if found.missing(name) is None]
    told = Models(found, user_cache()).all(names, refresh=refresh)
    terminal.answer(model_document(told), *_models(told))
    for name, one in told.items():
        if one.problem:
            terminal.note(_note(name, one))
    if not names:
        terminal.note(text.done(in_commands(SEE_AGENTS)))


def agents_here(terminal: Terminal) -> Agents:
    """The agents as the settings that hold here name them; outside of a repository those of the user."""
    settings = _settings(terminal)
    terminal.note(*[text.warning(warning) for warning in settings.warnings])
    if settings.untrusted:
        terminal.note(text.warning(text.UNTRUSTED.format(keys=", ".join(settings.untrusted))))
    return Agents(settings.config, os.environ)


def _settings(terminal: Terminal) -> Settings:
    try:
        repo = find_repository(terminal.repo)
    except OrchardError:
        return load_settings(None, {}, os.environ)
    return load_settings(repo.main_top or repo.top, {}, os.environ, common_dir=repo.common_dir)


def _known(found: Agents, name: str) -> str:
    if name in found.names or (name.startswith(ACP) and name != ACP):
        return name
    raise NotFound(f"There is no agent {quoted(name)}{did_you_mean(name, found.names) or '.'}", SEE_AGENTS)


# ------------------------------------------------------------------------------------------ drawing


def _list(infos: Sequence[AgentInfo]) -> list[Line]:
    heads: list[Piece] = [(word, "dim") for word in ("agent", "version", "login", "can")]
    lines = table([heads, *[_row(info) for info in infos]], WIDEST)
    if any(info.installed and info.logged_in != "no" for info in infos):
        return [*lines, [], [(MORE, "dim")]]
    lines += [[], [(NOTHING_USABLE, "wait")]]
    for info in infos:
        way = info.login if info.installed else info.install
        if way:
            lines.append([(f"  {safe(info.name):<11}", "name"), (safe(way), "")])
    return lines


def _row(info: AgentInfo) -> list[Piece]:
    name: Piece = (f"{safe(info.name)} *" if info.default else safe(info.name), "name")
    if not info.installed:
        return [name, (NOT_INSTALLED, "dim"), ("", ""), ("", "")]
    meaning: dict[str, Meaning] = {"yes": "good", "no": "bad", "unknown": "wait"}
    can = " ".join(one.removeprefix("max_") for one in info.abilities)
    return [name, (safe(info.version or "-"), ""), (info.logged_in, meaning[info.logged_in]), (can, "dim")]


def _page(info: AgentInfo) -> list[Line]:
    rows: list[tuple[str, str]] = [
        ("vendor", info.vendor),
        ("installed", "yes" if info.installed else "no"),
        ("version", info.version or ""),
        ("program", info.program or ""),
        ("logged in", f"{info.logged_in} ({info.how_known})"),
        ("default", "yes" if info.default else "no"),
        ("can", ", ".join(info.abilities)),
        ("cannot", ", ".join(one for one in ABILITIES if info.abilities and one not in info.abilities)),
        ("to install", "" if info.installed else info.install),
        ("to log in", "" if info.logged_in == "yes" else info.login),
    ]
    lines: list[Line] = [[(safe(info.name), "name")]]
    for title, value in rows:
        if value:
            lines.append([(f"  {title:<11}", "dim"), (safe(value), "")])
    return lines


def _models(told: dict[str, Found]) -> list[Line]:
    rows: list[list[Piece]] = [
        [(safe(name), "name"), (model.tier, ""), (safe(model.vendor or "-"), "dim"), (safe(model.name), "strong")]
        for name, found in told.items()
        for model in found.models
    ]
    heads: list[Piece] = [(word, "dim") for word in ("agent", "tier", "vendor", "model")]
    return table([heads, *rows], WIDEST) if rows else []


def _note(name: str, found: Found) -> Line:
    if found.models:
        return [(f"{safe(name)}: ", "dim"), (safe(found.problem), "dim")]
    return [(f"{safe(name)}: its models are not known: {safe(found.problem)}", "wait")]
