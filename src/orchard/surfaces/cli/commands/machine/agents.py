"""`orchard agents` and `orchard models`; and `orchard agent`: the built-in one alone, without a plan."""

import asyncio
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from msgspec import to_builtins
from msgspec.structs import replace

from orchard.agents.definitions.catalog import Catalog, NoSuchAgent, meaning_of
from orchard.agents.definitions.choice import Choice, by_definition
from orchard.agents.definitions.definition import NOBODY, Definition
from orchard.agents.facts.cache import user_cache
from orchard.agents.facts.describe import AgentInfo, describe
from orchard.agents.facts.known import ABILITIES
from orchard.agents.facts.model_lists import Found
from orchard.agents.facts.models import Models, model_document
from orchard.agents.permissions import HELD
from orchard.agents.protocol import Called, Heard, Noted, Permit, Result, Said, Session, Task, Telling, Used, Wanted
from orchard.agents.protocol import Settings as AgentSettings
from orchard.agents.registry import SEE_AGENTS, Agents
from orchard.app import App
from orchard.config.layers import Config, tools_of
from orchard.config.load import Settings, load_settings
from orchard.config.trust import AGREE_FIRST, not_agreed
from orchard.errors import EXIT_DONE, EXIT_FAILED, EXIT_NOT_FOUND, EXIT_TIMED_OUT, NotFound, OrchardError, UsageError
from orchard.git.repository import find_repository
from orchard.model.agent_rows import ACP, BUILTIN, BuiltinRow
from orchard.model.events.plans import Json
from orchard.model.permissions import ALL, ASK, MODES, Tools, made, narrowed, wrong
from orchard.model.usage import Usage, total
from orchard.operations.commands.goals import not_remembered
from orchard.operations.queries.definitions import definition_item, definition_items, described_here
from orchard.store.redact import Redactor, redact_text
from orchard.surfaces.cli.commands.plans.run import Screen, read_words
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.interruption import until_stopped
from orchard.surfaces.cli.options import (
    app_for_work,
    complete_agents,
    complete_agents_and_definitions,
    not_empty,
)
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, Meaning, Piece, safe, safe_lines, table
from orchard.surfaces.cli.terminal import Terminal, put
from orchard.surfaces.next_steps import in_commands
from orchard.text import did_you_mean, for_screen, laid_open, one_line, quoted

NAMED = re.compile(r"@([A-Za-z0-9][\w.:-]*)\s+(.+)", re.DOTALL)
WIDEST = 13
"""Of a column, so that a table fits into 80."""
NOT_INSTALLED = "not installed"
MORE = "'orchard agents NAME' shows where it is, how to install it and how to log in."
NOTHING_USABLE = "No agent can be used here yet. Install one and log in; any of these will do:"


@verb("agents", examples="orchard agents\norchard agents claude")
@click.argument("name", metavar="[NAME]", required=False, shell_complete=complete_agents_and_definitions)
def agents(terminal: Terminal, name: str | None) -> None:
    """With NAME, it shows one agent, with how to install it and how to log in, or one definition with its text. The
    agent marked with * does work that names no agent. Definitions come from the last commit, from your own folders, and
    from the configuration.
    """
    from orchard.surfaces.cli.render.definitions import definition_list, definition_page

    found = agents_here(terminal)
    described = described_at(terminal, found)
    if name is not None and not is_agent(found, name):
        meant = _definition(described, name)
        document = {**to_builtins(definition_item(described, meant)), "instructions": meant.instructions}
        terminal.answer(document, *definition_page(described, meant))
        return
    if name is not None:
        (info,) = describe(found, [name], user_cache())
        terminal.answer(info.as_json(), *_page(info))
        terminal.note(*[text.warning(remark) for remark in described.remarks(name)])
        return
    infos = describe(found, cache=user_cache())
    default = next((info.name for info in infos if info.default), found.config.agent)
    rows = definition_items(described)
    document = {"default": default, "agents": [info.as_json() for info in infos], "definitions": to_builtins(rows)}
    terminal.answer(document, *_list(infos), *definition_list(rows))


