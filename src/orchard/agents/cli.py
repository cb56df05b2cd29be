"""Agents that are programs of others: started once a turn, told their task, and listened to line by line.

A backend is a small module: it says how its program is started for a task (`prepare`), and turns what the program
prints into our vocabulary (`Reader`). Everything else is the same for all of them, and is here: the pipes, lines
that are no JSON, limits, the family of processes, and the judgement of an end that nobody announced.
"""

import asyncio
import json
import math
import re
from abc import abstractmethod
from collections.abc import Mapping
from functools import cache, partial
from importlib import import_module
from typing import Any, Protocol, runtime_checkable

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.agents.endpoints import Ways, ways_of
from orchard.agents.environment import find_program, first_word
from orchard.agents.facts.known import Known
from orchard.agents.facts.model_lists import Asking, Found
from orchard.agents.permissions import Holds, unheld
from orchard.agents.protocol import (
    Called,
    Heard,
    McpServer,
    Noted,
    Reason,
    Result,
    Said,
    Settings,
    Task,
    Tell,
    Telling,
    Used,
    Watch,
)
from orchard.errors import OrchardError
from orchard.model.agent_rows import BACKENDS, AgentRow
from orchard.model.permissions import narrowed
from orchard.process.background import to_its_end
from orchard.process.pipes import Enough as Enough
from orchard.process.pipes import Pipes
from orchard.process.program import Ended, run_program

Json = dict[str, Any]

LONGEST_PROMPT_ARGUMENT = 16 * 1024
"""Bytes of instructions that may be an argument; what is longer goes by standard input or by a file."""
STRAY_LINES = 200
"""Lines that are no message are shown to people, so many of them."""
LONGEST_STRAY = 4096
"""Characters of such a line that are kept."""


class Command(Struct, frozen=True):
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """On top of the task's own."""
    stdin: bytes = b""


class Reader(Protocol):
    def feed(self, message: Json) -> None:
        """Take in one message and tell what it means; `Enough` where the end is known though the program goes on."""
        ...

    def result(self, ended: Ended, stray: str) -> Result:
        """How the turn ended, now that the program has; `stray` is what it printed beside its messages."""
        ...


@runtime_checkable
class StoppedReader(Protocol):
    """Can still say something about a turn that was stopped, when its program is gone: what it used."""

    def stopped(self) -> None: ...


@runtime_checkable
class TextReader(Protocol):
    """Hears a program that speaks to people and not in messages."""

    def hear(self, line: str) -> None: ...

    def result(self, ended: Ended, stray: str) -> Result: ...


