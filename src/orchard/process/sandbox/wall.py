"""A wall for programs of one workspace: its kind, what it lets through, and what programs behind it are told."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.process.sandbox.policy import Policy


class Wall(Struct, frozen=True):
    level: Literal["bwrap", "landlock"]
    policy: Policy
    env: Mapping[str, str] = field(default_factory=dict)
    """Over the variables of a program: where toolchains are, and where git may write."""

    def opened(
        self,
        *,
        writable: tuple[Path, ...] = (),
        exposed: tuple[Path, ...] = (),
        sockets: tuple[Path, ...] = (),
        home: Path | None = None,
        temporary: Path | None = None,
    ) -> "Wall":
        """The same wall with more open in it, for an agent that has folders and a door of its own."""
        policy = replace(
            self.policy,
            writable=(*self.policy.writable, *writable),
            exposed=(*self.policy.exposed, *exposed),
            sockets=(*self.policy.sockets, *sockets),
            home=home or self.policy.home,
            temporary=temporary or self.policy.temporary,
        )
        return replace(self, policy=policy)
