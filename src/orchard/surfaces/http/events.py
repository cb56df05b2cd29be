"""What happens, told as it happens: server-sent events whose numbers are those of the journal.

A client's queue is the journal itself. Whoever is behind reads it in blocks; whoever keeps up shares the newest events
with everybody else, read and written as JSON once (`Feed`). So a client costs a number, however slow it is, and a
hundred of them cost one reader. Nobody polls: `Served.newer` wakes whoever has seen everything.
"""

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable

from msgspec import Struct

from orchard.app import App
from orchard.core.run import Run
from orchard.core.views.events import event_view
from orchard.errors import NotFound, UsageError
from orchard.model.events.plans import Recorded
from orchard.model.plan import PlanId
from orchard.operations.queries.plans import plan_document
from orchard.surfaces.http.problems import json_bytes
from orchard.surfaces.http.streams import Streams, first_frame, frame
from orchard.surfaces.served import Served

BLOCK = 200
"""Events that are read at once."""
CHUNK_BYTES = 256 * 1024
KEPT = 1000
KEPT_DOCUMENTS = 8
KEPT_BYTES = 2 * 1024 * 1024
GATHER_PER_CLIENT = 0.0005
LONGEST_GATHER = 0.2
"""The more clients there are, the longer news wait for more of them: few large writes instead of many small ones."""


class Sent(Struct, frozen=True):
    seq: int
    plan: str
    data: bytes


class Feed:
    """The events of one repository; the newest of them are kept for all who listen."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self._kept: list[Sent] = []
        self._size = 0
        self._floor = self._top = served.newest
        """Everything that came after `_floor`, up to `_top`, is kept."""
        self._filling = asyncio.Lock()

    async def begin(self, since: int | None) -> int:
        """Where a client begins: after the event that it saw last, or now."""
        newest = await self.served.read(self.served.app.reader.last_seq)
        if newest > self.served.newest:
            self.served.tell(newest)
        if since is not None and since > newest:
            raise UsageError(
                f"The journal has no event {since} yet; the newest is {newest}.", "Begin anew: leave the number out."
            )
        return newest if since is None else since

    async def after(self, seen: int, plan: PlanId | None) -> tuple[bytes, int]:
        """What comes after event `seen`, as much as is sent at once, and the number to go on from."""
        if seen >= self._floor:
            await self._fill()
        if seen < self._floor:  # it is behind, or what it needs was let go meanwhile
            newest = self.served.newest
            found = await self.served.read(self._read, seen, plan)
            data, last, _ = _chunk(found, None)
            whole = len(found) < BLOCK and (not found or last == found[-1].seq)
            return data, max(newest, last) if whole else last
        at = bisect_right(self._kept, seen, key=lambda one: one.seq)
        top = self._top
        data, last, whole = _chunk(self._kept[at:], plan)
        return data, top if whole else last

    async def _fill(self) -> None:
        """Read what has come since the last time, once for everybody."""
        async with self._filling:
            newest = self.served.newest
            if newest - self._top > KEPT:  # nobody listened for a while
                self._kept, self._size, self._floor, self._top = [], 0, newest, newest
            while self._top < newest:
                found = await self.served.read(self._read, self._top, None)
                self._kept += found
                self._size += sum(len(one.data) for one in found)
                self._top = found[-1].seq if len(found) == BLOCK else max([newest, *(one.seq for one in found[-1:])])
            self._trim()

    def _trim(self) -> None:
        if len(self._kept) <= KEPT and self._size <= KEPT_BYTES:
            return
        gone = 0
        while len(self._kept) - gone > KEPT // 2 or self._size > KEPT_BYTES // 2:
            self._size -= len(self._kept[gone].data)
            gone += 1
        self._floor = self._kept[gone - 1].seq
        del self._kept[:gone]

    def _read(self, since: int, plan: PlanId | None) -> list[Sent]:
        return [sent(one) for one in self.served.app.reader.events(plan, since, BLOCK)]


def _chunk(events: Iterable[Sent], plan: PlanId | None) -> tuple[bytes, int, bool]:
    """Events as one piece, the number of the last one that was looked at, and whether that were all."""
    parts: list[bytes] = []
    size = last = 0
    for one in events:
        if size and size + len(one.data) > CHUNK_BYTES:
            return b"".join(parts), last, False
        last = one.seq
        if plan is None or one.plan == plan:
            parts.append(one.data)
            size += len(one.data)
    return b"".join(parts), last, True


async def frames(
    feed: Feed, streams: Streams, seen: int, plan: PlanId | None, idle: float | None
) -> AsyncIterator[bytes]:
    """What happens after event `seen`, until nothing has come for `idle` seconds."""
    yield first_frame(str(seen))
    loop = asyncio.get_running_loop()
    quiet_since = loop.time()
    while True:
        data, seen = await feed.after(seen, plan)
        if data:
            yield data
            quiet_since = loop.time()
        if seen < feed.served.newest:
            continue
        left = None if idle is None else max(0.0, quiet_since + idle - loop.time())
        if not await feed.served.newer(seen, left):
            return
        await asyncio.sleep(min(LONGEST_GATHER, streams.clients * GATHER_PER_CLIENT))


class Documents:
    """Documents of plans as they were sent last: one in which nothing has happened since is not made again."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[PlanId, int | None], tuple[tuple[int, bool, bool], bytes]] = OrderedDict()

    def of(self, app: App, name: str, since: int | None) -> tuple[int, bytes]:
        """The number of an event up to which a plan's document is complete, and the document.

        `since`: only what is another than after that event.
        """
        newest = app.reader.last_seq()
        run, gone = app.seen(app.find_plan(name))
        return newest, self._document(app, run, gone, since)

    def after(self, app: App, plan: PlanId, since: int) -> tuple[int, bytes] | None:
        """What happened to a plan after event `since`: the number of its last event, and what is another now."""
        run, gone = app.seen(plan)
        return (run.seq, self._document(app, run, gone, since)) if run.seq > since else None

    def _document(self, app: App, run: Run, gone: bool, since: int | None) -> bytes:
        name, state = (run.id, since), (run.seq, gone, run.ahead)
        kept = self._kept.pop(name, None)
        if kept is None or kept[0] != state:
            kept = state, json_bytes(plan_document(app, run, gone, since))
        self._kept[name] = kept
        while len(self._kept) > KEPT_DOCUMENTS:
            self._kept.popitem(last=False)
        return kept[1]


async def plan_frames(
    documents: Documents, served: Served, streams: Streams, plan: PlanId, seen: int, idle: float | None
) -> AsyncIterator[bytes]:
    """What changes in a plan after event `seen`; what changes while a client is slow is one change for it."""
    yield first_frame(str(seen))
    loop = asyncio.get_running_loop()
    quiet_since = loop.time()
    while True:
        newest = served.newest
        try:
            found = await served.read(documents.after, served.app, plan, seen)
        except NotFound:
            yield frame(json_bytes({"plan": plan}).decode(), "purged", str(newest))
            return
        if found is not None:
            seen = found[0]
            yield frame(found[1].decode(), "changes", str(seen))
            quiet_since = loop.time()
        left = None if idle is None else max(0.0, quiet_since + idle - loop.time())
        if not await served.newer(newest, left):
            return
        await asyncio.sleep(min(LONGEST_GATHER, streams.clients * GATHER_PER_CLIENT))


def sent(recorded: Recorded) -> Sent:
    """An event as clients get it: variables that look like secrets are hidden, and whole plans are left out."""
    body, name = event_view(recorded), type(recorded.event).__name__
    return Sent(recorded.seq, recorded.plan, frame(json_bytes(body).decode(), name, str(recorded.seq)))