class Backend(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def program(self) -> str:
        """What is looked for on the PATH; empty: the row's `command` is a whole command line, and begins with it."""
        ...

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables of the user's that it may see: its keys, its own settings."""
        ...

    @property
    def holds(self) -> Holds:
        """How far it can be held to what it may use."""
        ...

    def prepare(self, program: str, row: AgentRow, task: Task, tell: Tell) -> Command:
        """Write what the program needs into the task's private folder, and say how to start it.

        A setting that it cannot honour is told: `Noted("setting", ...)`. A task that cannot be given to the program
        at all is an `OrchardError`.
        """
        ...

    def reader(self, task: Task, tell: Tell) -> Reader | TextReader: ...


class KnownBackend(Backend, Protocol):
    """One that has a name of its own: a line in `agent_rows.BACKENDS`."""

    known: Known

    @property
    def name(self) -> str:
        return self.known.name

    @property
    def program(self) -> str:
        return self.known.program

    @property
    def variables(self) -> tuple[str, ...]:
        return self.known.seen

    @property
    def holds(self) -> Holds:
        return self.known.holds

    @abstractmethod
    def models(self, asking: Asking) -> Found: ...


@cache
def backend(name: str) -> KnownBackend:
    """The backend of a program that is known; imported when it is used."""
    found: KnownBackend = import_module(BACKENDS[name]).BACKEND
    return found


class CliAgent:
    is_within = False

    def __init__(self, backend: Backend, row: AgentRow | None = None) -> None:
        self.backend, self.row = backend, row or AgentRow()

    @property
    def name(self) -> str:
        return self.backend.name

    @property
    def variables(self) -> tuple[str, ...]:
        return (*self.backend.variables, *self.row.pass_env)

    @property
    def holds(self) -> Holds:
        return self.backend.holds

    @property
    def takes_servers(self) -> bool:
        """Whether it can be told of MCP servers; one of the user's own by `{mcp_config}` in its command."""
        return bool(self.backend.program) or "{mcp_config}" in (self.row.command or "")

    def ways(self, env: Mapping[str, str]) -> Ways:
        known = getattr(self.backend, "known", None)
        return ways_of(known, self.row, env, self._program(env))

    def _program(self, env: Mapping[str, str]) -> str | None:
        name = self._command_name
        return find_program(name, env.get("PATH", "")) if name else None

    @property
    def _command_name(self) -> str:
        command_line = self.row.command or self.backend.program
        return command_line if self.backend.program else first_word(command_line)

    def _permitted(self, task: Task, tell: Tell) -> Task:
        """The task with what its agent may use by its own row as well; what of it has no effect is told."""
        settings = replace(task.settings, tools=narrowed(self.row.permissions, task.settings.tools))
        for sentence in unheld(self.name, self.backend.holds, settings.tools):
            tell(Noted("setting", sentence))
        return replace(task, settings=replace(settings, mcp_servers=served(settings, tell)))

    async def _prepared(self, program: str, row: AgentRow, task: Task, tell: Tell) -> Command:
        """How to start it. The files of a repository's that decide it are read in a thread: they can be long."""
        noted: list[Telling] = []
        prepare = partial(self.backend.prepare, program, row, task, noted.append)
        try:
            return await to_its_end(asyncio.get_running_loop().run_in_executor(None, prepare))
        finally:
            for telling in noted:  # the listeners live in the loop
                tell(telling)

    async def run(self, task: Task, watch: Watch) -> Result:
        program, name = self._program(task.env), self._command_name
        if program is None:
            return Result("spawn-failed", f"Agent '{self.name}' cannot be started: there is no program '{name}'.")
        row = replace(self.row, env={**self.row.env, **task.replaced})
        if task.settings.model is None and self.row.model is not None:
            task = replace(task, settings=replace(task.settings, model=self.row.model))
        task = self._permitted(task, watch.tell)
        try:
            command = await self._prepared(program, row, task, watch.tell)
            reader = self.backend.reader(task, _answering(watch.tell))
        except (OrchardError, OSError) as error:
            why = error if isinstance(error, OrchardError) else OrchardError(f"{error.strerror or error}.")
            return Result("spawn-failed", f"Agent '{self.name}' cannot be started: {why.message}", hint=why.hint)
        stray: list[str] = []

        async def converse(pipes: Pipes) -> None:
            await pipes.write(command.stdin)
            pipes.close_input()
            async for line in pipes.lines():
                watch.alive()
                _hear(line, reader, stray, watch.tell)

        launch = task.launcher.launch(
            argv=command.argv,
            folder=task.folder,
            env={**task.env, "TMPDIR": str(task.scratch), **row.env, **command.env},
            log=task.log,
            limits=task.limits,
            pipes=True,
            farewell=math.inf,  # that it says no more does not mean that it is done
        )
        try:
            ended = await run_program(launch, watch.on_start, watch.hurry, converse)
        except asyncio.CancelledError:
            if isinstance(reader, StoppedReader):
                reader.stopped()
            raise
        return judged(reader.result(ended, "\n".join(stray)), ended)


def served(settings: Settings, tell: Tell) -> tuple[McpServer, ...]:
    """The servers that an agent is told of: those of which it may use anything. Ours is among them unless denied."""
    kept = []
    for server in settings.mcp_servers:
        if server.offered:
            permitted = settings.tools.permits(f"mcp__{server.name}__report_progress", "own")
        else:
            permitted = settings.tools.permits_server(server.name)
            if not permitted:
                tell(Noted("mcp", f"MCP server '{server.name}' is left out: none of its tools may be used."))
        if permitted:
            kept.append(server)
    return tuple(kept)


def _answering(tell: Tell) -> Tell:
    """The same, and before the first word, call or count of the model: the program has taken in what it was told.

    A program has no other sign for that. Where it prints the id of a session, the prompt may not be in it yet.
    """
    heard = False

    def told(telling: Telling) -> None:
        nonlocal heard
        if not heard and isinstance(telling, Said | Called | Used):
            heard = True
            tell(Heard())
        tell(telling)

    return told


def _hear(line: bytes, reader: Reader | TextReader, stray: list[str], tell: Tell) -> None:
    if isinstance(reader, TextReader):
        reader.hear(line.decode(errors="replace"))
        return
    try:
        message = json.loads(line)
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, dict):
        reader.feed(message)
    elif line.strip() and len(stray) < STRAY_LINES:
        text = line[: 4 * LONGEST_STRAY].decode(errors="replace")[:LONGEST_STRAY]
        stray.append(text)
        tell(Said(text + "\n"))


