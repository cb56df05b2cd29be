"""`orchard agent`: the built-in agent alone, in the current folder, without a plan."""

import asyncio
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import click
from msgspec.structs import replace

from orchard.agents.protocol import Called, Heard, Noted, Result, Said, Session, Task, Telling, Used
from orchard.agents.protocol import Settings as AgentSettings
from orchard.config.layers import Config
from orchard.errors import EXIT_DONE, EXIT_FAILED, EXIT_NOT_FOUND, EXIT_TIMED_OUT, OrchardError, UsageError
from orchard.model import limits
from orchard.model.agent_rows import BuiltinRow
from orchard.model.events.plans import Json
from orchard.model.usage import Usage, total
from orchard.store.redact import Redactor, redact_text
from orchard.surfaces.cli.commands.plan import until_stopped
from orchard.surfaces.cli.group import verb
from orchard.surfaces.cli.options import app_for_work, not_empty
from orchard.surfaces.cli.render import text
from orchard.surfaces.cli.render.lines import Line, safe
from orchard.surfaces.cli.terminal import Terminal, put, read_input
from orchard.text import for_screen

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


@verb(
    "agent",
    examples="""
orchard agent "Why does the test in tests/test_login.py fail?"
orchard agent "Add a --version option" --max-turns 20
orchard agent "And now document it" --session 5f0c...
orchard agent - < task.md                     # a long task from stdin
orchard agent "List the endpoints" --json     # everything that happens as JSON lines, the result last
""",
)
@click.argument("task", metavar="TASK")
@click.option("--model", metavar="MODEL", callback=not_empty, help="The model, by its provider's name for it.")
@click.option("--provider", type=click.Choice(["anthropic", "openai"]), help="Whose API: 'openai' is any compatible.")
@click.option("--max-turns", metavar="N", type=click.IntRange(1, MOST_TURNS), help="Calls of the model at most.")
@click.option("--session", metavar="ID", callback=not_empty, help="Go on with this conversation.")
def agent(
    terminal: Terminal, task: str, model: str | None, provider: str | None, max_turns: int | None, session: str | None
) -> int:
    """It edits the files that are there, without a worktree and without a commit. The exit code is 0 when it is done, 1
    when it is not, 3 when the session is not there, 124 when its time is over and 130 when it was interrupted.
    """
    wanted = read_task(task)
    config = config_here(terminal)
    row = row_for(config.builtin, provider, max_turns)
    screen = Screen(terminal)
    result = until_stopped(lambda: work(terminal, config, row, wanted, (model, max_turns, session), screen.tell))
    return screen.end(result)


def read_task(task: str) -> str:
    """The task, which may come from stdin."""
    if task == "-":
        task = read_input("-", limits.STRING_BYTES).decode(errors="replace")
    if not task.strip():
        raise UsageError("The task is empty.", 'Say what is wanted: orchard agent "Add a --version option"')
    if len(task.encode(errors="replace")) > limits.STRING_BYTES:
        raise UsageError(f"The task is longer than {limits.STRING_BYTES // 1024} KiB.", "Put the details into a file.")
    return task


def config_here(terminal: Terminal) -> Config:
    """The settings that hold here, in a repository or outside of any."""
    from orchard.config.load import load_settings
    from orchard.git.repository import find_repository

    try:
        find_repository(terminal.repo)
    except OrchardError:
        return load_settings(None, {}, os.environ).config
    return app_for_work(terminal).settings.config


def row_for(row: BuiltinRow, provider: str | None, max_turns: int | None) -> BuiltinRow:
    """The configured row with what the command line says instead. Server, key and model belong to a provider."""
    if provider is not None and provider != row.provider:
        row = replace(row, base_url=None, api_key_env=None, model=None)
        row = replace(row, provider="openai" if provider == "openai" else "anthropic")
    return row if max_turns is None else replace(row, max_iterations=max_turns)


