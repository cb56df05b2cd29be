"""A repository that is watched: its plans, woken by its journal, and the way to its engine."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

from orchard.app import App
from orchard.config.trust import AGREE_FIRST, not_agreed
from orchard.core.views.documents import PlanSummary
from orchard.engine.server.address import ADDRESS_FILE
from orchard.engine.server.server import EngineGone
from orchard.errors import NeedsPerson, OrchardError
from orchard.model.events.plans import Json
from orchard.model.plan import PlanId
from orchard.operations.operation import Operation, Verb
from orchard.store.log_follower import Changes
from orchard.surfaces.cli.followed import open_session
from orchard.surfaces.served import Served

GATHER_SECONDS = 1 / 8
"""What happens in quick succession is read at once."""


class Place:
    def __init__(self, app: App, changed: Callable[[], None]) -> None:
        self.app = app
        self.served = Served(app)
        # A second reader: a large diff holds up nobody who looks at the tree.
        self.pages = Served(App(app.repo, app.settings, app.dirs, app.say))
        self.name = self.served.name
        self.plans: list[PlanSummary] = []
        self.problem: OrchardError | None = None
        """Why it is not followed any more."""
        self._changed = changed

    async def read(self) -> None:
        self.plans = await self.served.read(self.app.plans)
        self._changed()

    async def follow(self) -> None:
        """Read what happens, for as long as somebody looks; engines come and go meanwhile."""
        engine = Changes(self.app.repo.state / ADDRESS_FILE)
        try:
            while True:
                with suppress(EngineGone):
                    await self._listen()
                self.served.session = None
                await self.read()
                while not self.app.engine_alive():
                    await engine.wait()
        except OrchardError as error:
            self.problem = error
            self._changed()
        finally:
            engine.close()

    async def _listen(self) -> None:
        async with self.app.listen() as session:
            self.served.session = session
            while True:
                newest = await self.served.read(self.app.reader.last_seq)
                await self.read()
                await session.link.grown(newest)
                await asyncio.sleep(GATHER_SECONDS)

    async def ask(self, operation: Operation, plan: PlanId, values: dict[str, Any]) -> Json:
        """Ask for an operation as its verb does; work that goes on because of it goes on without us."""
        follows = isinstance(operation.verb, Verb) and operation.verb.follows
        if follows and (keys := self.app.settings.untrusted):
            raise NeedsPerson(not_agreed(keys), AGREE_FIRST)
        with suppress(EngineGone):
            return await self.served.ask(operation.name, plan=plan, **values)
        async with AsyncExitStack() as stack:
            session = await open_session(self.app, stack, work=False, detach=follows)
            return await session.request(operation.name, plan=plan, **values)

    def close(self) -> None:
        self.served.close()
        self.pages.close()
