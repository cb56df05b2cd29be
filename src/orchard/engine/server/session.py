"""One process's way to the engine of a repository: its own, or one that runs elsewhere.

Either way requests go to the engine and what happens is read from the journal; the session only
has to be told when there is something new to read.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol

from msgspec import Struct, field

from orchard.config.layers import Config
from orchard.config.user_dirs import UserDirs
from orchard.core.replay import apply
from orchard.core.run import Run
from orchard.engine.server.server import Caller, EngineGone
from orchard.errors import Say
from orchard.git.repository import Repository
from orchard.model.events.plans import Json, Recorded
from orchard.model.plan import Plan, PlanId, Work
from orchard.model.plan_codec import plan_json, work_json
from orchard.model.sandbox import Level
from orchard.model.statuses import PlanStatus
from orchard.store.reader import JournalReader

BLOCK = 1000
GATHER = 0.02
"""Seconds that news may wait for more of them."""


class Answering(Protocol):
    """Who answers requests: `operations.handler` is the one."""

    came: asyncio.Event

    async def handle(self, name: str, args: Mapping[str, Any], sandbox: Level | None = None) -> Json: ...


class Place(Struct, frozen=True):
    repo: Repository
    config: Config
    dirs: UserDirs
    reader: JournalReader
    say: Say
    """What makes texts of the hints that are recorded."""
    answering: Callable[[Any, JournalReader], Answering]
    """Makes what answers requests, given the engine that this process becomes; who only looks never imports engines."""
    channels: Mapping[str, "Speaking"] = field(default_factory=dict)
    """Who speaks other languages at the engine's door, should this process become the engine."""
    companions: Mapping[str, "Callable[[], Companion]"] = field(default_factory=dict)
    """Who follows the journal beside the engine, should this process become the engine."""
    changed_settings: Callable[[], Sequence[str]] = tuple
    """The files of settings that are not as they were read; see `World`."""
    wall_with: Callable[[Mapping[str, str]], Level] = lambda variables: "auto"
    """The wall that is asked for by who has these variables, here."""
    opening_line: Callable[[str, str], str] = "{} = [{}]".format
    """How a person gives a setting one more value; see `World`."""


ASKS: ContextVar[Level | None] = ContextVar("ASKS")
"""The wall that who speaks at a channel asks for, where that is not who opened the session; None: an agent, who may not
ask."""


class Link(Protocol):
    """How requests reach the engine, and how its news reach us."""

    async def request(self, op: str, args: Mapping[str, Any], sandbox: Level | None = None) -> Json: ...

    async def grown(self, seen: int) -> None:
        """Wait until the journal holds an event after number `seen`."""

    async def interrupt(self) -> str:
        """Ctrl-C: what was done about it."""

    async def wait_idle(self) -> None:
        """Wait until nothing is left that would end with this process."""


class Companion(Protocol):
    """Who follows the journal for as long as the engine of this process lives; the engine does not know of it."""

    async def follow(self, session: "Session", since: int) -> None:
        """Follow what comes after event `since`; canceled when the engine ends. It raises nothing of its own."""

    async def close(self) -> Sequence[str]:
        """Finish, once the engine has ended and its lock is given back; what a person should know."""


Speaking = Callable[["Session", Caller], Awaitable[None]]
"""A channel, given the session of the engine that it belongs to."""


class Session:
    def __init__(
        self,
        link: Link,
        reader: JournalReader,
        *,
        owns_engine: bool,
        last_words: Sequence[str] = (),
        sandbox: Level | None = None,
    ) -> None:
        self.link, self._reader = link, reader
        self.sandbox = sandbox
        """The wall that requests ask for: what the settings and variables of this process say."""
        self.last_words = last_words
        """What a person should know when the session is over and the engine, if it was ours, is gone."""
        self.owns_engine = owns_engine
        """Whether the jobs run in this process, and end with it."""

    async def request(self, op: str, **args: Any) -> Json:
        """Ask the engine for something; plans and works may be given as they are."""
        plain = {name: _plain(value) for name, value in args.items()}
        return await self.link.request(op, plain, ASKS.get(self.sandbox))

    async def follow(self, plan: PlanId, run: Run | None = None) -> AsyncIterator[list[Recorded]]:
        """What happens to a plan, in batches, until it is over or waits for a person.

        Whoever gives a run that is known so far keeps it up to date with what comes.
        """
        own = run is None
        run = run or Run(plan)
        at = run.seq
        gone: EngineGone | None = None
        while True:
            newest = self._reader.last_seq()
            batch = await self._next(plan, at)
            if batch:
                at = batch[-1].seq
                if own:
                    for recorded in batch:
                        apply(run, recorded)
                yield batch
            if len(batch) == BLOCK:
                await asyncio.sleep(0)
                continue
            if at == 0 or self._is_over(run):
                return
            if gone is not None:
                raise gone
            try:
                await self.link.grown(newest)
                # What comes in quick succession is read at once.
                await asyncio.sleep(GATHER)
            except EngineGone as error:
                gone = error  # once it has ended, the journal holds all there will be: it is read once more

    async def _next(self, plan: PlanId, at: int) -> list[Recorded]:
        """The next block of what happened; what only the file knows is read beside everything else that goes on."""
        recent = self._reader.recent
        known = recent.since(at, plan) if recent is not None else None
        if known is not None:
            return known[:BLOCK]
        return await asyncio.to_thread(lambda: list(self._reader.events(plan, at, BLOCK)))

    def _is_over(self, run: Run) -> bool:
        if run.purged or run.settled:
            return True
        if run.is_active:
            return False
        if run.status is PlanStatus.PENDING and run.plan.after is not None and not run.begins_alone:
            # Where that one failed, or is gone, the engine asks about it in a moment: then this one waits.
            first = self._reader.plan(PlanId(run.plan.after))
            return first is not None and first.status in (PlanStatus.PAUSED, PlanStatus.WAITING)
        return run.status in (PlanStatus.WAITING, PlanStatus.PAUSED, PlanStatus.SCAFFOLDING)

    async def interrupt(self) -> str:
        """Ctrl-C: the owner of the engine cancels what runs in it, a follower only goes away."""
        return await self.link.interrupt()

    async def wait_idle(self) -> None:
        """The owner stays until nothing is left to do, also for plans that others handed in."""
        await self.link.wait_idle()


def _plain(value: Any) -> Any:
    if isinstance(value, Plan):
        return plan_json(value)
    if isinstance(value, Work):
        return work_json(value)
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
