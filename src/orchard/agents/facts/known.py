"""What is known about each agent before it is started: who makes it, how it is installed, where its login lies.

Whether somebody is logged in is judged by what can be seen without asking anybody: a key in the environment, or the
file in which the program keeps a login. Of such a file only its existence matters; it is never opened. Settings, which
most programs write by themselves, may hold a login only where a certain word is in them.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, field

from orchard.agents.permissions import Holds
from orchard.agents.protocol import Reason
from orchard.model.agent_rows import AgentRow, BuiltinRow
from orchard.model.plan import Tier

Ability = Literal["resume", "mcp", "effort", "max_turns", "usage", "cost", "models"]
"""What an agent can do: go on in a session, use MCP servers, honour `effort` and `max_turns`, tell tokens and cost,
and tell which models it has."""
ABILITIES: tuple[Ability, ...] = ("resume", "mcp", "effort", "max_turns", "usage", "cost", "models")

SETTINGS_BYTES = 256 * 1024
"""Of a file of settings no more is read."""

LoggedIn = Literal["yes", "no", "unknown"]


class Login(Struct, frozen=True):
    state: LoggedIn
    how: str


class Service(Struct, frozen=True, kw_only=True):
    """A way to a model over plain HTTP, with a key that somebody else can add: our proxy does, behind a wall."""

    key: str
    """The variable that holds the key."""
    address: str = ""
    """The variable that names the address; empty: its backend tells it otherwise, by the name of this."""
    usual: str = ""
    """The address where the variable is not set; empty: then it is not used."""
    name: str = "model"
    header: str = "Authorization"
    words: str = "Bearer"
    secret: str = ""
    """The key itself, where it is in no variable."""
    others: tuple[str, ...] = ()
    """More credentials for the same, which are of no use once the proxy adds one."""


def no_services(_: Mapping[str, str]) -> tuple[Service, ...]:
    return ()


class AcpTraits(Struct, frozen=True):
    """What suits one program that speaks the Agent Client Protocol. Never what it may see."""

    keys: tuple[str, ...] = ()
    """With any of these it needs no login by hand."""
    home: str = "HOME"
    """The variable that says where its settings and sessions are."""
    env: Mapping[str, str] = field(default_factory=dict)
    """What it is told where nobody says otherwise."""
    obeys: tuple[str, ...] = ()
    """What of a repository it obeys, and cannot be told over the protocol to leave out."""
    files: tuple[str, ...] = ()
    """Files of variables that it reads, there and in the folders above."""
    server_flag: str | None = None
    """How it is told of servers that are commands, where it takes none over the protocol."""
    failure: Callable[[str, bool, bool], tuple[Reason, str] | None] | None = None
    """Reads a failure out of its last words: these, whether it used a model, whether it was denied a tool."""


class Known(Struct, frozen=True):
    name: str
    vendor: str
    program: str
    install: str
    login: str
    keys: tuple[str, ...] = ()
    """Variables any of which is a credential."""
    folder: tuple[str, str] = ("", "")
    """The variable that names the program's own folder, and where it is below the home folder otherwise."""
    files: tuple[str, ...] = ()
    """In that folder: any of them is a login."""
    settings: tuple[tuple[str, str], ...] = ()
    """Files below the home folder, each with a word: where that is in it, it may hold a login."""
    abilities: frozenset[Ability] = frozenset()
    version: tuple[str, ...] = ("--version",)
    """Arguments with which it says its version; empty where none is known."""
    status: tuple[str, ...] = ()
    """Arguments with which the program says whether it is logged in, by its exit status."""
    keychain: bool = False
    """On macOS the login is in the keychain, which is not asked."""
    providers: tuple[str, ...] = ()
    """Variables any of which means that another service is asked, with credentials that only the program finds."""
    anonymous: bool = False
    """Some of its models need no login: it can be used without one by whoever names it, but is not chosen."""
    endpoints: tuple[str, ...] = ()
    """Variables that decide whom it asks, and so which models it has."""
    hosts: tuple[str, ...] = ()
    """What it reaches: its model, and where its login is renewed. Empty: nobody knows."""
    elsewhere: tuple[str, ...] = ()
    """Variables any of which means that it asks somebody else, at addresses that nobody knows."""
    services: Callable[[Mapping[str, str]], tuple[Service, ...]] = no_services
    """With these variables, the ways to a model for which it needs no key of its own."""
    acp: Mapping[str, AcpTraits] = field(default_factory=dict)
    """Programs that speak the Agent Client Protocol with its login and its variables, itself among them or not."""
    reads: tuple[str, ...] = ()
    """What it reads of a repository: names of files, or of folders with all that is in them."""
    droppings: tuple[str, ...] = ()
    """What it leaves for itself in a worktree: patterns of paths."""
    aliases: Mapping[str, Tier] = field(default_factory=dict)
    """Names that it knows by itself and that always mean its newest model, the first of a tier preferred."""
    more_aliases: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    """Variables of the user's that it may see, beside `keys`."""
    holds: Holds = "nothing"
    """How far it can be held to what it may use."""
    attach: tuple[str, ...] = ()
    """Arguments with which it opens a session for a person; `{session}` stands for its id. Empty: none is known."""
    own_folders: Mapping[str, str] = field(default_factory=dict)
    """Variables that name its folders, each with the folder below a job's private one where the job has its own."""

    @property
    def seen(self) -> tuple[str, ...]:
        return (*self.keys, *self.variables)


