"""Every program of others that is known, whether it has a backend or speaks the Agent Client Protocol."""

from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import PurePath

from orchard.agents.cli import backend
from orchard.agents.facts.known import AcpKnown, AcpTraits, Known
from orchard.model.agent_rows import ACP_AGENTS, BACKENDS


@cache
def acp_known(name: str) -> AcpKnown:
    module, _, value = ACP_AGENTS[name].partition(":")
    found: AcpKnown = getattr(import_module(module), value)
    return found


def known_of(name: str) -> Known | None:
    if name in BACKENDS:
        return backend(name).known
    return acp_known(name) if name in ACP_AGENTS else None


@cache
def all_known() -> tuple[Known, ...]:
    return (*(backend(name).known for name in BACKENDS), *(acp_known(name) for name in ACP_AGENTS))


def of_program(name: str) -> Known | None:
    return next((known for known in all_known() if name == known.program or name in known.acp), None)


def traits_of(argv: Iterable[str]) -> AcpTraits:
    """What suits the agent that a command line starts, by itself or through a launcher (`npx`)."""
    for word in argv:
        name = PurePath(word).name
        found = traits_of_program(name) or traits_of_program(name.partition("@")[0])
        if found is not None:
            return found
    return AcpTraits()


def traits_of_program(name: str) -> AcpTraits | None:
    known = of_program(name)
    if isinstance(known, AcpKnown):
        return known.traits
    return known.acp.get(name) if known is not None else None


def own_folders() -> tuple[str, ...]:
    """Where agents keep settings, sessions and logins, below the user's home folder."""
    return tuple(known.folder[1] for known in all_known() if known.folder[1])
