"""From a folder to an open channel: find the engine of its repository, or start a daemon that is one.

Light on purpose, and without asyncio: this runs in the process that a host starts for every chat. What only a start
needs is imported for a start.
"""

import json
import os
import socket
import stat
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from orchard.engine.server.address import Address, read_address
from orchard.errors import OrchardError, hint_from
from orchard.git.repository import Repository, find_repository
from orchard.store.logs import log_size, read
from orchard.surfaces.mcp.selection import Selection
from orchard.surfaces.mcp.server.frames import LINE_BYTES

TRIES = 5
PAUSE = 0.2
"""Seconds between two tries to reach an engine that ends or begins in this moment."""
DOOR_SECONDS = 10.0
READY_SECONDS = 60.0
"""How long a door may take to answer, and a server behind it to be ready."""
IDLE_SECONDS = 900
"""A daemon that was started for a chat ends when nothing was asked of it for so long."""
PASS_BYTES = 64 * 1024
OWN_WALL = ("ORCHARD_SANDBOX", "ORCHARD_SANDBOX_LEVEL")
"""Variables that say which wall our host asks for: for itself, and not for others who will ask the same daemon."""


class NoDaemon(OrchardError):
    """There is no engine, and none was to be started."""


class Wanted(Struct, frozen=True):
    """What a relay was started for."""

    folder: Path = field(default_factory=Path)
    toolsets: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    read_only: bool = False
    pass_file: Path | None = None
    """Where an agent's pass lies; with one, a daemon is never started and no other engine is spoken to."""

    @property
    def selection(self) -> Selection:
        """The tools that are wanted; UsageError for a name that there is not."""
        return Selection.from_names(self.toolsets, self.tools, self.exclude, self.read_only)

    @property
    def args(self) -> dict[str, Any]:
        """The same, as the channel is told it."""
        return {
            "toolsets": list(self.toolsets),
            "tools": list(self.tools),
            "exclude": list(self.exclude),
            "read_only": self.read_only,
            "relay": True,
            "variables": {name: os.environ[name] for name in OWN_WALL if os.environ.get(name)},
        }


class Joined(Struct, frozen=True):
    """An open channel, what was read beyond its first line, and what can be asked again on it."""

    socket: socket.socket
    read: bytes
    read_only: frozenset[str]


def join(wanted: Wanted, *, start: bool) -> Joined:
    """Open a channel; OrchardError says why there is none."""
    if wanted.pass_file is not None:
        shown = _read_pass(wanted.pass_file)
        joined = _open(shown["socket"], {"pass": shown["pass"]}, wanted)
        if joined is None:
            raise NoDaemon("The engine that gave this pass does not take it any more.", "The turn it was for is over.")
        return joined
    repo, address = find_repository(wanted.folder), None
    for attempt in range(TRIES):
        address = read_address(repo.state)
        if address is None and not start:
            raise NoDaemon("No engine works on this repository.")
        if address is None:
            start_daemon(repo)
            address = read_address(repo.state)
        if address is not None:
            joined = _open(address.socket, {"nonce": address.nonce}, wanted)
            if joined is not None:
                return joined
        # It ended in the moment in which we came, or does not listen yet.
        time.sleep(PAUSE * (attempt + 1))
    raise NoDaemon("The Orchard daemon of this repository cannot be reached.", _log_hint(repo.state, address))


def _log_hint(state: Path, address: Address | None) -> str:
    if address is not None:
        return f"Process {address.pid} says that it is there; 'orchard stop' ends it."
    return f"'orchard doctor' looks for what is wrong; the daemon's own words are in {state}"


def start_daemon(repo: Repository) -> None:
    """Have a daemon start, and wait until it can be asked; it refuses what a person has not agreed to."""
    from orchard.process.detached import start_detached

    place = repo.main_top or repo.top or repo.common_dir
    repo.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = repo.state / "engine.log"
    words = ["serve", "--repo", str(place), "--background", "--until-idle", str(IDLE_SECONDS), "--json"]
    begun = log_size(log) or 0
    # It starts the daemon, waits until that is ready, and ends: then the descriptor that it was given is closed.
    env = {name: value for name, value in os.environ.items() if name not in OWN_WALL}
    problem = start_detached([sys.executable, "-m", "orchard", *words], log, env)
    if read_address(repo.state) is None:
        raise _not_started(problem, log, begun)


def _not_started(problem: str, log: Path, begun: int) -> NoDaemon:
    try:
        said = json.loads(problem)
        return NoDaemon(str(said["message"]), hint_from(said.get("hint")))
    except (ValueError, KeyError, TypeError):
        return NoDaemon(problem or _said(log, begun) or "The daemon did not start.", f"More in {log}")


def _said(log: Path, begun: int) -> str:
    """What the daemon said before it gave up."""
    try:
        rows = read(log, begun, PASS_BYTES).data.decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((row.removeprefix("error: ") for row in rows if row.startswith("error: ")), "")


def _read_pass(path: Path) -> Mapping[str, str]:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
                raise NoDaemon("The file with the pass is not only yours to read.")
            said = json.loads(file.read(PASS_BYTES))
        return {"socket": str(said["socket"]), "pass": str(said["pass"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise NoDaemon("There is no pass for this server: the turn it was for is over.") from error


def _open(path: str, greeting: Mapping[str, str], wanted: Wanted) -> Joined | None:
    """Become a channel of the engine that listens here; None where nobody does, or where we are not let in."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(DOOR_SECONDS)
        connection.connect(path)
        asked = {"op": "channel", "name": "mcp", "args": wanted.args}
        connection.sendall(_line(greeting) + _line(asked))
        first, rest = _read_line(connection, b"")
        _raise_if_refused(first)
        connection.settimeout(READY_SECONDS)
        ready, rest = _read_line(connection, rest)
        _raise_if_refused(ready)
        connection.setblocking(False)
        return Joined(connection, rest, frozenset(str(name) for name in ready.get("read_only") or ()))
    except (OSError, ValueError, RecursionError):
        connection.close()
        return None
    except OrchardError:
        connection.close()
        raise


def _raise_if_refused(said: Mapping[str, Any]) -> None:
    error = said.get("error") or said.get("refused")
    if isinstance(error, dict):
        raise NoDaemon(str(error.get("message")), hint_from(error.get("hint")))


def _line(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _read_line(connection: socket.socket, read: bytes) -> tuple[Mapping[str, Any], bytes]:
    while b"\n" not in read:
        data = connection.recv(64 * 1024)
        if not data or len(read) > LINE_BYTES:
            raise ConnectionError("it ended before it answered")
        read += data
    line, _, rest = read.partition(b"\n")
    said = json.loads(line)
    return said if isinstance(said, dict) else {}, rest
