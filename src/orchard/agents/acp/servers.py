"""MCP servers in the protocol's own terms."""

import shutil
from collections.abc import Callable, Iterable
from typing import Any

from orchard.agents.protocol import McpServer


def server_list(
    servers: Iterable[McpServer], *, http: bool, path: str | None, cannot: Callable[[str, str], None]
) -> list[Any]:
    """Those that the agent can use, as the package has them; for the others `cannot` hears the name and why."""
    from acp.schema import EnvVariable, HttpHeader, HttpMcpServer, McpServerStdio

    found: list[Any] = []
    for server in servers:
        if server.command is not None:
            program = shutil.which(server.command, path=path)
            if program is None:
                cannot(server.name, f"could not start it, there is no program '{server.command}'")
                continue
            env = [EnvVariable(name=name, value=value) for name, value in server.env.items()]
            found.append(McpServerStdio(name=server.name, command=program, args=list(server.args), env=env))
        elif server.url is not None and http:
            headers = [HttpHeader(name=name, value=value) for name, value in server.headers.items()]
            found.append(HttpMcpServer(type="http", name=server.name, url=server.url, headers=headers))
        else:
            cannot(server.name, "takes only servers that are commands")
    return found
