"""A wall for programs of one workspace: its kind, what it lets through, and what programs behind it are told."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from orchard.process.sandbox.policy import INSIDE, Policy

_FOLDERS = {
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
    "XDG_CACHE_HOME": ".cache",
}
"""Variables that say where programs keep things, and where that is below a home."""
_RUNTIME = "XDG_RUNTIME_DIR"
_OF_GIT = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM")
"""Where git finds settings: one that may not read what these name ends with an error, or has none."""


class Wall(Struct, frozen=True):
    level: Literal["bwrap", "landlock"]
    policy: Policy
    env: Mapping[str, str] = field(default_factory=dict)
    """Over the variables of a program: where toolchains are, and where git may write."""

    @property
    def temporary(self) -> Path:
        """Where programs behind it find their temporary folder."""
        return INSIDE if self.level == "bwrap" else self.policy.temporary

    def told(self, env: Mapping[str, str]) -> dict[str, str]:
        """The variables of a program behind it: what its own folders are, where the host's would be hidden from it."""
        found = {**env, **self.env}
        for name, below in _FOLDERS.items():
            if name in found and not self.policy.may_write(Path(found[name])):
                found[name] = str(self.policy.home / below)
        if (place := found.get(_RUNTIME)) is not None and not self.policy.may_write(Path(place)):
            del found[_RUNTIME]  # nothing of it is there
        for name in _OF_GIT:
            if name in found and not self.policy.may_read(Path(found[name])):
                del found[name]
        return found

    def opened(
        self,
        *,
        writable: tuple[Path, ...] = (),
        exposed: tuple[Path, ...] = (),
        sockets: tuple[Path, ...] = (),
        home: Path | None = None,
    ) -> "Wall":
        """The same wall with more open in it, for an agent that has folders and a door of its own."""
        policy = replace(
            self.policy,
            writable=(*self.policy.writable, *writable),
            exposed=(*self.policy.exposed, *exposed),
            sockets=(*self.policy.sockets, *sockets),
            home=home or self.policy.home,
        )
        return replace(self, policy=policy)
