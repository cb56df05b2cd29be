"""What tests of tools share: a folder to work in, and a toolbox that is open in it."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from orchard.agents.builtin.tool import Answer, Tool, ToolContext, ToolError
from orchard.agents.builtin.toolbox import open_toolbox
from orchard.agents.protocol import McpServer, Noted, Telling
from orchard.model.permissions import made
from orchard.process.launcher import Launcher


@dataclass
class Box:
    """An open toolbox."""

    tools: list[Tool]
    context: ToolContext
    told: list[Telling] = field(default_factory=list)

    async def use(self, name: str, /, **arguments: Any) -> Answer:
        """Use a tool as the loop would; what the model could mend is an answer too."""
        tool = next(tool for tool in self.tools if tool.name == name)
        try:
            return await tool.execute(self.context, arguments)
        except ToolError as error:
            return Answer(str(error), failed=True)

    @property
    def names(self) -> list[str]:
        return [tool.name for tool in self.tools]

    @property
    def notes(self) -> list[str]:
        return [each.message for each in self.told if isinstance(each, Noted)]


def make_context(folder: Path, **more: Any) -> ToolContext:
    """A context with a plain environment."""
    launcher = Launcher(more.pop("token", f"turn-{os.getpid()}-{folder.name}"))
    env = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "LANG": "C.UTF-8", **more.pop("env", {})}
    return ToolContext(folder=folder, env=env, launcher=launcher, **more)


@asynccontextmanager
async def open_box(
    folder: Path, servers: Sequence[McpServer] = (), deny: Sequence[str] = (), **more: Any
) -> AsyncIterator[Box]:
    """A toolbox in a folder."""
    permitted = more.pop("tools", made(deny=deny))
    context, told = make_context(folder, **more), list[Telling]()
    async with open_toolbox(context, servers, permitted, told.append) as tools:
        yield Box(tools, context, told)
