"""A repository, and an app that runs plans in it as a user would."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from msgspec import to_builtins

from orchard.app import App, open_app
from orchard.config.trust import trust
from orchard.engine.server.session import Session
from orchard.model.events.plans import Event
from orchard.model.plan import PlanId
from orchard.surfaces.next_steps import in_commands
from orchard.testing import Repo

Json = dict[str, Any]
LONGEST = 60.0


@dataclass
class Orchard:
    """One repository with everything a test needs to run plans in it."""

    repo: Repo

    @property
    def app(self) -> App:
        return open_app(self.repo.path, in_commands)

    async def run(self, plan: str, during: Callable[[Session, PlanId], Awaitable[None]] | None = None) -> Json:
        """Run a plan until it is over or waits, and return its status."""
        app = self.app
        asked = app.parse_plan(None, dedent(plan).encode())
        async with asyncio.timeout(LONGEST), app.session() as session:
            plan_id = PlanId((await session.request("create_plan", plan=asked))["plan"])
            if during is not None:
                await during(session, plan_id)
            async for _ in session.follow(plan_id):
                pass
        return self.status(plan_id)

    async def ask(self, verb: str, plan: str | None = None, **args: Any) -> Json:
        """Ask for something, let the plan go on as far as it can, and return its status."""
        app = self.app
        plan_id = app.find_plan(plan)
        async with asyncio.timeout(LONGEST), app.session() as session:
            await session.request(verb, plan=plan_id, **args)
            async for _ in session.follow(plan_id):
                pass
        return self.status(plan_id)

    def trust(self) -> None:
        """Agree to the repository's settings, as the user does at a terminal."""
        app = self.app
        trust(app.repo.home, app.settings.untrusted_digest, common_dir=app.repo.common_dir)

    # Documents as programs read them, with `--json`.

    def status(self, plan: str | None = None) -> Json:
        found: Json = to_builtins(self.app.status(plan))
        return found

    def job(self, name: str, plan: str | None = None) -> Json:
        found: Json = to_builtins(self.app.job(name, plan))
        return found

    def attempts(self, name: str, plan: str | None = None) -> list[Json]:
        found: list[Json] = to_builtins(self.app.attempts(name, plan))
        return found

    def usage(self, plan: str | None = None) -> Json:
        found: Json = to_builtins(self.app.usage(plan))
        return found

    def waiting(self) -> list[Json]:
        found: list[Json] = to_builtins(self.app.waiting())
        return found

    def saved_work(self) -> list[Json]:
        found: list[Json] = to_builtins(self.app.saved_work())
        return found

    def events(self, kind: type[Event], plan: str | None = None) -> list[Any]:
        """Everything of one kind that was recorded about a plan."""
        app = self.app
        return [one.event for one in app.reader.events(app.find_plan(plan)) if isinstance(one.event, kind)]


def job(status: Json, name: str) -> Json:
    """One job of a status document."""
    found: Json = next(one for one in status["jobs"] if one["id"] == name)
    return found


def statuses(status: Json) -> dict[str, str]:
    return {one["id"]: one["status"] for one in status["jobs"] if not one["validation"]}


async def until(condition: Callable[[], bool], longest: float = 20.0) -> None:
    """Wait for something outside of our control, such as a program that writes a file."""
    async with asyncio.timeout(longest):
        while not condition():  # noqa: ASYNC110 (there is no event to wait for)
            await asyncio.sleep(0.02)


@pytest.fixture
def orchard(tmp_path: Path) -> Orchard:
    repo = Repo.make(tmp_path / "repo", files={"README.md": "# small\n", "shared.txt": "1\n2\n3\n4\n5\n6\n7\n8\n9\n"})
    repo("checkout", "-q", "-b", "work")
    return Orchard(repo)
