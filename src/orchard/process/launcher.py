"""Where the processes of a job come from: whatever a job starts is started from a `Launch` that was made here.

Work, setup, checks, `verify`, agents' programs, ACP agents, the MCP servers and commands of the built-in agent: each
says what it wants to run (argv, folder, environment, and the limits of this one program), and its launcher says how.
A launcher is made for an attempt, a subtask, a lone agent or a question, and is handed down.
So what holds for all processes of a job (the token that ends them together, the wall around them) is decided in one
place.
"""

import secrets
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct, field

from orchard.model.limits import Limits
from orchard.process.program import Launch
from orchard.process.sandbox.wall import Wall


class Launcher(Struct, frozen=True):
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    """What every process carries that is started from here, so that all of them can be ended."""
    wall: Wall | None = None
    """What stands around each of them; None: nothing."""

    def launch(
        self,
        argv: tuple[str, ...],
        folder: Path,
        env: Mapping[str, str],
        log: Path,
        limits: Limits,
        *,
        pipes: bool = False,
        farewell: float | None = None,
    ) -> Launch:
        seen = env if self.wall is None else self.wall.told(env)
        return Launch(argv, folder, seen, log, self.token, limits, self.wall, pipes=pipes, farewell=farewell)

    def apart(self) -> "Launcher":
        """For one program among several: it can be ended by itself, and is ended with everything of this launcher's."""
        return Launcher(f"{self.token}~{secrets.token_hex(6)}", self.wall)

    def opened(
        self,
        *,
        writable: tuple[Path, ...] = (),
        exposed: tuple[Path, ...] = (),
        sockets: tuple[Path, ...] = (),
        home: Path | None = None,
    ) -> "Launcher":
        """For an agent, which has folders and a door of its own: with these open in the wall, where there is one."""
        if self.wall is None:
            return self
        return self.behind(self.wall.opened(writable=writable, exposed=exposed, sockets=sockets, home=home))

    def behind(self, wall: Wall) -> "Launcher":
        return Launcher(self.token, wall)