@verb("models", examples="orchard models\norchard models --agent codex\norchard models --refresh")
@click.option(
    "--agent",
    metavar="NAME",
    shell_complete=complete_agents,
    help="Only the models of this agent (default: of all installed agents).",
)
@click.option("--refresh", is_flag=True, help="Ask again instead of using what was found in the last hour.")
def models(terminal: Terminal, agent: str | None, refresh: bool) -> None:
    """Orchard judges the tier (fast, standard, premium) by the model's name; a plan can ask for a tier instead of a
    model.
    """
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
        terminal.note(text.warning(f"{not_agreed(settings.untrusted)} {in_commands(AGREE_FIRST)}"))
    return Agents(settings.config, os.environ)


def _settings(terminal: Terminal) -> Settings:
    try:
        repo = find_repository(terminal.repo)
    except OrchardError:
        return load_settings(None, {}, os.environ)
    return load_settings(repo.main_top or repo.top, {}, os.environ, common_dir=repo.common_dir)


def described_at(terminal: Terminal, found: Agents) -> Catalog:
    """The definitions that hold here; outside of a repository those of the user."""
    try:
        repo = find_repository(terminal.repo)
    except OrchardError:
        return found.catalog(())
    return described_here(repo, found)


def is_agent(found: Agents, name: str) -> bool:
    return name in found.names or (name.startswith(ACP) and name != ACP)


def _definition(described: Catalog, name: str) -> Definition:
    """The definition of a name, also one that is not used: whoever asks is told why."""
    unused = next((one for one in described.all if one.name == name and one.problem), None)
    try:
        meant = described.meaning(name.removeprefix("@")).definition
    except NoSuchAgent as error:
        if unused is not None:
            return unused
        raise NotFound(error.message, error.hint) from None
    if meant is None:
        raise NotFound(f"There is no definition {quoted(name)}.", SEE_AGENTS)
    return meant


def _known(found: Agents, name: str) -> str:
    if is_agent(found, name):
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
        ("may use", HELD[info.permissions]),
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


MOST_TURNS = 1000
FOLDER = "agent"
"""In the user's state: sessions of agents that run alone."""
KEPT_SESSIONS = 200

_EXITS = {"done": EXIT_DONE, "session-lost": EXIT_NOT_FOUND, "timeout": EXIT_TIMED_OUT}
_HINTS = {
    "not-logged-in": "Set it to a key of your model's provider; '[agents.builtin]' in the settings can name another.",
    "max-turns": "Go on with --session, or allow more with --max-turns.",
    "session-lost": "Leave --session out to begin anew.",
}


def tools_option(context: click.Context, parameter: click.Parameter, value: str | None) -> Tools:
    """What `--tools` says, as in a plan file: a word, or names with commas."""
    if value is None:
        return ALL
    given: str | list[str] = value if value in (*MODES, ASK) else [name.strip() for name in value.split(",")]
    if (problem := wrong(given, modes=True)) is not None:
        raise click.BadParameter(problem, context, parameter)
    return made(given)


@verb(
    "agent",
    examples="""
orchard agent "Why does the test in tests/test_login.py fail?"
orchard agent "Add a --version option" --max-turns 20
orchard agent "And now document it" --session 5f0c...
orchard agent "@architect Where should caching go?"   # by a definition, see 'orchard agents'
orchard agent "What does this do?" --tools read-only
orchard agent - < task.md                     # a long task from stdin
orchard agent "List the endpoints" --json     # everything that happens as JSON lines, the result last
""",
)
@click.argument("task", metavar="TASK")
@click.option("--model", metavar="MODEL", callback=not_empty, help="The model, as its provider names it.")
@click.option(
    "--provider",
    type=click.Choice(["anthropic", "openai"]),
    help="The kind of API; 'openai' includes compatible ones.",
)
@click.option("--max-turns", metavar="N", type=click.IntRange(1, MOST_TURNS), help="Call the model at most N times.")
@click.option("--session", metavar="ID", callback=not_empty, help="Continue this session.")
@click.option(
    "--tools",
    metavar="TOOLS",
    callback=tools_option,
    help="Which tools it may use: read-only, edit, all, ask, or names.",
)
def agent(
    terminal: Terminal,
    task: str,
    model: str | None,
    provider: str | None,
    max_turns: int | None,
    session: str | None,
    tools: Tools,
) -> int:
    """It edits the files in place, without a worktree or a commit. The exit code is 0 if the agent finishes, 1 if it
    does not, 3 if there is no such session, 124 if time runs out, and 130 if you interrupt it.
    """
    wanted = read_words(task, "task", 'orchard agent "Add a --version option"')
    app = app_here(terminal)
    config = app.settings.config if app is not None else load_settings(None, {}, os.environ).config
    row = row_for(config.builtin, provider, max_turns)
    config = replace(config, builtin=row)
    wanted, chosen = lone_choice(terminal, config, row, wanted, has_model=model is not None)
    permitted = narrowed(narrowed(tools_of(config, BUILTIN), chosen.tools), tools)
    chosen = replace(chosen, tools=permitted)
    terminal.note(*[text.warning(note) for note in chosen.notes])
    screen = LoneScreen(terminal)
    asked = (model or chosen.model, max_turns, session)
    result = until_stopped(lambda: work(terminal, app, config, chosen, wanted, asked, screen.tell))
    return screen.end(result)


