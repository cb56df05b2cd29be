"""Agents whose turns are written down by a test: real tasks, real folders, no model."""

import asyncio
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from orchard.agents.definitions.catalog import Catalog, catalog
from orchard.agents.definitions.definition import Definition
from orchard.agents.permissions import Holds
from orchard.agents.protocol import Agent, McpServer, Result, Said, Session, Task, Used, Watch
from orchard.config.layers import Config
from orchard.errors import OrchardError, UsageError
from orchard.model.plan import Tier
from orchard.model.usage import Usage
from orchard.testing import ScriptedAgent, Turn


@dataclass
class ScriptedAgents:
    """A table of them."""

    agents: dict[str, ScriptedAgent] = field(default_factory=dict)
    default: str | None = None
    config: Config = field(default_factory=Config)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.agents)

    def catalog(self, repository: Iterable[Definition]) -> Catalog:
        return catalog(self.config, os.environ, self.names, repository)

    def knows(self, agent: str, model: str) -> bool:
        return model.startswith(agent)

    def find(self, name: str | None) -> Agent:
        wanted = name or self.default
        if wanted is None:
            raise OrchardError("No agent can be used.")
        if wanted not in self.agents:
            raise UsageError(f"There is no agent '{wanted}'")
        return self.agents[wanted]

    def model_for(self, agent: str, model: str | None, tier: Tier | None) -> str | None:
        return model or (f"{agent}-{tier}" if tier else None)

    def servers(self, names: Iterable[str]) -> tuple[McpServer, ...]:
        return tuple(McpServer(name, command="true") for name in names)

    def listed(self) -> list[dict[str, object]]:
        return [
            {"name": name, "usable": True, "default": name == self.default, "why_not": None} for name in self.agents
        ]

    def holds(self, name: str) -> Holds:
        return self.agents[name].holds

    def add(self, name: str, *turns: Turn) -> ScriptedAgent:
        self.agents[name] = ScriptedAgent(name, list(turns))
        self.default = self.default or name
        return self.agents[name]


def writes(files: dict[str, str], *, session: str | None = "s1", tokens: int = 10, says: str = "Done.") -> Turn:
    """A turn that writes files and is done."""

    def turn(task: Task, watch: Watch) -> Result:
        for name, content in files.items():
            (task.folder / name).write_text(content)
        if session is not None:
            watch.tell(Session(session))
        watch.tell(Said(says + "\n"))
        watch.tell(
            Used(Usage("scripted", input=tokens - 1, output=1, requests=1, cost=tokens / 1000, cost_source="agent"))
        )
        return Result("done", text=says, session=session)

    return turn


def ends(result: Result) -> Turn:
    """A turn that only ends."""
    return lambda task, watch: result


def sleeps(seconds: float = 60.0) -> Turn:
    """A turn that takes long."""

    async def turn(task: Task, watch: Watch) -> Result:
        (task.folder / "half.txt").write_text("half")
        await asyncio.sleep(seconds)
        return Result("done")

    return turn
