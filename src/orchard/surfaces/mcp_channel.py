"""MCP at the door of every engine, whichever process it is in: what it needs is imported when somebody speaks it."""

import asyncio
from importlib import import_module

from orchard.app import App
from orchard.engine.server.server import Caller
from orchard.engine.server.session import Session
from orchard.surfaces.served import Served


def teach(app: App) -> None:
    """Let an engine that this process becomes speak MCP."""
    app.channels.setdefault("mcp", speak_mcp)
    app.channels.setdefault("tools", speak_tools)


async def speak_mcp(session: Session, caller: Caller, served: Served | None = None) -> None:
    """Speak MCP on a connection until it ends; who keeps the repository open lends what it is read with."""
    # The SDK takes a second to import: in a thread, the engine goes on meanwhile.
    channel = await asyncio.to_thread(import_module, "orchard.surfaces.mcp.server.channel")
    await channel.speak(session, caller, served)


async def speak_tools(session: Session, caller: Caller, served: Served | None = None) -> None:
    """Lend our tools to an agent within this process until its turn ends."""
    channel = await asyncio.to_thread(import_module, "orchard.surfaces.mcp.server.tool_channel")
    await channel.speak(session, caller, served)