def judged(result: Result, ended: Ended, *, dismissed: bool = False) -> Result:
    """The result with what the process itself tells: a program that was stopped is not done, whatever it said.

    `dismissed`: we have ended it ourselves when its turn was over.
    """
    result = replace(honest(result), exit_code=ended.exit_code, leftovers=ended.leftovers)
    stopped = ended.reason in ("timeout", "idle", "output-limit", "spawn-failed")
    if stopped or (result.ok and ended.reason == "signal" and not dismissed):
        return replace(result, reason=ended.reason, message=ended.message, retry_after=None)
    return result


def honest(result: Result) -> Result:
    """The result; one that claims success, and whose last words are an error of the model's owner, has failed."""
    if not result.ok or not _API_ERROR.match(result.text):
        return result
    words = " ".join(result.text.split())[:400].strip("[]")
    return replace(result, reason=reason_of(words), message=f"Its last words are an error: {words}")


# ----------------------------------------------------------------------------- what many of them share

_API_ERROR = re.compile(r"\s*\[?(API|Model API|LLM API) Error(:|\s+\d{3}\b|\s*\()", re.I)

_STATUS: tuple[tuple[str, Reason], ...] = (
    (r"\b429\b|rate.?limit|too many requests|quota", "rate-limit"),
    (r"\b(529|503)\b|overloaded|capacity|unavailable", "overloaded"),
    (r"\b(401|403)\b|unauthori[sz]ed|authenticat|invalid.{0,20}key|not logged in|log ?in\b", "not-logged-in"),
    (r"\b5\d\d\b|internal server error|bad gateway", "overloaded"),
    (
        r"ECONN|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|network|connection (error|refused|reset)|socket hang up|fetch failed",
        "network",
    ),
)
"""What words mean; compiled when an agent has failed."""


def reason_of(message: str, status: int | None = None) -> Reason:
    """What an error of the model's owner means, by its HTTP status where there is one, else by its words."""
    if status is not None:
        if status == 429:
            return "rate-limit"
        if status in (401, 403):
            return "not-logged-in"
        if status == 408 or status >= 500:
            return "overloaded"
        return "failed"
    return next((reason for pattern, reason in _STATUS if re.search(pattern, message, re.I)), "failed")


def options(agent: str, task: Task, tell: Tell, flags: Mapping[str, str | None]) -> list[str]:
    """The arguments for what is asked of a program, by the flag it has for each setting (`--flag`, or `--flag=`).

    A setting without a flag has no effect, which is told; one whose flag is None is the backend's own affair. What it
    may reach is held by the wall, where there is one.
    """
    settings = task.settings
    found: list[str] = []
    for name in ("model", "effort", "max_turns", "allowed_folders", "allowed_urls"):
        given = getattr(settings, name)
        values = [str(value) for value in (given if isinstance(given, tuple) else (given,)) if value is not None]
        flag = flags.get(name, "")
        if values and flag == "" and task.walled and name in ("allowed_folders", "allowed_urls"):
            continue
        if values and flag == "":
            no_effect(tell, agent, name, ", ".join(values))
        elif flag is not None:
            for value in values:
                found += [flag + value] if flag.endswith("=") else [flag, value]
    return found


def no_effect(tell: Tell, name: str, setting: str, value: object) -> None:
    tell(Noted("setting", f"'{setting}: {value}' has no effect: {name} has no such option."))
