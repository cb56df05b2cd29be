"""Our tools at the engine's door for an agent within our own process: what MCP calls `tools/list` and `tools/call`.

It is the same toolbox, without the SDK on both ends, which takes a second of processor to import. A connection is one
question: a call ends when the connection does, and what was listed holds for as long as that connection is open.
"""

import json
import logging

import anyio

from orchard.engine.server.server import Caller
from orchard.engine.server.session import Session
from orchard.engine.turns.job_tokens import Scope
from orchard.errors import OrchardError
from orchard.model.events.plans import Json
from orchard.process.background import beside
from orchard.surfaces.mcp import tool_list, toolbox
from orchard.surfaces.mcp.selection import Selection
from orchard.surfaces.mcp.server.channel import shared
from orchard.surfaces.mcp.tool import Answer, Call
from orchard.surfaces.next_steps import told
from orchard.surfaces.served import Served

OWN_MISTAKE = "Orchard failed at this, which is a mistake of its own. Ask with get_plan what was done."
READ_BYTES = 64 * 1024

logger = logging.getLogger(__name__)


async def speak(session: Session, caller: Caller, served: Served | None = None) -> None:
    """Answer one question."""
    if served is not None:
        await _answer(served, caller)
        return
    async with shared(session) as own:
        await _answer(own, caller)


async def _answer(served: Served, caller: Caller) -> None:
    line = await caller.reader.readline()
    asked: Json = json.loads(line) if line else {}
    with anyio.CancelScope() as scope:
        async with beside(_until_gone(caller, scope)):
            if "call" in asked:
                answer = await _called(served, caller.scope, asked)
                await _put(caller, {"text": answer.text, "failed": answer.is_error})
            elif line:
                await _put(caller, {"tools": listed(caller.scope)})
                await anyio.sleep_forever()


async def _until_gone(caller: Caller, scope: anyio.CancelScope) -> None:
    try:
        while await caller.reader.read(READ_BYTES):
            """Nothing is expected any more."""
    except OSError:
        return
    finally:
        scope.cancel()


async def _put(caller: Caller, found: Json) -> None:
    caller.writer.write(json.dumps(found, default=str).encode() + b"\n")
    await caller.writer.drain()


def listed(scope: Scope | None) -> list[Json]:
    """What an agent in a job is shown, which is what `tools/list` shows it."""
    offered = toolbox.tools(Selection(), scope)
    names = {tool.name for tool in offered}
    return [
        {
            "name": tool.name,
            "description": tool_list.shown_words(tool, names, scope),
            "input_schema": tool_list.shown_input(tool, scope),
            "read_only": tool.read_only,
        }
        for tool in tool_list.shown(offered, scope)
    ]


async def _called(served: Served, scope: Scope | None, asked: Json) -> Answer:
    try:
        return await toolbox.call(Call(served, scope), Selection(), asked["call"], asked["arguments"])
    except OrchardError as error:
        return Answer(told(error), is_error=True)
    except Exception:
        logger.exception("tool %r failed", asked["call"])
        return Answer(OWN_MISTAKE, is_error=True)