class AcpKnown(Known, frozen=True, kw_only=True):
    """One that is spoken with over the Agent Client Protocol: its value is all that there is of it.

    It may keep its login where only itself finds it, so that nobody but the program can say that there is none.
    """

    other_programs: tuple[str, ...] = ()
    """Other names of its program, for whoever asks for it by the name of the agent."""
    arguments: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    obeys: tuple[str, ...] = ()
    """Of what it reads, what runs programs or decides where keys go; empty: all of it may."""

    @property
    def traits(self) -> AcpTraits:
        """What suits it. It gets a home of the job's own only where a row asks for that."""
        return AcpTraits(home=self.folder[0] or "HOME", env=self.env, obeys=self.obeys or self.reads)


def can(*abilities: Ability) -> frozenset[Ability]:
    return frozenset({"resume", "mcp", "usage", "models", *abilities})


BUILTIN_ABILITIES = can("effort", "max_turns")
BUILTIN_KEYS = {"anthropic": "ANTHROPIC_API_KEY", "openai": "OPENAI_API_KEY"}
BUILTIN_SERVERS = {"anthropic": "ANTHROPIC_BASE_URL", "openai": "OPENAI_BASE_URL"}
BUILTIN_LOGIN = "Set {variable} to a key of your model's provider."


def program_login(known: Known, env: Mapping[str, str], row: AgentRow | None = None) -> Login:
    """Whether a program finds credentials with these variables, started as the row says.

    `no` is said only where the program would certainly fail: what the row adds may bring a login of its own.
    """
    for name in known.keys:
        if env.get(name):
            return Login("yes", f"{name} is set")
    home = Path(env.get("HOME") or Path.home())
    variable, below = known.folder
    folder = Path(env[variable]) if variable and env.get(variable) else home / below
    for name in known.files:
        if os.path.exists(folder / name):  # noqa: PTH110 - a folder that cannot be entered is as good as none
            return Login("yes", f"{_short(folder / name, home)} is there")
    for name, word in known.settings:
        place = folder / name.removeprefix(f"{below}/") if name.startswith(f"{below}/") else home / name
        if holds(place, word):
            return Login("unknown", f"{_short(place, home)} may hold a login")
    chosen = next((name for name in known.providers if env.get(name)), None)
    if chosen is not None:
        return Login("unknown", f"{chosen} is set: whether there is a login for that, only {known.program} knows")
    added = _added(row) if row is not None else None
    if added is not None:
        return Login("unknown", f"'{added}' of [agents.{known.name}] may bring a login of its own")
    if isinstance(known, AcpKnown):
        return Login("unknown", f"whether there is a login, only {known.program} knows")
    if known.anonymous:
        return Login("no", "no key is set and no login was found; some of its models need none")
    if known.keychain and sys.platform == "darwin":
        return Login("unknown", "a login may be in the keychain")
    return Login("no", "no key is set and no login was found")


def _added(row: AgentRow) -> str | None:
    """What of a row may bring a login that nobody but the program knows of."""
    given = {"command": row.command, "args": row.args, "env": row.env, "pass_env": row.pass_env}
    return next((name for name, value in given.items() if value), None)


def key_variable(row: BuiltinRow) -> str:
    return row.api_key_env or BUILTIN_KEYS[row.provider]


def builtin_login(row: BuiltinRow, env: Mapping[str, str]) -> Login:
    name = key_variable(row)
    return Login("yes", f"{name} is set") if env.get(name) else Login("no", f"{name} is not set")


def holds(path: Path, word: str) -> bool:
    try:
        if not path.is_file():
            return False
        with path.open("rb") as file:
            return word.encode() in file.read(SETTINGS_BYTES)
    except OSError:
        return False


def _short(path: Path, home: Path) -> str:
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
