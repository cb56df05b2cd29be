"""The one vocabulary of agents: what each is given, what it tells while it works, and how its work ends.

A `Task` goes in; what happens meanwhile is told as a `Telling`; a `Result` comes out, judged by the agent's own last
word and never by an exit code alone. An `Agent` turns the one into the other: a CLI, an ACP server, our own loop.

An agent only works in a folder. It knows no plan and no journal: who runs it decides what is recorded,
what is tried again, and whether what it left counts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Literal, Protocol

from msgspec import Struct, field

from orchard.agents.permissions import Holds
from orchard.errors import Hint
from orchard.model.limits import Limits
from orchard.model.permissions import ALL, Tools
from orchard.model.plan import Effort, Tier
from orchard.model.usage import Usage
from orchard.process.families.identity import Identity
from orchard.process.launcher import Launcher

Reason = Literal[
    "done",
    "failed",
    "refused",
    "denied",
    "max-turns",
    "budget",
    "session-lost",
    "not-logged-in",
    "rate-limit",
    "overloaded",
    "network",
    "timeout",
    "idle",
    "output-limit",
    "spawn-failed",
    "signal",
    "health",
]
"""How a turn ended. `refused`: the model would not; `denied`: tools it needed were not allowed; `health`: whoever runs
it ended it, because it was not well; `failed`: anything without a word of its own. Those of programs (`timeout` ...
`signal`) mean what they mean for any program."""

TRANSIENT: frozenset[Reason] = frozenset({"rate-limit", "overloaded", "network"})
"""Ends that may be different in a moment: the same turn is tried again after a wait."""


Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


class McpServer(Struct, frozen=True):
    """A server whose tools the agent may use: a command to start, or an address."""

    name: str
    command: str | None = None
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    offered: bool = False
    """Nobody asked for it: an agent that cannot use it does without, and says nothing."""
    dial: Dial | None = None
    """Instead of both, for an agent that works within our own process: opens a connection to it."""


class Settings(Struct, frozen=True):
    """What a plan may ask of an agent; one that cannot honour a setting says so with `Noted`."""

    model: str | None = None
    tier: Tier | None = None
    effort: Effort | None = None
    max_turns: int | None = None
    allowed_folders: tuple[Path, ...] = ()
    """Beside the task's folder."""
    allowed_urls: tuple[str, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()
    tools: Tools = ALL
    """What it may use of all that it has. Where an agent cannot be held to it, it says so."""


class Task(Struct, frozen=True):
    instructions: str
    """Everything it is told, in Markdown; may be long."""
    folder: Path
    """Where it works: its current directory, and what it may write to."""
    env: Mapping[str, str]
    """The whole environment, already reduced to what this agent may see."""
    private: Path
    """A folder of this job's own, outside of `folder`: configuration and sessions of the agent. It outlives the turn,
    so that a later one can resume. 0700, exists."""
    scratch: Path
    """A temporary folder of this turn's own, not inside `private`, nor around it. 0700, exists."""
    log: Path
    """What people read. Whoever runs the turn writes there what it is told; only what programs print to their standard
    error goes there directly."""
    launcher: Launcher
    settings: Settings = field(default_factory=Settings)
    session: str | None = None
    calls_before: int = 0
    """Calls of the model that were made for this turn already, before something cut it off: they count against the
    limits of the agent's own. `settings.max_turns` is what is left of the plan's."""
    limits: Limits = field(default_factory=Limits)
    judges: bool = False
    """Whether it checks or heals what others did in `folder`: commands and skills that lie there are not read, since
    those whose work is judged could have written them."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Variables that have these values whatever `env` or the user's settings say: behind a wall, those that held a key,
    and those that name the address of a model."""
    routes: Mapping[str, str] = field(default_factory=dict)
    """Addresses at which models are found behind a wall, by the names of their services."""
    trusted_project_settings: bool = False
    """Whether the user has agreed to what `folder` holds for this agent's own program: hooks, servers, addresses. Where
    not, the program is started so that none of it counts."""

    @property
    def walled(self) -> bool:
        """Whether a wall of ours stands around the programs of the turn."""
        return self.launcher.wall is not None


class Said(Struct, frozen=True):
    """Text for people: what the agent says, or a part of it."""

    text: str


class Called(Struct, frozen=True):
    tool: str
    about: str = ""
    """In a line: the command, the path, the query."""
    failed: bool = False
    """Told once more, when the tool has failed."""
    input: str = ""
    """A digest of all that it was called with (`digest`), by which the same call is known; empty: not known."""


def digest(arguments: object) -> str:
    """What stands for the input of a tool, also of one that takes nothing (`{}`); empty where it is not known."""
    known = bool(arguments) or isinstance(arguments, dict)
    return sha256(repr(arguments).encode(errors="replace")).hexdigest()[:16] if known else ""


class Used(Struct, frozen=True):
    """Tokens, requests and cost since the last one of these."""

    usage: Usage


class Session(Struct, frozen=True):
    id: str


class Heard(Struct, frozen=True):
    """The agent has taken in what this turn tells it: its session holds the text, also if the turn is stopped now.

    Told once, as soon as it is certain and not before; a turn that ends as `done` has heard it in any case.
    """


class Noted(Struct, frozen=True):
    """Something that whoever reads the job should know: a setting without effect, a retry, a denied tool."""

    kind: str
    """A word: `setting`, `retry`, `denied`, `session`, `mcp`, `compacted`, `warning`."""
    message: str


Telling = Said | Called | Used | Session | Heard | Noted
Tell = Callable[[Telling], None]


class Result(Struct, frozen=True):
    reason: Reason
    message: str = ""
    """One sentence for people, empty where all went well."""
    text: str = ""
    """The agent's last words: its summary of what it did."""
    session: str | None = None
    exit_code: int | None = None
    retry_after: float | None = None
    """Seconds that the model's owner asks us to wait, for ends that are transient."""
    leftovers: int = 0
    """Processes that were still running when the agent had ended."""
    hint: Hint | None = None
    """What to do about it, where the agent knows that better than the reason tells."""

    @property
    def ok(self) -> bool:
        """Whether the agent says that it did what it was asked."""
        return self.reason == "done"


class Wanted(Struct, frozen=True):
    """A call that an agent wants to make, and that a person is asked about."""

    tool: str
    about: str = ""
    """In a line, as in `Called`."""
    input: str = ""
    """All of it, as JSON or as the agent words it: what a person has to see before the answer."""


class Permit(Struct, frozen=True):
    allowed: bool
    why: str = ""
    """For the agent, where it is not allowed: a sentence."""


Person = Callable[[Wanted], Awaitable[Permit]]
"""Asks a person, and answers in any case: whoever does not answer in time has not allowed it."""


class Watch(Struct, frozen=True):
    """What ties a turn to whoever runs it."""

    tell: Tell
    on_start: Callable[[Identity], Awaitable[None]]
    """Hears of every program that is started for the turn, before anything else happens to it."""
    hurry: asyncio.Event
    """Set: skip the grace when the turn is canceled."""
    stop: Callable[[], str | None] = lambda: None
    """Why the model must not be called again: a budget that is used up. Asked before each call by who makes them; the
    turn then ends as `budget`."""
    person: Person | None = None
    """Who is asked before calls that need a person; None: nobody is there, and such calls are refused."""
    alive: Callable[[], None] = lambda: None
    """Called when something is going on that is not worth telling: a model thinks, a tool has answered."""


class Agent(Protocol):
    """Whatever can be given a task and a folder."""

    @property
    def name(self) -> str: ...

    @property
    def variables(self) -> tuple[str, ...]:
        """The host's variables that it may see, beside those that everybody may."""
        ...

    @property
    def takes_servers(self) -> bool: ...

    @property
    def is_within(self) -> bool:
        """Whether it works within the process that asks it to: what that offers, it needs no program to reach."""
        ...

    @property
    def holds(self) -> Holds:
        """How far it can be held to what it may use."""
        ...

    async def run(self, task: Task, watch: Watch) -> Result:
        """Work on the task to the end of the turn; when this returns or raises, nothing of it is running any more.

        What goes wrong is a `Result`; only cancellation is raised.
        """
        ...
