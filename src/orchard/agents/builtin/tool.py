"""What a tool of the built-in agent is."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct, field

from orchard.process.identity import Identity
from orchard.process.launcher import Launcher

Json = dict[str, Any]

LONGEST_ANSWER = 60_000
"""Characters of a tool's answer that reach the model; the middle of a longer one is left out."""


class ToolError(Exception):
    """Something that the model can read and act on: the tool's answer is this text, marked as an error."""


class Answer(Struct, frozen=True):
    text: str
    failed: bool = False


async def _nobody(_: Identity) -> None:
    return


class ToolContext(Struct, frozen=True):
    """Where a tool works, and what it may use."""

    folder: Path
    """Paths of tools are relative to it, and stay in it (links followed) or in `allowed_folders`."""
    launcher: Launcher
    """Starts whatever a tool starts; each program by itself (`apart`), so that it ends with its call."""
    env: Mapping[str, str] = field(default_factory=dict)
    """For programs that a tool starts; the model's key is not in it."""
    withheld: frozenset[str] = frozenset()
    """Of `env`: what tools of ours use and no command gets, such as a token that may do much more."""
    allowed_folders: tuple[Path, ...] = ()
    scratch: Path | None = None
    shell_seconds: float = 60.0
    shell_most_seconds: float = 300.0
    on_start: Callable[[Identity], Awaitable[None]] = _nobody
    hurry: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def for_commands(self) -> dict[str, str]:
        return {name: value for name, value in self.env.items() if name not in self.withheld}


class Tool(Protocol):
    """Something that the model can ask for."""

    @property
    def name(self) -> str:
        """`^[a-zA-Z0-9_-]{1,64}$`."""
        ...

    @property
    def description(self) -> str: ...

    @property
    def schema(self) -> Json:
        """JSON Schema of the input; what does not fit it is answered as an error, and `execute` is not called."""
        ...

    @property
    def parallel(self) -> bool:
        """Whether it may run beside other tools: it changes nothing."""
        ...

    async def execute(self, context: ToolContext, arguments: Json) -> Answer:
        """Do it; ToolError for what the model can mend. A hang is ended by cancellation."""
        ...