def lone_choice(
    terminal: Terminal, config: Config, row: BuiltinRow, wanted: str, *, has_model: bool
) -> tuple[str, Choice]:
    """What the agent is told, and by which definition it works: `@architect TASK`, as in a plan."""
    from orchard.agents.builtin.agent import BuiltinAgent

    it, found = BuiltinAgent(row), Agents(config, os.environ)
    named = NAMED.fullmatch(wanted.strip())
    if named is None:
        return wanted, Choice(it)
    meant = meaning_of(None if named[1] == NOBODY else named[1], found.names, lambda: described_at(terminal, found))
    if meant.agent not in (None, BUILTIN):
        raise UsageError(
            f"{quoted('@' + named[1])} is work for agent '{meant.agent}', and here the built-in one works alone.",
            f'Give it to a job of a plan: work: "@{named[1]} ..."',
        )
    chosen = by_definition(found, it, meant.definition, has_model=has_model)
    return "\n\n---\n\n".join(part for part in (named[2], chosen.role) if part), chosen


def app_here(terminal: Terminal) -> App | None:
    """The repository that the agent works in; None outside of any."""
    try:
        find_repository(terminal.repo)
    except OrchardError:
        return None
    return app_for_work(terminal)


def row_for(row: BuiltinRow, provider: str | None, max_turns: int | None) -> BuiltinRow:
    """The configured row with what the command line says instead. Server, key and model belong to a provider."""
    if provider is not None and provider != row.provider:
        row = replace(row, base_url=None, api_key_env=None, model=None)
        row = replace(row, provider="openai" if provider == "openai" else "anthropic")
    return row if max_turns is None else replace(row, max_iterations=max_turns)


async def work(
    terminal: Terminal,
    app: App | None,
    config: Config,
    chosen: Choice,
    task: str,
    asked: tuple[str | None, int | None, str | None],
    tell: Callable[[Telling], None],
) -> Result:
    """One turn in the current folder; nothing of it runs any more when this returns."""
    from orchard.agents.builtin.sessions import forget_old
    from orchard.agents.environment import agent_environment
    from orchard.agents.protocol import Watch
    from orchard.agents.registry import Agents
    from orchard.config.user_dirs import make_state_dir, user_dirs
    from orchard.process.launcher import Launcher
    from orchard.surfaces.cli.lone_subtasks import lone_subtasks

    model, max_turns, session = asked
    it = chosen.agent
    servers = Agents(config, os.environ).servers(config.mcp_servers)
    private = make_state_dir(make_state_dir(user_dirs().state) / FOLDER)
    forget_old(private, KEPT_SESSIONS)
    folder = terminal.repo.resolve()
    async with AsyncExitStack() as stack:
        scratch = stack.enter_context(TemporaryDirectory(prefix="orchard-agent-", ignore_cleanup_errors=True))
        # Helpers go by the configuration, whose provider may know nothing of a model of another one.
        is_same = app is not None and app.settings.config.builtin.provider == config.builtin.provider
        helping = lone_subtasks(app, folder, model if is_same else None, chosen.tools, tell)
        helpers = await stack.enter_async_context(helping)
        given = Task(
            instructions=task,
            folder=folder,
            env=agent_environment(os.environ, (*it.variables, *config.pass_env)),
            private=private,
            scratch=Path(scratch),
            log=Path(scratch) / "turn.log",
            launcher=Launcher(),
            settings=AgentSettings(
                model=model, max_turns=max_turns, mcp_servers=(*servers, *helpers), tools=chosen.tools
            ),
            session=session,
            limits=config.limits,
        )
        person = partial(_asked_here, terminal) if terminal.can_ask else None
        return await it.run(given, Watch(tell, not_remembered, asyncio.Event(), person=person))


