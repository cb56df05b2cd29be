"""Messages that no program should print, for readers that must live through them."""

import json
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from orchard.agents.cli import Json

ODD: Sequence[Any] = (
    None, True, 0, -1, 10**30, 1e300, float("inf"), float("nan"), "", "\x1b[2J\x07", "x" * 5000, [], [1], {}, {"a": {}},
)  # fmt: skip


def spoiled(messages: Sequence[Json], rounds: int = 300) -> Iterator[Json]:
    """The messages, each time with one value somewhere in them that is something else."""
    chance = random.Random(20)
    for _ in range(rounds):
        message: Json = json.loads(json.dumps(chance.choice(messages)))
        places = list(_places(message))
        hold, name = chance.choice(places)
        hold(name, chance.choice(ODD))
        yield message


def _places(value: Any) -> Iterator[tuple[Callable[[Any, Any], None], Any]]:
    rows = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, below in rows:
        yield value.__setitem__, name
        yield from _places(below)
