"""Our own MCP server, handed to an agent for one turn: with a job token that speaks for its job alone.

An agent within our own process speaks with the server at once. For others the token lies in a file of the turn's own
folder, not in an argument or a variable, which children inherit and others can read. It is good until the turn ends.
"""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from orchard.agents.protocol import Agent, McpServer, Settings
from orchard.engine.context import Context
from orchard.engine.server.server import open_channel
from orchard.engine.turns.scope import scope_of

NAME = "orchard"
SPARE_NAME = "orchard-job"
"""Where the plan names a server of its own that is called like ours."""
LANGUAGE = "mcp"
LANGUAGE_WITHIN = "tools"
"""In our own process the tools are called without the protocol around them."""
PASS_FILE = "orchard-pass.json"


def is_offered(context: Context, agent: Agent, purpose: str) -> bool:
    """Whether the agent gets our server in such a turn: it can use one, and somebody speaks with it at our door."""
    job_tokens = context.engine.job_tokens
    if purpose == "resolve" or not context.world.config.agent_tools:
        return False
    return job_tokens.socket is not None and LANGUAGE in job_tokens.languages and agent.takes_servers


def offered_name(context: Context, agent: Agent, purpose: str, settings: Settings) -> str | None:
    return _name(settings) if is_offered(context, agent, purpose) else None


def _name(settings: Settings) -> str:
    return SPARE_NAME if any(server.name == NAME for server in settings.mcp_servers) else NAME


@contextmanager
def with_server(context: Context, agent: Agent, purpose: str, settings: Settings, scratch: Path) -> Iterator[Settings]:
    """The settings with our server among them, where it is offered; the job token ends with the block."""
    job_tokens = context.engine.job_tokens
    if not is_offered(context, agent, purpose) or job_tokens.socket is None:
        yield settings
        return
    with job_tokens.issued(scope_of(context)) as secret:
        if agent.is_within:
            dial = partial(open_channel, job_tokens.socket, secret, LANGUAGE_WITHIN)
            server = McpServer(_name(settings), offered=True, dial=dial)
            yield replace(settings, mcp_servers=(*settings.mcp_servers, server))
            return
        file = scratch / PASS_FILE
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(file, flags, 0o600), "w") as out:
            json.dump({"socket": job_tokens.socket, "pass": secret}, out)
        # Neither the job's worktree nor its variables may decide which program this is: it shows the token.
        words = ("-E", "-P", "-m", "orchard.surfaces.mcp.relay", "--pass", str(file))
        server = McpServer(_name(settings), sys.executable, words, offered=True)
        yield replace(settings, mcp_servers=(*settings.mcp_servers, server))