async def _asked_here(terminal: Terminal, wanted: Wanted) -> Permit:
    """The word of the person at this terminal, to whom the call is shown."""
    given = laid_open(wanted.input)
    # It belongs to the question, so `--quiet` leaves it there.
    put(sys.stderr, "".join(f"{row}\n" for row in safe_lines(given, len(given) * 4)))
    about = f": {one_line(laid_open(wanted.about), 300)}" if wanted.about else ""
    asked = f"May the agent use {one_line(laid_open(wanted.tool), 100)}{about}?"
    return Permit(await asyncio.to_thread(terminal.agreed, asked), "the person at the terminal said no")


class LoneScreen(Screen):
    """Shows what the agent says as well, and how it ended."""

    WIDTHS = (64, 160)

    def __init__(self, terminal: Terminal) -> None:
        from orchard.model.secrets import secrets_in

        super().__init__(terminal, secrets_in(os.environ, None))
        self._words = Redactor(self.secrets)

    def tell(self, telling: Telling) -> None:
        if self.terminal.json and not isinstance(telling, Heard):
            self.terminal.row(self._row(telling))
        elif isinstance(telling, Said):
            self._say(self._words.feed(telling.text.encode(errors="replace")))
        elif isinstance(telling, Called):
            self._say(self._words.close())
        if isinstance(telling, Used) or not self.terminal.json:
            super().tell(telling)

    def end(self, result: Result) -> int:
        used = total(self.used)
        code = _EXITS.get(result.reason, EXIT_FAILED)
        if self.terminal.json:
            document = {
                "type": "result",
                "ok": result.ok,
                "reason": result.reason,
                "message": self._clean(result.message) or None,
                "text": self._clean(result.text),
                "session": result.session,
                "usage": used.as_json(),
            }
            self.terminal.row(document)
            return code
        self._say(self._words.close())
        if self.terminal.quiet and result.ok:
            put(sys.stdout, for_screen(self._clean(result.text)) + "\n")
        if not result.ok:
            self.terminal.fail(OrchardError(self.shown(result.message, 2000), _HINTS.get(result.reason)))
        self.terminal.note(*self._talk(result, used))
        return code

    def _talk(self, result: Result, used: Usage) -> list[Line]:
        from orchard.surfaces.cli.render.usage import brief

        rows: list[Line] = [[(brief(used), "dim")]] if self.used else []
        if result.session is not None and result.reason != "session-lost":
            rows.append([(f'Go on: orchard agent --session {shlex.quote(result.session)} "..."', "dim")])
        return rows

    def _say(self, words: bytes) -> None:
        if words and not self.terminal.quiet:
            put(sys.stdout, for_screen(words.decode(errors="replace")))

    def _row(self, telling: Said | Called | Used | Session | Noted) -> Json:
        if isinstance(telling, Said):
            return {"type": "said", "text": self._clean(telling.text)}
        if isinstance(telling, Called):
            about = self._clean(telling.about)
            return {"type": "called", "tool": telling.tool, "about": about, "failed": telling.failed}
        if isinstance(telling, Used):
            return {"type": "used", "usage": telling.usage.as_json()}
        if isinstance(telling, Session):
            return {"type": "session", "session": telling.id}
        return {"type": "noted", "kind": telling.kind, "message": self._clean(telling.message)}

    def _clean(self, said: str) -> str:
        return redact_text(said, self.secrets)
