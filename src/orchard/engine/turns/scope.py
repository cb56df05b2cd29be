"""Where an agent sits, from its first turn to the end of the attempt or of the subtask: what it handed out to others.

Subtasks go on while the agent that asked for them is in another turn, or idle. They end with its work: when it is done,
has failed or was stopped, those that still run are ended and what they did is saved (`subtask.end_subtasks`). So
nothing runs for a job that is over.

Our own MCP server is handed to the agent for each turn, with a job token that speaks for its job alone. An agent within
our own process speaks with the server at once. For others the token lies in a file of the turn's own folder, not in an
argument or a variable, which children inherit and others can read. It is good until the turn ends.
"""

import asyncio
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.agents.protocol import Agent, McpServer, Settings
from orchard.engine.context import Context
from orchard.engine.interruption import Interruptible
from orchard.engine.server.server import open_channel
from orchard.engine.turns.job_tokens import Scope
from orchard.model.events.plans import SubtasksAnswered, SubtasksAwaited
from orchard.model.plan import Work

NAME = "orchard"
SPARE_NAME = "orchard-job"
"""Where the plan names a server of its own that is called like ours."""
LANGUAGE = "mcp"
LANGUAGE_WITHIN = "tools"
"""In our own process the tools are called without the protocol around them."""
PASS_FILE = "orchard-pass.json"


class Desk(Struct, eq=False):
    context: Context
    agent: str = ""
    settings: Settings = field(default_factory=Settings)
    work: Work | None = None
    children: "dict[str, asyncio.Task[None]]" = field(default_factory=dict)
    """Its subtasks that have a slot or wait for one; those that are at rest have no task."""
    orders: dict[str, Any] = field(default_factory=dict)
    """By subtask, what it was asked for (`subtask.Order`); what is not known here follows from the journal."""
    folder: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by whoever takes a picture of its folder, or writes there."""
    turn: Interruptible | None = None
    """Of a subtask's agent: how its turn can be ended. That of a job's agent is in `Engine.live`."""
    seated: int = 0
    """Counts the turns; 0: none is under way, and nothing is handed out."""
    turns: int = 0
    waits: int = 0
    """How many of its calls wait for subtasks; while there are any, its slot is lent."""
    told: int = 0
    """How often the agent has told in this turn how far it is."""
    asked: int = 0
    """How many of its requests in this turn were recorded, of those that it could make without end."""
    ending: set[str] = field(default_factory=set)
    """Subtasks whose agents have had their last turn, and hear nothing more."""
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    """Set where those who end its subtasks want no more patience with them."""
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def news(self) -> None:
        await self._news.wait()

    def sit(self, context: Context, agent: str, settings: Settings, work: Work | None) -> None:
        """The agent begins a turn."""
        self.context, self.agent, self.settings, self.work = context, agent, settings, work
        self.turns += 1
        self.seated, self.told, self.asked = self.turns, 0, 0

    def stand_up(self) -> None:
        """The turn is over. What the agent was not told of its subtasks meanwhile, its next turn tells."""
        self.seated = 0
        if self.waits:
            self.waits = 0
            self._go_on()
        self.tell()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The agent does nothing but wait during the block, as far as its own call tells."""
        turn = self.seated
        self.waits += 1
        if self.waits == 1:
            self._record(SubtasksAwaited)
            self.context.engine.subtask_slots.free()
        try:
            with self.context.engine.activity.resting(scope_of(self.context)):
                yield
        finally:
            if self.seated == turn:  # else the slot was taken back when the turn ended
                self.waits -= 1
                if not self.waits:
                    self._go_on()

    def _go_on(self) -> None:
        self._record(SubtasksAnswered)
        self.context.engine.subtask_slots.take_back()

    def _record(self, event: type[SubtasksAwaited | SubtasksAnswered]) -> None:
        context = self.context
        context.record(event(context.job_id, context.number, context.subtask))


def scope_of(context: Context) -> Scope:
    return Scope(context.run.id, context.job_id, context.number, context.subtask)


def desk_of(context: Context) -> Desk:
    """Where the agent of an attempt or of a subtask sits; it is kept until that is over."""
    found = context.engine.desks.setdefault(scope_of(context), Desk(context))
    assert isinstance(found, Desk)
    return found


@contextmanager
def at_desk(context: Context, agent: str, settings: Settings, work: Work | None) -> Iterator[None]:
    """An agent has its turn for the time of the block; its subtasks go on when it ends."""
    desk = desk_of(context)
    desk.sit(context, agent, settings, work)
    try:
        yield
    finally:
        desk.stand_up()


# --------------------------------------------------------------------------------- our own server


def is_offered(context: Context, agent: Agent, purpose: str) -> bool:
    """Whether the agent gets our server in such a turn: it can use one, and somebody speaks with it at our door."""
    job_tokens = context.engine.job_tokens
    if purpose == "resolve" or not context.world.config.agent_tools:
        return False
    return job_tokens.socket is not None and LANGUAGE in job_tokens.languages and agent.takes_servers


def offered_name(context: Context, agent: Agent, purpose: str, settings: Settings) -> str | None:
    return _name(settings) if is_offered(context, agent, purpose) else None


def _name(settings: Settings) -> str:
    return SPARE_NAME if any(server.name == NAME for server in settings.mcp_servers) else NAME


@contextmanager
def with_server(context: Context, agent: Agent, purpose: str, settings: Settings, scratch: Path) -> Iterator[Settings]:
    """The settings with our server among them, where it is offered; the job token ends with the block."""
    job_tokens = context.engine.job_tokens
    if not is_offered(context, agent, purpose) or job_tokens.socket is None:
        yield settings
        return
    with job_tokens.issued(scope_of(context)) as secret:
        if agent.is_within:
            dial = partial(open_channel, job_tokens.socket, secret, LANGUAGE_WITHIN)
            server = McpServer(_name(settings), offered=True, dial=dial)
            yield replace(settings, mcp_servers=(*settings.mcp_servers, server))
            return
        file = scratch / PASS_FILE
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(file, flags, 0o600), "w") as out:
            json.dump({"socket": job_tokens.socket, "pass": secret}, out)
        # Neither the job's worktree nor its variables may decide which program this is: it shows the token.
        words = ("-E", "-P", "-m", "orchard.surfaces.mcp.relay.relay", "--pass", str(file))
        server = McpServer(_name(settings), sys.executable, words, offered=True)
        yield replace(settings, mcp_servers=(*settings.mcp_servers, server))
