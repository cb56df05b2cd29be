"""What is said about the wall around programs: in the configuration, and by a plan that wants a stricter one."""

from typing import Literal

from msgspec import Struct

Level = Literal["auto", "bwrap", "landlock", "off"]
LEVELS: tuple[Level, ...] = ("off", "landlock", "auto", "bwrap")
"""From none to the strictest; `auto` is the strictest that works here, and never `off`."""

Network = Literal["on", "off"]
NETWORKS: tuple[Network, ...] = ("on", "off")


class Sandbox(Struct, frozen=True):
    """The wall that the user asks for, and what they open in it."""

    level: Level = "auto"
    network: Network = "on"
    """Of programs that are no agents; agents reach their model and what the plan allows them."""
    expose: tuple[str, ...] = ()
    """Folders and files that programs may read, although the home folder is hidden from them."""
    write: tuple[str, ...] = ()
    """Folders that programs may write to beside their worktree, such as caches."""
    allow: tuple[str, ...] = ()
    """Addresses that every job may reach, also private ones."""
    memory: int | None = None
    """Bytes that a program may use."""
    processes: int | None = None
    files: int | None = None
    disk: int | None = None
    """Bytes of one file that a program writes."""


def stricter(one: Level, other: Level | None) -> Level:
    """The stricter of what the configuration and a plan say."""
    return one if other is None or LEVELS.index(one) >= LEVELS.index(other) else other
