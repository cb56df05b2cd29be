"""What tests of the built-in agent share: small tools that do one thing each."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from orchard.agents.builtin.tool import Answer, Json, ToolContext, ToolError

Do = Callable[[Json], Awaitable[Answer]]


@dataclass
class SmallTool:
    """A tool that is a function."""

    name: str
    do: Do
    schema: Json = field(default_factory=lambda: {"type": "object"})
    parallel: bool = False
    description: str = "For a test."

    async def execute(self, context: ToolContext, arguments: Json) -> Answer:
        return await self.do(arguments)


def echo(name: str = "echo") -> SmallTool:
    """Answers what it is given; insists on a text."""

    async def do(arguments: Json) -> Answer:
        return Answer(f"you said {arguments['text']}")

    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
        "additionalProperties": False,
    }
    return SmallTool(name, do, schema)


def hangs() -> SmallTool:
    """Never answers."""

    async def do(arguments: Json) -> Answer:
        await asyncio.Event().wait()
        return Answer("never")

    return SmallTool("hang", do)


def floods() -> SmallTool:
    """Answers too much."""

    async def do(arguments: Json) -> Answer:
        return Answer("begin" + "x" * 5_000_000 + "end")

    return SmallTool("flood", do)


def crashes() -> SmallTool:
    """Has a bug."""

    async def do(arguments: Json) -> Answer:
        raise ZeroDivisionError("a bug of the tool")

    return SmallTool("crash", do)


def refuses() -> SmallTool:
    """Says what the model did wrong."""

    async def do(arguments: Json) -> Answer:
        raise ToolError("There is no such line.")

    return SmallTool("refuse", do)
