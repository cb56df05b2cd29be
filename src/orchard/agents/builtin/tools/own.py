"""The tools that the engine offers to an agent within its own process: each question is a connection to its door."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import AsyncExitStack, asynccontextmanager

from orchard.agents.builtin.tool import Answer, Json, Tool, ToolContext, ToolError, plain_answer, plain_text
from orchard.agents.builtin.tools.mcp_content import BadTool, description, full_name, input_schema, tool_name
from orchard.agents.protocol import McpServer, Noted, Tell
from orchard.errors import OrchardError

START_SECONDS = 60.0
CALL_SECONDS = 120.0


@asynccontextmanager
async def open_own_tools(server: McpServer, taken: Collection[str], tell: Tell) -> AsyncIterator[list[Tool]]:
    """Its tools, for as long as the block lasts; where there is no way to it, that is told, and there are none."""
    async with AsyncExitStack() as stack:
        tools: list[Tool] = []
        try:
            found = await stack.enter_async_context(_asked(server, {"list": True}, START_SECONDS))
            tools = _tools(server, found["tools"], taken, tell)
        except ToolError as error:
            tell(Noted("mcp", f"MCP server '{plain_text(server.name)}' cannot be used: {plain_text(str(error))}"))
        yield tools


@asynccontextmanager
async def _asked(server: McpServer, question: Json, seconds: float) -> AsyncIterator[Json]:
    """The answer to a question, whose connection stays open until the block is left."""
    assert server.dial is not None
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await server.dial()
            writer.write(json.dumps(question).encode() + b"\n")
            line = await reader.readline()
        if not line.endswith(b"\n"):
            raise ToolError(f"The MCP server '{server.name}' was lost during the call, which it may have done.")
        found: Json = json.loads(line)
    except TimeoutError as error:
        raise ToolError(f"The MCP server '{server.name}' did not answer within {seconds:g} s.") from error
    except (OrchardError, OSError, ValueError) as error:
        raise ToolError(f"The MCP server '{server.name}' is not running: {error}") from error
    else:
        yield found
    finally:
        if writer is not None:
            writer.close()


def _tools(server: McpServer, listed: list[Json], taken: Collection[str], tell: Tell) -> list[Tool]:
    made: dict[str, Tool] = {}
    for row in listed:
        try:
            name = tool_name(server.name, row["name"], {*taken, *made})
            made[name] = _made(server, row, name)
        except BadTool as error:
            tell(Noted("mcp", f"Tool '{plain_text(row['name'])}' of '{plain_text(server.name)}' is left out: {error}."))
    return list(made.values())


def _made(server: McpServer, row: Json, name: str) -> Tool:
    async def run(_: ToolContext, arguments: Json) -> Answer:
        async with _asked(server, {"call": row["name"], "arguments": arguments}, CALL_SECONDS) as found:
            return plain_answer(found["text"], failed=found["failed"])

    about = description(server.name, row["description"])
    known_as = full_name(server.name, row["name"])
    return Tool(name, about, input_schema(row["input_schema"]), run, row["read_only"], known_as, own=True)
