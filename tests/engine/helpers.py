"""Agents that ask the engine for help in their turns, as they would through the MCP server, without the wire."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from orchard.agents.protocol import Result, Said, Task, Used, Watch
from orchard.engine.server.session import Session
from orchard.model.plan import PlanId
from orchard.model.usage import Usage
from orchard.testing import Turn
from tests.engine.conftest import Orchard

Json = dict[str, Any]


@dataclass
class Line:
    """The way to the engine, for turns that are written before there is one."""

    session: Session | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    async def open(self, session: Session, plan: PlanId) -> None:
        """For `Orchard.run(during=...)`."""
        self.session = session
        self.ready.set()


@dataclass
class Asker:
    """One agent in its turn, and what it can ask for."""

    line: Line
    task: Task
    watch: Watch

    @property
    def scope(self) -> Json:
        """For whom it asks, as its pass would say."""
        env, token = self.task.env, self.task.launcher.token.split(":")
        subtask = token[3] if len(token) > 3 else None
        scope = {"plan": env["ORCHARD_PLAN"], "job": env["ORCHARD_JOB"], "attempt": int(env["ORCHARD_ATTEMPT"])}
        return {**scope, "subtask": subtask}

    async def ask(self, verb: str, **args: Any) -> Json:
        await self.line.ready.wait()
        assert self.line.session is not None
        return await self.line.session.request(verb, **{**self.scope, **args})

    async def spawn(self, instructions: str, **args: Any) -> Json:
        return await self.ask("spawn_subtask", instructions=instructions, **args)

    async def wait(self, *ids: str, **args: Any) -> Json:
        return await self.ask("await_subtasks", ids=list(ids) or None, **args)

    async def pull(self, id: str) -> Json:
        return await self.ask("pull_subtask_changes", id=id)

    def write(self, **files: str) -> None:
        """Files by their names without `.txt`."""
        for name, content in files.items():
            (self.task.folder / f"{name}.txt").write_text(content)

    def read(self, name: str) -> str:
        return (self.task.folder / f"{name}.txt").read_text()

    def use(self, tokens: int) -> None:
        self.watch.tell(Used(Usage("scripted", input=tokens, requests=1, cost=tokens / 1000, cost_source="agent")))

    def names(self) -> set[str]:
        """What lies in its folder."""
        return {one.name for one in self.task.folder.iterdir()} - {".git"}


Asking = Callable[[Asker], Awaitable[str | Result]]
"""A turn: what it returns are the agent's last words, or how it ended."""


def turn(line: Line, does: Asking) -> Turn:
    """A turn of a scripted agent that can ask."""

    async def run(task: Task, watch: Watch) -> Result:
        said = await does(Asker(line, task, watch))
        if isinstance(said, Result):
            return said
        watch.tell(Said(said + "\n"))
        return Result("done", text=said)

    return run


def by_task(line: Line, **turns: Asking) -> Turn:
    """What is done depends on the first word of the instructions that is one of these."""

    def chosen(asker: Asker) -> Awaitable[str | Result]:
        words = (word.strip(":.").lower() for word in asker.task.instructions.split())
        return turns[next(word for word in words if word in turns)](asker)

    return turn(line, chosen)


async def run(orchard: Orchard, line: Line, plan: str) -> Json:
    """Run a plan whose agents ask on this line."""
    return await orchard.run(plan, during=line.open)
