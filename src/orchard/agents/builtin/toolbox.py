"""All that the built-in agent can use in one turn: its own tools, and those of MCP servers, which run beside it."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.structs import replace

from orchard.agents.builtin.tool import Tool, ToolContext, in_thread, plain_text
from orchard.agents.builtin.tools.files import file_tools
from orchard.agents.builtin.tools.git import find_checkout, git_tools
from orchard.agents.builtin.tools.github import github_tools
from orchard.agents.builtin.tools.own import open_own_tools
from orchard.agents.builtin.tools.shell import shell_tools
from orchard.agents.builtin.tools.skills import skill_tools
from orchard.agents.protocol import McpServer, Noted, Tell
from orchard.model.permissions import Tools, covers, unknown_names
from orchard.process.background import beside

LEAVING_SECONDS = 10.0
"""For servers to end by themselves, each with a grace of its own."""


@asynccontextmanager
async def open_toolbox(
    context: ToolContext, servers: Sequence[McpServer], permitted: Tools, tell: Tell
) -> AsyncIterator[list[Tool]]:
    """The tools for one turn, sorted by name: those that are permitted, and no other.

    MCP servers are started now and ended when it is left; one that cannot be used is told, and only its tools are
    missing.
    """
    async with AsyncExitStack() as stack:
        if context.scratch is None:
            folder = TemporaryDirectory(prefix="orchard-tools-", ignore_cleanup_errors=True)
            context = replace(context, scratch=Path(stack.enter_context(folder)))
        # Before the model does anything: what the repository says of itself later may be its doing.
        checkout = await in_thread(find_checkout, context.folder)
        tools = [*file_tools(context, checkout), *shell_tools(context), *git_tools(checkout), *github_tools(checkout)]
        tools += skill_tools(context.skills)
        own = [server for server in servers if server.dial is not None]
        wanted = [server for server in servers if server in own or permitted.permits_server(server.name)]
        if others := [server for server in wanted if server.dial is None]:
            tools += await _serve(stack, context, others, tell)
        for server in wanted:
            if server.dial is not None:
                taken = {tool.name for tool in tools}
                tools += await stack.enter_async_context(open_own_tools(server, taken, tell))
        _tell_of_strangers(permitted, tools, tell)
        yield sorted((tool for tool in tools if tool.permitted(permitted)), key=lambda tool: tool.name)


def _tell_of_strangers(permitted: Tools, tools: Sequence[Tool], tell: Tell) -> None:
    """Names that mean no tool here: a slip in what is denied would let through what nobody wanted."""
    for field, name in unknown_names(permitted):
        if not any(covers(name, tool.name) for tool in tools):
            tell(Noted("setting", f"'{field}: {plain_text(name)}' has no effect: there is no such tool."))


async def _serve(stack: AsyncExitStack, context: ToolContext, servers: Sequence[McpServer], tell: Tell) -> list[Tool]:
    # In a thread, because it takes a second in which nobody else may be kept waiting.
    await in_thread(import_module, "orchard.agents.builtin.tools.mcp")
    from orchard.agents.builtin.tools import mcp as client  # it is there by now

    client.quiet_client()
    folder = context.scratch or Path()
    kept = [client.Server(server, context, folder / f"mcp-{number}.log", tell) for number, server in enumerate(servers)]

    def leave() -> None:
        for server in kept:
            server.leave()

    await stack.enter_async_context(beside(*(server.keep() for server in kept), leave=leave, patience=LEAVING_SECONDS))
    for server in kept:
        await server.settled()
    return client.server_tools(kept, tell)
