"""Keeping a repository open: as its engine, or beside the one that runs elsewhere until that one ends.

While no engine can be had the repository can still be read, whoever asks the engine for something is told why there is
none, and it is tried again.
"""

import asyncio
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from orchard.app import App
from orchard.engine.server.server import Caller, EngineGone
from orchard.engine.server.session import Link, Session
from orchard.engine.server.start import OwnEngine
from orchard.errors import OrchardError, SystemRefused
from orchard.model.events.plans import Json
from orchard.model.sandbox import Level
from orchard.process.background import beside
from orchard.surfaces.http.daemon.repos import NoEngine
from orchard.surfaces.http.daemon.shutdown import Haste, Stopping
from orchard.surfaces.mcp_channel import speak_mcp, speak_tools
from orchard.surfaces.notices.setup import add_notifier
from orchard.surfaces.served import Served

FIRST_WAIT, LONGEST_WAIT = 0.1, 30.0
"""Seconds between two tries to have an engine."""

LOOK_AGAIN = 5.0
"""Seconds after which an engine that nobody asks looks whether its repository was removed or replaced."""

STARTING = NoEngine("The engine of this repository is starting.", "Ask again in a moment.")


class Stopped(Exception):
    """What runs is to be stopped: carried through the engine, which ends its jobs on the way."""


class Kept(Served):
    """A repository that is kept open by a daemon."""

    def __init__(self, app: App, stopping: Stopping) -> None:
        super().__init__(app)
        self.problem: OrchardError | None = STARTING
        """Why there is no engine, while there is none."""
        self.channels = 0
        """Connections at the engine's door that speak MCP."""
        self.spoke = 0.0
        """When the last of them ended, by the monotonic clock."""
        self.settled = asyncio.Event()
        """Set once there is an engine, or a reason why there is none."""
        self.ended = asyncio.Event()
        self._stopping = stopping
        self._engine: OwnEngine | None = None
        self._task: asyncio.Task[Any] | None = None
        self._opening = False
        self._woken = asyncio.Event()
        stopping.listen(self._hasten)
        add_notifier(app)
        app.channels["mcp"] = self._speak
        app.channels["tools"] = lambda session, caller: speak_tools(session, caller, self)

    async def ask(self, verb: str, **args: Any) -> Json:
        """Ask the engine for something; where there is none the error says why."""
        if self.session is None and self.problem is not None:
            raise NoEngine(self.problem.message, self.problem.hint)
        return await super().ask(verb, **args)

    @property
    def owns_engine(self) -> bool:
        """Whether the jobs of this repository run in this process."""
        return self._engine is not None

    async def idle(self) -> bool:
        """Wait until nothing is left to do here; whether that was so at once."""
        engine = self._engine
        if engine is None or engine.engine.is_idle:
            return True
        await engine.wait_idle()
        return False

    async def keep(self) -> None:
        wait = FIRST_WAIT
        self._task = asyncio.current_task()
        try:
            while not self._stopping.haste:
                try:
                    await self._open()
                    wait = FIRST_WAIT
                except Stopped:
                    return
                except EngineGone:
                    pass  # it ended in the moment in which we came
                except OrchardError as error:
                    self._no_engine(error)
                except OSError as error:
                    self._no_engine(SystemRefused(error))
                except Exception as error:  # a bug in one engine must not take the other repositories with it
                    traceback.print_exc(file=sys.stderr)
                    self._no_engine(OrchardError(f"The engine stopped by a mistake of ours: {error!r}"))
                finally:
                    self._engine, self._opening = None, False
                await self._wait(wait)
                wait = min(2 * wait, LONGEST_WAIT)
        finally:
            self.session = self._engine = None
            self.problem = NoEngine("The daemon is stopping.", "orchard serve")
            self.ended.set()
            self.settled.set()

    async def _open(self) -> None:
        """Be the engine, or join it, until it is gone or the daemon is to end."""
        self._opening = True
        async with self.app.session() as session:
            self._opening = False
            link = _Watched(session.link, self._wake)
            self._engine = session.link if isinstance(session.link, OwnEngine) else None
            own, level = session.owns_engine, session.sandbox
            self.session, self.problem = Session(link, self.app.reader, owns_engine=own, sandbox=level), None
            try:
                # What happened while nobody listened is told first.
                self.tell(await self.read(self.app.reader.last_seq))
                async with self.following():
                    self.settled.set()
                    while not link.gone and not self._stopping.haste:
                        with suppress(TimeoutError):
                            async with asyncio.timeout(LOOK_AGAIN):
                                await self._sleep()
                        if self._engine is not None:
                            self._engine.engine.wake()  # it looks whether its repository is still there
                    await self._finish()
            finally:
                self.session, self.problem = None, STARTING

    async def _finish(self) -> None:
        """Start nothing new, and let what runs in this process end, if there is time for that."""
        if self._engine is None:
            return
        engine = self._engine.engine
        engine.starts_work = False
        async with beside(self._tell_when_idle(self._engine)):
            while not engine.is_idle and self._stopping.haste < Haste.STOP:
                await self._sleep()
        if self._stopping.haste >= Haste.STOP and not engine.is_idle:
            raise Stopped()

    async def _tell_when_idle(self, engine: OwnEngine) -> None:
        await engine.wait_idle()
        self._wake()

    def _hasten(self) -> None:
        self._wake()
        if self._opening and self._task is not None:
            self._task.cancel()  # it may be waiting long for an engine that does not answer
        if self._stopping.haste is Haste.NOW and self._engine is not None:
            for live in self._engine.engine.live.values():
                live.hurry.set()

    def _no_engine(self, error: OrchardError) -> None:
        self.problem = error
        self.settled.set()

    def _wake(self) -> None:
        self._woken.set()

    async def _sleep(self) -> None:
        await self._woken.wait()
        self._woken.clear()

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self._stopping.haste:
                    await self._sleep()

    async def _speak(self, session: Session, caller: Caller) -> None:
        self.channels += 1
        try:
            await speak_mcp(session, caller, self)
        finally:
            self.channels -= 1
            self.spoke = time.monotonic()


class _Watched:
    """A link to an engine that tells when the engine is gone."""

    def __init__(self, link: Link, tell: Callable[[], None]) -> None:
        self._link, self._tell = link, tell
        self.gone = False

    async def request(self, verb: str, args: Mapping[str, Any], sandbox: Level | None = None) -> Json:
        with self._noting():
            return await self._link.request(verb, args, sandbox)

    async def grown(self, seen: int) -> None:
        with self._noting():
            await self._link.grown(seen)

    async def interrupt(self) -> str:
        return await self._link.interrupt()

    async def wait_idle(self) -> None:
        await self._link.wait_idle()

    @contextmanager
    def _noting(self) -> Iterator[None]:
        try:
            yield
        except EngineGone:
            self.gone = True
            self._tell()
            raise
