"""What tests of the built-in agent share: small tools that do one thing each."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from orchard.agents.builtin.tool import Answer, Json, Tool, ToolContext, ToolError

Do = Callable[[Json], Awaitable[Answer]]


def small_tool(name: str, do: Do, schema: Json | None = None, *, parallel: bool = False) -> Tool:
    """A tool that does this with what it is given."""

    async def execute(_: ToolContext, arguments: Json) -> Answer:
        return await do(arguments)

    return Tool(name, "For a test.", schema or {"type": "object"}, execute, parallel)


def echo(name: str = "echo") -> Tool:
    """Answers what it is given; insists on a text."""

    async def do(arguments: Json) -> Answer:
        return Answer(f"you said {arguments['text']}")

    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    }
    return small_tool(name, do, schema)


def hangs() -> Tool:
    """Never answers."""

    async def do(arguments: Json) -> Answer:
        await asyncio.Event().wait()
        return Answer("never")

    return small_tool("hang", do)


def floods() -> Tool:
    """Answers too much."""

    async def do(arguments: Json) -> Answer:
        return Answer("begin" + "x" * 5_000_000 + "end")

    return small_tool("flood", do)


def crashes() -> Tool:
    """Has a bug."""

    async def do(arguments: Json) -> Answer:
        raise ZeroDivisionError("a bug of the tool")

    return small_tool("crash", do)


def refuses() -> Tool:
    """Says what the model did wrong."""

    async def do(arguments: Json) -> Answer:
        raise ToolError("There is no such line.")

    return small_tool("refuse", do)
