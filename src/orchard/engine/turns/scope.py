"""Where an agent sits during its turn: the subtasks that it handed out, and the end of all of them with the turn.

A turn is the life of its subtasks. They go on while it is tried again after an error that passes; when it is over, for
whatever reason, those that still run are ended and what they did is saved. So nothing runs for a job that is over.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from msgspec import Struct, field

from orchard.agents.protocol import Settings
from orchard.engine.context import Context
from orchard.engine.turns.job_tokens import Scope
from orchard.model.events.plans import SubtasksAnswered, SubtasksAwaited
from orchard.model.plan import Work


class Desk(Struct, eq=False):
    context: Context
    agent: str
    settings: Settings
    work: Work | None
    children: "dict[str, asyncio.Task[None]]" = field(default_factory=dict)
    folder: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever takes a picture of its folder, or writes there."""
    left: bool = False
    """The turn is over: nothing more is handed out."""
    waits: int = 0
    """How many of its calls wait for subtasks; while there are any, its slot is lent."""
    told: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self) -> None:
        """Wake whoever waits for a subtask."""
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def news(self) -> None:
        await self._news.wait()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The agent does nothing but wait during the block, as far as its own call tells."""
        self.waits += 1
        if self.waits == 1:
            self._record(SubtasksAwaited)
            self.context.engine.subtask_slots.free()
        try:
            yield
        finally:
            if not self.left:  # else the slot was taken back when the turn ended
                self.waits -= 1
                if not self.waits:
                    self._go_on()

    def _go_on(self) -> None:
        self._record(SubtasksAnswered)
        self.context.engine.subtask_slots.take_back()

    def _record(self, event: type[SubtasksAwaited | SubtasksAnswered]) -> None:
        context = self.context
        context.record(event(context.job_id, context.number, context.subtask))

    async def leave(self) -> None:
        """End every subtask that still runs, and wait until each is saved, however often we are canceled meanwhile."""
        self.left = True
        if self.waits:
            self._go_on()
        running = list(self.children.values())
        for task in running:
            task.cancel()
        canceled: asyncio.CancelledError | None = None
        while waiting := [task for task in running if not task.done()]:
            try:
                await asyncio.wait(waiting)
            except asyncio.CancelledError as error:
                canceled = error
        self.tell()
        if running:
            many = f"{len(running)} subtasks" if len(running) > 1 else "a subtask"
            self.context.notes.append(f"{many} still ran when the turn ended; stopped, and what was done is saved")
        if canceled is not None:
            raise canceled


def scope_of(context: Context) -> Scope:
    return Scope(context.run.id, context.job_id, context.number, context.subtask)


@asynccontextmanager
async def at_desk(context: Context, agent: str, settings: Settings, work: Work | None) -> AsyncIterator[None]:
    """An agent has its turn for the time of the block; its subtasks end with it."""
    desk, scope = Desk(context, agent, settings, work), scope_of(context)
    desks = context.engine.desks
    desks[scope] = desk
    try:
        yield
    finally:
        del desks[scope]
        await desk.leave()
