"""Where a daemon is found: a small file in the state of each repository that it serves, and one in its own folder.

The file says who wrote it, so that a stale one is seen, and where the token lies; it holds no secret itself, and is
private all the same. Nothing here is slow to import: whoever looks for a daemon is often short-lived.
"""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct
from msgspec.structs import asdict

from orchard.engine.server.address import read_note, write_note
from orchard.process.families.identity import Identity, is_alive

ADDRESS_FILE = "http.json"
FOLDERS = "http-*"
"""The daemons' own folders, in the runtime folder of the user."""


class HttpAddress(Struct, frozen=True):
    pid: int
    started: float
    boot: str
    url: str
    """Where it listens, with a slash at the end and without a code."""
    token_file: str
    repositories: list[str]
    """The folders that it serves."""
    version: str
    stopping: bool = False
    """Whether it only waits for running jobs to end."""

    @property
    def identity(self) -> Identity:
        """The process that wrote this."""
        return Identity(self.pid, self.started, self.boot)

    @property
    def folder(self) -> Path:
        """The daemon's own folder, with its token and its codes."""
        return Path(self.token_file).parent


def read_http_address(state: Path) -> HttpAddress | None:
    """The daemon that serves the repository with this state folder, if there is one and it lives."""
    try:
        address = HttpAddress(**read_note(state / ADDRESS_FILE))
        return address if is_alive(address.identity) else None
    except (OSError, ValueError, TypeError, RecursionError):
        return None


def daemons(runtime: Path) -> Iterator[HttpAddress]:
    for folder in sorted(runtime.glob(FOLDERS)):
        address = read_http_address(folder)
        if address is not None:
            yield address


def write_http_address(state: Path, address: HttpAddress) -> None:
    """Say where we are, all of it at once."""
    write_note(state / ADDRESS_FILE, asdict(address))


def remove_http_address(state: Path, address: HttpAddress) -> None:
    """Take our own file away, and nobody else's."""
    with suppress(OSError, ValueError, RecursionError, AttributeError):
        if json.loads((state / ADDRESS_FILE).read_text()).get("token_file") == address.token_file:
            (state / ADDRESS_FILE).unlink(missing_ok=True)
