"""A repository with an engine, and tools that are called in it as a server calls them; every answer is checked."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from msgspec import convert

from orchard.app import open_app
from orchard.engine.turns.job_tokens import Scope
from orchard.model.events.plans import Json
from orchard.model.plan import PlanId
from orchard.model.plan_codec import plan_json
from orchard.surfaces.mcp import toolbox
from orchard.surfaces.mcp.aliases import ALIASES
from orchard.surfaces.mcp.selection import Selection
from orchard.surfaces.mcp.tool import Answer, Call, Elicit
from orchard.surfaces.mcp.tool_list import shown_output
from orchard.surfaces.next_steps import in_commands
from orchard.surfaces.served import Served
from orchard.testing import Repo

Validator: Any = import_module("jsonschema").Draft202012Validator  # it has no types
EVERYTHING = Selection.from_names(["all"])
LONGEST = 60.0


@dataclass
class Bench:
    """One caller of tools."""

    repo: Repo
    served: Served
    selection: Selection = EVERYTHING
    scope: Scope | None = None
    elicit: Elicit | None = None
    told: list[str] = field(default_factory=list)
    """What progress was reported."""

    async def answer(self, name: str, /, **arguments: Any) -> Answer:
        """Call a tool, whatever comes of it."""
        call = Call(self.served, self.scope, self._progress, self.elicit)
        async with asyncio.timeout(LONGEST):
            return await toolbox.call(call, self.selection, name, arguments)

    async def __call__(self, name: str, /, **arguments: Any) -> Json:
        """Call a tool that does what it is asked for, and compare its answer with what it promises."""
        answer = await self.answer(name, **arguments)
        assert not answer.is_error, answer.text
        assert answer.value is not None
        tool = next(one for one in toolbox.tools(self.selection, self.scope) if one.name in (name, _own(name)))
        for schema in (toolbox.output_schema(tool), shown_output(tool, self.scope)):
            Validator(schema).validate(answer.value)
        convert(answer.value, tool.output)
        return answer.value

    async def refused(self, name: str, /, **arguments: Any) -> str:
        """Call a tool that refuses, and return what it says."""
        answer = await self.answer(name, **arguments)
        assert answer.is_error, answer.text
        assert answer.value is None
        return answer.text

    async def ended(self, plan: str, *statuses: str) -> Json:
        """Wait for the end of a plan by tools alone."""
        seen = await self("wait_plan", plan=plan, until="end", timeout_s=45)
        assert seen["status"] in (statuses or ("succeeded",)), seen
        return seen

    def configuration(self, plan: str) -> Json:
        """The plan as the engine has it."""
        return plan_json(self.served.app.run_of(PlanId(plan)).plan)

    def with_(self, **changes: Any) -> "Bench":
        """The same repository for another caller."""
        return replace(self, **changes)

    async def _progress(self, done: float, total: float | None, message: str) -> None:
        self.told.append(message)


def _own(name: str) -> str:
    return ALIASES.get(name, name)


@asynccontextmanager
async def bench(path: Path, *, work: bool = True) -> AsyncIterator[Bench]:
    """A new repository, and its engine; `work=False`: it takes plans and runs none of them."""
    repo = Repo.make(path, files={"README.md": "# small\n", "shared.txt": "1\n2\n3\n"})
    repo("checkout", "-q", "-b", "work")
    app = open_app(repo.path, in_commands)
    served = Served(app)
    try:
        async with app.session(work=work) as session:
            served.session = session
            async with served.following():
                yield Bench(repo, served)
            if work:
                for plan in app.plans():
                    if plan.status not in ("succeeded", "failed", "canceled"):
                        await session.request("cancel_plan", plan=plan.id)
    finally:
        served.close()


Answering = Callable[[str, Any], Awaitable[Json | None]]


def person(*answers: Json | None) -> tuple[list[str], Answering]:
    """Somebody who is asked: what was asked, and the way to ask."""
    asked: list[str] = []
    left = list(answers)

    async def elicit(question: str, schema: Any) -> Json | None:
        asked.append(question)
        return left.pop(0)

    return asked, elicit
