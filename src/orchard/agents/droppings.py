"""Files that agents leave for themselves in the folder they work in: histories, caches, settings that they rewrite.

They are no work: an agent that leaves nothing else has done nothing, and none of them gets into a commit. What the
repository tracks already is its own, whatever its name.
"""

import re
from collections.abc import Iterable, Mapping

from orchard.agents.facts.programs import known_of, of_program
from orchard.config.layers import Config

OTHERS: Mapping[str, tuple[str, ...]] = {"aider": (".aider*",), "crush": (".crush/",)}
"""Of programs that no agent of ours is, by name; for whatever else there is, a row names them."""


def droppings_of(config: Config, agents: Iterable[str]) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for agent in agents:
        row = config.agents.get(agent)
        command = (row.command if row is not None else None) or agent
        for word in (agent, *_words(command)):
            found |= dict.fromkeys(_known(word.rpartition("/")[2]))
        found |= dict.fromkeys(row.droppings if row is not None else ())
    return tuple(found)


def _known(program: str) -> tuple[str, ...]:
    known = known_of(program) or of_program(program)
    return known.droppings if known is not None else OTHERS.get(program, ())


def is_dropping(path: str, patterns: Iterable[str]) -> bool:
    """Whether a path in the worktree is one of them: `name*` at the top, a path, or a folder with all that is in it."""
    top = path.partition("/")[0]
    return any(
        path.startswith(one) if one.endswith("/") else _fits(path, one) or ("/" not in one and _fits(top, one))
        for one in patterns
    )


def _fits(path: str, pattern: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), path, re.DOTALL) is not None


def _words(command: str) -> list[str]:
    """The first words of a command line: the program, and what a launcher starts."""
    return command.removeprefix("acp:").replace("'", "").replace('"', "").split()[:4]
