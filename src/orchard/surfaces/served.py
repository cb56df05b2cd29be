"""A repository as a program that lives long serves it: its plans are read in a thread, and its engine is asked.

The HTTP and the MCP surface both stand on this. Reading happens on one thread, one question after the other, because
the runs that the App remembers are brought up to date in place; the loop, on which the engine may work too, goes on
meanwhile. Whoever waits for news is woken by the journal's growth: nobody polls.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from hashlib import sha256
from typing import Any, ParamSpec, TypeVar

from orchard.app import App
from orchard.engine.plans.refs import slug
from orchard.engine.server.server import EngineGone
from orchard.engine.server.session import Session
from orchard.errors import OrchardError
from orchard.model.events.plans import Json
from orchard.process.background import beside

P = ParamSpec("P")
T = TypeVar("T")


class RepositoryGone(OrchardError):
    """The folder of a repository is not where it was when it was opened."""


class Served:
    """One repository: what can be read of it, asked of its engine, and waited for."""

    def __init__(self, app: App, session: Session | None = None) -> None:
        self.app = app
        app.keeps_runs = True
        self.session = session
        """The way to the engine; whoever keeps the repository open replaces it when the engine is another one."""
        self.folder = app.repo.main_top or app.repo.top or app.repo.common_dir
        self.name = self.folder.name
        self.id = f"{slug(self.name, 24)}-{sha256(os.fsencode(app.repo.common_dir)).hexdigest()[:6]}"
        self._reading = ThreadPoolExecutor(1, thread_name_prefix="reading")
        self.newest = 0
        """The number of the newest event that anybody was told of."""
        self._news = asyncio.Event()

    async def read(self, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Ask the App something, or anything else that uses its runs, without keeping the loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._reading, partial(self._read, partial(question, *args, **kwargs)))

    def _read(self, question: Callable[[], T]) -> T:
        place = self.app.repo.common_dir
        if not place.is_dir():  # SQLite would find no plans there, and that would be taken for the truth
            raise RepositoryGone(
                f"The repository {place} is not there any more; it was removed or moved.",
                hint="Where it was moved, run 'orchard serve' in the place where it is now.",
            )
        return question()

    async def ask(self, verb: str, **args: Any) -> Json:
        """Ask the engine for something; the answer is durable."""
        if self.session is None:
            raise EngineGone()
        # Whoever asked may go away meanwhile; what was asked for is done as a whole all the same.
        return await asyncio.shield(self.session.request(verb, **args))

    async def newer(self, seen: int, seconds: float | None = None) -> bool:
        """Wait until the journal holds an event after number `seen`, or until the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.newest <= seen:
                    await self._news.wait()
        return self.newest > seen

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Tell whoever waits about the journal's growth, for the time of the block or until the engine is gone."""
        self.newest = max(self.newest, await self.read(self.app.reader.last_seq))
        async with beside(self._follow()):
            yield

    async def _follow(self) -> None:
        """Ends when there is no engine to hear from any more; who keeps the repository open finds another one."""
        with suppress(EngineGone, RepositoryGone):
            while self.session is not None:
                await self.session.link.grown(self.newest)
                self.tell(await self.read(self.app.reader.last_seq))

    def tell(self, newest: int) -> None:
        """Wake everybody who waits for news."""
        self.newest = max(self.newest, newest)
        news, self._news = self._news, asyncio.Event()
        news.set()

    def close(self) -> None:
        """Let the thread go."""
        self._reading.shutdown(wait=False, cancel_futures=True)
