"""Any agent that speaks the Agent Client Protocol on its standard input and output, as `acp:<command>`.

It is started for one turn, like every agent that is a program: the session is what goes on between turns, and the
agent keeps it.
"""

import asyncio
import shlex
from collections.abc import Mapping
from pathlib import PurePath

from msgspec.structs import replace

from orchard.agents.acp.conversation import ANSWER_WITHIN, Conversation
from orchard.agents.backends.project_files import foreign, refuse
from orchard.agents.backends.stream import is_private, private_home, server_row, servers_file
from orchard.agents.cli import judged, served
from orchard.agents.endpoints import Ways, ways_of
from orchard.agents.environment import find_program
from orchard.agents.facts.known import AcpTraits, Known
from orchard.agents.facts.programs import traits_of
from orchard.agents.permissions import Holds, unheld
from orchard.agents.protocol import McpServer, Noted, Reason, Result, Task, Watch
from orchard.errors import OrchardError
from orchard.model.agent_rows import AgentRow
from orchard.model.permissions import narrowed
from orchard.process.program import Ended, run_program
from orchard.text import one_line

FAREWELL = 5.0
"""Seconds that the agent has to leave by itself when the turn is over."""


class AcpAgent:
    takes_servers, is_within = True, False
    holds: Holds = "asked"

    def __init__(
        self,
        command: str,
        row: AgentRow | None = None,
        *,
        name: str | None = None,
        traits: AcpTraits | None = None,
        known: Known | None = None,
        answer_within: float = ANSWER_WITHIN,
    ) -> None:
        self.command, self.row, self._name = command, row or AgentRow(), name
        self._answer_within, self._known = answer_within, known
        self._argv = (*_split(self.row.command or command, self.name), *self.row.args)
        self._traits = traits or traits_of(self._argv)

    @property
    def name(self) -> str:
        return self._name or f"acp:{self.command}"

    @property
    def variables(self) -> tuple[str, ...]:
        """Variables of the user's that it may see: what its row says. By its name alone a program gets no key."""
        return self.row.pass_env

    def ways(self, env: Mapping[str, str]) -> Ways:
        program = find_program(self._argv[0], env.get("PATH", ""))
        return ways_of(self._known, self.row, env, program, by_variables=True)

    async def run(self, task: Task, watch: Watch) -> Result:
        model = task.settings.model or self.row.model
        try:
            if not task.trusted_project_settings:
                strange = await asyncio.to_thread(foreign, task, self._traits.obeys, self._traits.files)
                refuse(task, PurePath(self._argv[0]).name, strange)
        except OrchardError as error:
            return Result("spawn-failed", f"Agent '{self.name}' cannot be started: {error.message}", hint=error.hint)
        tools = narrowed(self.row.permissions, task.settings.tools)
        for said in unheld(self.name, self.holds, tools):
            watch.tell(Noted("setting", said))
        settings = replace(task.settings, tools=tools)
        task = replace(task, settings=replace(settings, mcp_servers=served(settings, watch.tell)))
        arguments, left = servers(self._traits, task)
        task = replace(task, settings=replace(task.settings, mcp_servers=left))
        talk = Conversation(f"Agent '{self.name}'", model, task, watch, self._answer_within)
        launch = task.launcher.launch(
            argv=(*self._argv, *arguments),
            folder=task.folder,
            env=_environment(self._traits, self.row, task),
            log=task.log,
            limits=replace(task.limits, grace=task.limits.grace - talk.courtesy),
            pipes=True,
            farewell=FAREWELL,
        )
        program = asyncio.ensure_future(run_program(launch, watch.on_start, watch.hurry, talk.converse))
        try:
            ended = await asyncio.shield(program)
        except asyncio.CancelledError:
            await _stop(program, talk)
            raise
        result = replace(talk.result or _left(self.name, ended), text=talk.text, session=talk.session)
        return judged(result, ended, dismissed=True)


def _split(command: str, name: str) -> tuple[str, ...]:
    try:
        argv = tuple(shlex.split(command))
    except ValueError as error:
        raise OrchardError(
            f"The command of agent '{one_line(name)}' cannot be read: {error}.", hint="Check its quotes."
        ) from None
    if not argv:
        raise OrchardError("The agent 'acp:' names no command.", hint="Write it as 'acp:program --option'.")
    return argv


def _environment(traits: AcpTraits, row: AgentRow, task: Task) -> dict[str, str]:
    private = is_private(row, {**task.env, **row.env}, traits.keys)
    home = {traits.home: private_home(task, "home")} if private else {}
    return {**traits.env, **task.env, "TMPDIR": str(task.scratch), **home, **row.env, **task.replaced}


def servers(traits: AcpTraits, task: Task) -> tuple[tuple[str, ...], tuple[McpServer, ...]]:
    """Arguments that name servers, and the servers that are left to be named over the protocol."""
    given = task.settings.mcp_servers
    commands = [server for server in given if server.url is None]
    if traits.server_flag is None or not commands:
        return (), given
    file = servers_file(
        task.private, "acp-mcp.json", commands, lambda one: {"type": "local", **server_row(one), "tools": ["*"]}
    )
    return (traits.server_flag, f"@{file}"), tuple(server for server in given if server.url is not None)


def _left(name: str, ended: Ended) -> Result:
    reason: Reason = "signal" if ended.reason == "signal" else "failed"
    return Result(reason, f"Agent '{name}' left before its turn was over: {ended.message}")


async def _stop(program: "asyncio.Future[Ended]", talk: Conversation) -> None:
    """Call off the turn, and end the program. A second cancellation skips what is left of the waiting."""
    try:
        await talk.call_off()
    finally:
        program.cancel()
        while not program.done():
            try:
                await asyncio.wait({program})
            except asyncio.CancelledError:
                program.cancel()