async def work(
    terminal: Terminal,
    config: Config,
    row: BuiltinRow,
    task: str,
    asked: tuple[str | None, int | None, str | None],
    tell: Callable[[Telling], None],
) -> Result:
    """One turn in the current folder; nothing of it runs any more when this returns."""
    from orchard.agents.builtin.agent import BuiltinAgent
    from orchard.agents.builtin.sessions import forget_old
    from orchard.agents.environment import agent_environment
    from orchard.agents.protocol import Watch
    from orchard.agents.registry import Agents
    from orchard.config.user_dirs import make_state_dir, user_dirs
    from orchard.process.identity import Identity
    from orchard.process.launcher import Launcher

    async def started(identity: Identity) -> None:
        """Nobody has to remember the programs: they end before the turn does."""

    model, max_turns, session = asked
    it = BuiltinAgent(row)
    servers = Agents(config, os.environ).servers(config.mcp_servers)
    private = make_state_dir(make_state_dir(user_dirs().state) / FOLDER)
    forget_old(private, KEPT_SESSIONS)
    with TemporaryDirectory(prefix="orchard-agent-", ignore_cleanup_errors=True) as scratch:
        given = Task(
            instructions=task,
            folder=terminal.repo.resolve(),
            env=agent_environment(os.environ, (*it.variables, *config.pass_env)),
            private=private,
            scratch=Path(scratch),
            log=Path(scratch) / "turn.log",
            launcher=Launcher(),
            settings=AgentSettings(model=model, max_turns=max_turns, mcp_servers=servers),
            session=session,
            limits=config.limits,
        )
        return await it.run(given, Watch(tell, started, asyncio.Event()))


class Screen:
    """Shows what the agent says and does while it works, and how it ended."""

    def __init__(self, terminal: Terminal) -> None:
        from orchard.model.secrets import secrets_in

        self._terminal = terminal
        self._secrets = secrets_in(os.environ, None)
        self._words = Redactor(self._secrets)
        self._used: list[Usage] = []

    def tell(self, telling: Telling) -> None:
        """One thing that happened."""
        if isinstance(telling, Used):
            self._used.append(telling.usage)
        if isinstance(telling, Heard):
            return
        if self._terminal.json:
            self._terminal.row(self._row(telling))
        elif isinstance(telling, Said):
            self._say(self._words.feed(telling.text.encode(errors="replace")))
        elif isinstance(telling, Called):
            self._say(self._words.close())
            failed = " failed" if telling.failed else ""
            self._terminal.note([(f"  {safe(telling.tool, 64)}{failed}  {self._shown(telling.about, 160)}", "dim")])
        elif isinstance(telling, Noted):
            self._terminal.note(text.warning(self._shown(telling.message, 2000)))

    def end(self, result: Result) -> int:
        """Say how it ended; the exit code."""
        used = total(self._used)
        code = _EXITS.get(result.reason, EXIT_FAILED)
        if self._terminal.json:
            document = {
                "type": "result",
                "ok": result.ok,
                "reason": result.reason,
                "message": self._clean(result.message) or None,
                "text": self._clean(result.text),
                "session": result.session,
                "usage": used.as_json(),
            }
            self._terminal.row(document)
            return code
        self._say(self._words.close())
        if self._terminal.quiet and result.ok:
            put(sys.stdout, for_screen(self._clean(result.text)) + "\n")
        if not result.ok:
            self._terminal.fail(OrchardError(self._shown(result.message, 2000), _HINTS.get(result.reason)))
        self._terminal.note(*self._talk(result, used))
        return code

    def _talk(self, result: Result, used: Usage) -> list[Line]:
        from orchard.surfaces.cli.render.usage import brief

        rows: list[Line] = [[(brief(used), "dim")]] if self._used else []
        if result.session is not None and result.reason != "session-lost":
            rows.append([(f'Go on: orchard agent --session {shlex.quote(result.session)} "..."', "dim")])
        return rows

    def _say(self, words: bytes) -> None:
        if words and not self._terminal.quiet:
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
        return redact_text(said, self._secrets)

    def _shown(self, said: str, most: int) -> str:
        return safe(self._clean(said[:10_000]), most)
