"""What an attack is: a few lines of Python that a hostile job runs, and the sign by which the host sees that it worked.

The lines run in a process of their own with the names of `driver.py`. An attack has succeeded when what it printed
holds the secret of the world (`leak`), or a file of the host's that it may not write holds its mark (`write`), or what
is its own to destroy is lost (`lost`), or it said so itself (`won`) where only a program inside can see it.
Every attack has to succeed without a wall, as root or as an ordinary user: one that never works shows nothing.
"""

from msgspec import Struct


class Attack(Struct, frozen=True, kw_only=True):
    topic: str
    name: str
    code: str
    lost: str = ""
    """What is there before, by its path in the world, and is gone or changed after a success."""
    sometimes: bool = False
    """Needs something that not every machine has: a device, an old kernel."""
    filtered: bool = False
    """Stopped by the filter of system calls and by nothing else."""


def attacks(topic: str, *rows: tuple[str, str], sometimes: bool = False) -> tuple[Attack, ...]:
    return tuple(Attack(topic=topic, name=name, code=code, sometimes=sometimes) for name, code in rows)
