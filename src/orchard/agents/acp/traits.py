"""What is known of a program that speaks the protocol, by its name, and what follows from that for a turn."""

import json
from collections.abc import Iterable
from pathlib import Path, PurePath

from orchard.agents.backends.project_files import refused, steering_files, there
from orchard.agents.backends.stream import is_private, stdio, write_private
from orchard.agents.known import AcpKnown, AcpTraits
from orchard.agents.programs import of_program
from orchard.agents.protocol import McpServer, Task
from orchard.model.agent_rows import AgentRow


def traits_of(argv: Iterable[str]) -> AcpTraits:
    """What suits the agent that a command line starts, by itself or through a launcher (`npx`)."""
    for word in argv:
        name = PurePath(word).name
        found = traits_of_program(name) or traits_of_program(name.partition("@")[0])
        if found is not None:
            return found
    return AcpTraits()


def traits_of_program(name: str) -> AcpTraits | None:
    """What suits a program of this name."""
    known = of_program(name)
    if isinstance(known, AcpKnown):
        return known.traits
    return known.acp.get(name) if known is not None else None


def environment(traits: AcpTraits, row: AgentRow, task: Task) -> dict[str, str]:
    home = {}
    if is_private(row, {**task.env, **row.env}, traits.keys):
        home[traits.home] = str(task.private / "home")
        (task.private / "home").mkdir(mode=0o700, exist_ok=True)
    return {**traits.env, **task.env, "TMPDIR": str(task.scratch), **home, **row.env}


def check_project(traits: AcpTraits, task: Task, name: str) -> None:
    """Refuse a folder with settings for its program that nobody has agreed to."""
    if not task.trusted_project_settings:
        found: list[str | Path] = [*there(task.folder, traits.obeys), *steering_files(task, traits.files)]
        if found:
            raise refused(task, name, found)


def servers(traits: AcpTraits, task: Task) -> tuple[tuple[str, ...], tuple[McpServer, ...]]:
    """Arguments that name servers, and the servers that are left to be named over the protocol."""
    given = task.settings.mcp_servers
    commands = {server.name: server for server in given if server.url is None}
    if traits.server_flag is None or not commands:
        return (), given
    rows = {name: {"type": "local", **stdio(server), "tools": ["*"]} for name, server in commands.items()}
    file = write_private(task.private / "acp-mcp.json", json.dumps({"mcpServers": rows}))
    return (traits.server_flag, f"@{file}"), tuple(server for server in given if server.url is not None)
